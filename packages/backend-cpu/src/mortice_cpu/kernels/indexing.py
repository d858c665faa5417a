"""Reading and writing by index on numpy arrays.

numpy's fancy indexing follows the same rules as PyTorch's once masks are positions; what is left
is bounds (numpy's errors named after its axes), dtypes that numpy's ufunc.at does not take, and
keeping writes out of the way of their own source.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import mortice
from mortice.backend import shape_rule, wrap
from mortice.errors import DimensionError, DTypeError, ShapeError
from mortice_cpu.kernels._elementwise import row_major
from mortice_cpu.kernels._places import add_at, add_rows, checked_rule, explain, wrapped_dim
from mortice_cpu.kernels._sets import SETS
from mortice_cpu.kernels._tables import TABLES

Kernel = Callable[..., Any]
_ALL = slice(None)


# -- index and index_put ---------------------------------------------------------------------------


def _key(shape: Any, indices: Any) -> tuple[Any, ...]:
    """A numpy index: masks stay masks where they stand alone, None is a whole dimension."""
    key: list[Any] = []
    for index in indices:
        if index is None:
            key.append(_ALL)
            continue
        a = index._a
        if a.dtype.kind == "b" or a.dtype == np.uint8:
            mask = a if a.dtype.kind == "b" else a != 0
            start = len(key)
            if mask.shape != shape[start : start + mask.ndim]:
                raise ShapeError("mask")  # the shape rule says which
            key += list(np.nonzero(mask)) if mask.ndim else [np.zeros(int(mask), np.int64)]
        elif a.dtype.kind == "i":
            key.append(a)
        else:
            raise DimensionError("tensors used as indices must be long, int, byte or bool tensors")
    return tuple(key)


def index(self: Any, indices: Any) -> Any:
    a = self._a
    key: tuple[Any, ...] = ()
    try:
        key = _key(a.shape, indices)
        if len(key) > a.ndim:
            raise IndexError("too many")
        out = a[key]
    except (IndexError, ShapeError):
        checked_rule("index.Tensor", self, indices)
        explain(a.shape, key)
        raise
    return wrap(np.ascontiguousarray(out) if out.ndim else np.asarray(out).copy(), self._t)


def _put(self: Any, target: Any, indices: Any, values: Any, accumulate: bool) -> None:
    if self._t is not values._t:
        checked_rule("index_put", self, indices, values, accumulate)
    key: tuple[Any, ...] = ()
    source = values._a
    if np.may_share_memory(target, source):
        source = source.copy()
    try:
        key = _key(target.shape, indices)
        if accumulate:
            _accumulate(target, key, source)
        else:
            target[key] = source
    except (IndexError, ValueError, ShapeError):
        checked_rule("index_put", self, indices, values, accumulate)
        explain(target.shape, key)
        raise


def _accumulate(target: Any, key: Any, values: Any) -> None:
    """Add values into places that may repeat."""
    rows = key[0] if len(key) == 1 and isinstance(key[0], np.ndarray) else None
    if rows is not None and rows.ndim == 1 and target.ndim >= 1:
        shape = (rows.shape[0], *target.shape[1:])
        add_rows(target, rows, np.broadcast_to(values, shape))
        return
    if target.dtype.kind == "b":
        np.logical_or.at(target, key, values)
    else:
        add_at(target, key, values)


def index_put(self: Any, indices: Any, values: Any, accumulate: bool) -> Any:
    out = self._a.copy()
    _put(self, out, indices, values, accumulate)
    return wrap(out, self._t)


def index_put_(self: Any, indices: Any, values: Any, accumulate: bool) -> Any:
    _put(self, self._a, indices, values, accumulate)
    return self


# -- along one dimension ---------------------------------------------------------------------------


def _positions(index: Any, size: int, dim: int) -> Any:
    """Index values as int64, checked against the dimension (negative ones are errors)."""
    a = index._a
    if a.dtype.kind != "i":
        raise DTypeError(f"Expected dtype int32 or int64 for index, got {index._t!r}")
    if a.size and (a.min() < 0 or a.max() >= size):
        bad = int(a[(a < 0) | (a >= size)].flat[0])
        raise DimensionError(f"index {bad} is out of bounds for dimension {dim} with size {size}")
    return a


def index_select(self: Any, dim: int, index: Any) -> Any:
    a = self._a
    if not a.ndim or index._a.ndim > 1 or index._a.dtype.kind != "i":
        checked_rule("index_select", self, dim, index)
    if not a.ndim:
        _positions(index, 1, 0)
        return wrap(a.copy(), self._t)
    d = wrapped_dim(dim, a.ndim)
    at = _positions(index, a.shape[d], d)
    return wrap(np.take(a, at.reshape(-1), d), self._t)


def _moved(target: Any, dim: int) -> tuple[Any, int]:
    """The array with ``dim`` first (a view), and the dimension as a positive number."""
    if not target.ndim:
        return target.reshape(1), 0
    d = wrapped_dim(dim, target.ndim)
    return np.moveaxis(target, d, 0), d


def _source_rows(source: Any, target: Any, d: int, n: int) -> Any:
    a = source._a
    if np.may_share_memory(a, target):
        a = a.copy()
    if not a.ndim:
        return np.broadcast_to(a, (n, *target.shape[1:]))
    return np.moveaxis(a, d, 0)


def _into(name: str, write: Callable[..., None]) -> tuple[Kernel, Kernel]:
    """A functional and an in-place kernel from a writer of ``(self, array, *args)``."""

    def functional(self: Any, *args: Any) -> Any:
        out = self._a.copy()
        write(self, out, *args)
        return wrap(out, self._t)

    def inplace(self: Any, *args: Any) -> Any:
        write(self, self._a, *args)
        return self

    return functional, inplace


def _add(self: Any, target: Any, dim: int, index: Any, source: Any, alpha: Any) -> None:
    checked_rule("index_add", self, dim, index, source, alpha)
    rows, d = _moved(target, dim)
    at = _positions(index, rows.shape[0], d).reshape(-1)
    values = _source_rows(source, rows, d, at.shape[0])
    if alpha != 1:
        values = values * np.asarray(alpha).astype(values.dtype)
    add_rows(rows, at, values)


def _copy(self: Any, target: Any, dim: int, index: Any, source: Any) -> None:
    checked_rule("index_copy", self, dim, index, source)
    rows, d = _moved(target, dim)
    at = _positions(index, rows.shape[0], d).reshape(-1)
    rows[at] = _source_rows(source, rows, d, at.shape[0])


def _fill(self: Any, target: Any, dim: int, index: Any, value: Any) -> None:
    checked_rule("index_fill.int_Scalar", self, dim, index, value)
    rows, _ = _moved(target, dim)
    at = index._a.reshape(-1)
    if at.size and (at.min() < -rows.shape[0] or at.max() >= rows.shape[0]):
        explain(rows.shape, (at,))
    rows[at] = _as_element(value, self._t)


def _as_element(value: Any, dtype: Any) -> Any:
    with np.errstate(all="ignore"):
        if dtype is mortice.bool:
            return np.asarray(bool(value))
        return np.asarray(value).astype(dtype.numpy)


def _reduce_rows(
    self: Any, target: Any, dim: int, index: Any, source: Any, reduce: str, include_self: bool
) -> None:
    checked_rule("index_reduce", self, dim, index, source, reduce, include_self)
    rows, d = _moved(target, dim)
    at = _positions(index, rows.shape[0], d).reshape(-1)
    values = _source_rows(source, rows, d, at.shape[0])
    reduce_at(rows, at, values, reduce, include_self)


_IDENTITY = {"sum": 0, "mean": 0, "prod": 1}
_UFUNC = {
    "sum": np.add,
    "mean": np.add,
    "prod": np.multiply,
    "amax": np.maximum,
    "amin": np.minimum,
}


def _start(reduce: str, dtype: Any) -> Any:
    """The neutral element of a reduction in a numpy dtype."""
    if reduce in _IDENTITY:
        return _IDENTITY[reduce]
    low = reduce == "amax"
    if dtype.kind == "b":
        return not low
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return info.min if low else info.max
    return -np.inf if low else np.inf


def reduce_at(target: Any, key: Any, values: Any, reduce: str, include_self: bool) -> None:
    """Reduce values into places named by ``key``, which may repeat."""
    small = target.dtype.kind == "V" or target.dtype == np.float16
    work = target.astype(np.float32) if small else target
    values = values.astype(np.float32) if small else values
    if not include_self:
        work[key] = _start(reduce, work.dtype)
    with np.errstate(all="ignore"):
        _UFUNC[reduce].at(work, key, values)
        if reduce == "mean":
            counts = np.full(work.shape, 1 if include_self else 0, np.int64)
            np.add.at(counts, key, 1)
            np.maximum(counts, 1, out=counts)
            if work.dtype.kind in "iu":
                np.floor_divide(work, counts, out=work, casting="unsafe")
            else:
                np.divide(work, counts, out=work, casting="unsafe")
    if small:
        target[...] = work.astype(target.dtype)


# -- gather and scatter ----------------------------------------------------------------------------


def _open(shape: Any, d: int, at: Any) -> tuple[Any, ...]:
    """numpy index naming the places (i, j, ..., at[i, j, ...], ...)."""
    key = list(np.ogrid[tuple(slice(0, n) for n in at.shape)])
    key[d] = at
    return tuple(key)


def gather(self: Any, dim: int, index: Any, sparse_grad: bool) -> Any:
    a, at = self._a, index._a
    checked_rule("gather", self, dim, index, sparse_grad)
    if not at.size:
        return wrap(np.empty(at.shape, a.dtype), self._t)
    shape = at.shape
    a, at = np.atleast_1d(a), np.atleast_1d(at)
    d = wrapped_dim(dim, a.ndim)
    _in_bounds(at, a.shape[d], d)
    if a.flags.c_contiguous:
        out = a.reshape(-1).take(_flat(a.shape, d, at), mode="clip")  # bounds are checked
    else:
        out = a[_open(a.shape, d, at)]
    return wrap(out.reshape(shape), self._t)


def _flat(shape: Any, d: int, at: Any) -> Any:
    """Flat positions, in a contiguous array, of the places that ``_open`` names."""
    step = 1
    places: Any = None
    rest = [0] * len(shape)
    for k in range(len(shape) - 1, -1, -1):
        rest[k] = step
        step *= shape[k]
    places = at * rest[d] if rest[d] != 1 else at
    for k, n in enumerate(at.shape):
        if k != d and n > 1:
            along = np.arange(0, n * rest[k], rest[k]) if rest[k] else np.zeros(n, np.int64)
            places = places + along.reshape([-1 if j == k else 1 for j in range(at.ndim)])
    return places


def _in_bounds(at: Any, size: int, d: int) -> None:
    if at.size and (at.min() < 0 or at.max() >= size):
        bad = int(at[(at < 0) | (at >= size)].flat[0])
        raise ShapeError(f"index {bad} is out of bounds for dimension {d} with size {size}")


def _scatter_parts(target: Any, dim: int, index: Any, src: Any) -> Any:
    """(array, numpy index, values) of a scatter, or None if there is nothing to write."""
    at = np.atleast_1d(index._a)
    if not at.size:
        return None
    whole = target if target.ndim else target.reshape(1)
    d = wrapped_dim(dim, whole.ndim)
    _in_bounds(at, whole.shape[d], d)
    if src is not None:
        src = np.atleast_1d(src._a)[tuple(slice(0, n) for n in at.shape)]
        if np.may_share_memory(src, target):
            src = src.copy()
    if whole.flags.c_contiguous:  # flat positions: numpy is 4 times as quick on one dimension
        values = None if src is None else src.reshape(-1)
        return whole.reshape(-1), _flat(whole.shape, d, at).reshape(-1), values
    return whole, _open(whole.shape, d, at), src


def _scatter_src(self: Any, target: Any, dim: int, index: Any, src: Any) -> None:
    checked_rule("scatter.src", self, dim, index, src)
    parts = _scatter_parts(target, dim, index, src)
    if parts is not None:
        parts[0][parts[1]] = parts[2]


def _scatter_value(self: Any, target: Any, dim: int, index: Any, value: Any) -> None:
    checked_rule("scatter.value", self, dim, index, value)
    parts = _scatter_parts(target, dim, index, None)
    if parts is not None:
        parts[0][parts[1]] = _as_element(value, self._t)


def _scatter_add(self: Any, target: Any, dim: int, index: Any, src: Any) -> None:
    checked_rule("scatter_add", self, dim, index, src)
    parts = _scatter_parts(target, dim, index, src)
    if parts is None:
        return
    if target.dtype.kind == "b":
        np.logical_or.at(*parts)
    else:
        add_at(*parts)


_NAMES = {"add": "sum", "multiply": "prod"}


def _scatter_reduce_src(
    self: Any, target: Any, dim: int, index: Any, src: Any, reduce: str
) -> None:
    checked_rule("scatter.reduce", self, dim, index, src, reduce)
    parts = _scatter_parts(target, dim, index, src)
    if parts is not None:
        reduce_at(parts[0], parts[1], parts[2], _NAMES[reduce], True)


def _scatter_reduce_value(
    self: Any, target: Any, dim: int, index: Any, value: Any, reduce: str
) -> None:
    checked_rule("scatter.value_reduce", self, dim, index, value, reduce)
    parts = _scatter_parts(target, dim, index, None)
    if parts is not None:
        reduce_at(parts[0], parts[1], _as_element(value, self._t), _NAMES[reduce], True)


def _scatter_reduce(
    self: Any, target: Any, dim: int, index: Any, src: Any, reduce: str, include_self: bool
) -> None:
    checked_rule("scatter_reduce.two", self, dim, index, src, reduce, include_self)
    parts = _scatter_parts(target, dim, index, src)
    if parts is not None:
        reduce_at(parts[0], parts[1], parts[2], reduce, include_self)


# -- masks -----------------------------------------------------------------------------------------


def masked_select(self: Any, mask: Any) -> Any:
    if mask._t is not mortice.bool:
        raise DTypeError(f"masked_select: expected BoolTensor for mask, but got {mask._t!r}")
    a, m = self._a, mask._a
    if a.shape != m.shape:
        try:
            a, m = np.broadcast_arrays(a, m)
        except ValueError:
            mortice.broadcast_shapes(a.shape, m.shape)
            raise
    return wrap(a[m], self._t)


def _masked_scatter(self: Any, target: Any, mask: Any, source: Any) -> None:
    checked_rule("masked_scatter", self, mask, source)
    places = np.broadcast_to(mask._a, target.shape)
    count = int(np.count_nonzero(places))
    if count > source._a.size:
        raise ShapeError(
            f"masked_scatter: expected self and source to have the number of elements in source "
            f"({source._a.size}) at least the number of ones in mask ({count})"
        )
    target[places] = source._a.reshape(-1)[:count]


def masked_scatter(self: Any, mask: Any, source: Any) -> Any:
    shape, _ = shape_rule("masked_scatter")(self, mask, source)
    out = np.broadcast_to(self._a, shape).copy()
    _masked_scatter(self, out, mask, source)
    return wrap(out, self._t)


def masked_scatter_(self: Any, mask: Any, source: Any) -> Any:
    shape, _ = shape_rule("masked_scatter")(self, mask, source)
    if shape != self._a.shape:
        raise ShapeError(
            f"masked_scatter_: the mask of shape {list(mask.shape)} does not fit the tensor of shape "
            f"{list(self.shape)}"
        )
    _masked_scatter(self, self._a, mask, source)
    return self


def nonzero(self: Any) -> Any:
    a = self._a
    if not a.ndim:
        return wrap(np.empty((int(bool(a)), 0), np.int64), mortice.int64)
    return wrap(np.argwhere(a).astype(np.int64, copy=False), mortice.int64)


def nonzero_static(self: Any, size: int, fill_value: int) -> Any:
    found = np.argwhere(np.atleast_1d(self._a))[:size]
    out = np.full((size, self._a.ndim), fill_value, np.int64)
    if self._a.ndim:
        out[: found.shape[0]] = found
    return wrap(out, mortice.int64)


# -- flat positions --------------------------------------------------------------------------------


def _flat_positions(index: Any, size: int) -> Any:
    at = index._a
    if at.size and (at.min() < -size or at.max() >= size):
        bad = int(at[(at < -size) | (at >= size)].flat[0])
        raise DimensionError(
            f"out of range: tried to access index {bad} on a tensor of {size} elements."
        )
    return at


def take(self: Any, index: Any) -> Any:
    checked_rule("take", self, index)
    if not self._a.size and index._a.size:
        raise DimensionError("take(): tried to take from an empty tensor")
    at = _flat_positions(index, self._a.size)
    return wrap(np.take(self._a, np.where(at < 0, at + self._a.size, at)), self._t)


def _put_flat(self: Any, target: Any, index: Any, source: Any, accumulate: bool) -> None:
    checked_rule("put", self, index, source, accumulate)
    at = _flat_positions(index, target.size).reshape(-1)
    values = source._a.reshape(-1)
    whole = target if target.ndim else target.reshape(1)
    key = np.unravel_index(np.where(at < 0, at + target.size, at), whole.shape)
    if accumulate:
        add_at(whole, key, values)
    else:
        whole[key] = values


KERNELS: dict[str, Kernel] = {
    "index.Tensor": index,
    "index_put": index_put,
    "index_put_": index_put_,
    "index_select": index_select,
    "gather": row_major(gather),
    "masked_select": masked_select,
    "masked_scatter": masked_scatter,
    "masked_scatter_": masked_scatter_,
    "nonzero": nonzero,
    "nonzero_static": nonzero_static,
    "take": take,
    **SETS,
    **TABLES,
}

for _functional, _inplace, _write in (
    ("index_add", "index_add_", _add),
    ("index_copy", "index_copy_", _copy),
    ("index_fill.int_Scalar", "index_fill_.int_Scalar", _fill),
    ("index_reduce", "index_reduce_", _reduce_rows),
    ("scatter.src", "scatter_.src", _scatter_src),
    ("scatter.value", "scatter_.value", _scatter_value),
    ("scatter.reduce", "scatter_.reduce", _scatter_reduce_src),
    ("scatter.value_reduce", "scatter_.value_reduce", _scatter_reduce_value),
    ("scatter_add", "scatter_add_", _scatter_add),
    ("scatter_reduce.two", "scatter_reduce_.two", _scatter_reduce),
    ("put", "put_", _put_flat),
):
    KERNELS[_functional], KERNELS[_inplace] = _into(_functional, _write)
