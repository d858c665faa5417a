"""Activation functions: shape rules, composite bodies, and gradients of their gradients."""

from __future__ import annotations

import math
from typing import Any

from mortice._base.errors import DTypeError, ShapeError
from mortice._ops.formulas import call, conj, zeros_like
from mortice._ops.unary import backward_like, unary, unary_real
from mortice._types.shapes import elementwise_strides, strides_as, wrap_dim

#: SELU's constants (Klambauer et al., 2017).
SELU_ALPHA = 1.6732632423543772848170429916717
SELU_SCALE = 1.0507009873554804934193349852946

# -- shape rules -----------------------------------------------------------------------------------


def unary_floating(self: Any, *rest: Any) -> Any:
    """As ``unary``, for floating-point dtypes only."""
    if not self._t.is_floating_point:
        raise DTypeError(f"not implemented for {self._t!r}: a floating-point tensor is expected.")
    return unary(self)


def elu_backward(
    grad: Any, alpha: Any, scale: Any, input_scale: Any, is_result: bool, x: Any
) -> Any:
    if is_result and alpha < 0:
        raise ShapeError(
            "In-place elu backward calculation is triggered with a negative slope which is not "
            "supported. Use the out-of-place elu()."
        )
    return backward_like(grad, x)


def prelu_kernel(self: Any, weight: Any) -> Any:
    from mortice._types.shapes import broadcast

    return broadcast(tuple(self._a.shape), tuple(weight._a.shape)), self._t


def prelu_backward(grad: Any, self: Any, weight: Any) -> Any:
    shape = tuple(self._a.shape)
    strides = elementwise_strides(shape, ((shape, grad.stride()), (shape, self.stride())))
    return [(shape, self._t, strides), (shape, weight._t, strides)]


def log_sigmoid_forward(self: Any) -> Any:
    return [unary_floating(self), ((0,), self._t)]


def glu(self: Any, dim: int) -> Any:
    shape = list(self._a.shape)
    if not shape:
        raise ShapeError("glu does not support 0-dimensional tensors")
    d = wrap_dim(dim, len(shape))
    if shape[d] % 2:
        raise ShapeError(f"Halving dimension must be even, but dimension {d} is size {shape[d]}")
    shape[d] //= 2
    return tuple(shape), unary_floating(self)[1], strides_as(shape, self)


def glu_backward(grad: Any, self: Any, dim: int) -> Any:
    glu(self, dim)
    return tuple(self._a.shape), self._t


# -- composites ------------------------------------------------------------------------------------


def relu6(self: Any) -> Any:
    return call("hardtanh", self, 0, 6)


def selu(self: Any) -> Any:
    return call("elu", self, SELU_ALPHA, SELU_SCALE, 1)


def celu(self: Any, alpha: Any) -> Any:
    if alpha == 0:
        raise ShapeError("ZeroDivisionError: alpha cannot be 0 for CELU")
    return call("elu", self, alpha, 1, 1.0 / alpha)


def prelu(self: Any, weight: Any) -> Any:
    """``weight`` has one element, or one per channel (dimension 1)."""
    shape = tuple(self._a.shape)
    if weight._t is not self._t:
        raise DTypeError(f"prelu: Type promoting not supported. Got {self._t!r} and {weight._t!r}")
    count = weight.numel()
    if count != 1:
        if not shape:
            raise ShapeError("Not allow zero-dim input tensor.")
        channels = shape[1] if len(shape) > 1 else 1
        if channels != count:
            raise ShapeError(
                "Mismatch of parameter numbers and input channel size. Found parameter numbers = "
                f"{count} and channel size = {channels}."
            )
    if weight.ndim > 1:
        raise ShapeError(
            f"prelu: Expected `weight` to be a scalar or 1D tensor, but got ndim = {weight.ndim}"
        )
    if len(shape) > 1:
        weight = weight.reshape((1, count) + (1,) * (len(shape) - 2))
    elif weight.ndim != len(shape):
        weight = weight.reshape((1,) * len(shape))
    return call("_prelu_kernel", self, weight)


def log_sigmoid(self: Any) -> Any:
    return call("log_sigmoid_forward", self)[0]


# -- gradients -------------------------------------------------------------------------------------


def threshold_grad(grad: Any, result: Any, threshold: Any) -> Any:
    """The gradient where the output is above the threshold, else 0."""
    return call("threshold_backward", grad, result, threshold)


