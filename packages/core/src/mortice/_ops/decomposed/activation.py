"""Activations and their gradients."""

from __future__ import annotations

import math
from typing import Any

from mortice._ops.decomposed.steps import (
    all_dims,
    floating,
    full,
    in_float32,
    shape_of,
    total,
    where,
    widened,
)
from mortice._ops.formulas import call

SQRT_HALF = math.sqrt(0.5)
#: Of the tanh form of gelu: sqrt(2 / pi) and the cubic coefficient.
BETA, KAPPA = math.sqrt(2 / math.pi), 0.044715
#: From here on gelu is 0 or its argument, also at infinities.
FAR = 64.0


def threshold(self: Any, threshold: Any, value: Any) -> Any:
    return where(self <= threshold, value, self)


def threshold_backward(grad: Any, self: Any, threshold: Any) -> Any:
    return where(self <= threshold, 0, grad)


@in_float32
def gelu(self: Any, approximate: str) -> Any:
    if approximate == "tanh":
        inner = BETA * (self + KAPPA * self * self * self)
        return 0.5 * self * (1 + inner.tanh())
    self = self.clamp(min=-FAR)
    return 0.5 * self * (1 + (self * SQRT_HALF).erf())


@in_float32
def gelu_backward(grad: Any, self: Any, approximate: str) -> Any:
    if approximate == "tanh":
        square = self * self
        t = (BETA * (self + KAPPA * square * self)).tanh()
        slope = (1 - t * t) * BETA * (1 + 3 * KAPPA * square)
        return grad * (0.5 * (1 + t) + 0.5 * self * slope)
    self = self.clamp(-FAR, FAR)
    cdf = 0.5 * (1 + (self * SQRT_HALF).erf())
    pdf = (self * self * -0.5).exp() * (1 / math.sqrt(2 * math.pi))
    return grad * (cdf + self * pdf)


@in_float32
def silu(self: Any) -> Any:
    return self * self.sigmoid()


@in_float32
def silu_backward(grad: Any, self: Any) -> Any:
    s = self.sigmoid()
    return grad * s * (1 + self * (1 - s))


@in_float32
def softplus(self: Any, beta: Any, threshold: Any) -> Any:
    scaled = self * beta
    return where(scaled > threshold, self, scaled.exp().log1p() / beta)


@in_float32
def softplus_backward(grad: Any, self: Any, beta: Any, threshold: Any) -> Any:
    z = (self * beta).exp()
    return where(self * beta > threshold, grad, grad * z / (z + 1))


@in_float32
def mish(self: Any) -> Any:
    return self * softplus(self, 1, 20).tanh()


@in_float32
def mish_backward(grad: Any, self: Any) -> Any:
    t = softplus(self, 1, 20).tanh()
    return grad * (t + self * self.sigmoid() * (1 - t * t))


@in_float32
def elu_backward(
    grad: Any, alpha: Any, scale: Any, input_scale: Any, is_result: bool, x: Any
) -> Any:
    negative = alpha * scale
    if is_result:
        below = grad * input_scale * (x + negative)
    else:
        below = grad * input_scale * negative * (x * input_scale).exp()
    return where(x <= 0, below, grad * scale)


@in_float32
def leaky_relu_backward(grad: Any, self: Any, slope: Any, self_is_result: bool) -> Any:
    return where(self > 0, grad, grad * slope)


def prelu_kernel(self: Any, weight: Any) -> Any:
    return where(self > 0, self, weight * self)


def prelu_kernel_backward(grad: Any, self: Any, weight: Any) -> Any:
    return (
        where(self > 0, grad, weight * grad),
        where(self > 0, 0, self * grad),
    )


def hardtanh_backward(grad: Any, self: Any, low: Any, high: Any) -> Any:
    return where((self <= low) | (self >= high), 0, grad)


@in_float32
def hardsigmoid(self: Any) -> Any:
    return (self + 3).clamp(0, 6) / 6


@in_float32
def hardsigmoid_backward(grad: Any, self: Any) -> Any:
    return where((self > -3) & (self < 3), grad / 6, 0)


