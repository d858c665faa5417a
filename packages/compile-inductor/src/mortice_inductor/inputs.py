"""What a call's inputs say about a graph: values of symbols, and who shares memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mortice
from mortice.errors import CompileError
from mortice.fx import symbols

from .specs import DataDependent


def numbers_of(gm: Any, inputs: tuple[Any, ...]) -> Callable[[Any], Any]:
    """Replaces symbolic numbers in arguments by their values for these inputs."""
    placeholders = [n for n in gm.graph.nodes if n.op == "placeholder"]
    if len(placeholders) != len(inputs):
        raise CompileError(
            f"the graph takes {len(placeholders)} inputs, and {len(inputs)} were given."
        )
    given = dict(zip(placeholders, inputs))
    values: dict[str, Any] = {}
    for node, pairs in symbols.bindings(gm.graph).items():
        if node in given:
            values |= symbols.read(pairs, node, given[node])

    def number(x: Any) -> Any:
        if not symbols.is_symbolic(x):
            return x
        if not set(x.symbols) <= set(values):
            raise DataDependent(f"{x} is known only when the graph runs")
        return x.evaluate(values)

    return number


def aliases(inputs: Sequence[Any]) -> tuple[Any, ...]:
    """For each input the number of the first that shares its storage, itself if there is none."""
    seen: dict[int, int] = {}
    out: list[int] = []
    for k, x in enumerate(inputs):
        if isinstance(x, mortice.Tensor):
            out.append(seen.setdefault(id(x.untyped_storage()), k))
        else:
            out.append(k)
    return tuple(out)
