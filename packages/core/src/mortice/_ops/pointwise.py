"""Arithmetic of two tensors: shape rules, number forms and gradients."""

from __future__ import annotations

import math
from typing import Any

from mortice._base.errors import DTypeError, InvalidValue
from mortice._ops.formulas import call, conj, scaled, zeros_like
from mortice._types import dtypes
from mortice._types.promotion import NUMBERS, result_type
from mortice._types.shapes import broadcast

# -- shape rules: (sizes, dtype) -----------------------------------------------------------------


def shape_of(x: Any) -> Any:
    """Sizes of an operand; a Python number has none."""
    a = getattr(x, "_a", None)
    return () if a is None else tuple(a.shape)


def binary(self: Any, other: Any, *rest: Any) -> Any:
    """Broadcast sizes, promoted dtype. Either operand may be a Python number."""
    return broadcast(shape_of(self), shape_of(other)), result_type((self, other))


def binary_float(self: Any, other: Any, *rest: Any) -> Any:
    """As ``binary``; integers meet in the default floating dtype."""
    shape, dtype = binary(self, other)
    return shape, dtype if dtype.differentiable else dtypes.default.dtype


def binary_real(self: Any, other: Any) -> Any:
    shape, dtype = binary(self, other)
    if dtype.is_complex:
        raise DTypeError(f"not implemented for {dtype!r}: complex numbers have no order.")
    return shape, dtype


def binary_float_real(self: Any, other: Any) -> Any:
    """As ``binary_float``; complex numbers are refused."""
    shape, dtype = binary_float(self, other)
    if dtype.is_complex:
        raise DTypeError(f"not implemented for {dtype!r}: both operands must be real.")
    return shape, dtype


def binary_integer(self: Any, other: Any) -> Any:
    shape, dtype = binary(self, other)
    if dtype.differentiable or dtype is dtypes.bool_:
        raise DTypeError(f"not implemented for {dtype!r}: both operands must be integers.")
    return shape, dtype


def add(self: Any, other: Any, alpha: Any) -> Any:
    shape, dtype = binary(self, other)
    check_alpha(dtype, alpha)
    return shape, dtype


def sub(self: Any, other: Any, alpha: Any) -> Any:
    shape, dtype = add(self, other, alpha)
    mine, theirs = (getattr(x, "_t", None) for x in (self, other))
    if mine is dtypes.bool_ and (theirs is dtypes.bool_ or type(other) is bool):
        raise DTypeError(
            "Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or "
            "`logical_xor()` operator instead."
        )
    if mine is dtypes.bool_ or theirs is dtypes.bool_:
        raise DTypeError(
            "Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying "
            "to invert a mask, use the `~` or `logical_not()` operator instead."
        )
    return shape, dtype


def rsub(self: Any, other: Any, alpha: Any) -> Any:
    return sub(other, self, alpha)


def check_alpha(dtype: Any, alpha: Any) -> None:
    """``alpha`` multiplies the second operand, so it must be of no higher category."""
    kind = type(alpha)
    if kind is bool and dtype is not dtypes.bool_:
        raise DTypeError("Boolean alpha only supported for Boolean results.")
    if kind is float and not dtype.differentiable:
        raise DTypeError(
            "For integral input tensors, argument alpha must not be a floating point number."
        )
    if kind is complex and not dtype.is_complex:
        raise DTypeError(
            "For non-complex input tensors, argument alpha must not be a complex number."
        )


def div_mode(self: Any, other: Any, rounding_mode: str | None) -> Any:
    check_rounding(rounding_mode)
    return binary_real(self, other) if rounding_mode else binary_float(self, other)


def check_rounding(mode: str | None) -> None:
    if mode not in (None, "trunc", "floor"):
        raise DTypeError(
            f"div expected rounding_mode to be one of None, 'trunc', or 'floor' but found {mode!r}"
        )


def power(self: Any, exponent: Any) -> Any:
    shape, dtype = binary(self, exponent)
    if not dtype.differentiable and type(exponent) is int and exponent < 0:
        raise DTypeError("Integers to negative integer powers are not allowed.")
    return shape, dtype


def heaviside(self: Any, values: Any) -> Any:
    if self._t is not values._t:
        raise DTypeError("heaviside is not yet implemented for tensors with different dtypes.")
    return binary_real(self, values)


# -- number forms and other composites -------------------------------------------------------------


def add_scalar(self: Any, other: Any, alpha: Any) -> Any:
    return call("add.Tensor", self, other, alpha)


def sub_scalar(self: Any, other: Any, alpha: Any) -> Any:
    return call("sub.Tensor", self, other, alpha)


def rsub_scalar(self: Any, other: Any, alpha: Any) -> Any:
    return call("rsub.Tensor", self, other, alpha)


def rsub_of_sub(self: Any, other: Any, alpha: Any) -> Any:
    """other - alpha * self; a number becomes a 0-d tensor of the result's dtype."""
    if not hasattr(other, "_k"):
        dtype = result_type((self, other))
        other = call("full", (), other, dtype, None, self.device, None)
    return call("sub.Tensor", other, self, alpha)


def mul_scalar(self: Any, other: Any) -> Any:
    return call("mul.Tensor", self, other)


def div_scalar(self: Any, other: Any) -> Any:
    return call("div.Tensor", self, other)


