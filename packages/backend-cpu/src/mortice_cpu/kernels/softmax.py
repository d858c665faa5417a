"""Softmax and its kin. Rows of contiguous float32 go to fused kernels."""

from __future__ import annotations

from typing import Any

import numpy as np

from mortice.backend import dtypes
from mortice_cpu.kernels import _native
from mortice_cpu.kernels._elementwise import (
    FLOAT,
    Kernel,
    compute_type,
    operand,
    packed,
    silence,
)
from mortice_cpu.kernels.reduction import axes, floating


def _is_last(a: Any, dim: int) -> bool:
    return a.flags.c_contiguous and (dim == -1 or dim == a.ndim - 1)


def _by_row(name: str, dim: int, *arrays: Any) -> Any:
    """A fused row kernel over the last dimension, or None where it does not apply."""
    first = arrays[0]
    if first.size < _native.COSTLY or first.itemsize > 4:
        return None
    if not all(_is_last(a, dim) and a.dtype == first.dtype for a in arrays):
        return None
    kernel = _native.row(name, first.dtype)
    if kernel is None:
        return None
    out = np.empty_like(first)
    cols = first.shape[-1]
    kernel(_native.address(out), *map(_native.address, arrays), first.size // cols, cols)
    return out


def _checked(self: Any, dim: int, half_to_float: bool) -> Any:
    t = self._t
    if (t.kind != FLOAT and self._a.size) or not -max(self._a.ndim, 1) <= dim < max(
        self._a.ndim, 1
    ):
        raise TypeError("softmax")
    return dtypes.float32 if half_to_float else t


def softmax(self: Any, dim: int, half_to_float: bool) -> Any:
    t = _checked(self, dim, half_to_float)
    r = None if half_to_float else _by_row("softmax", dim, self._a)
    if r is None:
        a = operand(self, compute_type(self._t))
        axis = dim if a.ndim else None
        if a.size:
            r = np.asarray(np.exp(a - np.maximum.reduce(a, axis, None, None, True)))  # pyright: ignore[reportCallIssue, reportArgumentType]
            np.divide(r, np.add.reduce(r, axis, None, None, True), r)  # pyright: ignore[reportCallIssue, reportArgumentType]
        else:
            r = a.copy()
    return packed(r, t)


def log_softmax(self: Any, dim: int, half_to_float: bool) -> Any:
    t = _checked(self, dim, half_to_float)
    r = None if half_to_float else _by_row("log_softmax", dim, self._a)
    if r is None:
        a = operand(self, compute_type(self._t))
        axis = dim if a.ndim else None
        if a.size:
            r = np.asarray(a - np.maximum.reduce(a, axis, None, None, True))  # pyright: ignore[reportCallIssue, reportArgumentType]
            total = np.add.reduce(np.exp(r), axis, None, None, True)  # pyright: ignore[reportCallIssue, reportArgumentType]
            np.subtract(r, np.log(total), r)
        else:
            r = a.copy()
    return packed(r, t)


def softmax_backward(grad: Any, output: Any, dim: int, input_dtype: Any) -> Any:
    r = _by_row("softmax_backward", dim, grad._a, output._a)
    if r is None:
        kind = compute_type(grad._t)
        g, y = operand(grad, kind), operand(output, kind)
        with np.errstate(all="ignore"):
            product = g * y
            r = product - y * product.sum(axis=dim if g.ndim else None, keepdims=True)
    return packed(r, input_dtype)


def log_softmax_backward(grad: Any, output: Any, dim: int, input_dtype: Any) -> Any:
    r = _by_row("log_softmax_backward", dim, grad._a, output._a)
    if r is None:
        kind = compute_type(grad._t)
        g, y = operand(grad, kind), operand(output, kind)
        with np.errstate(all="ignore"):
            r = g - np.exp(y) * g.sum(axis=dim if g.ndim else None, keepdims=True)
    return packed(r, input_dtype)


def logsumexp(self: Any, dim: Any, keepdim: bool) -> Any:
    a, t = floating(self)
    axis = axes(a, dim)
    with np.errstate(all="ignore"):
        if a.size == 0:
            return packed(np.log(np.exp(a).sum(axis=axis, keepdims=keepdim)), t)
        top = a.real.max(axis=axis, keepdims=True)
        top = np.where(np.isfinite(top), top, 0)
        total = np.exp(a - top).sum(axis=axis, keepdims=True)
        r = np.log(total) + top
    r = np.asarray(r, a.dtype)
    if not keepdim and axis:
        r = r.squeeze(axis)
    return packed(r, t)


KERNELS: dict[str, Kernel] = {
    "_softmax": softmax,
    "_softmax_backward_data": softmax_backward,
    "_log_softmax": log_softmax,
    "_log_softmax_backward_data": log_softmax_backward,
    "logsumexp": logsumexp,
}

silence(globals())
