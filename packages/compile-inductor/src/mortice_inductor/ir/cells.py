"""Cells: what one element of a kernel's iteration computes.

Values say what a whole array is; a cell is the same at one place of a kernel's iteration space,
with views composed into index expressions over the kernel's loop variables. Kinds (``op``):
``load`` (buffer, expression), ``gather`` (buffer, expression, strides; operands are the computed
indices), ``index`` (expression), ``reduced`` (a reduction of this kernel), ``number``, ``size``,
``const``, and those of values. A load's operand, if any, is the mask under which it reads.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from . import index as ix
from .index import Expr, Sizes
from .values import SCALARS, Value


class Buffer:
    """Memory that holds a value: of a placeholder, an output, or between kernels.

    ``kind``: ``input``, ``output``, ``temp`` (in the arena), ``boundary`` (a tensor of its own,
    for operators that the dispatcher runs), ``result`` (made by such an operator).
    """

    __slots__ = ("dtype", "kind", "number", "shape", "strides", "value")

    def __init__(
        self, number: int, value: Value, kind: str, strides: tuple[int, ...] | None = None
    ) -> None:
        self.number = number
        self.value = value
        self.kind = kind
        self.shape = value.shape
        self.dtype = value.dtype
        self.strides = ix.contiguous(value.shape) if strides is None else strides

    def __repr__(self) -> str:
        return f"<{self.kind} {self.number} {self.dtype}{list(self.shape)}>"


class Cell(NamedTuple):
    """One operation at one place; ``uid`` tells cells apart within a kernel."""

    op: str
    args: tuple[Cell, ...]
    dtype: str
    attr: Any
    uid: int


class Misfit(Exception):
    """A value cannot be computed inside this kernel; the text says why."""


class Evaluator:
    """Turns values into cells over loop variables of given sizes.

    ``stored`` has the values that this kernel itself computes and stores, with the index at which
    it does so; ``reductions`` those that it reduces, with the index of the row. ``buffers`` has
    the memory of all values that other kernels made.
    """

    def __init__(
        self,
        sizes: Sizes,
        buffers: dict[int, Buffer],
        stored: dict[int, tuple[Expr, ...]],
        reductions: dict[int, tuple[Expr, ...]],
    ) -> None:
        self.sizes = sizes
        self.buffers = buffers
        self.stored = stored
        self.reductions = reductions
        self.reads: set[int] = set()
        self._memo: dict[Any, Cell] = {}
        self._cells: dict[Any, Cell] = {}

    def cell(self, op: str, args: tuple[Cell, ...], dtype: str, attr: Any = None) -> Cell:
        """The cell described, made at first mention."""
        tag = repr(attr) if op == "const" else attr
        key = (op, tuple(a.uid for a in args), dtype, tag)
        found = self._cells.get(key)
        if found is None:
            found = self._cells[key] = Cell(op, args, dtype, attr, len(self._cells))
        return found

    def of(self, v: Value, idx: tuple[Expr, ...], mask: Cell | None = None) -> Cell:
        """The cell of ``v`` at ``idx``; Misfit if this kernel cannot compute it there."""
        key = (v.uid, idx, mask.uid if mask else -1)
        found = self._memo.get(key)
        if found is None:
            found = self._memo[key] = self._make(v, idx, mask)
        return found

    def _make(self, v: Value, idx: tuple[Expr, ...], mask: Cell | None) -> Cell:
        row = self.reductions.get(v.uid)
        if row is not None:
            if idx != row:
                raise Misfit(f"needs {v.where or v.op} of other rows")
            return self.cell("reduced", (), v.dtype, v.uid)
        own = self.stored.get(v.uid)
        if own is not None and own != idx:
            raise Misfit(f"reads {v.where or v.op} at other places than it is made")
        buffer = self.buffers.get(v.uid)
        if own is None and buffer is not None:
            self.reads.add(v.uid)
            expr = ix.linear(idx, buffer.strides)
            return self.cell("load", (mask,) if mask else (), v.dtype, (buffer.number, expr))
        return self.define(v, idx, mask)

    def define(self, v: Value, idx: tuple[Expr, ...], mask: Cell | None = None) -> Cell:
        """The cell of ``v`` from its operands, even where it is also kept in memory."""
        if v.op in SCALARS:
            return self.cell(v.op, (), v.dtype, v.attr)
        rule = getattr(self, f"_{v.op}", None)
        if rule is None:
            raise Misfit(f"{v.where or v.op} is made by another step")
        return rule(v, idx, mask)

    def _at(self, a: Value, idx: tuple[Expr, ...], mask: Cell | None) -> Cell:
        return self.of(a, idx if a.shape else (), mask)

    def _fn(self, v: Value, idx: tuple[Expr, ...], mask: Cell | None) -> Cell:
        args = tuple(self._at(a, idx, mask) for a in v.args)
        return self.cell(v.op, args, v.dtype, v.attr)

    _cast = _bitcast = _select = _philox = _fn

    def _masked(self, v: Value, idx: tuple[Expr, ...], mask: Cell | None) -> Cell:
        where, inside, outside = v.args
        test = self._at(where, idx, mask)
        if test.op == "const":
            return self._at(inside if test.attr else outside, idx, mask)
        both = test if mask is None else self.cell("fn", (test, mask), "bool", "and")
        args = (test, self._at(inside, idx, both), self._at(outside, idx, mask))
        return self.cell("select", args, v.dtype)

    def _same(self, v: Value, idx: tuple[Expr, ...], mask: Cell | None) -> Cell:
        return self.of(v.args[0], idx, mask)

    _write = _keep = _same

    def _iota(self, v: Value, idx: tuple[Expr, ...], mask: Cell | None) -> Cell:
        return self.cell("index", (), "i64", idx[v.attr])

    def _view(self, v: Value, idx: tuple[Expr, ...], mask: Cell | None) -> Cell:
        inner = tuple(ix.substitute(e, idx, self.sizes) for e in v.attr)
        return self.of(v.args[0], inner, mask)

    def _take(self, v: Value, idx: tuple[Expr, ...], mask: Cell | None) -> Cell:
        source = v.args[0]
        buffer = self.buffers.get(source.uid)
        if buffer is None or source.uid in self.stored:
            raise Misfit(f"looks up {source.where or source.op}, which is not in memory yet")
        self.reads.add(source.uid)
        fixed: list[Expr] = []
        args: list[Cell] = []
        strides: list[int] = []
        for place, stride in zip(v.attr, buffer.strides):
            if isinstance(place, int):
                args.append(self._at(v.args[1 + place], idx, mask))
                strides.append(stride)
            else:
                fixed.append(ix.scale(ix.substitute(place, idx, self.sizes), stride))
        attr = (buffer.number, ix.add(ix.ZERO, *fixed), tuple(strides))
        return self.cell("gather", (*args, *((mask,) if mask else ())), v.dtype, attr)


def cells_under(roots: list[Cell]) -> list[Cell]:
    """All cells that the roots need, operands first."""
    seen: set[int] = set()
    out: list[Cell] = []

    def visit(c: Cell) -> None:
        if c.uid in seen:
            return
        seen.add(c.uid)
        for a in c.args:
            visit(a)
        out.append(c)

    for root in roots:
        visit(root)
    return out
