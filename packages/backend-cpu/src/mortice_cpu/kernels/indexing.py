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
from mortice.backend import result_type, shape_rule, wrap
from mortice.errors import DimensionError, DTypeError, ShapeError

Kernel = Callable[..., Any]
_ALL = slice(None)
_LONG_ROW = 64


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


def _explain(shape: Any, key: Any) -> None:
    """DimensionError for the first position out of bounds."""
    for d, index in enumerate(key):
        if isinstance(index, np.ndarray) and index.size:
            bad = index[(index < -shape[d]) | (index >= shape[d])]
            if bad.size:
                raise DimensionError(
                    f"index {int(bad.flat[0])} is out of bounds for dimension {d} with size {shape[d]}"
                ) from None


def _checked_rule(name: str, *args: Any) -> None:
    """The shape rule's error, if the arguments deserve one."""
    shape_rule(name)(*args)


def index(self: Any, indices: Any) -> Any:
    a = self._a
    try:
        key = _key(a.shape, indices)
        if len(key) > a.ndim:
            raise IndexError("too many")
        out = a[key]
    except (IndexError, ShapeError):
        _checked_rule("index.Tensor", self, indices)
        _explain(a.shape, key)
        raise
    return wrap(np.ascontiguousarray(out) if out.ndim else np.asarray(out).copy(), self._t)


def _put(self: Any, target: Any, indices: Any, values: Any, accumulate: bool) -> None:
    if self._t is not values._t:
        _checked_rule("index_put", self, indices, values, accumulate)
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
        _checked_rule("index_put", self, indices, values, accumulate)
        _explain(target.shape, key)
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


def add_at(target: Any, key: Any, values: Any) -> None:
    """``np.add.at``, in float32 for the dtypes that lack it."""
    if target.dtype.kind == "V" or target.dtype == np.float16:
        wide = target.astype(np.float32)
        np.add.at(wide, key, values.astype(np.float32))
        target[...] = wide.astype(target.dtype)
    else:
        np.add.at(target, key, values)


def add_rows(target: Any, rows: Any, values: Any) -> None:
    """``target[rows[i]] += values[i]`` for repeating rows.

    Row by row where rows are long (1 us a row, and 0.5 ns an element); short rows through flat
    positions, since ``np.add.at`` is quick (6 ns an element) on one dimension alone.
    """
    n = target.shape[0]
    if not rows.size or not values.size:
        return
    if rows.min() < -n or rows.max() >= n:
        _explain(target.shape, (rows,))
    if target.dtype.kind == "b":
        np.logical_or.at(target, rows, values)
        return
    if rows.min() < 0:
        rows = np.where(rows < 0, rows + n, rows)
    small = target.dtype.kind == "V" or target.dtype == np.float16
    work = target.astype(np.float32) if small else target
    if small:
        values = values.astype(np.float32)
    with np.errstate(all="ignore"):
        if work[0].size >= _LONG_ROW:
            for row, value in zip(rows.tolist(), values):
                into = work[row]
                np.add(into, value, out=into)
        elif work.flags.c_contiguous:
            width = work[0].size
            places = (rows[:, None] * width + np.arange(width)).reshape(-1)
            np.add.at(work.reshape(-1), places, values.reshape(-1))
        else:
            np.add.at(work, rows, values)
    if small:
        target[...] = work.astype(target.dtype)


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
        _checked_rule("index_select", self, dim, index)
    if not a.ndim:
        _positions(index, 1, 0)
        return wrap(a.copy(), self._t)
    d = mortice_dim(dim, a.ndim)
    at = _positions(index, a.shape[d], d)
    return wrap(np.take(a, at.reshape(-1), d), self._t)


def mortice_dim(dim: int, ndim: int) -> int:
    n = ndim or 1
    if not -n <= dim < n:
        raise DimensionError(
            f"Dimension out of range (expected to be in range of [{-n}, {n - 1}], but got {dim})"
        )
    return dim % n


def _moved(target: Any, dim: int) -> tuple[Any, int]:
    """The array with ``dim`` first (a view), and the dimension as a positive number."""
    if not target.ndim:
        return target.reshape(1), 0
    d = mortice_dim(dim, target.ndim)
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
    _checked_rule("index_add", self, dim, index, source, alpha)
    rows, d = _moved(target, dim)
    at = _positions(index, rows.shape[0], d).reshape(-1)
    values = _source_rows(source, rows, d, at.shape[0])
    if alpha != 1:
        values = values * np.asarray(alpha).astype(values.dtype)
    add_rows(rows, at, values)


def _copy(self: Any, target: Any, dim: int, index: Any, source: Any) -> None:
    _checked_rule("index_copy", self, dim, index, source)
    rows, d = _moved(target, dim)
    at = _positions(index, rows.shape[0], d).reshape(-1)
    rows[at] = _source_rows(source, rows, d, at.shape[0])


