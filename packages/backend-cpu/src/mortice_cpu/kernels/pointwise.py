"""Elementwise kernels on numpy arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mortice.backend import NUMBERS, result_type, wrap

Kernel = Callable[..., Any]

_ZERO = {}  # numpy dtype -> 0-d zero: passing 0 itself costs 250 ns more


def operands(self: Any, other: Any) -> tuple[Any, Any, Any]:
    """Both operands as arrays (or numbers) of the promoted dtype, and that dtype."""
    dtype = result_type((self, other))
    return convert(self, dtype), convert(other, dtype), dtype


def convert(x: Any, dtype: Any) -> Any:
    """An operand in ``dtype``: a tensor's array, or a number as a 0-d array."""
    if type(x) in NUMBERS:
        return np.array(x).astype(dtype.numpy)
    return x._a if x._t is dtype else x._a.astype(dtype.numpy)


def add(self: Any, other: Any, alpha: Any) -> Any:
    if alpha == 1 and type(other) not in NUMBERS and self._t is other._t:
        return wrap(np.add(self._a, other._a), self._t)
    a, b, dtype = operands(self, other)
    if alpha != 1:
        b = b * np.asarray(alpha).astype(dtype.numpy)
    return wrap(np.add(a, b), dtype)


def mul(self: Any, other: Any) -> Any:
    if type(other) not in NUMBERS and self._t is other._t:
        return wrap(np.multiply(self._a, other._a), self._t)
    a, b, dtype = operands(self, other)
    return wrap(np.multiply(a, b), dtype)


def relu(self: Any) -> Any:
    a = self._a
    zero = _ZERO.get(a.dtype)
    if zero is None:
        zero = _ZERO[a.dtype] = np.zeros((), a.dtype)
    return wrap(np.maximum(a, zero), self._t)


def threshold_backward(grad_output: Any, self: Any, threshold: Any) -> Any:
    return wrap(np.where(self._a > threshold, grad_output._a, 0).astype(grad_output._t.numpy), grad_output._t)


KERNELS: dict[str, Kernel] = {
    "add.Tensor": add,
    "mul.Tensor": mul,
    "relu": relu,
    "threshold_backward": threshold_backward,
}
