"""Reductions, and softmax as reductions."""

from __future__ import annotations

import math
from typing import Any

from mortice_llvm.dtypes import computes_as

from ..ir.values import Trace, Value
from ..specs import loop_name
from .registry import (
    Fallback,
    float_of,
    is_float,
    kind,
    lowers,
    operand,
    wrap_dim,
    wrap_dims,
)


def _summed_dtype(x: Value, dtype: Any) -> str:
    if dtype is not None:
        return loop_name(dtype)
    return x.dtype if is_float(x.dtype) else "i64"


def total(t: Trace, x: Value, dims: tuple[int, ...], keepdim: bool, dtype: str) -> Value:
    """The sum over dimensions, with the result in ``dtype``."""
    inner = computes_as(dtype)
    if inner == "bool":
        raise Fallback("a sum in bool")
    return t.cast(t.reduce("sum", dims, operand(t, x, inner), keepdim=keepdim), dtype)


@lowers("sum")
def _sum(t: Trace, x: Value, dtype: Any = None) -> Value:
    return total(t, x, wrap_dims(None, len(x.shape)), False, _summed_dtype(x, dtype))


@lowers("sum.dim_IntList")
def _sum_dims(t: Trace, x: Value, dim: Any, keepdim: bool = False, dtype: Any = None) -> Value:
    return total(t, x, wrap_dims(dim, len(x.shape)), keepdim, _summed_dtype(x, dtype))


def count(x: Value, dims: tuple[int, ...]) -> int:
    """How many elements a reduction takes together."""
    return math.prod(x.shape[d] for d in dims)


def mean_of(t: Trace, x: Value, dims: tuple[int, ...], keepdim: bool = False) -> Value:
    """The mean of a floating value, in its dtype."""
    return t.fn("div", t.reduce("sum", dims, x, keepdim=keepdim), t.size(count(x, dims), x.dtype))


def _mean_over(t: Trace, x: Value, dims: tuple[int, ...], keepdim: bool, dtype: Any) -> Value:
    out = x.dtype if dtype is None else loop_name(dtype)
    if not is_float(out):
        raise Fallback(f"a mean in {out}")
    return t.cast(mean_of(t, operand(t, x, computes_as(out)), dims, keepdim), out)


@lowers("mean")
def _mean(t: Trace, x: Value, dtype: Any = None) -> Value:
    return _mean_over(t, x, wrap_dims(None, len(x.shape)), False, dtype)


@lowers("mean.dim")
def _mean_dims(t: Trace, x: Value, dim: Any, keepdim: bool = False, dtype: Any = None) -> Value:
    return _mean_over(t, x, wrap_dims(dim, len(x.shape)), keepdim, dtype)