def _fill(self: Any, target: Any, dim: int, index: Any, value: Any) -> None:
    _checked_rule("index_fill.int_Scalar", self, dim, index, value)
    rows, d = _moved(target, dim)
    at = index._a.reshape(-1)
    if at.size and (at.min() < -rows.shape[0] or at.max() >= rows.shape[0]):
        _explain(rows.shape, (at,))
    rows[at] = _as_element(value, self._t)


def _as_element(value: Any, dtype: Any) -> Any:
    with np.errstate(all="ignore"):
        if dtype is mortice.bool:
            return np.asarray(bool(value))
        return np.asarray(value).astype(dtype.numpy)


def _reduce_rows(
    self: Any, target: Any, dim: int, index: Any, source: Any, reduce: str, include_self: bool
) -> None:
    _checked_rule("index_reduce", self, dim, index, source, reduce, include_self)
    rows, d = _moved(target, dim)
    at = _positions(index, rows.shape[0], d).reshape(-1)
    values = _source_rows(source, rows, d, at.shape[0])
    reduce_at(rows, at, values, reduce, include_self)


_IDENTITY = {"sum": 0, "mean": 0, "prod": 1}
_UFUNC = {"sum": np.add, "mean": np.add, "prod": np.multiply, "amax": np.maximum, "amin": np.minimum}


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
    _checked_rule("gather", self, dim, index, sparse_grad)
    if not at.size:
        return wrap(np.empty(at.shape, a.dtype), self._t)
    shape = at.shape
    a, at = np.atleast_1d(a), np.atleast_1d(at)
    d = mortice_dim(dim, a.ndim)
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
    d = mortice_dim(dim, whole.ndim)
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
    _checked_rule("scatter.src", self, dim, index, src)
    parts = _scatter_parts(target, dim, index, src)
    if parts is not None:
        parts[0][parts[1]] = parts[2]


def _scatter_value(self: Any, target: Any, dim: int, index: Any, value: Any) -> None:
    _checked_rule("scatter.value", self, dim, index, value)
    parts = _scatter_parts(target, dim, index, None)
    if parts is not None:
        parts[0][parts[1]] = _as_element(value, self._t)


def _scatter_add(self: Any, target: Any, dim: int, index: Any, src: Any) -> None:
    _checked_rule("scatter_add", self, dim, index, src)
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
    _checked_rule("scatter.reduce", self, dim, index, src, reduce)
    parts = _scatter_parts(target, dim, index, src)
    if parts is not None:
        reduce_at(*parts, _NAMES[reduce], True)


def _scatter_reduce_value(
    self: Any, target: Any, dim: int, index: Any, value: Any, reduce: str
) -> None:
    _checked_rule("scatter.value_reduce", self, dim, index, value, reduce)
    parts = _scatter_parts(target, dim, index, None)
    if parts is not None:
        reduce_at(parts[0], parts[1], _as_element(value, self._t), _NAMES[reduce], True)


def _scatter_reduce(
    self: Any, target: Any, dim: int, index: Any, src: Any, reduce: str, include_self: bool
) -> None:
    _checked_rule("scatter_reduce.two", self, dim, index, src, reduce, include_self)
    parts = _scatter_parts(target, dim, index, src)
    if parts is not None:
        reduce_at(*parts, reduce, include_self)


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
    _checked_rule("masked_scatter", self, mask, source)
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
        raise DimensionError(f"out of range: tried to access index {bad} on a tensor of {size} elements.")
    return at


def take(self: Any, index: Any) -> Any:
    _checked_rule("take", self, index)
    if not self._a.size and index._a.size:
        raise DimensionError("take(): tried to take from an empty tensor")
    at = _flat_positions(index, self._a.size)
    return wrap(np.take(self._a, np.where(at < 0, at + self._a.size, at)), self._t)


def _put_flat(self: Any, target: Any, index: Any, source: Any, accumulate: bool) -> None:
    _checked_rule("put", self, index, source, accumulate)
    at = _flat_positions(index, target.size).reshape(-1)
    values = source._a.reshape(-1)
    whole = target if target.ndim else target.reshape(1)
    key = np.unravel_index(np.where(at < 0, at + target.size, at), whole.shape)
    if accumulate:
        add_at(whole, key, values)
    else:
        whole[key] = values


# -- sets ------------------------------------------------------------------------------------------


def isin(elements: Any, test_elements: Any, assume_unique: bool, invert: bool) -> Any:
    dtype = result_type((elements, test_elements)).numpy
    a, b = (x._a.astype(dtype, copy=False) for x in (elements, test_elements))
    return wrap(np.asarray(np.isin(a, b, invert=invert)).reshape(a.shape), mortice.bool)


