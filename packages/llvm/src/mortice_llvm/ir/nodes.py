"""The loop IR's data: immutable, in static single assignment form.

A kernel runs over dimensions ``dims``. The last one is the inner loop, made of vectors; the ones
before it form the rows, which are shared out to threads (a kernel of one dimension shares out
that one). Its body is a list of regions, executed in order for each row:

- ``each``: once per inner element. Its values are seen by later regions only through memory and
  through reductions.
- ``row``: once per row, scalar. Its values, and the results of reductions, are seen by all later
  regions of the row.

A kernel may have one more dimension, ``over``, which is walked in order for each vector of inner
elements, by regions of a third kind:

- ``fold``: once per step of ``over``; each lane reduces for itself. The reductions are seen by the
  regions that follow, up to and with the next ``each``. This sums columns, where rows sum lanes.
  What it stores may move along ``over``, too.

A buffer has one stride per dimension (that of ``over`` last), in elements: an integer, the name
of a dimension, or the name of a stride that the caller passes. Stride 0 broadcasts. Besides
``load`` and ``store`` there are ``load_at`` (offset, and optionally a mask: 0 where it is false)
and ``store_at`` (offset, value), whose i64 offsets count elements from the buffer's start; which
of two equal offsets is written last is not defined.

``philox`` (index, seed, offset) is a word of a random stream, the same that the fill kernels store.

With ``tile`` above 1, so many rows are worked on at once and share what does not depend on the
row: with a fold this is a matrix product blocked in registers.

A kernel of ``blocks`` has no loop over everything: who calls it says for which rows and columns.
"""

from __future__ import annotations

from typing import NamedTuple

from ..dtypes import DTYPES


class Buffer(NamedTuple):
    """Memory that the kernel reads (``mode`` ``in``) or writes (``out``)."""

    name: str
    dtype: str
    mode: str
    strides: tuple[int | str, ...]


class Scalar(NamedTuple):
    """A number that the caller passes: f64 for floats, i64 for integers."""

    name: str
    dtype: str


class Instr(NamedTuple):
    """One operation. ``id`` is the value's number (-1 for a store); ``attr`` depends on ``op``:
    the constant of ``const``, the buffer of loads and stores, the name of ``param``, the
    dimension of ``index`` (none: the inner one).
    """

    id: int
    op: str
    dtype: str
    args: tuple[int, ...]
    attr: str | int | float | bool | None = None


class Region(NamedTuple):
    """Instructions run per element (``each``), per row (``row``) or per step (``fold``)."""

    kind: str
    instrs: tuple[Instr, ...]


class Kernel(NamedTuple):
    """A whole kernel; its C parameters are buffers, ``sizes()``, ``symbols()``, scalars."""

    name: str
    dims: tuple[str, ...]
    buffers: tuple[Buffer, ...]
    scalars: tuple[Scalar, ...]
    regions: tuple[Region, ...]
    over: str = ""
    tile: int = 1
    blocks: bool = False

    def sizes(self) -> tuple[str, ...]:
        """Names of all dimensions."""
        return (*self.dims, self.over) if self.over else self.dims

    def symbols(self) -> tuple[str, ...]:
        """Names of strides that are neither numbers nor dimensions, in order of appearance."""
        seen: dict[str, None] = {}
        for b in self.buffers:
            for s in b.strides:
                if isinstance(s, str) and s not in self.sizes():
                    seen[s] = None
        return tuple(seen)

    def buffer(self, name: str) -> Buffer:
        """The buffer called ``name``."""
        return next(b for b in self.buffers if b.name == name)

    def may_alias(self, out: str, source: str) -> bool:
        """True if output ``out`` may be the same memory as input ``source``: same element size
        and strides, and ``source`` is not read after an earlier region has stored ``out``.
        """
        a, b = self.buffer(out), self.buffer(source)
        if DTYPES[a.dtype].size != DTYPES[b.dtype].size or a.strides != b.strides:
            return False
        stored = False
        for region in self.regions:
            if stored and any(i.op == "load" and i.attr == source for i in region.instrs):
                return False
            stored = stored or any(i.op == "store" and i.attr == out for i in region.instrs)
        return True