@lowers("prod", "prod.dim_int")
def _prod(t: Trace, x: Value, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Value:
    if not isinstance(dim, int) and dim is not None:  # prod(x, dtype=...)
        dim, dtype = None, dim
    out = _summed_dtype(x, dtype)
    inner = computes_as(out)
    dims = wrap_dims(dim, len(x.shape))
    return t.cast(t.reduce("prod", dims, operand(t, x, inner), keepdim=keepdim), out)


def extreme(t: Trace, how: str, x: Value, dims: tuple[int, ...], keepdim: bool) -> Value:
    """``max`` or ``min`` over dimensions; NaN wins."""
    if not count(x, dims):
        raise Fallback(f"{how} of nothing")
    inner = computes_as(x.dtype)
    if kind(inner) == "b":
        name = "any" if how == "max" else "all"
        return t.reduce(name, dims, x, keepdim=keepdim)
    return t.cast(t.reduce(how, dims, t.cast(x, inner), keepdim=keepdim), x.dtype)


def _extreme(how: str) -> Any:
    def over(t: Trace, x: Value, dim: Any = (), keepdim: bool = False) -> Value:
        return extreme(t, how, x, wrap_dims(dim, len(x.shape)), keepdim)

    def whole(t: Trace, x: Value) -> Value:
        return extreme(t, how, x, wrap_dims(None, len(x.shape)), False)

    def with_index(t: Trace, x: Value, dim: int, keepdim: bool = False) -> tuple[Value, Value]:
        dims = wrap_dims(dim, len(x.shape))
        return extreme(t, how, x, dims, keepdim), _position(t, f"arg{how}", x, dims, keepdim)

    lowers(f"a{how}")(over)
    lowers(how)(whole)
    lowers(f"{how}.dim")(with_index)

    def position(t: Trace, x: Value, dim: Any = None, keepdim: bool = False) -> Value:
        if dim is None and len(x.shape) != 1:
            flat = t.reshape(x, (x.numel,))
            out = _position(t, f"arg{how}", flat, (0,), False)
            return t.reshape(out, (1,) * len(x.shape)) if keepdim else out
        return _position(t, f"arg{how}", x, wrap_dims(dim, len(x.shape)), keepdim)

    lowers(f"arg{how}")(position)


def _position(t: Trace, how: str, x: Value, dims: tuple[int, ...], keepdim: bool) -> Value:
    if not count(x, dims) or not x.shape:
        raise Fallback("a position among nothing, or in a single number")
    inner = "i32" if kind(x.dtype) == "b" else computes_as(x.dtype)
    return t.reduce(how, dims, t.cast(x, inner), keepdim=keepdim)


_extreme("max")
_extreme("min")


def _truth(how: str) -> None:
    def over(t: Trace, x: Value, dim: Any = None, keepdim: bool = False) -> Value:
        if x.dtype == "u8":
            raise Fallback(f"{how} of uint8 is uint8")
        return t.reduce(how, wrap_dims(dim, len(x.shape)), operand(t, x, "bool"), keepdim=keepdim)

    lowers(how, f"{how}.dim", f"{how}.dims")(over)


_truth("any")
_truth("all")


def moments(t: Trace, x: Value, dims: tuple[int, ...]) -> tuple[Value, Value, Value]:
    """(mean, squared distances from it summed, distances), the first two with size-1 dims."""
    mean = mean_of(t, x, dims, keepdim=True)
    d = t.fn("sub", x, mean)
    return mean, t.reduce("dot", dims, d, d, keepdim=True), d


def _variance(t: Trace, x: Value, dim: Any, correction: Any, keepdim: bool) -> tuple[Value, Value]:
    if not is_float(x.dtype):
        raise Fallback(f"a variance of {x.dtype}")
    dims = wrap_dims(dim, len(x.shape))
    inner = computes_as(x.dtype)
    v = t.cast(x, inner)
    mean, squares, _ = moments(t, v, dims)
    n = count(x, dims)
    c = 1 if correction is None else correction
    if isinstance(c, Value) or c != int(c):
        raise Fallback("a correction that is no integer")
    var = t.fn("div", squares, t.size(max(n - int(c), 0), inner))
    shape = tuple(m for d, m in enumerate(x.shape) if d not in dims)
    if not keepdim:
        var, mean = t.reshape(var, shape), t.reshape(mean, shape)
    return var, mean


@lowers("var.correction")
def _var(
    t: Trace, x: Value, dim: Any = None, correction: Any = None, keepdim: bool = False
) -> Value:
    return t.cast(_variance(t, x, dim, correction, keepdim)[0], x.dtype)


@lowers("std.correction")
def _std(
    t: Trace, x: Value, dim: Any = None, correction: Any = None, keepdim: bool = False
) -> Value:
    return t.cast(t.fn("sqrt", _variance(t, x, dim, correction, keepdim)[0]), x.dtype)


@lowers("var_mean.correction")
def _var_mean(
    t: Trace, x: Value, dim: Any = None, correction: Any = None, keepdim: bool = False
) -> tuple[Value, Value]:
    var, mean = _variance(t, x, dim, correction, keepdim)
    return t.cast(var, x.dtype), t.cast(mean, x.dtype)


@lowers("linalg_vector_norm")
def _vector_norm(
    t: Trace, x: Value, ord: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> Value:
    out = float_of(x.dtype) if dtype is None else loop_name(dtype)
    if not is_float(x.dtype) or ord not in (1, 2):
        raise Fallback(f"a norm of order {ord} of {x.dtype}")
    dims = wrap_dims(dim, len(x.shape))
    v = operand(t, x, computes_as(out))
    if ord == 1:
        return t.cast(t.reduce("sum", dims, t.fn("abs", v), keepdim=keepdim), out)
    return t.cast(t.fn("sqrt", t.reduce("dot", dims, v, v, keepdim=keepdim)), out)


@lowers("cumsum")
def _cumsum(t: Trace, x: Value, dim: int, dtype: Any = None) -> Value:
    raise Fallback("sums of prefixes are no fused loop")


# -- softmax -------------------------------------------------------------------------------------


def _real(x: Value) -> str:
    if not is_float(x.dtype):
        raise Fallback(f"softmax of {x.dtype}")
    return computes_as(x.dtype)


def _shifted(t: Trace, x: Value, dim: int, inner: str) -> tuple[Value, tuple[int, ...]]:
    v = t.cast(x, inner)
    dims = (wrap_dim(dim, len(x.shape)),)
    if not x.shape:
        raise Fallback("softmax of a single number")
    return t.fn("sub", v, t.reduce("fmax", dims, v, keepdim=True)), dims


@lowers("_softmax")
def _softmax(t: Trace, x: Value, dim: int, half_to_float: bool = False) -> Value:
    inner = _real(x)
    shifted, dims = _shifted(t, x, dim, inner)
    e = t.fn("exp", shifted)
    scale = t.fn("reciprocal", t.reduce("sum", dims, e, keepdim=True))
    return t.cast(t.fn("mul", e, scale), "f32" if half_to_float else x.dtype)


@lowers("_log_softmax")
def _log_softmax(t: Trace, x: Value, dim: int, half_to_float: bool = False) -> Value:
    inner = _real(x)
    shifted, dims = _shifted(t, x, dim, inner)
    log_total = t.fn("log", t.reduce("sum", dims, t.fn("exp", shifted), keepdim=True))
    return t.cast(t.fn("sub", shifted, log_total), "f32" if half_to_float else x.dtype)


@lowers("_softmax_backward_data")
def _softmax_backward(t: Trace, g: Value, y: Value, dim: int, input_dtype: Any) -> Value:
    inner = _real(y)
    grad, out = t.cast(g, inner), t.cast(y, inner)
    dims = (wrap_dim(dim, len(y.shape)),)
    dot = t.reduce("dot", dims, grad, out, keepdim=True)
    return t.cast(t.fn("mul", out, t.fn("sub", grad, dot)), loop_name(input_dtype))


@lowers("_log_softmax_backward_data")
def _log_softmax_backward(t: Trace, g: Value, y: Value, dim: int, input_dtype: Any) -> Value:
    inner = _real(y)
    grad, out = t.cast(g, inner), t.cast(y, inner)
    dims = (wrap_dim(dim, len(y.shape)),)
    whole = t.reduce("sum", dims, grad, keepdim=True)
    back = t.fn("sub", grad, t.fn("mul", t.fn("exp", out), whole))
    return t.cast(back, loop_name(input_dtype))


@lowers("logsumexp")
def _logsumexp(t: Trace, x: Value, dim: Any, keepdim: bool = False) -> Value:
    inner = _real(x)
    dims = wrap_dims(dim, len(x.shape))
    if not count(x, dims):
        raise Fallback("logsumexp of nothing")
    v = t.cast(x, inner)
    found = t.reduce("max", dims, v, keepdim=True)
    top = t.select(t.fn("isinf", found), t.const(0, inner), found)
    whole = t.reduce("sum", dims, t.fn("exp", t.fn("sub", v, top)), keepdim=True)
    out = t.fn("add", t.fn("log", whole), top)
    kept = tuple(n for d, n in enumerate(x.shape) if keepdim or d not in dims)
    if keepdim:
        kept = tuple(1 if d in dims else n for d, n in enumerate(x.shape))
    return t.cast(t.reshape(out, kept), x.dtype)


@lowers("_safe_softmax")
def _safe_softmax(t: Trace, x: Value, dim: int, dtype: Any = None) -> Value:
    if dtype is not None and loop_name(dtype) != x.dtype:
        x = t.cast(x, loop_name(dtype))
    inner = _real(x)
    dims = (wrap_dim(dim, len(x.shape)),)
    v = t.cast(x, inner)
    top = t.reduce("fmax", dims, v, keepdim=True)
    masked = t.fn("eq", top, t.const(-math.inf, inner))
    e = t.fn("exp", t.fn("sub", v, t.select(masked, t.const(0, inner), top)))
    scale = t.fn("reciprocal", t.reduce("sum", dims, e, keepdim=True))
    return t.cast(t.select(masked, t.const(0, inner), t.fn("mul", e, scale)), x.dtype)
