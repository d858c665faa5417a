"""Views: index expressions, no memory."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..ir import index as ix
from ..ir.index import Expr
from ..ir.values import Shape, Trace, Value, identity, is_dense
from ..specs import DataDependent, loop_name
from .registry import Fallback, lowers, wants_graph, wrap_dim

if TYPE_CHECKING:
    from .graph import Lowering


def _completed(shape: Sequence[int], numel: int) -> tuple[int, ...]:
    """A shape with its -1 replaced."""
    if -1 not in shape:
        return tuple(shape)
    rest = math.prod(n for n in shape if n != -1)
    return tuple(numel // rest if n == -1 else n for n in shape)


@lowers("view", "_unsafe_view", "reshape", "view_copy")
def _view(t: Trace, x: Value, shape: Sequence[int]) -> Value:
    return t.reshape(x, _completed(shape, x.numel))


@lowers("_reshape_alias", "_reshape_alias_copy")
def _reshape_alias(t: Trace, x: Value, shape: Sequence[int], stride: Any) -> Value:
    return t.reshape(x, _completed(shape, x.numel))


@lowers("permute", "permute_copy")
def _permute(t: Trace, x: Value, dims: Sequence[int]) -> Value:
    return t.permute(x, [wrap_dim(d, len(x.shape)) for d in dims])


@lowers("transpose.int", "transpose_copy.int")
def _transpose(t: Trace, x: Value, a: int, b: int) -> Value:
    if not x.shape:
        return x
    dims = list(range(len(x.shape)))
    a, b = wrap_dim(a, len(dims)), wrap_dim(b, len(dims))
    dims[a], dims[b] = dims[b], dims[a]
    return t.permute(x, dims)


@lowers("t", "t_copy")
def _t(t: Trace, x: Value) -> Value:
    return x if len(x.shape) < 2 else t.permute(x, (1, 0))


@lowers("expand", "expand_copy")
def _expand(t: Trace, x: Value, shape: Sequence[int], implicit: bool = False) -> Value:
    lead = len(shape) - len(x.shape)
    full = tuple(x.shape[k - lead] if n == -1 else n for k, n in enumerate(shape))
    return t.expand(x, full)


@lowers("unsqueeze", "unsqueeze_copy")
def _unsqueeze(t: Trace, x: Value, dim: int) -> Value:
    return t.unsqueeze(x, wrap_dim(dim, len(x.shape) + 1))


def _squeezed(t: Trace, x: Value, dims: Sequence[int]) -> Value:
    gone = {wrap_dim(d, len(x.shape)) for d in dims}
    return t.reshape(x, tuple(n for d, n in enumerate(x.shape) if n != 1 or d not in gone))


@lowers("squeeze", "squeeze_copy")
def _squeeze(t: Trace, x: Value) -> Value:
    return _squeezed(t, x, range(len(x.shape)))


@lowers("squeeze.dim", "squeeze_copy.dim")
def _squeeze_dim(t: Trace, x: Value, dim: int) -> Value:
    return _squeezed(t, x, (dim,))


@lowers("squeeze.dims", "squeeze_copy.dims")
def _squeeze_dims(t: Trace, x: Value, dims: Any) -> Value:
    return _squeezed(t, x, dims if isinstance(dims, (list, tuple)) else (dims,))


@lowers("select.int", "select_copy.int")
def _select(t: Trace, x: Value, dim: int, index: int) -> Value:
    d = wrap_dim(dim, len(x.shape))
    n = x.shape[d]
    if not isinstance(index, int) or not -n <= index < n:
        raise Fallback("an index that is not known to be inside")
    exprs = [ix.var(k - (k > d)) for k in range(len(x.shape))]
    exprs[d] = ix.const(index % n)
    return t.view(x, exprs, (*x.shape[:d], *x.shape[d + 1 :]))


@lowers("slice.Tensor", "slice_copy.Tensor")
def _slice(
    t: Trace, x: Value, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Value:
    d = wrap_dim(dim, len(x.shape))
    low, size = sliced(x.shape[d], start, end, step)
    return t.shifted(x, d, size, low, step)


def sliced(n: int, start: Any, end: Any, step: int) -> tuple[int, int]:
    """(first element, how many) of a slice of n elements."""
    low = 0 if start is None else start
    high = n if end is None else end
    low = min(max(low + n if low < 0 else low, 0), n)
    high = min(max(high + n if high < 0 else high, low), n)
    return low, max(-((low - high) // step), 0)


@lowers("flip")
def _flip(t: Trace, x: Value, dims: Sequence[int]) -> Value:
    exprs = list(identity(x.shape))
    for dim in dims:
        d = wrap_dim(dim, len(x.shape))
        exprs[d] = ix.add(ix.const(x.shape[d] - 1), ix.scale(ix.var(d), -1))
    return t.view(x, exprs, x.shape)


@lowers("diagonal", "diagonal_copy")
def _diagonal(t: Trace, x: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    a, b = wrap_dim(dim1, len(x.shape)), wrap_dim(dim2, len(x.shape))
    down, right = max(-offset, 0), max(offset, 0)
    size = max(min(x.shape[a] - down, x.shape[b] - right), 0)
    rest = [d for d in range(len(x.shape)) if d not in (a, b)]
    exprs = [ix.ZERO] * len(x.shape)
    for k, d in enumerate(rest):
        exprs[d] = ix.var(k)
    along = ix.var(len(rest))
    exprs[a], exprs[b] = ix.add(along, ix.const(down)), ix.add(along, ix.const(right))
    return t.view(x, exprs, (*(x.shape[d] for d in rest), size))


@lowers("unfold", "unfold_copy")
def _unfold(t: Trace, x: Value, dim: int, size: int, step: int) -> Value:
    d = wrap_dim(dim, len(x.shape))
    count = (x.shape[d] - size) // step + 1
    exprs = list(identity(x.shape))
    exprs[d] = ix.add(ix.scale(ix.var(d), step), ix.var(len(x.shape)))
    return t.view(x, exprs, (*x.shape[:d], count, *x.shape[d + 1 :], size))


@lowers("unbind.int", "unbind_copy.int")
def _unbind(t: Trace, x: Value, dim: int = 0) -> list[Value]:
    return [_select(t, x, dim, k) for k in range(x.shape[wrap_dim(dim, len(x.shape))])]


@lowers("split.Tensor", "split_copy.Tensor", "unsafe_split.Tensor")
def _split(t: Trace, x: Value, size: int, dim: int = 0) -> list[Value]:
    n = x.shape[wrap_dim(dim, len(x.shape))]
    if size == 0:
        return [x]
    return [_slice(t, x, dim, k, min(k + size, n)) for k in range(0, max(n, 1), size)]


@lowers("split_with_sizes", "split_with_sizes_copy", "unsafe_split_with_sizes")
def _split_with_sizes(t: Trace, x: Value, sizes: Sequence[int], dim: int = 0) -> list[Value]:
    out: list[Value] = []
    at = 0
    for n in sizes:
        out.append(_slice(t, x, dim, at, at + n))
        at += n
    return out


@lowers("repeat")
def _repeat(t: Trace, x: Value, repeats: Sequence[int]) -> Value:
    lead = len(repeats) - len(x.shape)
    inner = (1,) * lead + x.shape
    shape = tuple(n * r for n, r in zip(inner, repeats))
    if 0 in shape:
        return t.view(x, [ix.ZERO] * len(x.shape), shape)
    exprs = [ix.mod(ix.var(lead + d), n, shape) for d, n in enumerate(x.shape)]
    return t.view(x, exprs, shape)


@lowers("roll")
def _roll(t: Trace, x: Value, shifts: Any, dims: Any = ()) -> Value:
    by = shifts if isinstance(shifts, (list, tuple)) else (shifts,)
    along = dims if isinstance(dims, (list, tuple)) else (dims,)
    if not x.numel:
        return x
    flat = t.reshape(x, (x.numel,)) if not along else x
    exprs = list(identity(flat.shape))
    for k, d in zip(by, along or (0,)):
        d = wrap_dim(d, len(flat.shape))
        n = flat.shape[d]
        exprs[d] = ix.mod(ix.add(exprs[d], ix.const((-k) % n)), n, flat.shape)
    return t.reshape(t.view(flat, exprs, flat.shape), x.shape)


@lowers("as_strided", "as_strided_copy")
@wants_graph
def _as_strided(
    graph: Lowering, x: Value, size: Sequence[int], stride: Sequence[int], offset: int | None = None
) -> Value:
    """By positions in the memory that ``x`` is a view of, laid out as in eager."""
    t = graph.trace
    shape = tuple(size)
    if not math.prod(shape):
        return t.view(x, [ix.ZERO] * len(x.shape), shape)
    made = _memory(graph, offset)
    last = made.begin + sum((n - 1) * s for n, s in zip(shape, stride))
    row = made.row(t)
    if row is None or not 0 <= made.begin <= last < row.numel:
        if made.base.op == "call_function" or made.begin < 0:
            raise DataDependent("as_strided() counts in memory whose layout is not known")
        given = (made.value, (last + 1,), (1,))
        row = _on_row(graph, "aten.as_strided.default", given, last + 1, x.dtype)
    return t.view(row, [_place(shape, stride, made.begin)], shape)


@lowers("as_strided_scatter")
@wants_graph
def _as_strided_scatter(
    graph: Lowering, x: Value, src: Value, size: Sequence[int], stride: Sequence[int],
    offset: int | None = None,
) -> Value:  # fmt: skip
    """The memory that ``x`` is a view of is written as one row."""
    made = _memory(graph, offset)
    row = made.row(graph.trace)
    if row is None or made.begin < 0:
        raise DataDependent("as_strided_scatter() counts in memory whose layout is not known")
    given = (row, src, tuple(size), tuple(stride), made.begin)
    put = _on_row(graph, "aten.as_strided_scatter.default", given, row.numel, x.dtype)
    return graph.trace.view(put, [_place(x.shape, made.strides, made.start)], x.shape)


def _place(shape: Shape, strides: Sequence[int], begin: int) -> Expr:
    return ix.add(ix.linear(identity(shape), strides), ix.const(begin))


def _on_row(graph: Lowering, name: str, given: Any, numel: int, dtype: str) -> Value:
    """What an operator of the dispatcher's gives, one contiguous row."""
    return graph.foreign(graph.node, given, {}, name, (((numel,), dtype, (1,)),), single=True)


