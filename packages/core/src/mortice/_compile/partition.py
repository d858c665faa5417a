"""Cutting a joint graph into a forward and a backward graph.

What the backward pass needs of the forward values is kept, or computed again from what is kept:
whichever is cheapest together, as a minimum cut (the formulation is that of Horace He's
"min-cut rematerialization"; here computing again has a cost of its own, not only keeping).

Each forward value is a pair of nodes in the flow network. The capacity between the two is what
keeping it costs; the capacity from the source to the first is what computing it again costs; an
operand's second node leads to the first node of what is computed from it, without limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from mortice._base.errors import CompileError
from mortice.fx import Graph, GraphModule, Node, map_arg
from mortice.fx.symbols import bindings, is_symbolic, symbols_used

from . import costs
from .mincut import INFINITE, FlowNetwork


@dataclass(frozen=True)
class Joint:
    """A graph that computes outputs from primals, then gradients from those and tangents.

    Attributes:
        module: The GraphModule; its placeholders are ``primals`` then ``tangents``.
        outputs: What the forward pass returns, in nodes (or constants).
        grads: One for each primal; None where there is none.
        written: Values that the forward pass writes to inputs beside its outputs.
    """

    module: GraphModule
    primals: tuple[Node, ...]
    tangents: tuple[Node, ...]
    outputs: tuple[Any, ...]
    grads: tuple[Any, ...]
    written: tuple[Any, ...] = ()


def forward_nodes(joint: Joint) -> list[Node]:
    """Nodes that no tangent reaches, in order: what can be computed before the backward pass.

    What gradients alone compute with computed numbers (``x ** (e - 1)``) is left to the backward pass,
    of which those are inputs.
    """
    late: set[Node] = set(joint.tangents)
    late |= _computing_with_numbers(joint)
    early: list[Node] = []
    for node in joint.module.graph.nodes:
        if node in late or node.op == "output":
            continue
        if any(one in late for one in node.all_input_nodes):
            late.add(node)
        else:
            early.append(node)
    return early


def choose_saved(joint: Joint) -> tuple[list[Node], int]:
    """The forward values to keep for the backward pass, and the work that finding them took."""
    early = forward_nodes(joint)
    used_late = _used_by_backward(joint, set(early))
    relevant = _ancestors(used_late)
    flow = FlowNetwork()
    source, sink = flow.node(), flow.node()
    before: dict[Node, int] = {}
    after: dict[Node, int] = {}
    for node in early:
        if node not in relevant:
            continue
        before[node], after[node] = flow.node(), flow.node()
        flow.edge(source, before[node], costs.recomputing(node))
        flow.edge(before[node], after[node], costs.keeping(node))
        if node in used_late:
            flow.edge(after[node], sink, INFINITE)
        for operand in node.all_input_nodes:
            flow.edge(after[operand], before[node], INFINITE)
    value, side = flow.minimum_cut(source, sink)
    if value >= INFINITE:
        raise CompileError(
            "the forward and backward graphs cannot be parted: a value that is neither a tensor "
            "nor computed from one is needed in both"
        )
    saved = [node for node in before if before[node] in side and after[node] not in side]
    return saved, flow.work


def _used_by_backward(joint: Joint, early: set[Node]) -> set[Node]:
    """Forward values that the backward pass, or a gradient itself, reads."""
    used: set[Node] = set()
    wanted = _ancestors(n for n in joint.grads if isinstance(n, Node))
    for node in wanted - early:
        used.update(one for one in node.all_input_nodes if one in early)
    used.update(n for n in joint.grads if isinstance(n, Node) and n in early)
    return used


def _ancestors(nodes: Iterable[Node]) -> set[Node]:
    """The nodes and all that they are computed from."""
    found: set[Node] = set()
    stack = list(nodes)
    while stack:
        node = stack.pop()
        if node not in found:
            found.add(node)
            stack.extend(node.all_input_nodes)
    return found


# -- the two halves -----------------------------------------------------------------------------


def forward_half(
    joint: Joint,
    saved: Sequence[Node],
    writes: Sequence[tuple[int, Any]] = (),
    written_later: Sequence[int] = (),
) -> GraphModule:
    """primals -> (outputs, then the values kept that are neither).

    Nodes stay in their order, and operators that write, return nothing or draw random numbers stay. ``writes`` are
    (number of a primal, node of the value to copy there); a primal that is kept and written to,
    here or by the caller (``written_later``), is cloned before, and the clone is kept.
    """
    early = forward_nodes(joint)
    written = {joint.primals[i] for i in (*(i for i, _ in writes), *written_later)}
    given = {*joint.outputs, *joint.primals} - written
    kept = [node for node in saved if node not in given]
    roots = [n for n in (*joint.outputs, *kept, *(n for _, n in writes)) if isinstance(n, Node)]
    roots += [n for n in early if n.op == "call_function" and n.is_impure()]
    wanted = _ancestors(roots)
    graph = Graph()
    copies: dict[Node, Node] = {}
    for node in early:
        if node.op == "placeholder" or node in wanted:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    outputs = list(map_arg(joint.outputs, copies.__getitem__))
    aten = import_module("mortice.ops").aten
    for node in kept:
        if node in written:
            clone = graph.call_function(aten.clone.default, (copies[node],))
            clone.meta = dict(node.meta)
            outputs.append(clone)
        else:
            outputs.append(copies[node])
    for place, value in writes:
        node = graph.call_function(
            aten.copy_.default, (copies[joint.primals[place]], map_arg(value, copies.__getitem__))
        )
        node.meta = dict(joint.primals[place].meta)
    graph.output(tuple(outputs))
    _name_numbers(graph)
    return GraphModule(joint.module, graph)


@dataclass(frozen=True)
class Backward:
    """values kept, sizes, tangents -> gradients.

    Attributes:
        saved: Which of the values kept are inputs.
        sizes: Symbols that no other input shows, and what operands compute from numbers, as Python
            expressions of symbols; their values are inputs.
        tangents: Which tangents are inputs; a gradient may not depend on all.
    """

    module: GraphModule
    saved: tuple[int, ...]
    sizes: tuple[str, ...]
    tangents: tuple[int, ...]


def backward_half(joint: Joint, saved: Sequence[Node | None]) -> Backward | None:
    """The backward graph; what is computed again stands right before its first use.

    Inputs that nobody sees but the two halves have ``donated`` in their meta: a backend may write to
    their memory once it needs them no more, if what it is given is held by nobody else.

    None if something is needed that is not kept.
    """
    order = _order(joint, {node for node in saved if node is not None})
    kept = [i for i, node in enumerate(saved) if node in order]
    tangents = [i for i, node in enumerate(joint.tangents) if node in order]
    values: list[Any] = [saved[i] for i in kept]
    seeds = [joint.tangents[i] for i in tangents]
    if any(n.op == "placeholder" and n not in values and n not in seeds for n in order):
        return None
    missing = _unbound(joint, order, [*values, *seeds])
    computed = _computed_numbers(joint, order)
    graph = Graph()
    copies = {node: _input(graph, node) for node in values}
    seen = {*joint.outputs, *joint.primals}
    for node in values:
        if node not in seen:
            copies[node].meta["donated"] = True
    for name, value in missing.items():
        graph.placeholder(f"size_{name}").meta["val"] = value
    for value in computed.values():
        graph.placeholder("number").meta["val"] = value
    copies.update((node, _input(graph, node)) for node in seeds)
    for node in order:
        if node not in copies:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output(map_arg(tuple(joint.grads), copies.__getitem__))
    _name_numbers(graph)
    module = GraphModule(joint.module, graph)
    return Backward(module, tuple(kept), (*missing, *computed), tuple(tangents))


#: Types of arguments that may be a number which backends leave open.
_OPERANDS = ("Scalar", "Tensor", "float")


def _name_numbers(graph: Graph) -> None:
    """Put the input for a symbolic number that is an operand, where an input is that number.

    What arguments hold is for a backend what sizes follow from, which it may plan for anew at each
    value; an input is a value like any other.
    """
    inputs: dict[str, Node] = {}
    for node in graph.find_nodes(op="placeholder"):
        value: Any = node.meta.get("val")
        if _is_number(value):
            inputs.setdefault(value.expr.source(), node)

    def named(x: Any) -> Any:
        return inputs.get(x.expr.source(), x) if _is_number(x) else x

    for node in graph.nodes if inputs else ():
        node.args, node.kwargs = _operands(node, named)


def _is_number(x: Any) -> bool:
    return is_symbolic(x) and hasattr(x, "expr")


def _operands(node: Node, function: Callable[[Any], Any]) -> tuple[Any, Any]:
    """A node's arguments, with what the function gives for those that are operands."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return node.args, node.kwargs
    on = {a.name: a.type.base in _OPERANDS for a in schema.arguments}
    args = tuple(function(x) if is_on else x for is_on, x in zip(on.values(), node.args))
    return args, {name: function(x) if on[name] else x for name, x in node.kwargs.items()}


