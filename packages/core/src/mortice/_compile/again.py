"""Gradients of gradients: the captured graph run once more, its operators recording histories.

A compiled backward graph has no derivative. Where one is asked for (``create_graph=True``), the graph
as it was captured is run on the inputs, and differentiated as if it had never been compiled.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from mortice._autograd.engine import grad
from mortice._base.errors import AutogradError
from mortice._capture.grad_regions import restoring, with_grad_regions
from mortice._tensor.generator import Generator
from mortice.fx import Graph, GraphModule, Node

from .joint import Traced, is_write_back

Held = tuple[Any, int]


def held(x: Any) -> Held:
    """An input with the version it has; a tensor weakly, so that it lives no longer for it. Of a
    generator a copy is given, from before the call.
    """
    if not hasattr(x, "_k"):
        return x, -1
    return weakref.ref(x), 0 if x._s is None else x._s.version


class Again:
    """The gradients of one captured graph, with histories of their own."""

    def __init__(self, gm: GraphModule, traced: Traced) -> None:
        self._traced = traced
        graph, self._obstacle = _without_writes(gm, traced)
        self._run: Callable[..., Any] = restoring(with_grad_regions(GraphModule(gm, graph)))

    def gradients(self, values: Sequence[Any], grads: Sequence[Any]) -> tuple[Any, ...]:
        """One for each of the inputs that has one, given those of the outputs."""
        if self._obstacle:
            raise _refused(self._obstacle)
        # Views, since an input may be computed from another: the gradient of that ends at this graph.
        values = [x.view_as(x) if getattr(x, "requires_grad", False) else x for x in values]
        outputs = self._run(*values)
        pairs = [(outputs[i], grads[i]) for i in self._traced.tangents if grads[i] is not None]
        wanted = [x for x, g in zip(values, self._traced.joint.grads) if g is not None]
        return grad(
            [y for y, _ in pairs],
            wanted,
            [g for _, g in pairs],
            create_graph=True,
            allow_unused=True,
        )


def present(x: Any, version: int) -> Any:
    """An input from ``held``; AutogradError if it is gone or was written to."""
    if version < 0:
        return x.clone_state() if isinstance(x, Generator) else x
    tensor = x()
    if tensor is None:
        raise _refused("an input of it is gone; keep the tensors that it was called with")
    if (0 if tensor._s is None else tensor._s.version) != version:
        raise _refused("an input of it was modified in place since")
    return tensor


def _refused(why: str) -> AutogradError:
    return AutogradError(
        "the gradient of a compiled function is to be differentiated again (create_graph=True), for "
        f"which its graph must run once more, and {why}. Compile the function with "
        "backend='eager', whose operators record their own histories, or call it uncompiled."
    )


def _without_writes(gm: GraphModule, traced: Traced) -> tuple[Graph, str]:
    """A copy that writes to no input and returns what has a tangent; and why it may not be run."""
    graph = Graph()
    copies: dict[Node, Node] = {}
    written: list[Any] = []
    recorded: list[Any] = []
    for node in gm.graph.nodes:
        if is_write_back(node):
            written.append(node.args[0])
            if len(recorded) < len(traced.recorded) and node.meta.get("grad", True):
                recorded.append(copies[node.args[1]])
            continue
        if node.op == "output":
            break
        own = dict(copies)
        for target in _mutated_inputs(node):
            written.append(target)
            own[target] = _clone(graph, copies[target])
        copies[node] = graph.node_copy(node, own.__getitem__)
    results: Any = gm.graph.output_node().args[0]
    graph.output((*(copies[n] if isinstance(n, Node) else n for n in results), *recorded))
    graph.eliminate_dead_code(lambda n: n.op in ("placeholder", "output"))
    return graph, _obstacle(graph, [copies[n] for n in written])


def _mutated_inputs(node: Node) -> list[Node]:
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return []
    found = [node.args[i] for i in schema.mutated if i < len(node.args)]
    return [x for x in found if isinstance(x, Node) and x.op == "placeholder"]


def _clone(graph: Graph, node: Node) -> Node:
    made = graph.call_function(import_module("mortice.ops").aten.clone.default, (node,))
    made.meta = dict(node.meta)
    return made


def _obstacle(graph: Graph, written: Sequence[Node]) -> str:
    """Why running the graph again would not give what it gave; empty if it would."""
    for node in graph.nodes:
        tags = getattr(node.target, "tags", ())
        given = any(n.op == "placeholder" and "generator" in n.name for n in node.all_input_nodes)
        if "nondeterministic_seeded" in tags and not given:
            return "it draws random numbers"
    for node in written:
        if any(not _only_writes(user) for user in node.users):
            return "it has overwritten an input that its results depend on"
    return ""


def _only_writes(node: Node) -> bool:
    """Whether a clone of a written input is there for an operator to write to."""
    return node.target is import_module("mortice.ops").aten.clone.default and all(
        node in _written_operands(user) for user in node.users
    )


def _written_operands(node: Node) -> list[Any]:
    schema = getattr(node.target, "_schema", None)
    return [node.args[i] for i in schema.mutated if i < len(node.args)] if schema else []
