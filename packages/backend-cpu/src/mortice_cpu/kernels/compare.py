"""Comparisons, logic and bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from mortice.backend import dtypes
from mortice_cpu.kernels._elementwise import (
    Kernel,
    binary_integers,
    compute_type,
    operand,
    predicate,
    silence,
    wrap,
)


def _ordered(function: Any) -> Kernel:
    compare = predicate(function)

    def kernel(self: Any, other: Any) -> Any:
        if self._t.is_complex or type(other) is complex or getattr(other, "_t", self._t).is_complex:
            raise TypeError("complex")
        return compare(self, other)

    return kernel


def _logical(function: Any) -> Kernel:
    def kernel(self: Any, other: Any) -> Any:
        a, b = operand(self, compute_type(self._t)), operand(other, compute_type(other._t))
        return wrap(function(a, b), dtypes.bool_)

    return kernel


def _shift(left: bool) -> Kernel:
    """Shifts by the width or more, or by a negative count, push all bits out."""

    def apply(a: Any, b: Any) -> Any:
        width = a.dtype.itemsize * 8
        out = (b < 0) | (b >= width)
        if left:
            return np.where(out, a.dtype.type(0), np.left_shift(a, np.where(out, 0, b)))
        limit = width - 1
        return (
            np.right_shift(a, np.where(out, limit, b))
            if a.dtype.kind == "i"
            else np.where(out, a.dtype.type(0), np.right_shift(a, np.where(out, 0, b)))
        )

    return binary_integers(lambda a, b: apply(a, b).astype(a.dtype))


def equal(self: Any, other: Any) -> bool:
    """Whether sizes and all elements agree."""
    if self._t is not other._t:  # PyTorch promotes, as == does
        return self._a.shape == other._a.shape and bool((self == other).all())
    return self._a.shape == other._a.shape and bool(np.all(self._a == other._a))


KERNELS: dict[str, Kernel] = {
    "eq.Tensor": predicate(np.equal),
    "ne.Tensor": predicate(np.not_equal),
    "lt.Tensor": _ordered(np.less),
    "le.Tensor": _ordered(np.less_equal),
    "gt.Tensor": _ordered(np.greater),
    "ge.Tensor": _ordered(np.greater_equal),
    "logical_and": _logical(np.logical_and),
    "logical_or": _logical(np.logical_or),
    "logical_xor": _logical(np.logical_xor),
    "bitwise_and.Tensor": binary_integers(np.bitwise_and, bools=True),
    "bitwise_or.Tensor": binary_integers(np.bitwise_or, bools=True),
    "bitwise_xor.Tensor": binary_integers(np.bitwise_xor, bools=True),
    "bitwise_left_shift.Tensor": _shift(True),
    "bitwise_right_shift.Tensor": _shift(False),
    "equal": equal,
}

silence(globals())
