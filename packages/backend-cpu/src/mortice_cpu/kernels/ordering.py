"""Scans, sorting, selection and searching."""

from __future__ import annotations

from typing import Any

import numpy as np

from mortice.backend import dtypes, named_returns
from mortice_cpu.kernels._elementwise import (
    FLOAT,
    NUMBERS,
    Kernel,
    compute_type,
    finished,
    operand,
    result_type,
    row_major,
    silence,
    wrap,
)
from mortice_cpu.kernels.reduction import axes

_int64 = np.dtype(np.int64)
_FIELDS = ("values", "indices")
Sort = named_returns("sort", _FIELDS)
TopK = named_returns("topk", _FIELDS)
KthValue = named_returns("kthvalue", _FIELDS)
Median = named_returns("median", _FIELDS)
NanMedian = named_returns("nanmedian", _FIELDS)
Mode = named_returns("mode", _FIELDS)
Histogram = named_returns("histogram", ("hist", "bin_edges"))
CumMax = named_returns("cummax", _FIELDS)
CumMin = named_returns("cummin", _FIELDS)


def _indices(array: Any) -> Any:
    return wrap(np.asarray(array, _int64), dtypes.int64)


def _axis(a: Any, dim: int) -> int:
    found = axes(a, dim)
    return found[0] if found else 0


# -- scans -------------------------------------------------------------------------------------------


def _scan(function: Any) -> Kernel:
    def kernel(self: Any, dim: int, dtype: Any) -> Any:
        t = dtype or (self._t if self._t.kind >= FLOAT else dtypes.int64)
        a = operand(self, compute_type(t))
        axis = _axis(a, dim)
        with np.errstate(all="ignore"):
            r = function.accumulate(a, axis, dtype=a.dtype) if a.ndim else a.copy()
        return finished(r, t)

    return kernel


def logcumsumexp(self: Any, dim: int) -> Any:
    t = self._t
    if t.kind < FLOAT:
        raise TypeError("floating")
    a = operand(self, compute_type(t))
    axis = _axis(a, dim)
    if not a.ndim or not a.size:
        return finished(a.copy(), t)
    if a.dtype.kind != "c":
        with np.errstate(all="ignore"):
            return finished(np.logaddexp.accumulate(a, axis, dtype=a.dtype), t)
    with np.errstate(all="ignore"):
        return finished(_complex_logcumsumexp(np.moveaxis(a, axis, 0), axis), t)


def _complex_logcumsumexp(rows: Any, axis: int) -> Any:
    """Term by term, the smaller added to the greater, so that the phase is not folded back."""
    r = np.empty_like(rows)
    total = rows[0]
    r[0] = total
    for i in range(1, len(rows)):
        x = rows[i]
        first = total.real >= x.real
        high, low = np.where(first, total, x), np.where(first, x, total)
        same = (high == low) & ~np.isfinite(high.real)
        total = np.where(same, high, high + np.log1p(np.exp(low - high)))
        r[i] = total
    return np.moveaxis(r, 0, axis)


def _running(function: Any, result: Any, at_least: Any) -> Kernel:
    """Running extremum with the index of its newest equal; nan stays once met."""

    def kernel(self: Any, dim: int) -> Any:
        a = operand(self, compute_type(self._t))
        axis = _axis(a, dim)
        if not a.ndim or not a.size:
            return result(wrap(self._a.copy(), self._t), _indices(np.zeros(a.shape)))
        values = function.accumulate(a, axis)
        previous = np.roll(values, 1, axis)
        shape = [1] * a.ndim
        shape[axis] = a.shape[axis]
        places = np.arange(a.shape[axis]).reshape(shape)
        with np.errstate(all="ignore"):
            taken = at_least(a, previous) | (places == 0)
            if a.dtype.kind == "f":
                taken |= np.isnan(a)
        found = np.maximum.accumulate(np.where(taken, places, 0), axis)
        return result(finished(values, self._t), _indices(found))

    return kernel


# -- sorting -----------------------------------------------------------------------------------------


def _order(a: Any, axis: int, descending: bool) -> Any:
    """Stable indices that sort ``a``; nan is greater than everything."""
    if not descending:
        return np.argsort(a, axis, kind="stable")
    # Stable descending order: sort the reversed array upwards, reverse, and count from the front.
    n = a.shape[axis]
    return n - 1 - np.flip(np.argsort(np.flip(a, axis), axis, kind="stable"), axis)


