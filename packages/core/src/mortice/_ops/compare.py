"""Comparisons, logic and bits: shape rules and number forms. None has a gradient."""

from __future__ import annotations

from typing import Any

from mortice._base.errors import DTypeError
from mortice._ops.formulas import call
from mortice._ops.pointwise import binary, tensor_like
from mortice._types import dtypes
from mortice._types.promotion import result_type


def equality(self: Any, other: Any) -> Any:
    """Broadcast sizes, bool."""
    return binary(self, other)[0], dtypes.bool_


def ordered(self: Any, other: Any) -> Any:
    shape, dtype = binary(self, other)
    if dtype.is_complex:
        raise DTypeError(f"not implemented for {dtype!r}: complex numbers have no order.")
    return shape, dtypes.bool_


def bits(self: Any, other: Any) -> Any:
    shape, dtype = binary(self, other)
    if dtype.differentiable:
        raise DTypeError(f"bitwise operators are for integers and bool only, not for {dtype!r}.")
    return shape, dtype


def shift(self: Any, other: Any) -> Any:
    shape, dtype = binary(self, other)
    if dtype.differentiable or dtype is dtypes.bool_:
        raise DTypeError(f"shifts are for integers only, not for {dtype!r}.")
    return shape, dtype


def _forward(name: str) -> Any:
    """A body that calls the Tensor form, which takes numbers itself."""

    def number_form(self: Any, other: Any) -> Any:
        if not hasattr(self, "_k"):
            self = tensor_like(self, other)
        return call(name, self, other)

    return number_form


eq_scalar = _forward("eq.Tensor")
ne_scalar = _forward("ne.Tensor")
lt_scalar = _forward("lt.Tensor")
le_scalar = _forward("le.Tensor")
gt_scalar = _forward("gt.Tensor")
ge_scalar = _forward("ge.Tensor")
bitwise_and_scalar = _forward("bitwise_and.Tensor")
bitwise_or_scalar = _forward("bitwise_or.Tensor")
bitwise_xor_scalar = _forward("bitwise_xor.Tensor")
bitwise_left_shift_scalar = _forward("bitwise_left_shift.Tensor")
bitwise_right_shift_scalar = _forward("bitwise_right_shift.Tensor")


def isclose(self: Any, other: Any, rtol: float, atol: float, equal_nan: bool) -> Any:
    """|self - other| <= atol + rtol * |other|, infinities equal only to themselves."""
    if self._t is not other._t:
        raise DTypeError(f"{self._t!r} did not match {other._t!r}")
    if rtol < 0 or atol < 0:
        which, value = ("rtol", rtol) if rtol < 0 else ("atol", atol)
        raise DTypeError(f"{which} must be greater than or equal to zero, but got {value}")
    close = self == other
    if equal_nan and self._t.differentiable:
        close = close.logical_or(self.isnan().logical_and(other.isnan()))
    if rtol == 0 and atol == 0:
        return close
    if not self._t.differentiable:
        wide = dtypes.default.dtype
        self, other = self.to(wide), other.to(wide)
    allowed = (other.abs() * rtol) + atol
    error = (self - other).abs()
    return close.logical_or(error.isfinite().logical_and(error <= allowed))


def allclose(self: Any, other: Any, rtol: float, atol: float, equal_nan: bool) -> bool:
    return bool(call("isclose", self, other, rtol, atol, equal_nan).all().item())


__all__ = [name for name in dir() if not name.startswith("_")] + ["result_type"]
