"""``MORTICE_VALIDATE=1``: every value that a kernel stores is compared with eager's.

Where one differs, the operators that its kernel computes it from are compiled one by one, each run on
eager's operands, and the first that differs alone is the one that is named.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

import mortice
from mortice.backend import array
from mortice.errors import CompileError
from mortice.fx import Graph, GraphModule, Interpreter, Node, map_aggregate

from ..compile import compile_graph
from ..inputs import aliases, numbers_of
from ..options import own_config
from ..specs import Spec, specs_of
from .code import program_of
from .program import Program
from .rounding import InFloat32, has_halves, is_rounding


class WrongResult(CompileError):
    """A kernel's result is not eager's."""


def validated(
    gm: Any, inputs: tuple[Any, ...], specs: tuple[Spec, ...], numbers: Callable[[Any], Any]
) -> Any:
    """A program that compares itself with eager at every call."""
    made = compile_graph(gm, specs, aliases(inputs), numbers, validate=True)
    program = program_of(made.plan, made.library, made.constants)
    return Validated(gm, program, made.checkpoints, numbers)


class Recorder(Interpreter):
    """Runs the graph by the dispatcher and keeps every node's result."""

    def __init__(self, gm: Any) -> None:
        super().__init__(gm)
        self.results: dict[str, Any] = {}

    def run_node(self, n: Any) -> Any:
        out = super().run_node(n)
        # A copy: later nodes may write to the same memory.
        self.results[n.name] = out.clone() if isinstance(out, mortice.Tensor) else out
        return out


class Validated:
    """Eager first, on copies; then the program; then each kept value against its node's."""

    def __init__(
        self, gm: Any, program: Program, checkpoints: tuple[tuple[str, int, str], ...],
        numbers: Callable[[Any], Any],
    ) -> None:  # fmt: skip
        self.gm = gm
        self.program = program
        self.plan = program.plan
        self.checkpoints = checkpoints
        self.numbers = numbers

    @property
    def fast(self) -> Any:
        """Itself: there is no shorter way."""
        return self

    @property
    def pinned(self) -> tuple[tuple[int, Any], ...]:
        """The program's: numbers among the inputs that its sizes were made from."""
        return self.program.pinned

    @pinned.setter
    def pinned(self, values: tuple[tuple[int, Any], ...]) -> None:
        self.program.pinned = values

    def fits(self, inputs: tuple[Any, ...]) -> bool:
        """As the program's."""
        return self.program.fits(inputs)

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        copies = [_copied(x) for x in inputs]
        generator = mortice.default_generator
        before = generator.get_state()
        recorder = Recorder(self.gm)
        with mortice.no_grad():
            recorder.run(*copies)
        generator.set_state(before)
        results = recorder.results
        # Copies of their own: the program may write to its inputs.
        again = [_copied(x) for x in inputs] if has_halves(results) else None
        wide: dict[str, Any] = {}
        kept: dict[int, Any] = {}
        out = self.program.run(inputs, kept)
        for name, number, kernel in self.checkpoints:
            if number in kept:
                eager = results.get(name)
                error = difference(kept[number], eager)
                if error and again is not None:
                    wide = wide or self._in_float32(again, results)
                    if is_rounding(
                        kept[number], eager, wide[name], own_config().validate_tolerance
                    ):
                        error = ""
                if error:
                    raise self._wrong(name, kernel, error, results)
        return out

    def _in_float32(self, inputs: list[Any], results: dict[str, Any]) -> dict[str, Any]:
        """Each node's result without the rounding of 16-bit floats."""
        interpreter = InFloat32(self.gm, results)
        with mortice.no_grad():
            interpreter.run(*inputs)
        return interpreter.results

    def _wrong(self, name: str, kernel: str, error: str, results: dict[str, Any]) -> WrongResult:
        """What is wrong with a node's result: an operator, or how several were put together."""
        stored = {one for one, _, _ in self.checkpoints}
        fused = part_of_kernel(self.gm.graph, name, stored)
        for node in fused:
            alone = self._alone(node, results)
            if alone:
                among = f", one of [{_names(fused)}]" if len(fused) > 1 else ""
                return WrongResult(
                    f"operator {node.target} (node {node.name}{among} in {kernel}) {alone} compared "
                    "with eager on the same operands. Leave it to the dispatcher with "
                    f"mortice_inductor.make_fallback(mortice.ops.{node.target}) and report it."
                )
        return WrongResult(
            f"the fusion of [{_names(fused)}] in {kernel} is wrong: its result, node {name}, {error} "
            "compared with eager, and each of these operators alone gives what eager does. Compile "
            'with options={"fusion": False} and report it.'
        )

    def _alone(self, node: Any, results: dict[str, Any]) -> str:
        """How an operator compiled alone differs from eager; empty if it does not."""
        made = alone(node, results, self.numbers)
        if made is None:
            return ""
        gm, inputs = made
        with own_config().patch(dict.fromkeys(_PASSES)):
            specs = specs_of(inputs)
            found = compile_graph(gm, specs, aliases(inputs), numbers_of(gm, inputs))
        program = program_of(found.plan, found.library, found.constants)
        expected = results[node.name]
        expected = expected if isinstance(expected, (tuple, list)) else [expected]
        wanted = [x for x in expected if isinstance(x, mortice.Tensor)]
        return next(filter(None, map(difference, program.run(inputs, None), wanted)), "")