def gelu_grad_grad(grad: Any, grad_output: Any, self: Any, approximate: str) -> Any:
    """Second derivative of gelu times both gradients."""
    both = grad * grad_output
    if approximate == "tanh":
        c = math.sqrt(2.0 / math.pi)
        inner = (self + self * self * self * 0.044715) * c
        slope = (self * self * (3 * 0.044715) + 1) * c
        t = inner.tanh()
        sech2 = -t * t + 1
        curve = self * (6 * 0.044715 * c)
        second = sech2 * slope + self * 0.5 * (sech2 * curve - t * sech2 * slope * slope * 2)
        return both * second
    density = (self * self * -0.5).exp() * (1.0 / math.sqrt(2.0 * math.pi))
    return both * density * (-self * self + 2)


def silu_grad_grad(grad: Any, grad_output: Any, self: Any) -> Any:
    s = self.sigmoid()
    slope = s * (-s + 1)
    return grad * grad_output * slope * (self * (s * -2 + 1) + 2)


def mish_grad_grad(grad: Any, grad_output: Any, self: Any) -> Any:
    s = self.sigmoid()
    t = call("softplus", self, 1, 20).tanh()
    sech2 = -t * t + 1
    first = s * sech2
    second = s * (-s + 1) * sech2 - t * sech2 * s * s * 2
    return grad * grad_output * (first * 2 + self * second)


def elu_grad_grad(
    grad: Any, grad_output: Any, alpha: Any, scale: Any, input_scale: Any, is_result: bool, x: Any
) -> Any:
    """On the negative side; zero on the positive."""
    if is_result:
        second = grad * grad_output * input_scale
    else:
        second = (
            grad
            * grad_output
            * (x * input_scale).exp()
            * (input_scale * input_scale * alpha * scale)
        )
    return second.masked_fill(x > 0, 0)


def prelu_grad_grad(grads: Any, grad_output: Any, self: Any, weight: Any) -> Any:
    """Of (dx, dweight) = grad_output * (1 or weight, 0 or x)."""
    positive = self > 0
    to_self, to_weight = grads
    out = x = w = None
    if to_self is not None:
        out = call("where.self", positive, to_self, to_self * weight)
        w = (to_self * grad_output).masked_fill(positive, 0)
    if to_weight is not None:
        part = (to_weight * self).masked_fill(positive, 0)
        out = part if out is None else out + part
        x = (to_weight * grad_output).masked_fill(positive, 0)
    return out, x, w


def hardswish_grad_grad(grad: Any, grad_output: Any, self: Any) -> Any:
    inside = (self > -3).logical_and(self < 3)
    return (grad * grad_output * (1.0 / 3.0)).masked_fill(inside.logical_not(), 0)


def softplus_grad_grad(grad: Any, grad_output: Any, self: Any, beta: Any, threshold: Any) -> Any:
    s = (self * beta).sigmoid()
    second = grad * grad_output * s * (-s + 1) * beta
    return second.masked_fill(self * beta > threshold, 0)


def log_sigmoid_grad_grad(grad: Any, grad_output: Any, self: Any) -> Any:
    s = self.sigmoid()
    return -grad * grad_output * s * (-s + 1)


def _halves(self: Any, dim: int) -> tuple[Any, Any]:
    n = self._a.shape[wrap_dim(dim, len(self._a.shape))] // 2
    return self.narrow(dim, 0, n), self.narrow(dim, n, n)


def glu_grad_grad_output(grad: Any, self: Any, dim: int) -> Any:
    a, b = _halves(self, dim)
    to_a, to_b = _halves(grad, dim)
    s = b.sigmoid()
    return to_a * s + to_b * a * s * (-s + 1)


def glu_grad_grad(grad: Any, grad_output: Any, self: Any, dim: int) -> Any:
    a, b = _halves(self, dim)
    to_a, to_b = _halves(grad, dim)
    s = b.sigmoid()
    slope = s * (-s + 1)
    first = to_b * grad_output * slope
    second = grad_output * slope * (to_a + to_b * a * (s * -2 + 1))
    return call("cat", (first, second), dim)


__all__ = [name for name in dir() if not name.startswith("_")] + [
    "conj",
    "unary_real",
    "zeros_like",
]