def _computed_numbers(joint: Joint, order: Iterable[Node]) -> dict[str, Any]:
    """What operands are computed from input numbers alone, as an exponent less one: source -> value."""
    numbers = _given_numbers(joint)
    return {x.expr.source(): x for node in order for x in _computed_operands(node, numbers)}


def _given_numbers(joint: Joint) -> set[str]:
    """Symbols of the primals that are numbers."""
    values: list[Any] = [node.meta.get("val") for node in joint.primals]
    return {x.symbol for x in values if is_symbolic(x)}


def _computed_operands(node: Node, numbers: set[str]) -> list[Any]:
    found: list[Any] = []

    def note(x: Any) -> Any:
        if _is_number(x) and x.symbol is None and x.symbols <= numbers:
            found.append(x)
        return x

    if numbers and any(map(is_symbolic, (*node.args, *node.kwargs.values()))):
        _operands(node, note)
    return found


def _computing_with_numbers(joint: Joint) -> set[Node]:
    """Nodes with such operands of which the forward pass needs nothing."""
    numbers = _given_numbers(joint)
    found = {n for n in joint.module.graph.nodes if _computed_operands(n, numbers)}
    if not found:
        return found
    roots = [n for n in (*joint.outputs, *joint.written) if isinstance(n, Node)]
    return {n for n in found - _ancestors(roots) if not n.is_impure()}