_PASSES = (
    "post_grad_custom_pre_pass", "post_grad_custom_post_pass", "pre_fusion_custom_pass",
    "post_fusion_custom_pass",
)  # fmt: skip


def part_of_kernel(graph: Any, name: str, stored: set[str]) -> list[Any]:
    """The nodes that a stored value is computed from in its kernel, in the graph's order: back to
    those that are stored themselves.
    """
    wanted = {name}
    found: list[Any] = []
    for node in reversed(list(graph.nodes)):
        if node.op == "call_function" and node.name in wanted:
            found.append(node)
            wanted |= {n.name for n in node.all_input_nodes if n.name not in stored}
    return [n for n in reversed(found) if n.target is not operator.getitem]


def alone(
    node: Any, results: dict[str, Any], numbers: Callable[[Any], Any]
) -> tuple[Any, tuple[Any, ...]] | None:
    """(a graph of one operator, eager's operands); None for one that writes or draws, which gives
    something else when it runs once more.
    """
    schema = getattr(node.target, "_schema", None)
    if schema is None or schema.mutated or "nondeterministic_seeded" in node.target.tags:
        return None
    graph = Graph()
    places: dict[str, Any] = {}

    def given(x: Any) -> Any:
        if not isinstance(x, Node):
            return numbers(x)
        value = results[x.name]
        if not isinstance(value, mortice.Tensor):
            return value
        if x.name not in places:
            places[x.name] = graph.placeholder(x.name)
            places[x.name].meta["val"] = value
        return places[x.name]

    made = graph.call_function(
        node.target, *map_aggregate((tuple(node.args), dict(node.kwargs)), given)
    )
    made.meta["val"] = expected = results[node.name]
    outs = [made]
    if isinstance(expected, (tuple, list)):
        tensors = [i for i, x in enumerate(expected) if isinstance(x, mortice.Tensor)]
        outs = [graph.call_function(operator.getitem, (made, i), {}) for i in tensors]
    graph.output(tuple(outs))
    return GraphModule({}, graph), tuple(results[name] for name in places)


def _names(nodes: list[Any]) -> str:
    return ", ".join(node.name for node in nodes)


def _copied(x: Any) -> Any:
    if isinstance(x, mortice.Tensor):
        return x.detach().clone()
    return x.clone_state() if isinstance(x, mortice.Generator) else x


def difference(found: Any, expected: Any) -> str:
    """How a result differs from eager's, in words; empty if it does not."""
    if not isinstance(expected, mortice.Tensor):
        return ""
    a, b = array(found), array(expected)
    if a.dtype.kind in "biu":
        wrong = (a != b).any()
        error = "differs"
    else:
        wide, want = a.astype("f8"), b.astype("f8")
        scale = max(abs(want[abs(want) < float("inf")]).max(initial=0.0), 1e-6)
        both_nan = (wide != wide) & (want != want)
        with np.errstate(invalid="ignore"):  # inf - inf
            off = np.asarray(abs(wide - want) / scale)  # of one element NumPy gives a scalar
        off[both_nan | (wide == want)] = 0.0
        worst = off.max(initial=0.0)
        wrong = not worst <= own_config().validate_tolerance
        error = f"is off by {worst:.2g} of the greatest element"
    return error if wrong else ""