def sort(self: Any, dim: int, descending: bool) -> Any:
    if self._t.is_complex:
        raise TypeError("complex")
    a = operand(self, compute_type(self._t))
    axis = _axis(a, dim)
    if not a.ndim:
        return Sort(wrap(self._a.copy(), self._t), _indices(np.zeros(())))
    order = _order(a, axis, descending)
    return Sort(wrap(np.take_along_axis(self._a, order, axis), self._t), _indices(order))


def sort_stable(self: Any, stable: bool | None, dim: int, descending: bool) -> Any:
    return sort(self, dim, descending)


def topk(self: Any, k: int, dim: int, largest: bool, sorted: bool) -> Any:
    t = self._t
    if t.is_complex or t is dtypes.bool_:
        raise TypeError("dtype")
    a = operand(self, compute_type(t))
    axis = _axis(a, dim)
    n = a.shape[axis] if a.ndim else 1
    if not 0 <= k <= n:
        raise TypeError("k")
    if not a.ndim:
        if not k:
            raise TypeError("k")
        return TopK(wrap(self._a.copy(), t), _indices(np.zeros(())))
    order = _first_k(a, k, axis, largest)
    return TopK(wrap(np.take_along_axis(self._a, order, axis), t), _indices(order))


def _first_k(a: Any, k: int, axis: int, largest: bool) -> Any:
    """Indices of the k greatest (or least), best first; nan is the greatest."""
    n = a.shape[axis]
    if not 0 < k * 8 < n:
        return _order(a, axis, largest)[_along(a.ndim, axis, 0, k)]
    if largest:
        part = np.argpartition(a, n - k, axis)[_along(a.ndim, axis, n - k, n)]
    else:
        part = np.argpartition(a, k - 1, axis)[_along(a.ndim, axis, 0, k)]
    # by index first, so that equals stay in order
    part = np.sort(part, axis)
    inner = _order(np.take_along_axis(a, part, axis), axis, largest)
    return np.take_along_axis(part, inner, axis)


def _along(ndim: int, axis: int, start: int, stop: int) -> Any:
    """The index of a slice along one axis."""
    return (slice(None),) * axis + (slice(start, stop),) + (slice(None),) * (ndim - axis - 1)


def _pick(self: Any, a: Any, order: Any, place: Any, axis: int, keepdim: bool, result: Any) -> Any:
    """The element of rank ``place`` (a number or one per row) with its index."""
    at = (
        np.expand_dims(np.asarray(place), axis)
        if np.ndim(place)
        else np.full(tuple(1 if d == axis else s for d, s in enumerate(a.shape)), place)
    )
    index = np.take_along_axis(order, at, axis)
    values = np.take_along_axis(self._a, index, axis)
    if not keepdim:
        values, index = values.squeeze(axis), index.squeeze(axis)
    return result(wrap(values, self._t), _indices(index))


def kthvalue(self: Any, k: int, dim: int, keepdim: bool) -> Any:
    a = operand(self, compute_type(self._t))
    axis = _axis(a, dim)
    if not 1 <= k <= (a.shape[axis] if a.ndim else 1):
        raise TypeError("k")
    if not a.ndim:
        return KthValue(wrap(self._a.copy(), self._t), _indices(np.zeros(())))
    return _pick(self, a, _order(a, axis, False), k - 1, axis, keepdim, KthValue)


