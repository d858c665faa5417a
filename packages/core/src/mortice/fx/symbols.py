"""Symbolic sizes in graphs: where each symbol gets its value from, and expressions as code.

An argument of a node may hold a symbolic integer, an expression over the graph's symbols. A symbol
is bound by the first placeholder whose ``meta["val"]`` shows it alone: as a size, a stride, the
storage offset, or as the value itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from mortice.fx.node import map_aggregate

if TYPE_CHECKING:
    from mortice.fx.graph import Graph
    from mortice.fx.node import Node


def is_symbolic(value: Any) -> bool:
    return getattr(value, "_is_symbolic", False)


def symbols_used(graph: Graph) -> set[str]:
    """Names of the symbols that the nodes' arguments use."""
    found: set[str] = set()

    def note(value: Any) -> Any:
        if is_symbolic(value):
            found.update(value.symbols)
        return value

    for node in graph.nodes:
        map_aggregate((node.args, node.kwargs), note)
    return found


def _shown(node: Node) -> Iterator[tuple[Any, str]]:
    """(value, code that reads it) of what a placeholder's fake value shows."""
    value = node.meta.get("val")
    if is_symbolic(value):
        yield value, node.name
    elif hasattr(value, "_k"):
        for i, size in enumerate(value.shape):
            yield size, f"{node.name}.shape[{i}]"
        for i, stride in enumerate(value.stride()):
            yield stride, f"{node.name}.stride({i})"
        yield value.storage_offset(), f"{node.name}.storage_offset()"


def bindings(graph: Graph) -> dict[str, str]:
    """Symbol -> the code that reads it from a placeholder, such as ``x.shape[0]``, for those in use."""
    wanted = symbols_used(graph)
    found: dict[str, str] = {}
    if not wanted:
        return found
    for node in graph.nodes:
        if node.op != "placeholder":
            continue
        for value, code in _shown(node):
            name = value.symbol if is_symbolic(value) else None
            if name is not None and name in wanted:
                found.setdefault(name, code)
    return found


def bind(graph: Graph, values: Mapping[Node, Any]) -> dict[str, Any]:
    """Symbol -> its value in a call in which placeholders have ``values``."""
    code = bindings(graph)
    if not code:
        return {}
    scope = {node.name: value for node, value in values.items()}
    # The code is made above, of names of placeholders and positions.
    return {name: eval(text, {}, scope) for name, text in code.items()}  # noqa: S307


def evaluate(value: Any, bound: Mapping[str, Any]) -> Any:
    """A symbolic number with its symbols replaced by their values in this call."""
    return value.evaluate(bound)


def source(value: Any) -> str:
    """A symbolic number as a Python expression over its symbols."""
    return value.source()