def counterparts(joint: Joint, saved: Sequence[Node], other: Joint) -> list[Node | None]:
    """For values kept of one joint graph, the same computations in another of the same primals."""
    ids: dict[str, int] = {}
    names = _computations(joint, ids)
    found = {text: node for node, text in _computations(other, ids).items()}
    return [found.get(names[node]) for node in saved]


def _computations(joint: Joint, ids: dict[str, int]) -> dict[Node, str]:
    """Each forward node and what it computes, in terms of the primals.

    ``ids`` numbers computations, the same in all graphs that are to be compared.
    """
    known: dict[Node, str] = {}
    seen: set[str] = set()
    place = {node: i for i, node in enumerate(joint.primals)}
    for node in forward_nodes(joint):
        if node in place:
            text = f"primal {place[node]}"
        else:
            operands = map_arg((node.args, dict(node.kwargs)), lambda n: _Named(ids[known[n]]))
            text = f"{node.op} {node.target} {operands!r}"
        while text in seen and costs.recomputing(node) >= INFINITE:
            text += " again"  # two draws of random numbers are two values
        known[node] = text
        seen.add(text)
        ids.setdefault(text, len(ids))
    return known


class _Named:
    """A node by its number among the distinct computations."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __repr__(self) -> str:
        return f"%{self.number}"


def _input(graph: Graph, node: Node) -> Node:
    made = graph.placeholder(node.name)
    made.meta = dict(node.meta)
    return made


def _order(joint: Joint, given: set[Node]) -> dict[Node, None]:
    """What the gradients need, in the joint graph's order; what is computed again, on demand."""
    late = set(joint.module.graph.nodes) - set(forward_nodes(joint))
    roots = [n for n in joint.grads if isinstance(n, Node)]
    wanted = _ancestors(roots)
    done: dict[Node, None] = {}
    for node in joint.module.graph.nodes:
        if node in late and node in wanted:
            _emit(node, given, done)
    for node in roots:
        _emit(node, given, done)
    return done


def _emit(root: Node, given: set[Node], done: dict[Node, None]) -> None:
    """Add a node after its operands."""
    stack = [root]
    while stack:
        node = stack[-1]
        waits = [] if node in given else [n for n in node.all_input_nodes if n not in done]
        if node in done or not waits:
            done[node] = None
            stack.pop()
        else:
            stack.extend(reversed(waits))


def _unbound(joint: Joint, order: Iterable[Node], inputs: Sequence[Node]) -> dict[str, Any]:
    """Symbols that the backward graph uses and its inputs do not show, with a value for ``val``."""
    probe = Graph()
    copies = {node: _input(probe, node) for node in inputs}
    for node in order:
        if node not in copies:
            copies[node] = probe.node_copy(node, copies.__getitem__)
    names = symbols_used(probe) - set(bindings(probe))
    return {name: _symbol(joint, name) for name in sorted(names)}


def _symbol(joint: Joint, name: str) -> Any:
    """The symbolic number that is the symbol alone, as a primal shows it."""
    for node in joint.primals:
        value: Any = node.meta.get("val")
        shown: list[Any] = [*value.shape, *value.stride()] if hasattr(value, "_k") else [value]
        for one in shown:
            if getattr(one, "_is_symbolic", False) and one.symbol == name:
                return one
    raise CompileError(f"no input shows the size {name}, which the backward pass needs")
