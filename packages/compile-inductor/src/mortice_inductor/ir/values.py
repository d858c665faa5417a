"""Values: what operators are lowered to.

A value is a shape, an element type and a rule for its elements. ``Trace`` makes them; equal ones
are one object, so that common sub-expressions are found by making them. Kinds (``op``):

==========  ====================================================================================
input       placeholder number ``attr``
number      a number the caller passes, ``attr`` = (slot, "f64" or "i64"); shape ()
size        a number known when the graph's sizes are, ``attr`` = the number; shape ()
const       the number ``attr``; shape ()
fn          scalar operation ``attr`` of mortice_llvm on operands of this shape, or of shape ()
cast        conversion of ``args[0]`` to ``dtype``; bitcast: the same bits
select      ``args[1]`` where ``args[0]``, else ``args[2]``
iota        the index along dimension ``attr``, i64
philox      word ``args[0]`` of the random stream (``args[1]``, ``args[2]``), u32
view        element (i0, i1, ..) is that of ``args[0]`` at the expressions ``attr``
masked      ``args[1]`` where ``args[0]``, and nothing of it is read elsewhere; else ``args[2]``
take        as a view, but where ``attr`` has the number k, ``args[1 + k]`` gives the index
reduce      ``attr`` = (how, dims): those dimensions of ``args[0]`` (``dot``: of two) reduced
join        memory of its own filled part by part: ``attr`` = (index expressions per part)
matmul      product of matrices by BLAS, ``args`` of shapes (.., m, k) and (.., k, n)
keep        ``args[0]``, to be laid down in memory in this order of dimensions
write       ``args[0]``, to be written to placeholder ``attr``
call        an operator run by the dispatcher, ``attr`` = a Call; result k is ``result`` of it
==========  ====================================================================================
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from mortice.fx.symbols import is_symbolic
from mortice_llvm.scalar import scalar_op

from . import index as ix
from .index import Expr

Shape = tuple[int, ...]


class Value:
    """One value; compared by identity. ``where`` names the operator it came from."""

    __slots__ = ("args", "attr", "dtype", "op", "shape", "uid", "where")

    def __init__(
        self, op: str, args: tuple[Value, ...], shape: Shape, dtype: str, attr: Any, uid: int
    ) -> None:
        self.op = op
        self.args = args
        self.shape = shape
        self.dtype = dtype
        self.attr = attr
        self.uid = uid
        self.where = ""

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    def __repr__(self) -> str:
        inner = ", ".join(f"%{a.uid}" for a in self.args)
        attr = "" if self.attr is None else f" {self.attr}"
        return f"%{self.uid}: {self.dtype}{list(self.shape)} = {self.op}({inner}){attr}"


class Call(NamedTuple):
    """An operator left to the dispatcher: its arguments with ``("%", k)`` for tensor k.

    ``results`` gives (shape, dtype, strides) of each output; ``single`` tells one from a list.
    """

    target: str
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...]
    results: tuple[tuple[Shape, str, Shape], ...]
    single: bool
    order: int  # calls are not merged: they may draw random numbers


#: Before the name of an operator that writes to its arguments: it is run on copies of those.
UPDATING_COPIES = "on copies "

SCALARS = ("const", "number", "size")


class Trace:
    """Makes values; ``where`` is the operator being lowered."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], Value] = {}
        self.where = ""
        self.calls = 0
        #: Strides of placeholders, by number.
        self.input_strides: dict[int, Shape] = {}

    def strides_of(self, v: Value) -> Shape:
        """The strides that a value has when it lies in memory."""
        if v.op == "input":
            return self.input_strides[v.attr]
        if v.op == "result":
            return v.args[0].attr.call.results[v.attr][2]
        return ix.contiguous(v.shape)

    def make(
        self, op: str, args: Iterable[Value] = (), shape: Shape = (), dtype: str = "f32",
        attr: Any = None,
    ) -> Value:  # fmt: skip
        """The value described, made at first mention."""
        args = tuple(args)
        # 0 and False and 0.0, or 0.0 and -0.0, are equal but not the same constant.
        tag = repr(attr) if op == "const" else attr
        key = (op, tuple(a.uid for a in args), shape, dtype, tag)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = Value(op, args, shape, dtype, attr, len(self._known))
            found.where = self.where
        return found

    # -- scalars -------------------------------------------------------------------------------

    def const(self, value: float | bool, dtype: str) -> Value:
        """A constant, in ``dtype``'s kind."""
        kind = dtype[0]
        if dtype == "bool":
            value = bool(value)
        elif kind in "fb":
            value = float(value)
        else:
            value = int(value)
        return self.make("const", (), (), dtype, value)

    def size(self, n: int, dtype: str = "i64") -> Value:
        """A number that follows from sizes; kernels do not depend on it."""
        n = n if is_symbolic(n) else int(n)
        return self.cast(self.make("size", (), (), "i64", n), dtype)

    # -- elements ------------------------------------------------------------------------------

    def fn(self, name: str, *args: Value) -> Value:
        """A scalar operation; operands are broadcast, and must have one dtype."""
        shape, given = self.broadcast(args)
        dtype = "bool" if scalar_op(name).result == "bool" else args[0].dtype
        return self.make("fn", given, shape, dtype, name)

    def cast(self, v: Value, dtype: str) -> Value:
        """``v`` as another dtype."""
        if v.dtype == dtype:
            return v
        if v.op == "const":
            return self.const(_converted(v.attr, v.dtype, dtype), dtype)
        return self.make("cast", (v,), v.shape, dtype)

    def bitcast(self, v: Value, dtype: str) -> Value:
        """The same bits."""
        return v if v.dtype == dtype else self.make("bitcast", (v,), v.shape, dtype)

    def select(self, where: Value, a: Value, b: Value) -> Value:
        """``a`` where ``where``, else ``b``."""
        shape, given = self.broadcast((where, a, b))
        return self.make("select", given, shape, a.dtype)

    def masked(self, where: Value, a: Value, b: Value) -> Value:
        """As ``select``, and memory behind ``a`` is read only where ``where`` is true."""
        shape, given = self.broadcast((where, a, b))
        return self.make("masked", given, shape, a.dtype)

    def iota(self, shape: Shape, dim: int) -> Value:
        """The index along a dimension."""
        return self.make("iota", (), shape, "i64", dim)

    # -- views ---------------------------------------------------------------------------------

    def broadcast(self, args: Sequence[Value]) -> tuple[Shape, list[Value]]:
        """The common shape, and the operands in it (scalars stay)."""
        shape = broadcast_shapes([a.shape for a in args])
        return shape, [
            a if a.shape == shape or a.op in SCALARS else self.expand(a, shape) for a in args
        ]

    def view(self, v: Value, exprs: Sequence[Expr], shape: Shape) -> Value:
        """Elements of ``v`` at index expressions over the new shape."""
        exprs = tuple(exprs)
        if v.op in SCALARS:
            return v if not shape else self.make("view", (v,), shape, v.dtype, exprs)
        if shape == v.shape and exprs == identity(shape):
            return v
        if v.op == "view":
            inner = tuple(ix.substitute(e, exprs, shape) for e in v.attr)
            return self.view(v.args[0], inner, shape)
        return self.make("view", (v,), shape, v.dtype, exprs)

    def expand(self, v: Value, shape: Shape) -> Value:
        """Broadcast to ``shape``."""
        if v.shape == shape:
            return v
        lead = len(shape) - len(v.shape)
        exprs = [
            ix.ZERO if n == 1 and shape[lead + d] != 1 else ix.var(lead + d)
            for d, n in enumerate(v.shape)
        ]
        return self.view(v, exprs, shape)

    def reshape(self, v: Value, shape: Shape) -> Value:
        """The elements in row-major order under another shape."""
        if v.shape == shape:
            return v
        if not math.prod(shape):
            return self.view(v, [ix.ZERO] * len(v.shape), shape)
        return self.view(v, ix.reshape(identity(shape), shape, v.shape, shape), shape)

    def permute(self, v: Value, dims: Sequence[int]) -> Value:
        """Dimension k of the result is ``dims[k]``."""
        exprs = [ix.ZERO] * len(dims)
        for k, d in enumerate(dims):
            exprs[d] = ix.var(k)
        return self.view(v, exprs, tuple(v.shape[d] for d in dims))

    def unsqueeze(self, v: Value, dim: int) -> Value:
        """One more dimension, of size 1."""
        shape = (*v.shape[:dim], 1, *v.shape[dim:])
        return self.view(v, [ix.var(k + (k >= dim)) for k in range(len(v.shape))], shape)

    def shifted(self, v: Value, dim: int, size: int, start: int, step: int = 1) -> Value:
        """Elements start, start + step, .. along a dimension, ``size`` of them."""
        exprs = list(identity(v.shape))
        exprs[dim] = ix.add(ix.scale(exprs[dim], step), ix.const(start))
        return self.view(v, exprs, (*v.shape[:dim], size, *v.shape[dim + 1 :]))

    # -- reductions ----------------------------------------------------------------------------

    def reduce(self, how: str, dims: Sequence[int], *args: Value, keepdim: bool = False) -> Value:
        """Reduces dimensions away (or to size 1)."""
        given = args[0]
        if all(given.shape[d] == 1 for d in dims):
            if how.startswith("arg"):
                kept = tuple(n for d, n in enumerate(given.shape) if keepdim or d not in dims)
                return self.view(self.const(0, "i64"), (), kept)
            only = args[0] if how != "dot" else self.fn("mul", *args)
            kept = tuple(n for d, n in enumerate(given.shape) if keepdim or d not in dims)
            return self.reshape(only, kept)
        shape = tuple(n for d, n in enumerate(given.shape) if d not in dims)
        dtype = "i64" if how.startswith("arg") else given.dtype
        out = self.make("reduce", args, shape, dtype, (how, tuple(sorted(dims))))
        if keepdim:
            kept = tuple(1 if d in dims else n for d, n in enumerate(given.shape))
            out = self.reshape(out, kept)
        return out