def div_mode_scalar(self: Any, other: Any, rounding_mode: str | None) -> Any:
    return call("div.Tensor_mode", self, other, rounding_mode)


def floor_divide(self: Any, other: Any) -> Any:
    return call("div.Tensor_mode", self, other, "floor")


def fmod_scalar(self: Any, other: Any) -> Any:
    return call("fmod.Tensor", self, other)


def remainder_scalar(self: Any, other: Any) -> Any:
    return call("remainder.Tensor", self, other)


def tensor_like(value: Any, other: Any) -> Any:
    """A number as a 0-d tensor beside ``other``, without raising its dtype's width."""
    if hasattr(value, "_k"):
        return value
    dtype = result_type((value, other))
    return call("full", (), value, dtype, None, other.device, None)


def remainder_of_scalar(self: Any, other: Any) -> Any:
    return call("remainder.Tensor", tensor_like(self, other), other)


def pow_scalar(self: Any, exponent: Any) -> Any:
    return call("pow.Tensor_Tensor", self, exponent)


def float_power(self: Any, exponent: Any) -> Any:
    """In double precision whatever the dtypes, as numpy's ``float_power``."""
    dtype = result_type((self, exponent))
    wide = _float_power_dtype(dtype)
    if not hasattr(self, "_k"):
        return call("pow.Scalar", self, exponent.to(wide))
    exponent = exponent if type(exponent) in NUMBERS else exponent.to(wide)
    return self.to(wide).pow(exponent)


def _float_power_dtype(dtype: Any) -> Any:
    return dtypes.complex128 if dtype.is_complex else dtypes.float64


def float_power_inplace(self: Any, exponent: Any) -> Any:
    wide = _float_power_dtype(result_type((self, exponent)))
    if self._t is not wide:
        raise DTypeError(
            f"the base given to float_power_ has dtype {self._t!r} but the operation's result "
            f"requires dtype {wide!r}"
        )
    return self.copy_(float_power(self, exponent))


def arctan2(self: Any, other: Any) -> Any:
    return call("atan2", self, other)


def copysign_scalar(self: Any, other: Any) -> Any:
    return call("copysign.Tensor", self, other)


def ldexp(self: Any, other: Any) -> Any:
    return call("mul.Tensor", self, call("pow.Scalar", 2.0, other))


def xlogy_numbers(self: Any, other: Any) -> Any:
    if not hasattr(self, "_k"):
        return call("xlogy.Tensor", tensor_like(self, other), other)
    return call("xlogy.Tensor", self, tensor_like(other, self))


# -- gradients -------------------------------------------------------------------------------------


def div_mode_grad(grad: Any, other: Any, rounding_mode: str | None) -> Any:
    return zeros_like(grad) if rounding_mode else grad / conj(other)


def div_mode_grad_other(grad: Any, self: Any, other: Any, rounding_mode: str | None) -> Any:
    return zeros_like(grad) if rounding_mode else -grad * conj((self / other) / other)


def pow_grad_self(grad: Any, self: Any, exponent: Any) -> Any:
    """exponent * self ** (exponent - 1), and 0 where the exponent is 0."""
    if not hasattr(exponent, "_k"):
        if exponent == 0:
            return zeros_like(grad)
        if exponent == 1:
            return grad
        if exponent == 2:
            return grad * (conj(self) * 2)
        return grad * conj(self.pow(exponent - 1) * exponent)
    slope = exponent * call("pow.Tensor_Tensor", self, exponent - 1)
    return (grad * conj(slope)).masked_fill(exponent == 0, 0)


def pow_grad_exponent(grad: Any, self: Any, exponent: Any, result: Any) -> Any:
    """result * log(self); where self is 0, 0 if the exponent is not negative."""
    if not hasattr(self, "_k"):
        log = math.log(self) if not isinstance(self, complex) and self > 0 else None
        if log is None:
            import cmath

            if self == 0:
                slope = conj(result * -math.inf)
                return (grad * slope).masked_fill(exponent >= 0, 0)
            log = cmath.log(self) if result._t.is_complex else math.nan
        return grad * conj(result * log)
    zero = self == 0
    if not exponent._t.is_complex:
        zero = zero.logical_and(exponent >= 0)
    return (grad * conj(result * self.log())).masked_fill(zero, 0)


def extremum_grad(grad: Any, self: Any, other: Any, wins: Any) -> Any:
    """All of grad where ``self`` is chosen, half of it where both are equal."""
    equal = self == other
    return (grad / 2).where(equal, grad).masked_fill(wins.logical_not(), 0)


def atan2_grad(grad: Any, self: Any, other: Any, needs: Any) -> Any:
    square = self * self + other * other
    zero = square == 0
    scale = (grad / square.masked_fill(zero, 1)).masked_fill(zero, 0)
    return scale * other if needs[0] else None, -self * scale if needs[1] else None


def copysign_grad(grad: Any, self: Any, result: Any) -> Any:
    ratio = (result / self.masked_fill(self == 0, 1)).masked_fill(self == 0, 0)
    return grad * ratio


def xlogy_grad(grad: Any, self: Any, other: Any) -> Any:
    other = tensor_like(other, self)
    return (grad * other.log()).masked_fill((self == 0).logical_and(other <= 0), 0)


__all__ = [name for name in dir() if not name.startswith("_")] + ["InvalidValue", "scaled"]
