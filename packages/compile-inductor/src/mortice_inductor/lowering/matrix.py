"""Matrix products of operands that lie in memory; dot products for vectors."""

from __future__ import annotations

from typing import Any, NamedTuple

from mortice_llvm.dtypes import computes_as

from ..ir import index as ix
from ..ir.values import Trace, Value
from .registry import Fallback, is_float, is_number, lowers, operand, promote


class Side(NamedTuple):
    """How a product finds a matrix in a buffer: element offset, transposed or not, leading size, and
    for batch number i the further offset (i // inner) outer_step + (i % inner) inner_step.
    """

    offset: int
    transposed: bool
    lead: int
    inner: int
    outer_step: int
    inner_step: int


def side(shape: tuple[int, ...], e: ix.Expr) -> Side | None:
    """The side for a matrix (or batch of them) whose element lies at ``e``; None if products take
    no such strides.
    """
    batched = len(shape) == 3
    rows, cols = shape[-2:]
    steps = {0: 0, 1: 0, 2: 0} if batched else {0: 0, 1: 0}
    inner, split = 1, [0, 0]
    for atom, c in e.terms:
        if isinstance(atom.of, int):
            steps[atom.of] = c
            continue
        if not batched or atom.of != ix.var(0) or (inner != 1 and atom.n != inner):
            return None
        inner = atom.n
        split[atom.kind == "%"] = c
    if inner != 1 and steps[0]:
        return None
    if inner == 1:
        split = [steps[0], 0] if batched else [0, 0]
    down, along = steps[1 if batched else 0], steps[2 if batched else 1]
    if cols == 1:
        along = 1
    if along == 1 and (rows == 1 or down >= cols):
        return Side(e.const, False, max(down, cols, 1), inner, *split)
    if rows == 1:
        down = 1
    if down == 1 and (cols == 1 or along >= rows):
        return Side(e.const, True, max(along, rows, 1), inner, *split)
    return None


def _in_memory(t: Trace, v: Value) -> tuple[Value, Side]:
    """A value that will lie in memory, and how a product finds ``v`` there."""
    base, exprs = (v.args[0], v.attr) if v.op == "view" else (v, None)
    if base.op != "const" and base.shape:
        strides = t.strides_of(base)
        if exprs is None:
            exprs = tuple(_vars(len(v.shape)))
        found = side(v.shape, ix.linear(exprs, strides))
        if found is not None:
            return base, found
    # Laid down in the order in which memory runs, so that X and its transpose are one.
    flip = _runs_down(t, base, exprs, len(v.shape))
    laid = t.permute(v, _swapped(len(v.shape))) if flip else v
    kept = t.make("keep", (laid,), laid.shape, laid.dtype)
    index = [ix.var(k) for k in _swapped(len(v.shape))] if flip else _vars(len(v.shape))
    found = side(v.shape, ix.linear(index, ix.contiguous(laid.shape)))
    assert found is not None
    return kept, found


def _vars(n: int) -> list[ix.Expr]:
    return [ix.var(k) for k in range(n)]


def _swapped(n: int) -> list[int]:
    return [*range(n - 2), n - 1, n - 2]


def _runs_down(t: Trace, base: Value, exprs: Any, ndim: int) -> bool:
    """True if neighbours in memory are neighbours along the rows' dimension."""
    if exprs is None or not base.shape:
        return False
    e = ix.linear(exprs, t.strides_of(base))
    down, along = (
        any(c == 1 and d in ix.variables(ix.Expr(((atom, 1),), 0)) for atom, c in e.terms)
        for d in (ndim - 2, ndim - 1)
    )
    return down and not along


def product(t: Trace, a: Value, b: Value) -> Value:
    """The product of (m, k) and (k, n), or of batches of them, of one floating dtype."""
    dtype = promote(a.dtype, b.dtype)
    if not is_float(dtype):
        raise Fallback(f"a matrix product of {dtype}")
    inner = computes_as(dtype)
    shape = (*a.shape[:-1], b.shape[-1])
    if not a.shape[-1] or not all(shape):
        raise Fallback("a product of empty matrices")
    (p, left), (q, right) = (_in_memory(t, operand(t, x, inner)) for x in (a, b))
    return t.cast(t.make("matmul", (p, q), shape, inner, (left, right, a.shape[-1])), dtype)


@lowers("mm", "bmm")
def _mm(t: Trace, a: Value, b: Value) -> Value:
    return product(t, a, b)


def _scaled(t: Trace, x: Value, by: Any) -> Value:
    if is_number(by) and not isinstance(by, Value) and by == 1:
        return x
    return t.fn("mul", x, operand(t, by, x.dtype))


@lowers("addmm", "baddbmm")
def _addmm(t: Trace, self: Value, a: Value, b: Value, beta: Any = 1, alpha: Any = 1) -> Value:
    inner = computes_as(promote(a.dtype, b.dtype))
    out = _scaled(t, t.cast(product(t, a, b), inner), alpha)
    if not (is_number(beta) and not isinstance(beta, Value) and beta == 0):
        out = t.fn("add", out, _scaled(t, operand(t, self, inner), beta))
    return t.cast(out, promote(a.dtype, b.dtype))


@lowers("linear")
def _linear(t: Trace, x: Value, weight: Value, bias: Value | None = None) -> Value:
    if len(weight.shape) != 2 or not x.shape:
        raise Fallback("a linear layer without a weight matrix")
    rows = x.numel // max(x.shape[-1], 1)
    flat = t.reshape(x, (rows, x.shape[-1]))
    out = product(t, flat, t.permute(weight, (1, 0)))
    inner = computes_as(out.dtype)
    if bias is not None:
        out = t.cast(t.fn("add", t.cast(out, inner), t.cast(bias, inner)), out.dtype)
    return t.reshape(out, (*x.shape[:-1], weight.shape[0]))


@lowers("matmul")
def _matmul(t: Trace, a: Value, b: Value) -> Value:
    if len(a.shape) == 1 or len(b.shape) == 1:
        if len(a.shape) == len(b.shape):
            return _dot(t, a, b)
        if len(b.shape) == 1:
            return _mv(t, a, b)
        raise Fallback("a vector times a matrix")
    if len(a.shape) == 2 and len(b.shape) == 2:
        return product(t, a, b)
    if len(b.shape) == 2:
        flat = t.reshape(a, (a.numel // max(a.shape[-1], 1), a.shape[-1]))
        return t.reshape(product(t, flat, b), (*a.shape[:-1], b.shape[-1]))
    from ..ir.values import broadcast_shapes

    batch = broadcast_shapes([a.shape[:-2], b.shape[:-2]])
    count = 1
    for n in batch:
        count *= n
    sides = [
        t.reshape(t.expand(x, (*batch, *x.shape[-2:])), (count, *x.shape[-2:])) for x in (a, b)
    ]
    return t.reshape(product(t, *sides), (*batch, a.shape[-2], b.shape[-1]))


@lowers("mv")
def _mv(t: Trace, a: Value, b: Value) -> Value:
    dtype = promote(a.dtype, b.dtype)
    inner = computes_as(dtype)
    m, v = operand(t, a, inner), t.expand(operand(t, b, inner), a.shape)
    return t.cast(t.reduce("dot", (len(a.shape) - 1,), m, v), dtype)


@lowers("dot")
def _dot(t: Trace, a: Value, b: Value) -> Value:
    return _mv(t, a, b)
