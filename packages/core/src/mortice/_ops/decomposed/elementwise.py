"""Elementwise operators."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes

from mortice._ops.decomposed.steps import floating, full, in_float32, shape_of, where
from mortice._ops.formulas import call
from mortice._types import dtypes
from mortice._types.promotion import result_type

_LN2 = math.log(2.0)


def _promoted(*values: Any) -> list[Any]:
    """Tensors in the dtype in which they meet; numbers become 0-d tensors."""
    dtype = result_type(values)
    first = next(x for x in values if hasattr(x, "_k"))
    return [x.to(dtype) if hasattr(x, "_k") else full(first, x, (), dtype) for x in values]


# -- of one tensor ---------------------------------------------------------------------------------


def sgn(self: Any) -> Any:
    if not self._t.is_complex:
        return self.sign()
    size = self.abs()
    return where(size == 0, 0, self / size)


def frac(self: Any) -> Any:
    return self - self.trunc()


@in_float32
def exp2(self: Any) -> Any:
    return call("pow.Scalar", 2, floating(self))


@in_float32
def sinc(self: Any) -> Any:
    x = floating(self) * math.pi
    return where(x == 0, 1, x.sin() / x)


@in_float32
def deg2rad(self: Any) -> Any:
    return floating(self) * (math.pi / 180)


@in_float32
def rad2deg(self: Any) -> Any:
    return floating(self) * (180 / math.pi)


@in_float32
def logit(self: Any, eps: float | None) -> Any:
    x = floating(self)
    if eps is not None:
        x = x.clamp(eps, 1 - eps)
    return (x / (1 - x)).log()


@in_float32
def logit_backward(grad: Any, self: Any, eps: float | None) -> Any:
    slope = grad / (self * (1 - self))
    if eps is None:
        return where((self >= 0) & (self <= 1), slope, math.nan)
    return where((self >= eps) & (self <= 1 - eps), slope, 0)


def round_decimals(self: Any, decimals: int) -> Any:
    if not self._t.differentiable:
        return self.clone()
    if decimals < 0:
        power = 10.0**-decimals
        return (self / power).round() * power
    power = 10.0**decimals
    return (self * power).round() / power


def nan_to_num(self: Any, nan: Any, high: Any, low: Any) -> Any:
    if not self._t.differentiable:
        return self.clone()
    most = float(ml_dtypes.finfo(self._t.numpy).max)
    result = where(self == math.inf, most if high is None else high, self)
    result = where(self == -math.inf, -most if low is None else low, result)
    return where(self != self, 0.0 if nan is None else nan, result)


def angle(self: Any) -> Any:
    if self._t.is_complex:
        return call("atan2", self.imag, self.real)
    x = floating(self)
    return where(x != x, x, where(x < 0, math.pi, full(x, 0)))


def conj_physical(self: Any) -> Any:
    return call("complex", self.real, -self.imag) if self._t.is_complex else self.clone()


def isfinite(self: Any) -> Any:
    if not self._t.differentiable:
        return call("eq.Tensor", self, self)
    return (self.abs() != math.inf) & (self == self)


def isposinf(self: Any) -> Any:
    return _equals(self, math.inf)


def isneginf(self: Any) -> Any:
    return _equals(self, -math.inf)


def _equals(self: Any, value: float) -> Any:
    if not self._t.differentiable:
        return call("ne.Tensor", self, self)
    return self == value


def isreal(self: Any) -> Any:
    if self._t.is_complex:
        return self.imag == 0
    return call("full_like", self, True, dtypes.bool_, None, None, None, None)


def zero(self: Any) -> Any:
    return call("full_like", self, 0, None, None, None, None, None)


def fill(self: Any, value: Any) -> Any:
    if not hasattr(value, "_k"):
        return call("full_like", self, value, None, None, None, None, None)
    return value.to(self._t).expand(shape_of(self)).clone()


def entr(self: Any) -> Any:
    x = floating(self)
    inner = where(x > 0, -x * x.log(), where(x == 0, 0, full(x, -math.inf)))
    return where(x != x, x, inner)


# -- of several ------------------------------------------------------------------------------------


def fmax(self: Any, other: Any) -> Any:
    a, b = _promoted(self, other)
    return where(b != b, a, where(a != a, b, call("maximum", a, b)))


def fmin(self: Any, other: Any) -> Any:
    a, b = _promoted(self, other)
    return where(b != b, a, where(a != a, b, call("minimum", a, b)))


@in_float32
def hypot(self: Any, other: Any) -> Any:
    """Scaled by the larger, so that squares do not overflow."""
    a, b = (x.abs() for x in _promoted(self, other))
    large, small = call("maximum", a, b), call("minimum", a, b)
    ratio = small / where(large == 0, 1, large)
    result = large * (1 + ratio * ratio).sqrt()
    return where(large == math.inf, math.inf, result)


def heaviside(self: Any, values: Any) -> Any:
    inner = where(self == 0, values, (self > 0).to(self._t))
    return where(self != self, 0, inner)


@in_float32
def logaddexp(self: Any, other: Any) -> Any:
    a, b = _promoted(self, other)
    top = call("maximum", a, b)
    low = call("minimum", a, b)
    result = top + (low - top).exp().log1p()
    return where((a == b) & (a.abs() == math.inf), a, result)


@in_float32
def logaddexp2(self: Any, other: Any) -> Any:
    a, b = _promoted(self, other)
    top = call("maximum", a, b)
    low = call("minimum", a, b)
    result = top + call("pow.Scalar", 2, low - top).log1p() / _LN2
    return where((a == b) & (a.abs() == math.inf), a, result)


@in_float32
def xlogy(self: Any, other: Any) -> Any:
    a, b = floating(self), floating(other)
    return where(b != b, math.nan, where(a == 0, 0, a * b.log()))


@in_float32
def xlog1py(self: Any, other: Any) -> Any:
    a, b = floating(self), floating(other)
    return where(b != b, math.nan, where(a == 0, 0, a * b.log1p()))


@in_float32
def lerp(self: Any, end: Any, weight: Any) -> Any:
    """From the nearer end, so that both ends are met exactly."""
    gap = end - self
    if not hasattr(weight, "_k"):  # a number
        return self + weight * gap if abs(weight) < 0.5 else end - gap * (1 - weight)
    return where(abs(weight) < 0.5, self + weight * gap, end - gap * (1 - weight))


def addcmul(self: Any, a: Any, b: Any, value: Any) -> Any:
    return self + (a * b if value == 1 else value * a * b)


def addcdiv(self: Any, a: Any, b: Any, value: Any) -> Any:
    return self + (a / b if value == 1 else value * a / b)


def clamp_min(self: Any, low: Any) -> Any:
    return call("clamp", self, low, None)


def clamp_max(self: Any, high: Any) -> Any:
    return call("clamp", self, None, high)


def maximum(self: Any, other: Any) -> Any:
    return call("maximum", *_promoted(self, other))


def minimum(self: Any, other: Any) -> Any:
    return call("minimum", *_promoted(self, other))


def masked_fill(self: Any, mask: Any, value: Any) -> Any:
    if hasattr(value, "_k"):
        value = value.to(self._t)
    else:
        value = full(self, value)
    return where(mask, value, self)


def isin(elements: Any, tests: Any, assume_unique: bool, invert: bool) -> Any:
    flat = tests.reshape((-1,))
    found = call("any.dim", elements.unsqueeze(-1) == flat, -1, False)
    return ~found if invert else found
