"""Grad modes as nodes of the graph, for backends whose operators record their own histories."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mortice._autograd.grad_mode import no_grad, set_grad_enabled
from mortice._dispatch.state import THREAD
from mortice.fx import Graph, GraphModule, Node, has_side_effect


@has_side_effect
def grad_mode(enabled: bool) -> None:
    """Whether the operators after this one record their history."""
    set_grad_enabled(enabled)


def with_grad_regions(gm: GraphModule) -> GraphModule:
    """The graph with a ``grad_mode`` node at its beginning and wherever ``meta["grad"]`` changes."""
    graph = Graph()
    copies: dict[Node, Node] = {}
    mode: bool | None = None
    for node in gm.graph.nodes:
        wanted = node.meta.get("grad", True)
        if node.op == "call_function" and wanted is not mode:
            graph.call_function(grad_mode, (wanted,))
            mode = wanted
        copies[node] = graph.node_copy(node, copies.__getitem__)
    return GraphModule(gm, graph)


def restoring(run: Callable[..., Any]) -> Callable[..., Any]:
    """``run`` with the caller's grad mode in force again after it."""

    def restored(*inputs: Any) -> Any:
        before = THREAD.grad_enabled
        try:
            return run(*inputs)
        finally:
            set_grad_enabled(before)

    return restored


def without_history(run: Callable[..., Any]) -> Callable[..., Any]:
    """``run`` for inputs that require grad where no output has a history."""

    def quietly(*inputs: Any) -> Any:
        with no_grad():
            return run(*inputs)

    return quietly
