"""Whether a graph is well formed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from mortice._base.errors import InvalidState
from mortice.fx.node import map_arg

if TYPE_CHECKING:
    from mortice.fx.graph import Graph
    from mortice.fx.node import Node


def lint(graph: Graph) -> None:
    """InvalidState names the first node that is wrong and what is wrong with it."""
    seen: set[Node] = set()
    names: set[str] = set()
    for node in graph.nodes:
        if node.graph is not graph:
            _fail(node, "belongs to another graph")
        if node.name in names:
            _fail(node, "has a name that an earlier node has")
        _check_inputs(graph, node, seen)
        if node.op == "placeholder" and any(n.op != "placeholder" for n in seen):
            _fail(node, "is a placeholder behind other nodes; the inputs come first")
        if node.op == "output" and node.next is not graph._root:
            _fail(node, "is an output, but nodes follow it")
        seen.add(node)
        names.add(node.name)
    for node in seen:
        _check_users(node, seen)
    if graph.owning_module is not None:
        _check_targets(graph, graph.owning_module)


def _fail(node: Node, problem: str) -> NoReturn:
    raise InvalidState(f"node {node.name!r} ({node.format_node()}) {problem}.")


def _check_inputs(graph: Graph, node: Node, seen: set[Node]) -> None:
    found: dict[Node, None] = {}

    def note(other: Node) -> Node:
        found[other] = None
        return other

    map_arg((node.args, node.kwargs), note)
    for other in found:
        if other.graph is not graph:
            _fail(node, f"uses {other.name!r} of another graph; copy it with graph.node_copy")
        if other not in seen:
            _fail(node, f"uses {other.name!r} before it is defined")
        if node not in other.users:
            _fail(node, f"uses {other.name!r}, which does not know it as a user")
    if list(found) != node.all_input_nodes:
        _fail(node, "has arguments that were changed in place; assign node.args instead")


def _check_users(node: Node, seen: set[Node]) -> None:
    for user in node.users:
        if user not in seen:
            _fail(node, f"has the user {user.name!r}, which is not in the graph")
        if node not in user.all_input_nodes:
            _fail(node, f"has the user {user.name!r}, which does not use it")


def _check_targets(graph: Graph, owner: Any) -> None:
    for node in graph.nodes:
        if node.op not in ("get_attr", "call_module"):
            continue
        value = owner
        for part in node.target.split("."):
            if not hasattr(value, part):
                _fail(
                    node,
                    f"refers to {node.target!r}, but {type(value).__name__} has no attribute {part!r}",
                )
            value = getattr(value, part)
        if node.op == "call_module" and not callable(value):
            _fail(node, f"calls {node.target!r}, which is a {type(value).__name__}")
