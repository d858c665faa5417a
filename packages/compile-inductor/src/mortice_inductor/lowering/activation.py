"""Activations and their gradients, by the kernel library's formulas."""

from __future__ import annotations

from typing import Any

from mortice_llvm.dtypes import computes_as

from ..ir.values import Trace, Value
from .formulas import Operand, formula
from .registry import LOWERINGS, Fallback, compute, is_float, lowers, operand, promote

# operator: formula, tensors, numbers that follow
_FORMULAS = """
silu silu 1
mish mish 1
hardswish hardswish 1
hardsigmoid hardsigmoid 1
silu_backward silu_backward 2
sigmoid_backward sigmoid_backward 2
tanh_backward tanh_backward 2
threshold_backward threshold_backward 2
hardswish_backward hardswish_backward 2
hardtanh hardtanh 1
hardtanh_backward hardtanh_backward 2
leaky_relu leaky_relu 1
softplus softplus 1
softplus_backward softplus_backward 2
elu elu 1
"""


def _apply(t: Trace, name: str, count: int, args: tuple[Any, ...]) -> Value:
    tensors = args[:count]
    dtype = tensors[0].dtype
    for x in tensors[1:]:
        dtype = promote(dtype, x.dtype)
    if not is_float(dtype) and name not in ("hardtanh", "threshold_backward"):
        raise Fallback(f"{name} of {dtype}")
    inner = computes_as(dtype)
    return t.cast(formula(t, name, *(operand(t, x, inner) for x in args)), dtype)


def _by_formula(name: str, count: int) -> Any:
    return lambda t, *args: _apply(t, name, count, args)


for _line in _FORMULAS.strip().splitlines():
    _op, _name, _count = _line.split()
    LOWERINGS[f"{_op}.default"] = _by_formula(_name, int(_count))


@lowers("gelu")
def _gelu(t: Trace, x: Value, approximate: str = "none") -> Value:
    if approximate == "none":
        return compute(t, "gelu", x, dtype=x.dtype)
    return _apply(t, "gelu_tanh", 1, (x,))


@lowers("gelu_backward")
def _gelu_backward(t: Trace, g: Value, x: Value, approximate: str = "none") -> Value:
    name = "gelu_backward" if approximate == "none" else "gelu_tanh_backward"
    return _apply(t, name, 2, (g, x))


@lowers("leaky_relu_backward")
def _leaky_relu_backward(t: Trace, g: Value, x: Value, slope: Any, self_is_result: bool) -> Value:
    return _apply(t, "leaky_relu_backward", 2, (g, x, slope))


@lowers("elu_backward")
def _elu_backward(
    t: Trace, g: Value, alpha: Any, scale: Any, input_scale: Any, is_result: bool, x: Value
) -> Value:
    dtype = promote(g.dtype, x.dtype)
    inner = computes_as(dtype)
    grad, y, a, s, i = (Operand(t, operand(t, v, inner)) for v in (g, x, alpha, scale, input_scale))
    if is_result:
        low = grad * i * (y + a * s)
    else:
        low = grad * i * a * s * Operand(t, t.fn("exp", (y * i).v))
    return t.cast(t.select((y <= 0.0).v, low.v, (grad * s).v), dtype)


@lowers("threshold")
def _threshold(t: Trace, x: Value, threshold: Any, value: Any) -> Value:
    inner = computes_as(x.dtype)
    v, at, other = (operand(t, y, inner) for y in (x, threshold, value))
    return t.cast(t.select(t.fn("le", v, at), other, v), x.dtype)


@lowers("softshrink")
def _softshrink(t: Trace, x: Value, by: Any = 0.5) -> Value:
    inner = computes_as(x.dtype)
    v, d = Operand(t, operand(t, x, inner)), Operand(t, operand(t, by, inner))
    # NaN is neither above nor below, and times 0 stays NaN.
    middle = v * 0.0
    out = t.select((v < -d).v, (v + d).v, middle.v)
    return t.cast(t.select((v > d).v, (v - d).v, out), x.dtype)


@lowers("hardshrink")
def _hardshrink(t: Trace, x: Value, by: Any = 0.5) -> Value:
    inner = computes_as(x.dtype)
    v, d = Operand(t, operand(t, x, inner)), Operand(t, operand(t, by, inner))
    inside = (v >= -d) & (v <= d)
    return t.cast(t.select(inside.v, t.const(0, inner), v.v), x.dtype)


@lowers("softshrink_backward", "hardshrink_backward")
def _shrink_backward(t: Trace, g: Value, x: Value, by: Any) -> Value:
    dtype = promote(g.dtype, x.dtype)
    inner = computes_as(dtype)
    grad, v, d = (Operand(t, operand(t, y, inner)) for y in (g, x, by))
    inside = (v >= -d) & (v <= d)
    return t.cast(t.select(inside.v, t.const(0, inner), grad.v), dtype)


@lowers("hardsigmoid_backward")
def _hardsigmoid_backward(t: Trace, g: Value, x: Value) -> Value:
    dtype = promote(g.dtype, x.dtype)
    inner = computes_as(dtype)
    grad, v = (Operand(t, operand(t, y, inner)) for y in (g, x))
    inside = (v > -3.0) & (v < 3.0)
    return t.cast(t.select(inside.v, (grad / 6.0).v, t.const(0, inner)), dtype)


@lowers("mish_backward")
def _mish_backward(t: Trace, g: Value, x: Value) -> Value:
    dtype = promote(g.dtype, x.dtype)
    inner = computes_as(dtype)
    grad, v = (Operand(t, operand(t, y, inner)) for y in (g, x))
    # tanh(softplus(x)) + x sigmoid(x) (1 - tanh(softplus(x))**2)
    tanh = Operand(t, t.fn("tanh", t.fn("log1p", t.fn("exp", v.v))))
    slope = tanh + v * Operand(t, t.fn("sigmoid", v.v)) * (1.0 - tanh * tanh)
    return t.cast((grad * slope).v, dtype)


@lowers("log_sigmoid_forward")
def _log_sigmoid_forward(t: Trace, x: Value) -> tuple[Value, Value]:
    # The second result is a buffer that only other frameworks' backward reads.
    return _apply(t, "log_sigmoid", 1, (x,)), t.view(t.const(0, x.dtype), (), (0,))


@lowers("log_sigmoid_backward")
def _log_sigmoid_backward(t: Trace, g: Value, x: Value, buffer: Value) -> Value:
    dtype = promote(g.dtype, x.dtype)
    inner = computes_as(dtype)
    grad, v = (operand(t, y, inner) for y in (g, x))
    return t.cast(t.fn("mul", grad, t.fn("sigmoid", t.fn("neg", v))), dtype)


@lowers("glu")
def _glu(t: Trace, x: Value, dim: int = -1) -> Value:
    a, b = _halves(t, x, dim)
    return t.cast(t.fn("mul", a, t.fn("sigmoid", b)), x.dtype)


def _halves(t: Trace, x: Value, dim: int) -> tuple[Value, Value]:
    if not is_float(x.dtype):
        raise Fallback(f"glu of {x.dtype}")
    d = dim % len(x.shape)
    n = x.shape[d] // 2
    v = t.cast(x, computes_as(x.dtype))
    return t.shifted(v, d, n, 0), t.shifted(v, d, n, n)


@lowers("_prelu_kernel")
def _prelu(t: Trace, x: Value, weight: Value) -> Value:
    inner = computes_as(x.dtype)
    v, w = operand(t, x, inner), operand(t, weight, inner)
    positive = t.fn("gt", v, t.const(0, inner))
    return t.cast(t.select(positive, v, t.fn("mul", v, w)), x.dtype)
