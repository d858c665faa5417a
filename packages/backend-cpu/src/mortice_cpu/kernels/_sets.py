"""Kernels that treat a tensor as a set: which elements are in another, the unique ones."""

from __future__ import annotations

from typing import Any

import numpy as np

import mortice
from mortice.backend import result_type, wrap
from mortice.errors import ShapeError
from mortice_cpu.kernels._places import comparable, wrapped_dim


def isin(elements: Any, test_elements: Any, assume_unique: bool, invert: bool) -> Any:
    dtype = result_type((elements, test_elements)).numpy
    a, b = (x._a.astype(dtype, copy=False) for x in (elements, test_elements))
    return wrap(np.asarray(np.isin(a, b, invert=invert)).reshape(a.shape), mortice.bool)


def unique2(self: Any, sorted: bool, return_inverse: bool, return_counts: bool) -> Any:
    a = self._a
    values, inverse, counts = np.unique(
        comparable(a).reshape(-1), return_inverse=True, return_counts=True, equal_nan=False
    )
    return _triple(
        values.astype(a.dtype),
        inverse.reshape(a.shape),
        counts,
        return_inverse,
        return_counts,
        self._t,
    )


def _triple(
    values: Any, inverse: Any, counts: Any, want_inverse: bool, want_counts: bool, dtype: Any
) -> Any:
    empty = np.empty(0, np.int64)
    return (
        wrap(values, dtype),
        wrap(inverse.astype(np.int64) if want_inverse else empty, mortice.int64),
        wrap(counts.astype(np.int64) if want_counts else empty, mortice.int64),
    )


def unique_dim(self: Any, dim: int, sorted: bool, return_inverse: bool, return_counts: bool) -> Any:
    a = self._a
    d = wrapped_dim(dim, a.ndim)
    if not a.size:
        if a.shape[d] == 0:
            return _triple(
                a.copy(), np.empty(0), np.empty(0), return_inverse, return_counts, self._t
            )
        raise ShapeError(
            "unique_dim: There are 0 sized dimensions, and they aren't selected, so unique cannot be applied"
        )
    values, inverse, counts = np.unique(
        comparable(a), return_inverse=True, return_counts=True, axis=d, equal_nan=False
    )
    return _triple(
        values.astype(a.dtype), inverse.reshape(-1), counts, return_inverse, return_counts, self._t
    )


def unique_consecutive(
    self: Any, return_inverse: bool, return_counts: bool, dim: int | None
) -> Any:
    a = self._a
    rows = a.reshape(-1) if dim is None else np.moveaxis(a, wrapped_dim(dim, a.ndim), 0)
    n = rows.shape[0]
    if n == 0:
        shape = (0,) if dim is None else a.shape
        return _triple(
            np.empty(shape, a.dtype),
            np.empty(0),
            np.empty(0),
            return_inverse,
            return_counts,
            self._t,
        )
    flat = rows.reshape(n, -1)
    new = np.r_[True, (flat[1:] != flat[:-1]).any(axis=1)]
    inverse = np.cumsum(new) - 1
    counts = np.diff(np.r_[np.flatnonzero(new), n])
    values = rows[new]
    if dim is not None:
        values = np.ascontiguousarray(np.moveaxis(values, 0, wrapped_dim(dim, a.ndim)))
    else:
        inverse = inverse.reshape(a.shape)
    return _triple(values.copy(), inverse, counts, return_inverse, return_counts, self._t)


SETS = {
    "isin.Tensor_Tensor": isin,
    "_unique2": unique2,
    "unique_dim": unique_dim,
    "unique_consecutive": unique_consecutive,
}
