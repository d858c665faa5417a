"""Looking up by index tensors. Indices out of range are read as the nearest that is inside, and
reported after the run, as eager reports them before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..ir import index as ix
from ..ir.refusal import Refusal, source_of
from ..ir.values import Value, broadcast_shapes, identity
from .graph import Check, Lowering
from .registry import Fallback, kind, lowers, wants_graph, wrap_dim

#: What eager says, by operator; of others, the first. {0}: the index, {1}: the dimension, {2}: its size.
_COMPLAINTS = {
    "": ("DimensionError", "{0} is out of bounds for dimension {1} with size {2}"),
    "gather": ("ShapeError", "{0} is out of bounds for dimension {1} with size {2}"),
    "embedding": (
        "DimensionError",
        "index out of range in self: {0} for a table of {2} rows. Indices must be at least 0 and below {2}.",
    ),
}


def _refusal(index: Value, n: int, *, negative: bool, what: str, dim: int) -> Refusal:
    error, text = _COMPLAINTS.get(what, _COMPLAINTS[""])
    where = "" if what == "index" else f"{what}(): "
    complaint = where + text.format("{}", dim, "{high}")
    return Refusal(error, complaint, "an index", source_of(index), -n if negative else 0, n)


def _inside(graph: Lowering, index: Value, n: int, *, negative: bool, what: str, dim: int) -> Value:
    """The index as i64 in 0 .. n - 1, and a check that it is meant so."""
    t = graph.trace
    if kind(index.dtype) not in "iu" or index.dtype == "u8" or not n:
        raise Fallback("an index that is no signed integer, or into nothing")
    at = t.cast(index, "i64")
    size, zero = t.size(n), t.const(0, "i64")
    low = t.fn("neg", size) if negative else zero
    outside = t.fn("or", t.fn("lt", at, low), t.fn("ge", at, size))
    if index.numel:
        bad = t.reduce("any", tuple(range(len(index.shape))), outside) if index.shape else outside
        refusal = _refusal(index, n, negative=negative, what=what, dim=dim)
        graph.checks.append(Check(bad, refusal))
    if negative:
        at = t.select(t.fn("lt", at, zero), t.fn("add", at, size), at)
    last = t.size(n - 1)
    return t.fn("minimum", t.fn("maximum", at, zero), last)


@lowers("embedding")
@wants_graph
def _embedding(
    graph: Lowering, weight: Value, indices: Value, padding_idx: int = -1, scale: bool = False,
    sparse: bool = False,
) -> Value:  # fmt: skip
    if len(weight.shape) != 2:
        raise Fallback("a table that is no matrix")
    return _looked_up(graph, weight, 0, indices, negative=False, what="embedding")


def _looked_up(
    graph: Lowering, x: Value, dim: int, index: Value, *, negative: bool, what: str
) -> Value:
    """The index's dimensions in place of dimension ``dim``."""
    t = graph.trace
    at = _inside(graph, index, x.shape[dim], negative=negative, what=what, dim=dim)
    k = len(index.shape)
    shape = (*x.shape[:dim], *index.shape, *x.shape[dim + 1 :])
    spread = t.view(at, [ix.var(dim + j) for j in range(k)], shape)
    places: list[Any] = [ix.var(d if d < dim else d - 1 + k) for d in range(len(x.shape))]
    places[dim] = 0
    kind(x.dtype)
    return t.make("take", (x, spread), shape, x.dtype, tuple(places))


@lowers("index_select")
@wants_graph
def _index_select(graph: Lowering, x: Value, dim: int, index: Value) -> Value:
    if not x.shape or len(index.shape) != 1:
        raise Fallback("an index that is no vector")
    d = wrap_dim(dim, len(x.shape))
    return _looked_up(graph, x, d, index, negative=False, what="index_select")


@lowers("gather")
@wants_graph
def _gather(graph: Lowering, x: Value, dim: int, index: Value, sparse_grad: bool = False) -> Value:
    if not x.shape or len(x.shape) != len(index.shape):
        raise Fallback("gather from a single number")
    d = wrap_dim(dim, len(x.shape))
    at = _inside(graph, index, x.shape[d], negative=False, what="gather", dim=d)
    places: list[Any] = list(identity(index.shape))
    places[d] = 0
    kind(x.dtype)
    return graph.trace.make("take", (x, at), index.shape, x.dtype, tuple(places))


@lowers("index.Tensor", "_unsafe_index.Tensor")
@wants_graph
def _index(graph: Lowering, x: Value, indices: Sequence[Value | None]) -> Value:
    t = graph.trace
    kind(x.dtype)
    given = [(d, i) for d, i in enumerate(indices) if i is not None]
    if not given or any(i.dtype in ("bool", "u8") for _, i in given):
        raise Fallback("masks give as many elements as they have true ones")
    dims = [d for d, _ in given]
    common = broadcast_shapes([i.shape for _, i in given])
    adjacent = dims == list(range(dims[0], dims[0] + len(dims)))
    rest = [d for d in range(len(x.shape)) if d not in dims]
    before = [d for d in rest if d < dims[0]] if adjacent else []
    after = [d for d in rest if d not in before]
    shape = (*(x.shape[d] for d in before), *common, *(x.shape[d] for d in after))
    lead = len(before)
    places: list[Any] = [None] * len(x.shape)
    for k, d in enumerate(before):
        places[d] = ix.var(k)
    for k, d in enumerate(after):
        places[d] = ix.var(lead + len(common) + k)
    spread: list[Value] = []
    for k, (d, i) in enumerate(given):
        at = _inside(graph, i, x.shape[d], negative=True, what="index", dim=d)
        exprs = [
            ix.ZERO if n == 1 else ix.var(lead + len(common) - len(i.shape) + j)
            for j, n in enumerate(i.shape)
        ]
        spread.append(t.view(at, exprs, shape))
        places[d] = k
    return t.make("take", (x, *spread), shape, x.dtype, tuple(places))