def identity(shape: Sequence[int]) -> tuple[Expr, ...]:
    """The variables themselves."""
    return tuple(ix.var(k) for k in range(len(shape)))


def broadcast_shapes(shapes: Iterable[Shape]) -> Shape:
    """The shape that all broadcast to; ValueError where there is none."""
    out: list[int] = []
    for shape in shapes:
        if len(shape) > len(out):
            out = [1] * (len(shape) - len(out)) + out
        lead = len(out) - len(shape)
        for d, n in enumerate(shape):
            if n != 1:
                if out[lead + d] not in (1, n):
                    raise ValueError(f"shapes {list(shapes)} do not broadcast")
                out[lead + d] = n
    return tuple(out)


def _converted(value: Any, old: str, new: str) -> Any:
    """A constant as its new dtype has it, rounded as its old one had it."""
    if old in _BITS_OF_FRACTION and isinstance(value, float) and math.isfinite(value):
        value = _rounded(value, old)
    if new == "bool":
        return bool(value)
    if new[0] in "fb":
        return float(value)
    if old[0] in "fb" and not math.isfinite(value):
        return 0
    bits = int(new[1:])
    wrapped = int(value) & ((1 << bits) - 1)
    return wrapped - (1 << bits) if new[0] == "i" and wrapped >> (bits - 1) else wrapped