def _comparable(a: Any) -> Any:
    """An array that numpy sorts: ml_dtypes widened."""
    return a.astype(np.float32) if a.dtype.kind == "V" else a


def unique2(self: Any, sorted: bool, return_inverse: bool, return_counts: bool) -> Any:  # noqa: A002
    a = self._a
    values, inverse, counts = np.unique(
        _comparable(a).reshape(-1), return_inverse=True, return_counts=True, equal_nan=False
    )
    return _triple(values.astype(a.dtype), inverse.reshape(a.shape), counts, return_inverse,
                   return_counts, self._t)


def _triple(values: Any, inverse: Any, counts: Any, want_inverse: bool, want_counts: bool, dtype: Any) -> Any:
    empty = np.empty(0, np.int64)
    return (
        wrap(values, dtype),
        wrap(inverse.astype(np.int64) if want_inverse else empty, mortice.int64),
        wrap(counts.astype(np.int64) if want_counts else empty, mortice.int64),
    )


def unique_dim(
    self: Any, dim: int, sorted: bool, return_inverse: bool, return_counts: bool  # noqa: A002
) -> Any:
    a = self._a
    d = mortice_dim(dim, a.ndim)
    if not a.size:
        if a.shape[d] == 0:
            return _triple(a.copy(), np.empty(0), np.empty(0), return_inverse, return_counts, self._t)
        raise ShapeError(
            "unique_dim: There are 0 sized dimensions, and they aren't selected, so unique cannot be applied"
        )
    values, inverse, counts = np.unique(
        _comparable(a), return_inverse=True, return_counts=True, axis=d, equal_nan=False
    )
    return _triple(values.astype(a.dtype), inverse.reshape(-1), counts, return_inverse,
                   return_counts, self._t)


def unique_consecutive(self: Any, return_inverse: bool, return_counts: bool, dim: int | None) -> Any:
    a = self._a
    rows = a.reshape(-1) if dim is None else np.moveaxis(a, mortice_dim(dim, a.ndim), 0)
    n = rows.shape[0]
    if n == 0:
        shape = (0,) if dim is None else a.shape
        return _triple(np.empty(shape, a.dtype), np.empty(0), np.empty(0), return_inverse, return_counts, self._t)
    flat = rows.reshape(n, -1)
    new = np.r_[True, (flat[1:] != flat[:-1]).any(axis=1)]
    inverse = np.cumsum(new) - 1
    counts = np.diff(np.r_[np.flatnonzero(new), n])
    values = rows[new]
    if dim is not None:
        values = np.ascontiguousarray(np.moveaxis(values, 0, mortice_dim(dim, a.ndim)))
    else:
        inverse = inverse.reshape(a.shape)
    return _triple(values.copy(), inverse, counts, return_inverse, return_counts, self._t)


# -- tables of vectors -----------------------------------------------------------------------------


def embedding(weight: Any, indices: Any, padding_idx: int, scale: bool, sparse: bool) -> Any:
    table, at = weight._a, indices._a
    if table.ndim != 2 or at.dtype.kind != "i":
        _checked_rule("embedding", weight, indices, padding_idx, scale, sparse)
    _rows_in_bounds(at, table.shape[0])
    return wrap(np.take(table, at, 0), weight._t)


def _rows_in_bounds(at: Any, n: int) -> None:
    if at.size and (at.min() < 0 or at.max() >= n):
        bad = int(at[(at < 0) | (at >= n)].flat[0])
        raise DimensionError(
            f"index out of range in self: index {bad} for a table of {n} rows. Indices must be at "
            f"least 0 and below {n}."
        )


def embedding_dense_backward(
    grad_output: Any, indices: Any, num_weights: int, padding_idx: int, scale: bool
) -> Any:
    g, at = grad_output._a, indices._a.reshape(-1)
    out = np.zeros((num_weights, g.shape[-1]), g.dtype)
    rows = g.reshape(at.shape[0], g.shape[-1])
    _rows_in_bounds(at, num_weights)
    if padding_idx >= 0:
        kept = at != padding_idx
        at, rows = at[kept], rows[kept]
    if scale and at.size:
        counts = np.bincount(at, minlength=num_weights)
        rows = (rows / counts[at][:, None]).astype(g.dtype)
    add_rows(out, at, rows)
    return wrap(out, grad_output._t)


def embedding_renorm_(self: Any, indices: Any, max_norm: float, norm_type: float) -> Any:
    table = self._a
    rows = np.unique(indices._a)
    _rows_in_bounds(rows, table.shape[0])
    picked = table[rows].astype(np.float64)
    norms = np.linalg.norm(picked, norm_type, axis=1, keepdims=True) if rows.size else picked
    scale = np.where(norms > max_norm, max_norm / (norms + 1e-7), 1.0)
    table[rows] = (picked * scale).astype(table.dtype)
    return self


