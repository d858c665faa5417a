"""Symbolic sizes in graphs: where each symbol gets its value from.

An argument of a node may hold a symbolic number, an expression over the graph's symbols. A symbol is
bound by the first node whose ``meta["val"]`` shows it alone: as a size, a stride, the storage
offset, or as the value itself. Most are inputs; what depends on data comes from the operator that
found it out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from mortice.fx.node import map_aggregate

if TYPE_CHECKING:
    from mortice.fx.graph import Graph
    from mortice.fx.node import Node

#: The names that the source of an expression uses beside its symbols and builtins.
SCOPE = {"math": math}


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


def _shown(node: Node, alone: bool) -> Iterator[tuple[Any, str]]:
    """(value, code that reads it) of what a node's fake value shows; ``alone``: strides of dimensions
    of one element, which kernels may give otherwise, in place of all else.
    """
    value: Any = node.meta.get("val")
    if is_symbolic(value):
        yield value, node.name
    elif hasattr(value, "_k"):
        for i, (size, stride) in enumerate(zip(value.shape, value.stride())):
            single = type(size) is int and size == 1
            if not alone:
                yield size, f"{node.name}.shape[{i}]"
            if single == alone:
                yield stride, f"{node.name}.stride({i})"
        yield value.storage_offset(), f"{node.name}.storage_offset()"


def bindings(graph: Graph) -> dict[Node, list[tuple[str, str]]]:
    """Node -> (symbol, the code that reads it, such as ``x.shape[0]``) for the symbols in use."""
    wanted = symbols_used(graph)
    found: dict[Node, list[tuple[str, str]]] = {}
    if not wanted:
        return found
    for alone in (False, True):
        for node in graph.nodes if wanted else ():
            for value, code in _shown(node, alone):
                name = value.symbol if is_symbolic(value) else None
                if name is not None and name in wanted:
                    wanted.discard(name)
                    found.setdefault(node, []).append((name, code))
    return found


def read(pairs: list[tuple[str, str]], node: Node, value: Any) -> dict[str, Any]:
    """The symbols that a node binds, read from its value."""
    scope = {node.name: value}
    # The code is made above, of the node's name and positions.
    return {name: eval(code, {}, scope) for name, code in pairs}  # noqa: S307
