"""Matrix products by numpy's BLAS."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mortice.backend import wrap
from mortice_cpu.precision import narrow, widen

_dot = np.dot
_matmul = np.matmul
_BLAS = frozenset("fdFD")  # numpy type characters with a BLAS routine


def product(a: Any, b: Any) -> Any:
    """Matrix product of arrays of one dtype; half types are summed in float32.

    Row-major, where numpy would keep the order of the batches.
    """
    if a.dtype.char in _BLAS:
        return _matmul(a, b, order="C")
    wide = widen(a)
    return narrow(_matmul(wide, widen(b), order="C"), a.dtype)


def _same_dtype(a: Any, b: Any) -> None:
    if a._t is not b._t:
        raise TypeError("dtypes differ")  # the shape rule says which


def mm(self: Any, mat2: Any) -> Any:
    a, b = self._a, mat2._a
    if self._t is not mat2._t or a.ndim != 2 or b.ndim != 2:
        raise TypeError("mm")
    if a.dtype.char in _BLAS:
        return wrap(_dot(a, b), self._t)
    return wrap(product(a, b), self._t)


def bmm(self: Any, mat2: Any) -> Any:
    a, b = self._a, mat2._a
    if self._t is not mat2._t or a.ndim != 3 or b.ndim != 3 or a.shape[0] != b.shape[0]:
        raise TypeError("bmm")
    return wrap(product(a, b), self._t)


def _combine(r: Any, base: Any, beta: Any, alpha: Any) -> Any:
    """``beta * base + alpha * r``, into r; a beta of 0 ignores what base holds."""
    if alpha != 1:
        r *= np.asarray(alpha).astype(r.dtype)
    if beta == 1:
        r += base
    elif beta != 0:
        r += base * np.asarray(beta).astype(r.dtype)
    return r


def addmm(self: Any, mat1: Any, mat2: Any, beta: Any, alpha: Any) -> Any:
    _same_dtype(mat1, mat2)
    _same_dtype(self, mat1)
    if mat1._a.ndim != 2 or mat2._a.ndim != 2:
        raise TypeError("addmm")
    a = mat1._a
    if a.dtype.char in _BLAS:
        return wrap(_combine(_dot(a, mat2._a), self._a, beta, alpha), self._t)
    r = _matmul(widen(a), widen(mat2._a))
    return wrap(narrow(_combine(r, widen(self._a), beta, alpha), a.dtype), self._t)


def baddbmm(self: Any, batch1: Any, batch2: Any, beta: Any, alpha: Any) -> Any:
    _same_dtype(batch1, batch2)
    _same_dtype(self, batch1)
    a, b = batch1._a, batch2._a
    if a.ndim != 3 or b.ndim != 3 or a.shape[0] != b.shape[0]:
        raise TypeError("baddbmm")
    r = _matmul(widen(a), widen(b), order="C")
    return wrap(narrow(_combine(r, widen(self._a), beta, alpha), a.dtype), self._t)


def mv(self: Any, vec: Any) -> Any:
    _same_dtype(self, vec)
    if self._a.ndim != 2 or vec._a.ndim != 1:
        raise TypeError("mv")
    return wrap(product(self._a, vec._a), self._t)


def dot(self: Any, tensor: Any) -> Any:
    _same_dtype(self, tensor)
    if self._a.ndim != 1 or tensor._a.ndim != 1:
        raise TypeError("dot")
    return wrap(np.asarray(product(self._a, tensor._a), self._a.dtype), self._t)


def linear(input: Any, weight: Any, bias: Any) -> Any:
    x, w = input._a, weight._a
    if input._t is not weight._t or w.ndim > 2:
        raise TypeError("linear")
    if x.dtype.char in _BLAS and x.ndim == 2 and w.ndim == 2:
        r = _dot(x, w.T)
        if bias is not None:
            r += bias._a
        return wrap(r, input._t)
    r = _matmul(widen(x), widen(w).T, order="C")
    if bias is not None:
        r = r + widen(bias._a)
    return wrap(narrow(r, x.dtype), input._t)


KERNELS: dict[str, Callable[..., Any]] = {
    "mm": mm,
    "bmm": bmm,
    "addmm": addmm,
    "baddbmm": baddbmm,
    "mv": mv,
    "dot": dot,
    "linear": linear,
}
