"""Normalisations. Rows are processed in blocks that stay in the cache."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from mortice.backend import wrap
from mortice_cpu.kernels import _native
from mortice_cpu.precision import narrow, widen

Array = Any
#: Bytes of input per block of rows: half of a 1 MiB L2, so that three passes over it hit.
BLOCK_BYTES = 256 << 10


def normalise_rows(x: Array, eps: float, out: Array) -> tuple[Array, Array]:
    """``out = (x - mean) * rstd`` over the last axis of 2-d arrays; returns mean and rstd."""
    rows, columns = x.shape
    if not columns:
        return np.zeros((rows, 1), x.dtype), np.full((rows, 1), np.nan, x.dtype)
    mean = np.empty((rows, 1), x.dtype)
    rstd = np.empty((rows, 1), x.dtype)
    if _fused("layer_norm", (out, mean, rstd, x), rows, columns, eps):
        return mean, rstd
    step = max(1, BLOCK_BYTES // (columns * x.itemsize))
    scale = x.dtype.type(1.0 / columns)
    for start in range(0, rows, step):
        part = slice(start, start + step)
        block = out[part]
        m = mean[part]
        np.mean(x[part], axis=1, keepdims=True, out=m)
        np.subtract(x[part], m, out=block)
        r = np.einsum("ij,ij->i", block, block)[:, None] * scale
        r += x.dtype.type(eps)
        np.sqrt(r, out=r)
        np.divide(x.dtype.type(1), r, out=rstd[part])
        block *= rstd[part]
    return mean, rstd


def _fused(name: str, arrays: tuple[Array, ...], rows: int, columns: int, *numbers: float) -> bool:
    """Run a fused row kernel on contiguous float32 arrays; False where there is none."""
    if rows * columns < _native.COSTLY:
        return False
    for a in arrays:
        if a.dtype != np.float32 or not a.flags.c_contiguous:
            return False
    kernel = _native.row(name, arrays[0].dtype)
    if kernel is None:
        return False
    kernel(*map(_native.address, arrays), rows, columns, *numbers)
    return True


def _affine_rows(x: Array, weight: Array, bias: Array, eps: float, out: Array) -> Any:
    """``normalise_rows`` with weight and bias in the same pass; None where no kernel does that."""
    rows, columns = x.shape
    mean = np.empty((rows, 1), x.dtype)
    rstd = np.empty((rows, 1), x.dtype)
    arrays = (out, mean, rstd, x, weight, bias)
    fused = _fused("layer_norm_affine", arrays, rows, columns, eps)
    return (mean, rstd) if fused else None


def native_layer_norm(input: Any, normalized_shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    shape = input._a.shape
    axis = len(shape) - len(normalized_shape)
    if axis < 0 or not normalized_shape or tuple(shape[axis:]) != tuple(normalized_shape):
        raise TypeError("native_layer_norm")
    rows = prod(shape[:axis])
    x = np.ascontiguousarray(widen(input._a)).reshape(rows, prod(normalized_shape))
    out = np.empty(x.shape, x.dtype)
    statistics = None
    if weight is not None and bias is not None:
        statistics = _affine_rows(x, widen(weight._a), widen(bias._a), eps, out)
    mean, rstd = statistics or normalise_rows(x, eps, out)
    if statistics is None and weight is not None:
        out *= widen(weight._a).reshape(-1)
    if statistics is None and bias is not None:
        out += widen(bias._a).reshape(-1)
    stats = (*shape[:axis], *(1,) * len(normalized_shape))
    dtype = input._a.dtype
    return (
        wrap(narrow(out.reshape(shape), dtype), input._t),
        wrap(narrow(mean.reshape(stats), dtype), input._t),
        wrap(narrow(rstd.reshape(stats), dtype), input._t),
    )


def _row_input_grad(g: Array, x_hat: Array, rstd: Array) -> Array:
    """rstd * (g - mean(g) - x_hat * mean(g * x_hat)) over the last axis; overwrites x_hat."""
    n = g.shape[-1]
    if not n:
        return x_hat
    inner = np.einsum("...j,...j->...", g, x_hat)[..., None] / n
    x_hat *= inner
    np.subtract(g, x_hat, out=x_hat)
    x_hat -= g.mean(axis=-1, keepdims=True)
    x_hat *= rstd
    return x_hat


def native_layer_norm_backward(
    grad_out: Any, input: Any, normalized_shape: Any, mean: Any, rstd: Any, weight: Any, bias: Any,
    output_mask: Any,
) -> Any:  # fmt: skip
    shape = input._a.shape
    n = prod(normalized_shape)
    rows = prod(shape[: len(shape) - len(normalized_shape)])
    x = widen(input._a).reshape(rows, n)
    dy = widen(grad_out._a).reshape(rows, n)
    r = widen(rstd._a).reshape(rows, 1)
    found: list[Any] = [None, None, None]
    if output_mask[0] and not output_mask[1]:
        dx = np.empty_like(x)
        m = widen(mean._a)
        if weight is None:
            done = _fused("layer_norm_backward", (dx, dy, x, m, r), rows, n)
        else:
            w = widen(weight._a)
            done = _fused("layer_norm_affine_backward", (dx, dy, x, m, r, w), rows, n)
        if done:
            found[0] = dx.reshape(shape)
            if output_mask[2]:
                found[2] = dy.sum(axis=0).reshape(normalized_shape)
            return _wrapped(found, input)
    x_hat = (x - widen(mean._a).reshape(rows, 1)) * r
    if output_mask[1]:
        found[1] = np.einsum("ij,ij->j", dy, x_hat).reshape(normalized_shape)
    if output_mask[2]:
        found[2] = dy.sum(axis=0).reshape(normalized_shape)
    if output_mask[0]:
        g = dy if weight is None else dy * widen(weight._a).reshape(-1)
        found[0] = _row_input_grad(g, x_hat, r).reshape(shape)
    return _wrapped(found, input)


def _wrapped(found: list[Any], like: Any) -> Any:
    return tuple(
        None if r is None else wrap(narrow(np.asarray(r), like._a.dtype), like._t) for r in found
    )


def native_group_norm(
    input: Any, weight: Any, bias: Any, n: int, c: int, hw: int, group: int, eps: float
) -> Any:
    if group <= 0 or c % group:
        raise TypeError("native_group_norm")
    shape = input._a.shape
    x = np.ascontiguousarray(widen(input._a)).reshape(n * group, c // group * hw)
    out = np.empty(x.shape, x.dtype)
    mean, rstd = normalise_rows(x, eps, out)
    channels = out.reshape(n, c, hw)
    if weight is not None:
        channels *= widen(weight._a).reshape(1, c, 1)
    if bias is not None:
        channels += widen(bias._a).reshape(1, c, 1)
    dtype = input._a.dtype
    return (
        wrap(narrow(out.reshape(shape), dtype), input._t),
        wrap(narrow(mean.reshape(n, group), dtype), input._t),
        wrap(narrow(rstd.reshape(n, group), dtype), input._t),
    )


def native_group_norm_backward(
    grad_out: Any, input: Any, mean: Any, rstd: Any, weight: Any, n: int, c: int, hw: int,
    group: int, output_mask: Any,
) -> Any:  # fmt: skip
    x = widen(input._a).reshape(n, group, c // group * hw)
    dy = widen(grad_out._a).reshape(n, c, hw)
    r = widen(rstd._a).reshape(n, group, 1)
    x_hat = (x - widen(mean._a).reshape(n, group, 1)) * r
    found: list[Any] = [None, None, None]
    if output_mask[1]:
        found[1] = np.einsum("ncp,ncp->c", dy, x_hat.reshape(n, c, hw))
    if output_mask[2]:
        found[2] = dy.sum(axis=(0, 2))
    if output_mask[0]:
        g = dy if weight is None else dy * widen(weight._a).reshape(1, c, 1)
        found[0] = _row_input_grad(g.reshape(x.shape), x_hat, r).reshape(input._a.shape)
    return _wrapped(found, input)


# -- batch norm: statistics over all dimensions but the channel (axis 1) ----------------------------


def _axes(ndim: int) -> tuple[int, ...]:
    return (0, *range(2, ndim))


def _column(v: Array, ndim: int) -> Array:
    return v.reshape(1, -1, *(1,) * (ndim - 2))


def _apply(x: Array, scale: Array, shift: Array) -> Array:
    """x * scale + shift per channel."""
    out = x * _column(scale, x.ndim)
    out += _column(shift, x.ndim)
    return out


def _affine(mean: Array, rstd: Array, weight: Any, bias: Any) -> tuple[Array, Array]:
    scale = rstd if weight is None else rstd * widen(weight._a)
    shift = -mean * scale
    return scale, shift if bias is None else shift + widen(bias._a)


def _moments(x: Array) -> tuple[Array, Array]:
    """Mean and biased variance per channel, in two passes."""
    axes = _axes(x.ndim)
    mean = x.mean(axis=axes)
    centred = x - _column(mean, x.ndim)
    count = x.size // max(1, x.shape[1])
    flat = centred.reshape(x.shape[0], x.shape[1], prod(x.shape[2:]))
    return mean, np.einsum("ncp,ncp->c", flat, flat) / max(1, count)


def _train(
    input: Any, weight: Any, bias: Any, mean: Any, var: Any, momentum: float, eps: float
) -> Any:
    x = widen(input._a)
    count = x.size // max(1, x.shape[1])
    mu, variance = _moments(x)
    rstd = 1 / np.sqrt(variance + x.dtype.type(eps))
    scale, shift = _affine(mu, rstd, weight, bias)
    out = _apply(x, scale, shift)
    if mean is not None:
        mean._a[...] = (1 - momentum) * mean._a + momentum * mu
        unbiased = variance * (count / max(1, count - 1))
        var._a[...] = (1 - momentum) * var._a + momentum * unbiased
    stats = _stats_dtype(input, weight, bias, mean, var)
    return (
        wrap(narrow(out, input._a.dtype), input._t),
        wrap(narrow(mu, stats.numpy), stats),
        wrap(narrow(rstd, stats.numpy), stats),
    )


def _stats_dtype(input: Any, *parameters: Any) -> Any:
    """The dtype of the parameters: float32 ones may go with a half input."""
    return next((p._t for p in parameters if p is not None), input._t)


def batch_norm_legit(
    input: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float,
    eps: float,
) -> Any:  # fmt: skip
    if not training:
        return no_training(input, weight, bias, mean, var, momentum, eps)
    if mean._a.size != input._a.shape[1] or var._a.size != input._a.shape[1]:
        raise TypeError("batch_norm")
    return _train(input, weight, bias, mean, var, momentum, eps)


def batch_norm_no_stats(
    input: Any, weight: Any, bias: Any, training: bool, momentum: float, eps: float
) -> Any:
    return _train(input, weight, bias, None, None, momentum, eps)


def no_training(
    input: Any, weight: Any, bias: Any, mean: Any, var: Any, momentum: float, eps: float
) -> Any:
    x = widen(input._a)
    rstd = 1 / np.sqrt(widen(var._a) + x.dtype.type(eps))
    scale, shift = _affine(widen(mean._a), rstd, weight, bias)
    stats = _stats_dtype(input, weight, bias, mean, var)
    empty = np.empty(0, stats.numpy)
    return (
        wrap(narrow(_apply(x, scale, shift), input._a.dtype), input._t),
        wrap(empty, stats),
        wrap(empty.copy(), stats),
    )


def native_batch_norm_backward(
    grad_out: Any, input: Any, weight: Any, mean: Any, var: Any, save_mean: Any, save_invstd: Any,
    train: bool, eps: float, output_mask: Any,
) -> Any:  # fmt: skip
    x, dy = widen(input._a), widen(grad_out._a)
    if train:
        mu, rstd = widen(save_mean._a), widen(save_invstd._a)
    else:
        mu, rstd = widen(mean._a), 1 / np.sqrt(widen(var._a) + x.dtype.type(eps))
    x_hat = x - _column(mu, x.ndim)
    x_hat *= _column(rstd, x.ndim)
    rows = (x.shape[0], x.shape[1], prod(x.shape[2:]))
    total = dy.sum(axis=_axes(x.ndim))
    along = np.einsum("ncp,ncp->c", dy.reshape(rows), x_hat.reshape(rows))
    found: list[Any] = [None, None, None]
    if output_mask[1]:
        found[1] = along
    if output_mask[2]:
        found[2] = total
    if output_mask[0]:
        scale = rstd if weight is None else rstd * widen(weight._a)
        if train:
            count = max(1, x.size // max(1, x.shape[1]))
            x_hat *= _column(-along / count, x.ndim)
            x_hat += dy
            x_hat -= _column(total / count, x.ndim)
            x_hat *= _column(scale, x.ndim)
            found[0] = x_hat
        else:
            found[0] = dy * _column(scale, x.ndim)
    dx = None if found[0] is None else wrap(narrow(found[0], input._a.dtype), input._t)
    like = input if weight is None else weight
    return (dx, *_wrapped(found[1:], like))


KERNELS: dict[str, Callable[..., Any]] = {
    "native_layer_norm": native_layer_norm,
    "native_layer_norm_backward": native_layer_norm_backward,
    "native_group_norm": native_group_norm,
    "native_group_norm_backward": native_group_norm_backward,
    "_native_batch_norm_legit": batch_norm_legit,
    "_native_batch_norm_legit.no_stats": batch_norm_no_stats,
    "_native_batch_norm_legit_no_training": no_training,
    "native_batch_norm_backward": native_batch_norm_backward,
}