def _median_dim(skip_nan: bool) -> Kernel:
    result = NanMedian if skip_nan else Median

    def kernel(self: Any, dim: int, keepdim: bool) -> Any:
        a = operand(self, compute_type(self._t))
        axis = _axis(a, dim)
        if not a.ndim:
            return result(wrap(self._a.copy(), self._t), _indices(np.zeros(())))
        n = a.shape[axis]
        if not n:
            raise TypeError("empty")
        order = _order(a, axis, False)
        place = np.full([s for d, s in enumerate(a.shape) if d != axis], (n - 1) // 2)
        if a.dtype.kind == "f":
            nans = np.isnan(a)
            if skip_nan:
                place = np.maximum((n - 1 - nans.sum(axis)) // 2, 0)
            else:
                # the first nan, which sorting has put behind all numbers
                place = np.where(nans.any(axis), n - nans.sum(axis), place)
        return _pick(self, a, order, place, axis, keepdim, result)

    return kernel


def _median_all(skip_nan: bool) -> Kernel:
    by_dim = _median_dim(skip_nan)

    def kernel(self: Any) -> Any:
        a = self._a
        if not a.size:
            if self._t.kind != FLOAT:
                raise TypeError("empty")
            return wrap(np.array(np.nan).astype(a.dtype), self._t)
        return by_dim(wrap(a.reshape(-1), self._t), 0, False)[0]

    return kernel


def mode(self: Any, dim: int, keepdim: bool) -> Any:
    """The most frequent value, the least of equals; the index of its last occurrence."""
    a = operand(self, compute_type(self._t))
    axis = _axis(a, dim)
    if not a.ndim:
        return Mode(wrap(self._a.copy(), self._t), _indices(np.zeros(())))
    n = a.shape[axis]
    if not n:
        raise TypeError("empty")
    rows = np.moveaxis(a, axis, -1).reshape(-1, n)
    order = np.argsort(rows, -1, kind="stable")
    sorted_rows = np.take_along_axis(rows, order, -1)
    fresh = np.ones(sorted_rows.shape, bool)
    fresh[:, 1:] = sorted_rows[:, 1:] != sorted_rows[:, :-1]
    starts = np.maximum.accumulate(np.where(fresh, np.arange(n), 0), -1)
    run = np.arange(n) - starts
    # the first longest run: argmax finds the first place where the longest run ends
    last = run.argmax(-1)
    index = order[np.arange(len(rows)), last]
    outer = [s for d, s in enumerate(a.shape) if d != axis]
    index = np.expand_dims(index.reshape(outer), axis)
    values = np.take_along_axis(self._a, index, axis)
    if not keepdim:
        values, index = values.squeeze(axis), index.squeeze(axis)
    return Mode(wrap(values, self._t), _indices(index))


# -- counting and searching ---------------------------------------------------------------------------


def histc(self: Any, bins: int, low: Any, high: Any) -> Any:
    from mortice.errors import InvalidState

    t = self._t
    if bins <= 0 or t.is_complex or t is dtypes.bool_:
        raise TypeError("histc")
    a = operand(self, compute_type(t)).reshape(-1)
    if low == high and a.size:
        low, high = float(a.min()), float(a.max())
    if low == high:
        low, high = low - 1, high + 1
    if not (np.isfinite(low) and np.isfinite(high)):
        raise InvalidState(f"range of [{low}, {high}] is not finite")
    if low > high:
        raise InvalidState("max must be larger than min")
    inside = a[(a >= low) & (a <= high)].astype(np.float64)
    places = np.minimum(((inside - low) / (high - low) * bins).astype(_int64), bins - 1)
    return finished(np.bincount(places, minlength=bins).astype(a.dtype), t)


def bincount(self: Any, weights: Any, minlength: int) -> Any:
    from mortice.errors import DTypeError, InvalidState

    a = self._a
    if self._t.kind >= FLOAT:
        raise DTypeError(f"bincount is implemented for integers, not for {self._t!r}.")
    if a.ndim != 1 or (a.size and int(a.min()) < 0):
        raise InvalidState("bincount only supports 1-d non-negative integral inputs.")
    if minlength < 0:
        raise InvalidState("minlength should be >= 0")
    if weights is not None and weights._a.shape != a.shape:
        raise InvalidState("weights should be 1-d and have the same length as input")
    places = a.astype(_int64)
    if weights is None:
        return _indices(np.bincount(places, minlength=minlength))
    r = np.bincount(places, weights=weights._a.astype(np.float64), minlength=minlength)
    t = dtypes.float32 if weights._t is dtypes.float32 else dtypes.float64
    return finished(r, t)


def bucketize(self: Any, boundaries: Any, out_int32: bool, right: bool) -> Any:
    if boundaries._a.ndim != 1:
        raise TypeError("boundaries")
    kind = compute_type(result_type((self, boundaries)))
    found = np.searchsorted(
        operand(boundaries, kind), operand(self, kind), "right" if right else "left"
    )
    return _counts(found, out_int32)


def _counts(found: Any, out_int32: bool) -> Any:
    if out_int32:
        return wrap(np.asarray(found, np.int32), dtypes.int32)
    return _indices(found)


def searchsorted(
    sequence: Any, self: Any, out_int32: bool, right: bool, side: str | None, sorter: Any
) -> Any:
    edges = sequence._a
    values = operand(self, edges.dtype) if type(self) in NUMBERS else self._a
    if side not in (None, "left", "right") or (side == "left" and right):
        raise TypeError("side")
    if edges.ndim != 1 and (edges.ndim != values.ndim or edges.shape[:-1] != values.shape[:-1]):
        raise TypeError("shape")
    if sorter is not None:
        if sorter._a.shape != edges.shape:
            raise TypeError("sorter")
        edges = np.take_along_axis(edges, sorter._a, -1)
    kind = np.result_type(edges.dtype, values.dtype) if edges.dtype != values.dtype else edges.dtype
    edges, values = edges.astype(kind), values.astype(kind)
    where = "right" if right or side == "right" else "left"
    if edges.ndim == 1:
        return _counts(np.searchsorted(edges, values, where), out_int32)
    if not edges.size or not values.size:
        return _counts(np.zeros(values.shape), out_int32)
    rows = edges.reshape(-1, edges.shape[-1])
    asked = values.reshape(len(rows), values.shape[-1])
    found = [np.searchsorted(e, v, where) for e, v in zip(rows, asked)]
    return _counts(np.array(found, _int64).reshape(values.shape), out_int32)


def _histogram(self: Any, edges: Any, weight: Any, density: bool) -> Any:
    """Counts between explicit edges; the last bin holds its right edge, what is outside is left out."""
    from mortice.errors import InvalidState

    t = self._t
    if t.kind != FLOAT:
        raise TypeError("floating")
    if weight is not None and (weight._a.shape != self._a.shape or weight._t is not t):
        raise InvalidState(
            "histogram(): if weight tensor is provided it should have the same shape and dtype as "
            "the input"
        )
    a = self._a.reshape(-1)
    w = None if weight is None else weight._a.reshape(-1)
    bins = len(edges) - 1
    inside = (a >= edges[0]) & (a <= edges[-1])
    places = np.minimum(np.searchsorted(edges, a[inside], "right") - 1, bins - 1)
    counts = np.bincount(places, None if w is None else w[inside], bins).astype(a.dtype)
    if density:
        counts = counts / (counts.sum() * np.diff(edges))
    return Histogram(wrap(counts.astype(a.dtype), t), wrap(edges, t))


def histogram_at(self: Any, bins: Any, weight: Any, density: bool) -> Any:
    if bins._a.ndim != 1 or not bins._a.size or bins._t is not self._t:
        raise TypeError("bins")
    return _histogram(self, bins._a.copy(), weight, density)


def histogram(self: Any, bins: int, range_: Any, weight: Any, density: bool) -> Any:
    from mortice.errors import InvalidState

    if bins <= 0:
        raise InvalidState(f"histogram(): bins must be > 0, but got {bins}")
    if range_ is not None and (len(range_) != 2 or range_[0] > range_[1]):
        raise InvalidState("histogram(): range should be (min, max) with min <= max")
    a = self._a
    low, high = range_ or ((float(a.min()), float(a.max())) if a.size else (0.0, 1.0))
    if low == high:
        low, high = low - 0.5, high + 0.5
    if not (np.isfinite(low) and np.isfinite(high)):
        raise InvalidState(f"histogram(): range [{low}, {high}] is not finite")
    return _histogram(self, np.linspace(low, high, bins + 1, dtype=a.dtype), weight, density)


KERNELS: dict[str, Kernel] = {
    "histogram.bins_tensor": histogram_at,
    "histogram.bin_ct": histogram,
    "cumsum": _scan(np.add),
    "cumprod": _scan(np.multiply),
    "logcumsumexp": logcumsumexp,
    "cummax": _running(np.maximum, CumMax, np.greater_equal),
    "cummin": _running(np.minimum, CumMin, np.less_equal),
    "sort": sort,
    "sort.stable": sort_stable,
    "topk": topk,
    "kthvalue": kthvalue,
    "median": _median_all(False),
    "median.dim": _median_dim(False),
    "nanmedian": _median_all(True),
    "nanmedian.dim": _median_dim(True),
    "mode": mode,
    "histc": histc,
    "bincount": bincount,
    "bucketize.Tensor": bucketize,
    "searchsorted.Tensor": searchsorted,
}

for _name in (
    "cumsum", "cumprod", "logcumsumexp", "cummax", "cummin", "topk", "kthvalue", "median.dim",
    "nanmedian.dim", "mode",
):  # fmt: skip
    KERNELS[_name] = row_major(KERNELS[_name])

silence(globals())
