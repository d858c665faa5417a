"""Values of a kernel while it is emitted.

A kernel may work on a tile of several rows at once. A value that depends on the row then has one
LLVM name per row of the tile, any other value has one name for all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from ..ir.nodes import Instr, Kernel


class Value(NamedTuple):
    """LLVM names (one, or one per row of the tile) and the dtype."""

    names: tuple[str, ...]
    dtype: str

    def at(self, row: int) -> str:
        """The name for one row of the tile."""
        return self.names[row if len(self.names) > 1 else 0]


def spread(args: Iterable[Value], dtype: str, make: Callable[[list[str]], str]) -> Value:
    """``make`` applied to the operands' names: once, or once per row if any depends on it."""
    given = list(args)
    count = max((len(a.names) for a in given), default=1)
    return Value(tuple(make([a.at(j) for a in given]) for j in range(count)), dtype)


def varying(kernel: Kernel) -> frozenset[int]:
    """Numbers of the values that depend on the row within a tile."""
    if kernel.tile == 1:
        return frozenset()
    tiled = len(kernel.dims) - 2
    moving = {b.name for b in kernel.buffers if b.strides[tiled] != 0}
    found: set[int] = set()

    def depends(i: Instr) -> bool:
        if i.op == "load" and i.attr in moving:
            return True
        if i.op == "index" and i.attr == kernel.dims[tiled]:
            return True
        return any(a in found for a in i.args)

    for region in kernel.regions:
        for i in region.instrs:
            if depends(i):
                found.add(i.id)
    return frozenset(found)
