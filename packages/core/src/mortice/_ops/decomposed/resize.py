"""Resampling: every output is a weighted sum of few inputs, dimension by dimension."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mortice._ops.decomposed.steps import arange, full, in_float32, shape_of
from mortice._ops.formulas import call
from mortice._types import dtypes


def _ratio(n: Any, m: Any, align: bool, scale: float | None) -> Any:
    """Inputs per output."""
    if align:
        return (n - 1) / (m - 1) if m > 1 else 0.0
    return 1 / scale if scale else n / m


def _taps(like: Any, n: Any, m: Any, mode: str, align: bool, scale: Any) -> list[tuple[Any, Any]]:
    """(index of the input, its weight or None for 1) of each of m outputs, once per tap."""
    if mode.startswith("nearest"):
        shift = 0.5 if mode == "nearest-exact" else 0.0
        places = (arange(like, m, dtypes.float32) + shift) * _ratio(n, m, False, scale)
        return [(places.floor().to(dtypes.int64).clamp(None, n - 1), None)]
    ratio = _ratio(n, m, align, scale)
    dtype = like._t if like._t.differentiable else dtypes.float32
    places = arange(like, m, dtype)
    places = places * ratio if align else (places + 0.5) * ratio - 0.5
    if mode == "linear":
        places = places.clamp(0, None)
        low = places.floor().clamp(None, n - 1)
        t = (places - low).clamp(None, 1)
        index = low.to(dtypes.int64)
        return [(index, 1 - t), ((index + 1).clamp(None, n - 1), t)]
    low = places.floor()
    index = low.to(dtypes.int64)
    weights = _cubic(places - low)
    return [((index + (k - 1)).clamp(0, n - 1), w) for k, w in enumerate(weights)]


def _cubic(t: Any) -> list[Any]:
    """Keys' cubic convolution with a = -0.75, at distances 1 + t, t, 1 - t, 2 - t."""
    a = -0.75

    def near(d: Any) -> Any:
        return ((a + 2) * d - (a + 3)) * d * d + 1

    def far(d: Any) -> Any:
        return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a

    return [far(t + 1), near(t), near(1 - t), far(2 - t)]


def _weighted(x: Any, weight: Any, dim: int, ndim: int) -> Any:
    return x if weight is None else x * weight.reshape((-1, *(1,) * (ndim - 1 - dim)))


def _resample(x: Any, size: Sequence[Any], mode: str, align: bool, scales: Sequence[Any]) -> Any:
    ndim, dtype = len(shape_of(x)), x._t
    whole = not dtype.differentiable and not mode.startswith("nearest")
    passes = list(enumerate(size))
    for i, m in reversed(passes) if whole else passes:  # bytes: columns first, rounded each time
        dim = i + 2
        result: Any = None
        for index, weight in _taps(x, shape_of(x)[dim], m, mode, align, scales[i]):
            part = _weighted(call("index_select", x, dim, index), weight, dim, ndim)
            result = part if result is None else result + part
        x = (result + 0.5).floor().clamp(0, 255).to(dtype) if whole else result
    return x


@in_float32
def adjoint(self: Any, size: Any, mode: str, align: bool, scales: Any) -> Any:
    """What each output's gradient gives to its inputs, added up."""
    ndim = len(shape_of(self))
    for i, n in enumerate(size):
        dim = i + 2
        shape = shape_of(self)
        result = full(self, 0, (*shape[:dim], n, *shape[dim + 1 :]))
        for index, weight in _taps(self, n, shape[dim], mode, align, scales[i] or None):
            part = _weighted(self, weight, dim, ndim)
            result = call("index_add", result, dim, index, part, 1)
        self = result
    return self


def nearest(self: Any, size: Any, *scales: Any) -> Any:
    return _resample(self, size, "nearest", False, scales)


def nearest_exact(self: Any, size: Any, *scales: Any) -> Any:
    return _resample(self, size, "nearest-exact", False, scales)


@in_float32
def linear(self: Any, size: Any, align: bool, *scales: Any) -> Any:
    return _resample(self, size, "linear", align, scales)


@in_float32
def cubic(self: Any, size: Any, align: bool, *scales: Any) -> Any:
    return _resample(self, size, "cubic", align, scales)
