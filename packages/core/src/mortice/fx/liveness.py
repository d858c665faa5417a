"""Where each value is used last."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mortice.fx.graph import Graph
    from mortice.fx.node import Node


def last_uses(graph: Graph) -> dict[Node, list[Node]]:
    """Node -> the nodes whose values nobody needs after it; an unused value is its own last use."""
    found: dict[Node, list[Node]] = {}
    seen: set[Node] = set()
    for node in reversed(graph.nodes):
        if node not in seen and node.op != "output":
            found.setdefault(node, []).append(node)
        for used in node.all_input_nodes:
            if used not in seen:
                seen.add(used)
                found.setdefault(node, []).append(used)
    return found