def embedding_bag(
    weight: Any, indices: Any, offsets: Any, scale: bool, mode: int, sparse: bool,
    per_sample_weights: Any, include_last_offset: bool, padding_idx: int,
) -> Any:  # fmt: skip
    (shape, _), *_ = shape_rule("_embedding_bag")(
        weight, indices, offsets, scale, mode, sparse, per_sample_weights, include_last_offset, padding_idx
    )
    table, at, starts = weight._a, indices._a, offsets._a
    _rows_in_bounds(at, table.shape[0])
    n, bags = at.shape[0], shape[0]
    _check_offsets(starts, n)
    ends = starts[1 : bags + 1] if include_last_offset else np.r_[starts[1:bags], n][:bags]
    owner = np.repeat(np.arange(bags), np.maximum(ends - starts[:bags], 0)).astype(at.dtype)
    kept = at != padding_idx if padding_idx >= 0 else np.ones(n, bool)
    sizes = np.bincount(owner[kept], minlength=bags).astype(at.dtype)
    if mode == 2:
        out, most = _bag_max(table, at, owner, kept, bags)
    else:
        rows = table[at].astype(np.float32 if table.dtype.itemsize < 4 else table.dtype)
        if per_sample_weights is not None:
            rows = rows * per_sample_weights._a[:, None]
        out = np.zeros(shape, rows.dtype)
        add_rows(out, owner[kept], rows[kept])
        if mode == 1:
            out /= np.maximum(sizes, 1)[:, None].astype(out.dtype)
        most = np.zeros(bags, at.dtype) if mode == 0 else sizes
    index_type = indices._t
    if mode == 0:
        # As PyTorch's: a sum needs neither sizes nor, on its fast path, the owners.
        sizes = np.zeros_like(sizes)
        if padding_idx < 0 and table.dtype.itemsize <= 4 and table.strides[-1] == table.itemsize:
            owner = owner[:0]
    return (
        wrap(out.astype(table.dtype, copy=False), weight._t), wrap(owner, index_type),
        wrap(sizes, index_type), wrap(most, index_type),
    )  # fmt: skip


def _check_offsets(starts: Any, n: int) -> None:
    if starts.size and starts[0] != 0:
        raise ShapeError(f"offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from position 0. However, got {int(starts[0])}")
    if starts.size and starts[-1] > n:
        raise ShapeError(f"offsets[-1] can not be greater than input's length({n}) but got offsets[-1] of {int(starts[-1])}")


def _bag_max(table: Any, at: Any, owner: Any, kept: Any, bags: int) -> Any:
    out = np.zeros((bags, table.shape[1]), table.dtype)
    most = np.zeros((bags, table.shape[1]), at.dtype)  # of empty bags 0, as PyTorch's
    for bag in range(bags):
        rows = at[(owner == bag) & kept]
        if rows.size:
            best = np.argmax(_comparable(table[rows]), axis=0)
            most[bag] = rows[best]
            out[bag] = table[most[bag], np.arange(table.shape[1])]
    return out, most


def one_hot(self: Any, num_classes: int) -> Any:
    if self._t is not mortice.int64:
        raise DTypeError(f"one_hot is only applicable to index tensor of type LongTensor, not {self._t!r}.")
    a = self._a
    if not a.size:
        if num_classes <= 0:
            raise ShapeError("Can not infer total number of classes from empty tensor.")
        return wrap(np.empty((*a.shape, num_classes), np.int64), mortice.int64)
    if a.min() < 0:
        raise ShapeError("Class values must be non-negative.")
    top = int(a.max()) + 1
    if num_classes == -1:
        num_classes = top
    elif num_classes < 1:
        raise ShapeError("num_classes should be positive")
    elif num_classes < top:
        raise ShapeError("Class values must be smaller than num_classes.")
    return wrap((a[..., None] == np.arange(num_classes)).astype(np.int64), mortice.int64)


KERNELS: dict[str, Kernel] = {
    "index.Tensor": index,
    "index_put": index_put,
    "index_put_": index_put_,
    "index_select": index_select,
    "gather": gather,
    "masked_select": masked_select,
    "masked_scatter": masked_scatter,
    "masked_scatter_": masked_scatter_,
    "nonzero": nonzero,
    "nonzero_static": nonzero_static,
    "take": take,
    "isin.Tensor_Tensor": isin,
    "_unique2": unique2,
    "unique_dim": unique_dim,
    "unique_consecutive": unique_consecutive,
    "embedding": embedding,
    "embedding_dense_backward": embedding_dense_backward,
    "embedding_renorm_": embedding_renorm_,
    "_embedding_bag": embedding_bag,
    "one_hot": one_hot,
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