#: Bits of a normal number's fraction, with the leading one; the least and the greatest exponent, by
#: ``math.frexp``.
_BITS_OF_FRACTION = {"f16": (11, -13, 16), "bf16": (8, -125, 128), "f32": (24, -125, 128)}


def _rounded(value: float, dtype: str) -> float:
    """A finite number as the nearest of a narrower float dtype, ties to even, infinite if too great."""
    bits, least, greatest = _BITS_OF_FRACTION[dtype]
    exponent = math.frexp(value)[1]
    unit = math.ldexp(1.0, max(exponent, least) - bits)
    rounded = round(value / unit) * unit
    if math.frexp(rounded)[1] > greatest:
        rounded = math.inf
    return math.copysign(rounded, value)


def walk(roots: Iterable[Value]) -> list[Value]:
    """All values that the roots need, operands first."""
    seen: set[int] = set()
    out: list[Value] = []
    stack: list[tuple[Value, bool]] = [(r, False) for r in reversed(list(roots))]
    while stack:
        v, done = stack.pop()
        if done:
            out.append(v)
            continue
        if v.uid in seen:
            continue
        seen.add(v.uid)
        stack.append((v, True))
        stack += [(a, False) for a in reversed(v.args)]
    return out


def is_dense(shape: Shape, strides: Shape | None) -> bool:
    """True for strides that fill memory without gap or overlap, in some order of dimensions."""
    if strides is None:
        return False
    step = 1
    for stride, n in sorted((s, n) for s, n in zip(strides, shape) if n != 1):
        if stride != step:
            return False
        step *= n
    return True
