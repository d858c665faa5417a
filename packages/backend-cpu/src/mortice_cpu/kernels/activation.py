"""Activation functions and their gradients.

Large contiguous float32 arrays go to fused kernels; the array functions here serve the rest.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from mortice.backend import CPU_KEYS, Tensor, dtypes
from mortice_cpu.kernels import _native, _special
from mortice_cpu.kernels._elementwise import (
    FLOAT,
    Kernel,
    compute_type,
    finished,
    number,
    operand,
    promote,
    silence,
    wrap,
)

_new = object.__new__
_ndarray = np.ndarray
_maximum = np.maximum
_LARGE = _native.LARGE
_float32 = np.dtype(np.float32)
_SQRT_HALF = math.sqrt(0.5)
_ROOT = math.sqrt(2.0 / math.pi)


def _sigmoid(a: Any) -> Any:
    return np.reciprocal(1 + np.exp(-a))


def activation(
    function: Callable[..., Any], native: str = "", least: int = _native.COSTLY
) -> Kernel:
    """``function(array, *numbers)`` on floating tensors, computed in float32 or float64.

    ``native`` names the fused kernel for arrays of at least ``least`` elements.
    """

    def kernel(self: Any, *numbers: Any) -> Any:
        t = self._t
        if t.kind != FLOAT:
            raise TypeError("floating")
        if native and self._a.size >= least and t.itemsize > 1:
            found = _native.apply(native, self._a, numbers=numbers)
            if found is not None:
                return wrap(found, t)
        a = operand(self, compute_type(t))
        return finished(function(a, *(number(x, a.dtype) for x in numbers)), t)

    return kernel


def gradient(function: Callable[..., Any], native: str = "", least: int = _native.COSTLY) -> Kernel:
    """``function(grad, array, *numbers)``, both in the promoted dtype; else as ``activation``."""

    def kernel(grad: Any, x: Any, *numbers: Any) -> Any:
        t = grad._t if grad._t is x._t else promote(grad._t, x._t)
        if native and x._a.size >= least and t.itemsize > 1:
            found = _native.apply(native, grad._a, x._a, numbers=numbers)
            if found is not None:
                return wrap(found, t)
        kind = compute_type(t)
        g, a = operand(grad, kind), operand(x, kind)
        return finished(function(g, a, *(number(v, kind) for v in numbers)), t)

    return kernel


# -- relu and other clamps -------------------------------------------------------------------------


#: dtype -> 0-d zero, for the dtypes that numpy computes as they are.
_ZEROS = {
    t: np.zeros((), t.numpy)
    for t in dtypes.ALL.values()
    if (t.kind in (dtypes.UNSIGNED, dtypes.SIGNED) or (t.kind == FLOAT and t.itemsize > 2))
}
_f32 = dtypes.float32
_zero32 = _ZEROS[_f32]


def relu(self: Any) -> Any:
    t = self._t
    a = self._a
    if a.size >= _LARGE and t.kind == FLOAT:
        found = _native.apply("relu", a)
        if found is not None:
            return wrap(found, t)
    if t is _f32:
        y = _maximum(a, _zero32)
    elif t in _ZEROS:
        y = _maximum(a, _ZEROS[t])
    else:
        return _relu_by_conversion(self)
    r = _new(Tensor)  # `wrap` in line, as in `add`
    r._a = y if type(y) is _ndarray else np.asarray(y)
    r._k = CPU_KEYS
    r._t = t
    r._g = r._s = r._b = None
    return r


def _relu_by_conversion(self: Any) -> Any:
    t = self._t
    if t.kind != FLOAT:
        raise TypeError("relu")
    return finished(np.maximum(operand(self, _float32), number(0, _float32)), t)


def relu_inplace(self: Any) -> Any:
    a = self._a
    if a.dtype.kind in "cb":
        raise TypeError("relu")
    if not a.flags.c_contiguous or (self._t.itemsize < 4 and self._t.kind == FLOAT):
        a[...] = relu(self)._a
        return self
    np.maximum(a, number(0, a.dtype), out=a)
    return self


def threshold_backward(grad: Any, self: Any, threshold: Any) -> Any:
    g, a = grad._a, self._a
    t = grad._t
    if t is self._t and g.size >= _native.LARGE and g.dtype == _float32:
        found = _native.apply("threshold_backward", g, a, numbers=(threshold,))
        if found is not None:
            return wrap(found, t)
    if t is not self._t:
        t = promote(t, self._t)
        g = operand(grad, t.numpy)
    passed = np.greater(a, number(threshold, a.dtype))
    # nan passes, as in PyTorch, where the test is `x <= threshold`
    if a.dtype.kind not in "iub":
        passed = ~(operand(self, compute_type(self._t)) <= threshold)
    return wrap(np.where(passed, g, number(0, g.dtype)), t)


def threshold(self: Any, limit: Any, value: Any) -> Any:
    t = self._t
    if t.is_complex:
        raise TypeError("complex")
    a = operand(self, compute_type(t))
    return finished(np.where(a <= number(limit, a.dtype), number(value, a.dtype), a), t)


def hardtanh(self: Any, low: Any, high: Any) -> Any:
    t = self._t
    if t.is_complex or t.kind == 0:
        raise TypeError("hardtanh")
    a = operand(self, compute_type(t))
    return finished(np.minimum(np.maximum(a, number(low, a.dtype)), number(high, a.dtype)), t)


def _hardtanh_backward(g: Any, a: Any, low: Any, high: Any) -> Any:
    return np.where((a <= low) | (a >= high), g.dtype.type(0), g)


# -- gelu, silu, mish --------------------------------------------------------------------------------


def _gelu(a: Any) -> Any:
    kind = a.dtype.type
    a = np.maximum(a, kind(-64))  # 0 from far above here on, also at -inf
    return a * kind(0.5) * (1 + _special.erf(a * kind(_SQRT_HALF)))


def _gelu_tanh(a: Any) -> Any:
    kind = a.dtype.type
    inner = kind(_ROOT) * (a + kind(0.044715) * a * a * a)
    return kind(0.5) * a * (1 + np.tanh(inner))


def _gelu_backward(g: Any, a: Any) -> Any:
    kind = a.dtype.type
    a = np.minimum(np.maximum(a, kind(-64)), kind(64))
    cdf = kind(0.5) * (1 + _special.erf(a * kind(_SQRT_HALF)))
    density = np.exp(a * a * kind(-0.5)) * kind(1 / math.sqrt(2 * math.pi))
    return g * (cdf + a * density)


def _gelu_tanh_backward(g: Any, a: Any) -> Any:
    kind = a.dtype.type
    square = a * a
    t = np.tanh(kind(_ROOT) * (a + kind(0.044715) * square * a))
    slope = kind(_ROOT) * (1 + kind(3 * 0.044715) * square)
    return g * (kind(0.5) * (1 + t) + kind(0.5) * a * (1 - t * t) * slope)


_gelu_forms = {
    "none": activation(_gelu, "gelu", _native.SLOW),
    "tanh": activation(_gelu_tanh, "gelu_tanh"),
}
_gelu_backward_forms = {
    "none": gradient(_gelu_backward, "gelu_backward", _native.SLOW),
    "tanh": gradient(_gelu_tanh_backward, "gelu_tanh_backward"),
}


def _approximation(forms: dict[str, Kernel], approximate: str) -> Kernel:
    form = forms.get(approximate)
    if form is None:
        from mortice.errors import DTypeError

        raise DTypeError(
            f"approximate argument must be either none or tanh, found {approximate!r}."
        )
    return form


def gelu(self: Any, approximate: str) -> Any:
    return _approximation(_gelu_forms, approximate)(self)


def gelu_backward(grad: Any, self: Any, approximate: str) -> Any:
    return _approximation(_gelu_backward_forms, approximate)(grad, self)


def _silu(a: Any) -> Any:
    return a / (1 + np.exp(-a))


def _silu_backward(g: Any, a: Any) -> Any:
    s = _sigmoid(a)
    return g * s * (1 + a * (1 - s))


def _softplus(a: Any, beta: Any, limit: Any) -> Any:
    scaled = a * beta
    return np.where(scaled > limit, a, np.log1p(np.exp(scaled)) / beta)


def _softplus_backward(g: Any, a: Any, beta: Any, limit: Any) -> Any:
    scaled = a * beta
    return np.where(scaled > limit, g, g * _sigmoid(scaled))


def _mish(a: Any) -> Any:
    return a * np.tanh(np.logaddexp(a, a.dtype.type(0)))


def _mish_backward(g: Any, a: Any) -> Any:
    t = np.tanh(np.logaddexp(a, a.dtype.type(0)))
    return g * (t + a * _sigmoid(a) * (1 - t * t))


# -- elu, leaky relu, prelu ---------------------------------------------------------------------------


def _elu(a: Any, alpha: Any, scale: Any, input_scale: Any) -> Any:
    return np.where(a <= 0, np.expm1(a * input_scale) * (alpha * scale), a * scale)


def elu_inplace(self: Any, alpha: Any, scale: Any, input_scale: Any) -> Any:
    self._a[...] = elu(self, alpha, scale, input_scale)._a
    return self


def elu_backward(
    grad: Any, alpha: Any, scale: Any, input_scale: Any, is_result: bool, x: Any
) -> Any:
    if is_result and alpha < 0:
        raise TypeError("alpha")
    return (_elu_backward_result if is_result else _elu_backward_input)(
        grad, x, alpha, scale, input_scale
    )


def _from_result(g: Any, y: Any, alpha: Any, scale: Any, input_scale: Any) -> Any:
    return np.where(y <= 0, g * input_scale * (y + alpha * scale), g * scale)


def _from_input(g: Any, a: Any, alpha: Any, scale: Any, input_scale: Any) -> Any:
    return np.where(a <= 0, g * input_scale * alpha * scale * np.exp(a * input_scale), g * scale)


elu = activation(_elu, "elu")
_elu_backward_result = gradient(_from_result)
_elu_backward_input = gradient(_from_input)


def _leaky_relu(a: Any, slope: Any) -> Any:
    return np.where(a > 0, a, a * slope)


_leaky_gradient = gradient(lambda g, a, slope: np.where(a > 0, g, g * slope), "leaky_relu_backward")


def leaky_relu_backward(grad: Any, self: Any, slope: Any, is_result: bool) -> Any:
    return _leaky_gradient(grad, self, slope)


def prelu_kernel(self: Any, weight: Any) -> Any:
    kind = compute_type(self._t)
    a, w = operand(self, kind), operand(weight, kind)
    with np.errstate(all="ignore"):
        return finished(np.where(a > 0, a, a * w), self._t)


def prelu_backward(grad: Any, self: Any, weight: Any) -> Any:
    kind = compute_type(self._t)
    g, a, w = operand(grad, kind), operand(self, kind), operand(weight, kind)
    with np.errstate(all="ignore"):
        dx = finished(np.where(a > 0, g, g * w), self._t)
        dw = finished(np.where(a > 0, kind.type(0), g * a), weight._t)
    return dx, dw


# -- hard and soft shrinking --------------------------------------------------------------------------


def _hardsigmoid(a: Any) -> Any:
    kind = a.dtype.type
    return np.minimum(np.maximum(a + kind(3), kind(0)), kind(6)) / kind(6)


def _hardsigmoid_backward(g: Any, a: Any) -> Any:
    return np.where((a > -3) & (a < 3), g * g.dtype.type(1 / 6), g.dtype.type(0))


def _hardswish(a: Any) -> Any:
    kind = a.dtype.type
    return a * np.minimum(np.maximum(a + kind(3), kind(0)), kind(6)) / kind(6)


def _hardswish_backward(g: Any, a: Any) -> Any:
    kind = a.dtype.type
    inner = g * (a / kind(3) + kind(0.5))
    return np.where(a <= -3, kind(0), np.where(a < 3, inner, g))


def _softshrink(a: Any, lambd: Any) -> Any:
    zero = a.dtype.type(0)
    return np.where(
        np.isnan(a), a, np.where(a > lambd, a - lambd, np.where(a < -lambd, a + lambd, zero))
    )


def _hardshrink(a: Any, lambd: Any) -> Any:
    return np.where((a >= -lambd) & (a <= lambd), a.dtype.type(0), a)


def _shrink_backward(g: Any, a: Any, lambd: Any) -> Any:
    return np.where((a >= -lambd) & (a <= lambd), g.dtype.type(0), g)


def _checked_lambda(kernel: Kernel) -> Kernel:
    def checked(self: Any, lambd: Any) -> Any:
        if lambd < 0:
            from mortice.errors import InvalidState

            raise InvalidState(f"lambda must be greater or equal to 0, but found to be {lambd}.")
        return kernel(self, lambd)

    return checked


# -- sigmoids -----------------------------------------------------------------------------------------


def log_sigmoid_forward(self: Any) -> Any:
    t = self._t
    if t.kind != FLOAT:
        raise TypeError("floating")
    return _log_sigmoid(self), wrap(np.empty(0, t.numpy), t)


_log_sigmoid = activation(
    lambda a: np.minimum(a, a.dtype.type(0)) - np.log1p(np.exp(-np.abs(a))), "log_sigmoid"
)
_log_sigmoid_gradient = gradient(lambda g, a: g * (1 - _sigmoid(a)))


def log_sigmoid_backward(grad: Any, self: Any, buffer: Any) -> Any:
    return _log_sigmoid_gradient(grad, self)


def _conj(a: Any) -> Any:
    return a.conj() if a.dtype.kind == "c" else a


def _halves(a: Any, dim: int) -> Any:
    if not a.ndim or a.shape[dim] % 2:
        raise TypeError("dim")
    return np.split(a, 2, dim)


def glu(self: Any, dim: int) -> Any:
    if self._t.kind != FLOAT:
        raise TypeError("floating")
    a, b = _halves(operand(self, compute_type(self._t)), dim)
    with np.errstate(all="ignore"):
        return finished(a * _sigmoid(b), self._t)


def glu_backward(grad: Any, self: Any, dim: int) -> Any:
    kind = compute_type(self._t)
    g = operand(grad, kind)
    a, b = _halves(operand(self, kind), dim)
    with np.errstate(all="ignore"):
        s = _sigmoid(b)
        both = np.concatenate((g * s, g * a * s * (1 - s)), dim)
        return finished(np.ascontiguousarray(both), self._t)


KERNELS: dict[str, Kernel] = {
    "relu": relu,
    "relu_": relu_inplace,
    "threshold_backward": threshold_backward,
    "threshold": threshold,
    "gelu": gelu,
    "gelu_backward": gelu_backward,
    "silu": activation(_silu, "silu"),
    "silu_backward": gradient(_silu_backward, "silu_backward"),
    "mish": activation(_mish, "mish"),
    "mish_backward": gradient(_mish_backward),
    "elu": elu,
    "elu_": elu_inplace,
    "elu_backward": elu_backward,
    "leaky_relu": activation(_leaky_relu, "leaky_relu"),
    "leaky_relu_backward": leaky_relu_backward,
    "_prelu_kernel": prelu_kernel,
    "_prelu_kernel_backward": prelu_backward,
    "hardtanh": hardtanh,
    "hardtanh_backward": gradient(_hardtanh_backward, "hardtanh_backward"),
    "hardsigmoid": activation(_hardsigmoid, "hardsigmoid"),
    "hardsigmoid_backward": gradient(_hardsigmoid_backward),
    "hardswish": activation(_hardswish, "hardswish"),
    "hardswish_backward": gradient(_hardswish_backward, "hardswish_backward"),
    "softplus": activation(_softplus, "softplus"),
    "softplus_backward": gradient(_softplus_backward, "softplus_backward"),
    "softshrink": _checked_lambda(activation(_softshrink)),
    "softshrink_backward": gradient(_shrink_backward),
    "hardshrink": activation(_hardshrink),
    "hardshrink_backward": gradient(_shrink_backward),
    "log_sigmoid_forward": log_sigmoid_forward,
    "log_sigmoid_backward": log_sigmoid_backward,
    "glu": glu,
    "glu_backward": glu_backward,
    "sigmoid_backward": gradient(lambda g, y: g * _conj((1 - y) * y), "sigmoid_backward"),
    "tanh_backward": gradient(lambda g, y: g * _conj(1 - y * y), "tanh_backward"),
}

silence(globals())
