"""Elementwise functions of one tensor: shape rules, composite bodies and gradients."""

from __future__ import annotations

import math
from typing import Any

from mortice._base.errors import DTypeError, ShapeError
from mortice._ops.formulas import call, conj, zeros_like
from mortice._types import dtypes
from mortice._types.layout import contiguous_format
from mortice._types.shapes import broadcast, dense_strides_like

LN2 = math.log(2.0)
LN10 = math.log(10.0)
TWO_OVER_SQRT_PI = 2.0 / math.sqrt(math.pi)
RADIANS = math.pi / 180.0

# -- shape rules: (sizes, dtype[, strides]) ------------------------------------------------------


def unary(self: Any, *rest: Any) -> Any:
    """Same sizes, dtype and (if dense) strides."""
    return tuple(self._a.shape), self._t, dense_strides_like(self._a.shape, self.stride())


def unary_float(self: Any, *rest: Any) -> Any:
    """As ``unary``; integers become the default floating dtype."""
    dtype = self._t if self._t.differentiable else dtypes.default.dtype
    return tuple(self._a.shape), dtype, dense_strides_like(self._a.shape, self.stride())


def unary_real(self: Any, *rest: Any) -> Any:
    """As ``unary``; complex numbers are refused."""
    if self._t.is_complex:
        raise DTypeError(
            f"not implemented for {self._t!r}: this function orders numbers, and complex numbers "
            "have no order. Take .real, .imag or .abs() first."
        )
    return unary(self)


def unary_float_real(self: Any, *rest: Any) -> Any:
    """As ``unary_float``; complex numbers are refused."""
    if self._t.is_complex:
        raise DTypeError(
            f"not implemented for {self._t!r}: this function is defined for real tensors only."
        )
    return unary_float(self)


def unary_neg(self: Any) -> Any:
    if self._t is dtypes.bool_:
        raise DTypeError(
            "Negation, the `-` operator, on a bool tensor is not supported. If you are trying to "
            "invert a mask, use the `~` or `logical_not()` operator instead."
        )
    return unary(self)


def unary_abs(self: Any) -> Any:
    """Same sizes; complex becomes real."""
    sizes, dtype, strides = unary(self)
    return sizes, dtype.to_real(), strides


def unary_angle(self: Any) -> Any:
    sizes, dtype, strides = unary_float(self)
    return sizes, dtype.to_real(), strides


def unary_bool(self: Any) -> Any:
    return tuple(self._a.shape), dtypes.bool_, dense_strides_like(self._a.shape, self.stride())


def unary_bits(self: Any) -> Any:
    if self._t.differentiable:
        raise DTypeError(
            f"bitwise_not is implemented for integers and bool only, not for {self._t!r}."
        )
    return unary(self)


def polygamma(n: int, self: Any) -> Any:
    if n < 0:
        raise DTypeError(f"polygamma(n, x) does not support negative n, got n = {n}.")
    return unary_float_real(self)


def backward_like(grad: Any, x: Any, *rest: Any) -> Any:
    """A gradient kernel: the sizes of gradient and operand together, the gradient's dtype."""
    from mortice._types.promotion import promote

    return broadcast(tuple(grad._a.shape), tuple(x._a.shape)), promote(grad._t, x._t)


def complex_of(real: Any, imag: Any) -> Any:
    if real._t is not imag._t or not real._t.is_floating_point:
        raise DTypeError(
            "Expected both inputs to be of the same floating-point dtype (float32 or float64), "
            f"but got {real._t!r} and {imag._t!r}."
        )
    shape = broadcast(tuple(real._a.shape), tuple(imag._a.shape))
    return shape, real._t.to_complex()


def view_as_real(self: Any) -> Any:
    if not self._t.is_complex:
        raise DTypeError(
            f"view_as_real is only supported for complex tensors, but got a tensor of {self._t!r}"
        )
    steps = tuple(s * 2 for s in self.stride())
    sizes = (*self._a.shape, 2)
    return sizes, (*steps, 1), self.storage_offset() * 2, self._t.to_real()


