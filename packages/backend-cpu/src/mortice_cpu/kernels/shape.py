"""Joining, repeating and reordering on numpy arrays."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from mortice.backend import result_type, wrap
from mortice_cpu.kernels._elementwise import in_order, row_major

Kernel = Callable[..., Any]


def _common(tensors: Any) -> tuple[list[Any], Any]:
    """The arrays in the dtype in which all tensors meet, and that dtype."""
    dtype = tensors[0]._t
    for t in tensors:
        if t._t is not dtype:
            dtype = result_type(tensors)
            return [x._a.astype(dtype.numpy, copy=False) for x in tensors], dtype
    return [t._a for t in tensors], dtype


def cat(tensors: Any, dim: int) -> Any:
    arrays, dtype = _common(tensors)
    ndim = arrays[0].ndim
    if any(a.ndim != ndim or a.shape == (0,) for a in arrays):
        kept = [a for a in arrays if a.shape != (0,)]
        if not kept:
            return wrap(np.empty(0, dtype.numpy), dtype)
        arrays = kept
    return wrap(_row_major(np.concatenate(arrays, dim), arrays), dtype)


def _row_major(out: Any, arrays: Any) -> Any:
    """numpy keeps a common order of the dimensions; PyTorch only that of channels_last."""
    if out.flags.c_contiguous:
        return out
    if out.ndim in (4, 5) and all(map(_is_like_channels_last, arrays)):
        return np.moveaxis(np.ascontiguousarray(np.moveaxis(out, 1, -1)), -1, 1)
    return np.ascontiguousarray(out)


def _is_like_channels_last(a: Any) -> bool:
    """As the shape rule has it: strides that grow from the channels outward, and not row-major."""
    if a.flags.c_contiguous:  # so are arrays without elements
        return False
    moved = np.moveaxis(a, 1, -1)
    sized = [(s, n) for n, s in zip(moved.shape, moved.strides) if n > 1]
    return sized[-1][0] > 0 and all(s >= t * n for (s, _), (t, n) in pairwise(sized))


def stack(tensors: Any, dim: int) -> Any:
    arrays, dtype = _common(tensors)
    out = np.stack(arrays, dim)
    return wrap(out if out.flags.c_contiguous else np.ascontiguousarray(out), dtype)


def repeat(self: Any, repeats: Any) -> Any:
    a = self._a
    gap = len(repeats) - a.ndim
    if gap < 0:
        raise ValueError("fewer repeats than dimensions")
    shape = (1,) * gap + a.shape
    out = np.empty([x for n, r in zip(shape, repeats) for x in (r, n)], a.dtype)
    out[...] = a.reshape([x for n in shape for x in (1, n)])
    return wrap(out.reshape([n * r for n, r in zip(shape, repeats)]), self._t)


def repeat_interleave(repeats: Any, output_size: Any) -> Any:
    from mortice.errors import DTypeError, ShapeError

    a = repeats._a
    if a.ndim != 1:
        raise ShapeError("repeat_interleave only accept 1D vector as repeat")
    if repeats._t.name not in ("int32", "int64"):
        raise DTypeError("repeats has to be Long or Int tensor")
    if a.size and a.min() < 0:
        raise ShapeError("repeats can not be negative")
    out = np.repeat(np.arange(a.shape[0], dtype=a.dtype), a)
    if output_size is not None and output_size != out.shape[0]:
        raise ShapeError(
            f"allocated size does not match required size: output_size is {output_size}, but the "
            f"repeats sum to {out.shape[0]}"
        )
    return wrap(out, repeats._t)


def flip(self: Any, dims: Any) -> Any:
    a = self._a
    if not a.ndim or not dims:
        return wrap(a.copy(), self._t)
    return wrap(np.flip(a, dims).copy(order="C"), self._t)


def roll(self: Any, shifts: Any, dims: Any) -> Any:
    if not self._a.size:
        return wrap(self._a.copy(), self._t)
    if (dims and len(shifts) != len(dims)) or not shifts or (not dims and len(shifts) != 1):
        raise ValueError("shifts and dims differ in number")
    return wrap(np.roll(self._a, shifts if dims else shifts[0], dims or None), self._t)


def _mask(a: Any, diagonal: int) -> Any:
    """True at and below the diagonal."""
    if a.ndim < 2:
        raise ValueError("needs a matrix")
    rows, columns = a.shape[-2:]
    return np.arange(rows)[:, None] >= np.arange(columns) - diagonal


def tril(self: Any, diagonal: int) -> Any:
    a = self._a
    return wrap(np.where(_mask(a, diagonal), a, np.zeros((), a.dtype)), self._t)


def triu(self: Any, diagonal: int) -> Any:
    a = self._a
    return wrap(np.where(_mask(a, diagonal - 1), np.zeros((), a.dtype), a), self._t)


def tril_indices(row: int, col: int, offset: int, dtype: Any, *rest: Any) -> Any:
    return _indices(row, col, np.arange(row)[:, None] + offset >= np.arange(col), dtype)


def triu_indices(row: int, col: int, offset: int, dtype: Any, *rest: Any) -> Any:
    return _indices(row, col, np.arange(row)[:, None] + offset <= np.arange(col), dtype)


def _indices(row: int, col: int, mask: Any, dtype: Any) -> Any:
    from mortice import int64

    dtype = dtype or int64
    return wrap(np.stack(np.nonzero(mask)).astype(dtype.numpy), dtype)


KERNELS: dict[str, Kernel] = {
    "cat": cat,
    "stack": stack,
    "repeat": repeat,
    "repeat_interleave.Tensor": repeat_interleave,
    "flip": in_order(flip),
    "roll": row_major(roll),
    "tril": row_major(tril),
    "triu": row_major(triu),
    "tril_indices": tril_indices,
    "triu_indices": triu_indices,
}
