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
    dtype = like._t if like._t.differentiable else dtypes.float64
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
        taps = _taps(x, shape_of(x)[dim], m, mode, align, scales[i])
        taps, unit = _fixed_point(taps) if whole else (taps, None)
        result: Any = None
        for index, weight in taps:
            part = _weighted(call("index_select", x, dim, index), weight, dim, ndim)
            result = part if result is None else result + part
        if unit is not None:
            half = (unit * 0.5).floor()
            result = ((result + half) / unit).floor().clamp(0, 255).to(dtype)
        x = result
    return x


def _fixed_point(taps: list[tuple[Any, Any]]) -> tuple[list[tuple[Any, Any]], Any]:
    """Weights as whole numbers (in float64), and what stands for 1: PyTorch's arithmetic for bytes.

    The unit is the largest power of 2, up to 2^22, for which every weight stays below 2^15. Taps that
    the border has moved onto one input have their weights added up first.
    """
    weights: list[Any] = []
    for k, (index, weight) in enumerate(taps):
        if k:
            same = index == taps[k - 1][0]
            weight = weight + weights[-1] * same
            weights[-1] = weights[-1] * same.logical_not()
        weights.append(weight)
    top = weights[0].amax()
    for weight in weights[1:]:
        top = call("maximum", top, weight.amax())
    powers = call("pow.Scalar", 2.0, arange(top, 23, dtypes.float64)).round()
    grown = (top * powers * 2 + 0.5).floor() >= 2**15
    unit = call("where.ScalarOther", grown, powers, 2.0**22).amin()
    return [(i, (w * unit + w.sign() * 0.5).trunc()) for (i, _), w in zip(taps, weights)], unit


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
