"""Normalisations and their gradients, as reductions and elementwise operations.

With g the gradient for x_hat = (x - mean) rstd, and means over the normalised dimensions, the
gradient for x is rstd (g - mean(g) - x_hat mean(g x_hat)).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mortice_llvm.dtypes import computes_as

from ..ir.values import Trace, Value
from .reduction import count, mean_of, moments
from .registry import Fallback, is_float, lowers, operand, updates


def _real(x: Value) -> str:
    if not is_float(x.dtype):
        raise Fallback(f"a normalisation of {x.dtype}")
    return computes_as(x.dtype)


def _normalised(
    t: Trace, v: Value, dims: tuple[int, ...], eps: Any
) -> tuple[Value, Value, Value, Value]:
    """(x_hat, mean, rstd, variance), statistics with size-1 dimensions."""
    mean, squares, d = moments(t, v, dims)
    var = t.fn("div", squares, t.size(count(v, dims), v.dtype))
    rstd = t.fn("rsqrt", t.fn("add", var, operand(t, eps, v.dtype)))
    return t.fn("mul", d, rstd), mean, rstd, var


def _affine(t: Trace, x: Value, weight: Value | None, bias: Value | None) -> Value:
    if weight is not None and bias is not None:
        return t.fn("fma", x, t.cast(weight, x.dtype), t.cast(bias, x.dtype))
    if weight is not None:
        return t.fn("mul", x, t.cast(weight, x.dtype))
    return x if bias is None else t.fn("add", x, t.cast(bias, x.dtype))


def _input_grad(t: Trace, g: Value, x_hat: Value, rstd: Value, dims: tuple[int, ...]) -> Value:
    n = t.size(count(g, dims), g.dtype)
    mean_gx = t.fn("div", t.reduce("dot", dims, g, x_hat, keepdim=True), n)
    inner = t.fn("sub", g, mean_of(t, g, dims, keepdim=True))
    return t.fn("mul", t.fn("sub", inner, t.fn("mul", x_hat, mean_gx)), rstd)


@lowers("native_layer_norm")
def _layer_norm(
    t: Trace, x: Value, shape: Sequence[int], weight: Any, bias: Any, eps: float
) -> tuple[Value, Value, Value]:
    if any(type(n) is int and n == 0 for n in shape):
        raise Fallback("the mean of nothing, which is 0 here and NaN elsewhere")
    v = t.cast(x, _real(x))
    dims = tuple(range(len(x.shape) - len(shape), len(x.shape)))
    x_hat, mean, rstd, _ = _normalised(t, v, dims, eps)
    return (
        t.cast(_affine(t, x_hat, weight, bias), x.dtype),
        t.cast(mean, x.dtype),
        t.cast(rstd, x.dtype),
    )


@lowers("native_layer_norm_backward")
def _layer_norm_backward(
    t: Trace, dy: Value, x: Value, shape: Sequence[int], mean: Value, rstd: Value, weight: Any,
    bias: Any, mask: Sequence[bool],
) -> tuple[Any, Any, Any]:  # fmt: skip
    inner = _real(x)
    axis = len(x.shape) - len(shape)
    dims, outer = tuple(range(axis, len(x.shape))), tuple(range(axis))
    grad, v, m, r = (t.cast(a, inner) for a in (dy, x, mean, rstd))
    x_hat = t.fn("mul", t.fn("sub", v, m), r)
    g = grad if weight is None else t.fn("mul", grad, t.cast(weight, inner))
    return _masked(
        mask,
        lambda: t.cast(_input_grad(t, g, x_hat, r, dims), x.dtype),
        lambda: t.cast(_summed(t, outer, grad, x_hat), x.dtype),
        lambda: t.cast(_summed(t, outer, grad), x.dtype),
    )


def _summed(t: Trace, dims: tuple[int, ...], *args: Value) -> Value:
    if not dims:
        return args[0] if len(args) == 1 else t.fn("mul", *args)
    return t.reduce("dot" if len(args) == 2 else "sum", dims, *args)


def _masked(mask: Sequence[bool], *makers: Any) -> tuple[Any, Any, Any]:
    found = [make() if wanted else None for make, wanted in zip(makers, mask)]
    return found[0], found[1], found[2]


@lowers("native_group_norm")
def _group_norm(
    t: Trace, x: Value, weight: Any, bias: Any, n: int, c: int, hw: int, group: int, eps: float
) -> tuple[Value, Value, Value]:
    inner = _real(x)
    grouped = t.reshape(t.cast(x, inner), (n, group, c // group, hw))
    x_hat, mean, rstd, _ = _normalised(t, grouped, (2, 3), eps)
    flat = t.reshape(x_hat, (n, c, hw))
    w, b = (None if p is None else t.reshape(t.cast(p, inner), (c, 1)) for p in (weight, bias))
    out = t.reshape(_affine(t, flat, w, b), x.shape)
    stats = tuple(t.cast(t.reshape(s, (n, group)), x.dtype) for s in (mean, rstd))
    return t.cast(out, x.dtype), stats[0], stats[1]


@lowers("native_group_norm_backward")
def _group_norm_backward(
    t: Trace, dy: Value, x: Value, mean: Value, rstd: Value, weight: Any, n: int, c: int, hw: int,
    group: int, mask: Sequence[bool],
) -> tuple[Any, Any, Any]:  # fmt: skip
    inner = _real(x)
    shape = (n, group, c // group, hw)
    grad, v = (t.reshape(t.cast(a, inner), shape) for a in (dy, x))
    m, r = (t.reshape(t.cast(a, inner), (n, group, 1, 1)) for a in (mean, rstd))
    x_hat = t.fn("mul", t.fn("sub", v, m), r)
    g = grad
    if weight is not None:
        g = t.fn("mul", grad, t.reshape(t.cast(weight, inner), (group, c // group, 1)))
    return _masked(
        mask,
        lambda: t.cast(t.reshape(_input_grad(t, g, x_hat, r, (2, 3)), x.shape), x.dtype),
        lambda: t.cast(t.reshape(t.reduce("dot", (0, 3), grad, x_hat), (c,)), x.dtype),
        lambda: t.cast(t.reshape(t.reduce("sum", (0, 3), grad), (c,)), x.dtype),
    )


# -- batch norm ----------------------------------------------------------------------------------


def _column(t: Trace, v: Value, ndim: int, dtype: str) -> Value:
    return t.reshape(t.cast(v, dtype), (v.shape[0], *(1,) * (ndim - 2)))


def _statistics_dtype(x: Value, *parameters: Any) -> str:
    return next((p.dtype for p in parameters if p is not None), x.dtype)


@lowers("_native_batch_norm_legit.no_stats")
def _batch_norm(
    t: Trace, x: Value, weight: Any, bias: Any, training: bool, momentum: float, eps: float
) -> tuple[Value, Value, Value]:
    out, mean, rstd, _ = batch_statistics(t, x, weight, bias, eps)
    dtype = _statistics_dtype(x, weight, bias)
    return out, t.cast(mean, dtype), t.cast(rstd, dtype)


def batch_statistics(
    t: Trace, x: Value, weight: Any, bias: Any, eps: float
) -> tuple[Value, Value, Value, Value]:
    """(result, mean, rstd, variance) of a batch; statistics of shape (channels,)."""
    inner = _real(x)
    n = len(x.shape)
    v = t.cast(x, inner)
    x_hat, mean, rstd, var = _normalised(t, v, (0, *range(2, n)), eps)
    w, b = (None if p is None else _column(t, p, n, inner) for p in (weight, bias))
    out = t.cast(_affine(t, x_hat, w, b), x.dtype)
    flat = (x.shape[1],)
    return out, t.reshape(mean, flat), t.reshape(rstd, flat), t.reshape(var, flat)


@updates("_native_batch_norm_legit")
def _batch_norm_with_running(
    t: Trace, x: Value, weight: Any, bias: Any, mean: Value, var: Value, training: bool,
    momentum: float, eps: float,
) -> tuple[Any, tuple[Value, Value]]:  # fmt: skip
    if not training:
        return _batch_norm_no_training(t, x, weight, bias, mean, var, momentum, eps), (mean, var)
    out, batch_mean, rstd, batch_var = batch_statistics(t, x, weight, bias, eps)
    n = count(x, (0, *range(2, len(x.shape))))
    squares = t.fn("mul", batch_var, t.size(n, batch_var.dtype))
    unbiased = t.fn("div", squares, t.size(max(n - 1, 1), batch_var.dtype))
    dtype = _statistics_dtype(x, weight, bias)
    result = out, t.cast(batch_mean, dtype), t.cast(rstd, dtype)
    return result, (_moved(t, mean, batch_mean, momentum), _moved(t, var, unbiased, momentum))


def _moved(t: Trace, old: Value, new: Value, momentum: float) -> Value:
    """old + momentum (new - old), in the dtype of ``old``."""
    before = t.cast(old, new.dtype)
    step = t.fn("mul", t.fn("sub", new, before), t.const(momentum, new.dtype))
    return t.cast(t.fn("add", before, step), old.dtype)


@lowers("_native_batch_norm_legit_no_training")
def _batch_norm_no_training(
    t: Trace, x: Value, weight: Any, bias: Any, mean: Value, var: Value, momentum: float,
    eps: float,
) -> tuple[Value, Value, Value]:  # fmt: skip
    inner = _real(x)
    n = len(x.shape)
    scale = t.fn("rsqrt", t.fn("add", t.cast(var, inner), t.const(eps, inner)))
    if weight is not None:
        scale = t.fn("mul", scale, t.cast(weight, inner))
    shift = t.fn("neg", t.fn("mul", t.cast(mean, inner), scale))
    if bias is not None:
        shift = t.fn("add", shift, t.cast(bias, inner))
    out = t.fn("fma", t.cast(x, inner), _column(t, scale, n, inner), _column(t, shift, n, inner))
    dtype = _statistics_dtype(x, weight, bias, mean, var)
    empty = t.view(t.cast(t.const(0, computes_as(dtype)), dtype), (), (0,))
    return t.cast(out, x.dtype), empty, empty


@lowers("native_batch_norm_backward")
def _batch_norm_backward(
    t: Trace, dy: Value, x: Value, weight: Any, mean: Any, var: Any, save_mean: Any,
    save_invstd: Any, train: bool, eps: float, mask: Sequence[bool],
) -> tuple[Any, Any, Any]:  # fmt: skip
    inner = _real(x)
    n = len(x.shape)
    dims = (0, *range(2, n))
    grad, v = t.cast(dy, inner), t.cast(x, inner)
    if train:
        m, r = (_column(t, s, n, inner) for s in (save_mean, save_invstd))
    else:
        m = _column(t, mean, n, inner)
        r = _column(
            t, t.fn("rsqrt", t.fn("add", t.cast(var, inner), t.const(eps, inner))), n, inner
        )
    x_hat = t.fn("mul", t.fn("sub", v, m), r)
    g = grad if weight is None else t.fn("mul", grad, _column(t, weight, n, inner))
    stats = x.dtype if weight is None else weight.dtype
    return _masked(
        mask,
        lambda: t.cast(_input_grad(t, g, x_hat, r, dims) if train else t.fn("mul", g, r), x.dtype),
        lambda: t.cast(t.reduce("dot", dims, grad, x_hat), stats),
        lambda: t.cast(t.reduce("sum", dims, grad), stats),
    )
