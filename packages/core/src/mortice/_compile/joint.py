"""The forward and backward graph of a captured graph in one, by tracing both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mortice._autograd.engine import grad
from mortice._autograd.grad_mode import set_grad_enabled
from mortice._tensor.make import alias_of
from mortice.fx import GraphModule, Interpreter, Node

from .partition import Joint
from .tracing import trace


@dataclass(frozen=True)
class Traced:
    """A joint graph with what running it needs to know.

    Attributes:
        joint: Its ``outputs`` are the captured graph's own, then the values of ``recorded``.
        returned: How many outputs are the captured graph's own.
        tangents: Positions of the outputs that have a history, each with a tangent, in order.
        recorded: Inputs written to by a value with a history, while histories were recorded.
        plain: (input, node of the value) of all other writes.
    """

    joint: Joint
    returned: int
    tangents: tuple[int, ...]
    recorded: tuple[int, ...]
    plain: tuple[tuple[int, Any], ...]


class _Run(Interpreter):
    """Runs a captured graph with each node's own grad mode, and puts write-backs aside."""

    def __init__(self, gm: GraphModule) -> None:
        super().__init__(gm)
        self.writes: list[tuple[int, Any, bool]] = []
        self._places = {
            node: i for i, node in enumerate(n for n in gm.graph.nodes if n.op == "placeholder")
        }

    def run_node(self, n: Node) -> Any:
        recorded = n.meta.get("grad", True)
        if is_write_back(n):
            _, value = self.fetch_args_kwargs_from_env(n)[0][:2]
            self.writes.append((self._places[n.args[0]], value, recorded))
            return None
        with set_grad_enabled(recorded):
            return super().run_node(n)


def is_write_back(node: Node) -> bool:
    """Whether a node of a captured graph is one of the copies to inputs at its end."""
    target = getattr(node.target, "_schema", None)
    return (
        target is not None
        and target.qualified == "aten::copy_"
        and isinstance(node.args[0], Node)
        and node.args[0].op == "placeholder"
    )


def trace_joint(
    gm: GraphModule,
    examples: Sequence[Any],
    table: Any = None,
    given: Sequence[bool] | None = None,
) -> Traced:
    """Trace a captured graph, then the gradients of its outputs, on fake inputs.

    Args:
        gm: The captured graph, functional but for write-backs at its end.
        examples: Fake tensors (with their ``requires_grad``), numbers and generators.
        table: Operators to take apart: overload -> function.
        given: For each differentiable output, whether it receives a gradient; all by default.
    """
    n = len(examples)
    outputs, recorded, plain = _forward(gm, [fresh(x) for x in examples])
    values = (*outputs, *(value for _, value in recorded))
    kept = tuple(i for i, x in enumerate(values) if _has_history(x))
    given = [True] * len(kept) if given is None else list(given)

    def both(*inputs: Any) -> Any:
        primals, seeds = inputs[:n], inputs[n:]
        outputs, recorded, plain = _forward(gm, primals)
        values = (*outputs, *(value for _, value in recorded))
        grads = _gradients([values[i] for i in kept], primals, seeds, given)
        return (*values, *(value for _, value in plain), *grads)

    seeds = [_seed(values[i]) for i in kept]
    module = trace(both, [*(fresh(x) for x in examples), *seeds], table)
    _skip_detached(module)
    nodes = [node for node in module.graph.nodes if node.op == "placeholder"]
    results: Any = module.graph.output_node().args[0]
    cut = len(values)
    writes = [(place, node) for (place, _), node in zip(plain, results[cut:])]
    writes += _take_out_writes(module, nodes)
    joint = Joint(
        module,
        tuple(nodes[:n]),
        tuple(nodes[n:]),
        tuple(results[:cut]),
        tuple(results[-n:]),
        tuple(value for _, value in writes),
    )
    return Traced(
        joint,
        len(outputs),
        kept,
        tuple(place for place, _ in recorded),
        tuple(writes),
    )


def _skip_detached(module: GraphModule) -> None:
    """Let operators take what was detached: in a traced graph that is the same value.

    Derivatives detach the results that they keep, and each would be an output of its own.
    """
    for node in list(module.graph.nodes):
        if getattr(node.target, "qualified", "") != "aten::detach":
            continue
        for user in list(node.users):
            if user.op != "output":
                user.replace_input_with(node, node.args[0])
        if not node.users:
            module.graph.erase_node(node)


Writes = list[tuple[int, Any]]


def _take_out_writes(module: GraphModule, inputs: list[Node]) -> Writes:
    """The copies to inputs at the end of a traced graph, erased there: (input, node of the value).

    They are of operators that write to an argument and have no other form, as batch norm.
    """
    found: Writes = []
    for node in list(module.graph.nodes):
        if is_write_back(node):
            found.append((inputs.index(node.args[0]), node.args[1]))
            module.graph.erase_node(node)
    return found


def _forward(gm: GraphModule, primals: Sequence[Any]) -> tuple[tuple[Any, ...], Writes, Writes]:
    """(outputs, writes to be recorded, other writes); writes are (input, value)."""
    run = _Run(gm)
    outputs = run.run(*primals)
    recorded = [(i, x) for i, x, on in run.writes if on and _has_history(x)]
    plain = [(i, x) for i, x, on in run.writes if not (on and _has_history(x))]
    return tuple(outputs), recorded, plain


def _gradients(
    roots: list[Any], primals: Sequence[Any], seeds: Sequence[Any], given: list[bool]
) -> list[Any]:
    """One gradient, or None, for each primal."""
    wanted = [x for x in primals if _has_history(x)]
    pairs = [(r, s) for r, s, keep in zip(roots, seeds, given) if keep]
    if not pairs or not wanted:
        return [None] * len(primals)
    found = grad([r for r, _ in pairs], wanted, [s for _, s in pairs], allow_unused=True)
    by_input = iter(found)
    return [next(by_input) if _has_history(x) else None for x in primals]


def _seed(output: Any) -> Any:
    """An example of an output's gradient; contiguous, as the compiled backward is given it."""
    return output._a.mode.empty(tuple(output._a.shape), output._t, output.device)


def _has_history(value: Any) -> bool:
    return hasattr(value, "_k") and value.requires_grad


def fresh(value: Any) -> Any:
    """An example input as a leaf that nobody else has."""
    if not hasattr(value, "_k"):
        return value
    leaf = alias_of(value)
    return leaf.requires_grad_(True) if value.requires_grad else leaf
