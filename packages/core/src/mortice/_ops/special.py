"""Special functions: shape rules, composite bodies and gradients."""

from __future__ import annotations

import math
from typing import Any

from mortice._base.errors import DTypeError, ShapeError
from mortice._ops.formulas import call
from mortice._ops.pointwise import binary_float_real, tensor_like
from mortice._ops.unary import TWO_OVER_SQRT_PI, unary_float_real
from mortice._types import dtypes


def frexp(self: Any) -> Any:
    if not self._t.is_floating_point:
        raise DTypeError(f"frexp() only supports floating-point dtypes, not {self._t!r}")
    shape = tuple(self._a.shape)
    return [(shape, self._t), (shape, dtypes.int32)]


def _numbers(name: str) -> Any:
    def number_form(self: Any, other: Any) -> Any:
        if not hasattr(self, "_k"):
            return call(name, tensor_like(self, other), other)
        return call(name, self, tensor_like(other, self))

    return number_form


xlog1py_numbers = _numbers("special_xlog1py")
zeta_numbers = _numbers("special_zeta")


def mvlgamma(self: Any, p: int) -> Any:
    """log of the multivariate gamma function: a sum of p shifted lgammas."""
    if p < 1:
        raise ShapeError("p has to be greater than or equal to 1")
    if not self._t.differentiable:
        self = self.to(dtypes.default.dtype)
    shifts = call("arange.start_step", -0.5 * (p - 1), 0.25, 0.5, self._t, None, self.device, None)
    terms = (self.unsqueeze(-1) + shifts).lgamma().sum(-1)
    return terms + p * (p - 1) * math.log(math.pi) / 4.0


# -- gradients -------------------------------------------------------------------------------------


def scaled_i1(x: Any) -> Any:
    return call("special_i1e", x)


def zeta(x: Any, q: Any) -> Any:
    return call("special_zeta", x, q)


def entr_slope(x: Any) -> Any:
    return call("where.self", x > 0, -x.log() - 1, call("where.self", x == 0, math.inf, math.nan))


def normal_density(x: Any) -> Any:
    return (x * x * -0.5).exp() * (1 / math.sqrt(2 * math.pi))


def log_ndtr_slope(x: Any) -> Any:
    return math.sqrt(2 / math.pi) / call("special_erfcx", x * -math.sqrt(0.5))


def i1e_slope(x: Any, result: Any) -> Any:
    """I0e - I1e (sign + 1/x), whose limit at 0 is 1/2."""
    zero = x == 0
    safe = x.masked_fill(zero, 1)
    slope = call("special_i0e", x) - result * (x.sgn() + safe.reciprocal())
    return slope.masked_fill(zero, 0.5)


def xlog1py_grad(grad: Any, self: Any, other: Any) -> Any:
    other = tensor_like(other, self)
    return (grad * other.log1p()).masked_fill((self == 0).logical_and(other <= -1), 0)


__all__ = [
    "TWO_OVER_SQRT_PI", "binary_float_real", "entr_slope", "frexp", "i1e_slope", "log_ndtr_slope",
    "mvlgamma", "normal_density", "scaled_i1", "unary_float_real", "xlog1py_grad", "xlog1py_numbers",
    "zeta", "zeta_numbers",
]  # fmt: skip