@in_float32
def hardswish(self: Any) -> Any:
    return self * (self + 3).clamp(0, 6) / 6


@in_float32
def hardswish_backward(grad: Any, self: Any) -> Any:
    inner = where(self < 3, grad * (self / 3 + 0.5), grad)
    return where(self <= -3, 0, inner)


def softshrink(self: Any, lambd: Any) -> Any:
    # x * 0 keeps nan.
    return where(self > lambd, self - lambd, where(self < -lambd, self + lambd, self * 0))


def softshrink_backward(grad: Any, self: Any, lambd: Any) -> Any:
    return where((self >= -lambd) & (self <= lambd), 0, grad)


def hardshrink(self: Any, lambd: Any) -> Any:
    return where((self >= -lambd) & (self <= lambd), 0, self)


def hardshrink_backward(grad: Any, self: Any, lambd: Any) -> Any:
    return where((self >= -lambd) & (self <= lambd), 0, grad)


@in_float32
def log_sigmoid(self: Any) -> Any:
    low = call("minimum", self, full(self, 0))
    return low - (-self.abs()).exp().log1p()


def log_sigmoid_forward(self: Any) -> Any:
    """The buffer is empty: the gradient does without it."""
    return log_sigmoid(self), call("full", (0,), 0, self._t, None, self.device, None)


@in_float32
def log_sigmoid_backward(grad: Any, self: Any, buffer: Any) -> Any:
    z = (-self.abs()).exp()
    sign = where(self < 0, 1.0, full(self, -1))
    return grad * (where(self < 0, 1.0, full(self, 0)) - sign * z / (1 + z))


def _halves(x: Any, dim: int) -> tuple[Any, Any]:
    half = x._a.shape[dim] // 2
    return x.narrow(dim, 0, half), x.narrow(dim, half, half)


@in_float32
def glu(self: Any, dim: int) -> Any:
    a, b = _halves(self, dim)
    return a * b.sigmoid()


@in_float32
def glu_backward(grad: Any, self: Any, dim: int) -> Any:
    a, b = _halves(self, dim)
    s = b.sigmoid()
    return call("cat", (grad * s, grad * a * s * (1 - s)), dim)


@in_float32
def sigmoid_backward(grad: Any, output: Any) -> Any:
    return grad * (output * (1 - output)).conj()


@in_float32
def tanh_backward(grad: Any, output: Any) -> Any:
    return grad * (1 - output * output).conj()


# -- softmax ---------------------------------------------------------------------------------------


def _wide(x: Any, dim: int) -> Any:
    top = call("amax", x, (dim,), True) if shape_of(x) and x._a.shape[dim] else x
    return x - top if shape_of(x) else x - x


@in_float32
def softmax(self: Any, dim: int, half_to_float: bool) -> Any:
    e = _wide(self, dim).exp()
    return e / total(e, (dim,), True)


@in_float32
def log_softmax(self: Any, dim: int, half_to_float: bool) -> Any:
    shifted = _wide(self, dim)
    return shifted - total(shifted.exp(), (dim,), True).log()


def softmax_backward(grad: Any, output: Any, dim: int, dtype: Any) -> Any:
    grad, output = widened(grad), widened(output)
    weighted = grad * output
    return (weighted - output * total(weighted, (dim,), True)).to(dtype)


def log_softmax_backward(grad: Any, output: Any, dim: int, dtype: Any) -> Any:
    grad, output = widened(grad), widened(output)
    return (grad - output.exp() * total(grad, (dim,), True)).to(dtype)


def logsumexp(self: Any, dim: Any, keepdim: bool) -> Any:
    dims = tuple(dim) or all_dims(self)
    self = floating(self)
    # Of complex numbers, the real part is what may overflow.
    size = self.real if self._t.is_complex else self
    top = call("amax", size, dims, True) if shape_of(self) else size
    top = where(top.abs() == math.inf, 0, top)  # inf - inf is nan
    powers = (self - top).exp()
    result = (total(powers, dims, True) if shape_of(self) else powers).log() + top
    return result if keepdim or not shape_of(self) else call("squeeze.dims", result, dims)
