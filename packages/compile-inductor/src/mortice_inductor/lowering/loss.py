"""Negative log likelihood: a lookup per sample forward, a comparison per element backward."""

from __future__ import annotations

from typing import Any

from mortice_llvm.dtypes import computes_as

from ..ir import index as ix
from ..ir.refusal import Refusal, source_of
from ..ir.values import Trace, Value
from .graph import Check, Lowering
from .registry import Fallback, is_float, lowers, wants_graph

_NONE, _MEAN = 0, 1


def _samples(
    graph: Lowering, x: Value, target: Value, weight: Any, ignore: int
) -> tuple[Value, Value, Value]:
    """(target as i64, those that are counted, their weights), with a check of the targets."""
    t = graph.trace
    if not is_float(x.dtype) or len(x.shape) != 2 or target.dtype != "i64":
        raise Fallback("a loss of other than a batch of rows")
    inner = computes_as(x.dtype)
    kept = t.fn("ne", target, t.const(ignore, "i64"))
    classes = x.shape[1]
    wrong = t.fn("lt", target, t.const(0, "i64"))
    wrong = t.fn("and", kept, t.fn("or", wrong, t.fn("ge", target, t.size(classes))))
    complaint = "nll_loss_forward(): {} is out of bounds: there are {high} classes."
    refusal = Refusal(
        "DimensionError", complaint, "a Target", source_of(target), 0, classes, ignore
    )
    if target.numel:
        graph.checks.append(Check(t.reduce("any", (0,), wrong), refusal))
    if weight is None:
        return target, kept, t.cast(kept, inner)
    looked = t.make("take", (weight, _inside(t, target, classes)), target.shape, weight.dtype, (0,))
    return target, kept, t.select(kept, t.cast(looked, inner), t.const(0, inner))


def _inside(t: Trace, target: Value, classes: int) -> Value:
    zero = t.const(0, "i64")
    return t.fn("minimum", t.fn("maximum", target, zero), t.size(max(classes - 1, 0)))


@lowers("nll_loss_forward")
@wants_graph
def _nll_loss(
    graph: Lowering, x: Value, target: Value, weight: Any, reduction: int, ignore: int
) -> tuple[Value, Value]:
    t = graph.trace
    at, _, w = _samples(graph, x, target, weight, ignore)
    inner = w.dtype
    place = (ix.var(0), 0)
    picked = t.make("take", (x, _inside(t, at, x.shape[1])), target.shape, x.dtype, place)
    loss = t.fn("neg", t.fn("mul", t.cast(picked, inner), w))
    # An ignored sample may hold inf.
    loss = t.select(t.fn("ne", w, t.const(0, inner)), loss, t.const(0, inner))
    if reduction == _NONE:
        return t.cast(loss, x.dtype), t.cast(t.const(0, inner), x.dtype)
    total = t.reduce("sum", (0,), w)
    out = t.reduce("sum", (0,), loss)
    if reduction == _MEAN:
        out = t.fn("div", out, total)
    return t.cast(out, x.dtype), t.cast(total, x.dtype)


@lowers("nll_loss_backward")
@wants_graph
def _nll_loss_backward(
    graph: Lowering, g: Value, x: Value, target: Value, weight: Any, reduction: int, ignore: int,
    total: Value,
) -> Value:  # fmt: skip
    t = graph.trace
    at, kept, w = _samples(graph, x, target, weight, ignore)
    inner = w.dtype
    scale = t.fn("neg", t.fn("mul", w, t.cast(g, inner)))
    if reduction == _MEAN:
        scale = t.fn("div", scale, t.cast(total, inner))
    hit = t.fn("eq", t.iota(x.shape, 1), t.expand(t.unsqueeze(at, 1), x.shape))
    hit = t.fn("and", hit, t.expand(t.unsqueeze(kept, 1), x.shape))
    rows = t.expand(t.unsqueeze(scale, 1), x.shape)
    return t.cast(t.select(hit, rows, t.const(0, inner)), x.dtype)
