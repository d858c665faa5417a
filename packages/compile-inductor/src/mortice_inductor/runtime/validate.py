"""``MORTICE_VALIDATE=1``: every value that a kernel stores is compared with eager's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import mortice
from mortice.backend import array
from mortice.errors import CompileError
from mortice.fx import Interpreter

from ..compile import compile_graph
from ..inputs import aliases
from ..options import own_config
from ..specs import Spec
from .code import program_of
from .program import Program


class WrongResult(CompileError):
    """A kernel's result is not eager's."""


def validated(
    gm: Any, inputs: tuple[Any, ...], specs: tuple[Spec, ...], numbers: Callable[[Any], Any]
) -> Any:
    """A program that compares itself with eager at every call."""
    made = compile_graph(gm, specs, aliases(inputs), numbers, validate=True)
    return Validated(gm, program_of(made.plan, made.library, made.constants), made.checkpoints)


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
        self, gm: Any, program: Program, checkpoints: tuple[tuple[str, int, str], ...]
    ) -> None:
        self.gm = gm
        self.program = program
        self.plan = program.plan
        self.checkpoints = checkpoints

    @property
    def fast(self) -> Any:
        """Itself: there is no shorter way."""
        return self

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
        kept: dict[int, Any] = {}
        out = self.program.run(inputs, kept)
        for name, number, kernel in self.checkpoints:
            if number in kept:
                _compare(name, kernel, kept[number], recorder.results.get(name))
        return out


def _copied(x: Any) -> Any:
    if isinstance(x, mortice.Tensor):
        return x.detach().clone()
    return x.clone_state() if isinstance(x, mortice.Generator) else x


def _compare(name: str, kernel: str, found: Any, expected: Any) -> None:
    if not isinstance(expected, mortice.Tensor):
        return
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
    if wrong:
        raise WrongResult(
            f"node {name} of the graph, computed by {kernel}, {error} compared with eager. Leave "
            "its operator to the dispatcher with mortice_inductor.make_fallback() and report it."
        )