class _Memory(NamedTuple):
    """What the operator at hand counts in.

    Attributes:
        base, value: the node that made the memory, and its value; laid: its strides in eager.
        start, strides: where in it the operator's first argument begins, and that one's strides.
        begin: where in it the operator begins.
    """

    base: Any
    value: Value
    laid: Shape
    start: int
    strides: Shape
    begin: int

    def row(self, t: Trace) -> Value | None:
        """All of it in the order of memory; None where it has gaps or overlaps."""
        shape, laid = self.value.shape, self.laid
        if not is_dense(shape, laid):
            return None
        order = sorted(range(len(laid)), key=lambda d: -laid[d] if shape[d] != 1 else 0)
        return t.reshape(t.permute(self.value, order), (self.value.numel,))


def _memory(graph: Lowering, offset: int | None) -> _Memory:
    base = source = graph.node.args[0]
    while base.op == "call_function" and (base.target is operator.getitem or _is_view(base.target)):
        base = base.args[0]
    if "val" not in base.meta or "val" not in source.meta:
        raise DataDependent("as_strided() in a graph that does not say how values are laid out")
    zero, start = (graph.numbers(n.meta["val"].storage_offset()) for n in (base, source))
    laid, strides = (tuple(map(graph.numbers, n.meta["val"].stride())) for n in (base, source))
    begin = start if offset is None else offset
    return _Memory(base, graph.env[base], laid, start - zero, strides, begin - zero)


def _is_view(target: Any) -> bool:
    """Whether an operator's result lies in the memory of its first argument."""
    arguments = target._schema.arguments
    return bool(arguments) and bool(arguments[0].type.alias)


@lowers("view.dtype", "view_copy.dtype")
def _view_dtype(t: Trace, x: Value, dtype: Any) -> Value:
    from mortice_llvm.dtypes import DTYPES

    from .registry import check_kinds

    new = loop_name(dtype)
    check_kinds(new, x.dtype)
    if DTYPES[new].size != DTYPES[x.dtype].size or "bool" in (new, x.dtype):
        raise Fallback("a view as a dtype of another size")
    return t.bitcast(x, new)