def view_as_complex(self: Any) -> Any:
    if self._t not in (dtypes.float16, dtypes.float32, dtypes.float64):
        raise DTypeError(
            "view_as_complex is only supported for float16, float32 and float64, but got "
            f"{self._t!r}"
        )
    shape, steps = tuple(self._a.shape), self.stride()
    if not shape or shape[-1] != 2:
        raise ShapeError("Tensor must have a last dimension of size 2")
    if steps[-1] != 1:
        raise ShapeError("Tensor must have a last dimension with stride 1")
    if any(s % 2 for s in steps[:-1]):
        raise ShapeError("Tensor must have a stride divisible by 2 for all but last dimension")
    halves = tuple(s // 2 for s in steps[:-1])
    return shape[:-1], halves, self.storage_offset() // 2, self._t.to_complex()


# -- composite bodies ------------------------------------------------------------------------------


def absolute(self: Any) -> Any:
    return self.abs()


def negative(self: Any) -> Any:
    return self.neg()


def positive(self: Any) -> Any:
    if self._t is dtypes.bool_:
        raise DTypeError("The `+` operator, on a bool tensor is not supported.")
    return self


def resolved(self: Any) -> Any:
    """Conjugates and negatives are always computed at once, so there is nothing to resolve."""
    return self


def fix(self: Any) -> Any:
    return self.trunc()


def square(self: Any) -> Any:
    return call("pow.Tensor_Scalar", self, 2)


def arcsin(self: Any) -> Any:
    return self.asin()


def arccos(self: Any) -> Any:
    return self.acos()


def arctan(self: Any) -> Any:
    return self.atan()


def arcsinh(self: Any) -> Any:
    return self.asinh()


def arccosh(self: Any) -> Any:
    return self.acosh()


def arctanh(self: Any) -> Any:
    return self.atanh()


def polygamma_inplace(self: Any, n: int) -> Any:
    if not self._t.is_floating_point:
        raise DTypeError(
            f"result type {dtypes.default.dtype!r} can't be cast to the desired output type "
            f"{self._t!r}"
        )
    return self.copy_(call("polygamma", n, self))


def conjugated(self: Any) -> Any:
    """Unlike PyTorch's lazy view, a computed conjugate; real tensors are returned themselves."""
    return call("conj_physical", self) if self._t.is_complex else self


def real(self: Any) -> Any:
    return call("view_as_real", self).select(-1, 0) if self._t.is_complex else self


def imag(self: Any) -> Any:
    if not self._t.is_complex:
        raise DTypeError("imag is not implemented for tensors with non-complex dtypes.")
    return call("view_as_real", self).select(-1, 1)


# -- gradients -------------------------------------------------------------------------------------


def sgn_grad(grad: Any, self: Any, result: Any) -> Any:
    """Zero where real; for complex z, the part of grad orthogonal to z, over |z|."""
    if not self._t.is_complex:
        return zeros_like(grad)
    size = self.abs()
    safe = size.masked_fill(size == 0, 1)
    along = (grad * conj(result)).real * result
    return ((grad - along) / safe).masked_fill(size == 0, 0)


def acosh_grad(grad: Any, self: Any) -> Any:
    if self._t.is_complex:
        return grad * conj((self + 1).rsqrt() * (self - 1).rsqrt())
    return grad * (self * self - 1).rsqrt()


def sigmoid_grad(grad: Any, result: Any) -> Any:
    if result._t.is_complex:
        return grad * conj((-result + 1) * result)
    return call("sigmoid_backward", grad, result)


def tanh_grad(grad: Any, result: Any) -> Any:
    if result._t.is_complex:
        return grad * conj(-result * result + 1)
    return call("tanh_backward", grad, result)


def logit_grad_grad(grad: Any, grad_output: Any, self: Any, eps: float | None) -> Any:
    """d/dx of 1 / (x (1 - x)), zero where ``eps`` clamps."""
    slope = grad * grad_output * (self * 2 - 1) / (self * self * (-self + 1) * (-self + 1))
    if eps is None:
        return slope
    inside = (self >= eps).logical_and(self <= 1.0 - eps)
    return slope.masked_fill(inside.logical_not(), 0)


def special_i1_grad(grad: Any, self: Any, result: Any) -> Any:
    """d I1/dx = I0(x) - I1(x)/x, whose limit at 0 is 1/2."""
    zero = self == 0
    safe = self.masked_fill(zero, 1)
    slope = (self.i0() - result / safe).masked_fill(zero, 0.5)
    return grad * slope


def sinc_slope(self: Any) -> Any:
    """d sinc/dx = (cos(pi x) - sinc(x)) / x, 0 at 0."""
    zero = self == 0
    safe = self.masked_fill(zero, 1)
    return conj((((safe * math.pi).cos() - safe.sinc()) / safe).masked_fill(zero, 0))


def angle_grad(grad: Any, self: Any) -> Any:
    if not self._t.is_complex:
        return zeros_like(grad)
    size = self.abs()
    zero = size == 0
    safe = size.masked_fill(zero, 1)
    unit = self / safe
    turned = call("complex", -unit.imag, unit.real.clone())
    return (turned * (grad / safe)).masked_fill(zero, 0)


def as_complex(grad: Any) -> Any:
    grad = grad.contiguous()
    if grad.stride()[-1] != 1:  # sizes of 1 or 0 make any strides contiguous
        grad = call("clone", grad, contiguous_format)
    return call("view_as_complex", grad)


def polar_grad(grad: Any, size: Any, angle: Any, result: Any) -> Any:
    along = conj(result.sgn()) * grad
    across = conj(call("complex", -result.imag, result.real.clone())) * grad
    return along.real, across.real


__all__ = [name for name in dir() if not name.startswith("_")]
