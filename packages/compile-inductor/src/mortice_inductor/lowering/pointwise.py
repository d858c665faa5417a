"""Elementwise operators: tables of names, then those that need a word more."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from mortice_llvm.dtypes import computes_as

from ..ir.values import SCALARS, Trace, Value
from ..specs import loop_name
from .formulas import Operand
from .registry import (
    LOWERINGS,
    Fallback,
    check_accepts,
    check_kinds,
    compute,
    float_of,
    is_float,
    is_number,
    kind,
    lowers,
    meet,
    operand,
    result_dtype,
)

# Results are floating whatever the operand is.
_TO_FLOAT = """
exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh
sqrt rsqrt reciprocal sigmoid erf erfc
"""
_SAME = "neg abs sign floor ceil trunc round relu"
_TO_BOOL = "isnan isinf isfinite signbit"
_COMPARE = "eq ne lt le gt ge"
_BINARY = "maximum minimum fmax fmin"


def _to_float(name: str) -> Callable[..., Value]:
    return lambda t, x: compute(t, name, x, dtype=float_of(x.dtype))


def _same(name: str) -> Callable[..., Value]:
    return lambda t, x: compute(t, name, x, dtype=x.dtype)


def _to_bool(name: str) -> Callable[..., Value]:
    def lower(t: Trace, x: Value) -> Value:
        if not is_float(x.dtype):
            raise Fallback(f"{name} of {x.dtype}")
        return compute(t, name, x, dtype=x.dtype)

    return lower


def _binary(name: str) -> Callable[..., Value]:
    return lambda t, a, b: meet(t, name, a, b, dtype=result_dtype(a, b))


def _compare(name: str) -> Callable[..., Value]:
    def lower(t: Trace, a: Any, b: Any) -> Value:
        dtype = result_dtype(a, b)
        if isinstance(b, float) and not is_float(dtype):
            raise Fallback("comparison of integers with a fraction")
        return meet(t, name, a, b, dtype=dtype)

    return lower


for _name in _TO_FLOAT.split():
    LOWERINGS[f"{_name}.default"] = _to_float(_name)
for _name in _SAME.split():
    LOWERINGS[f"{_name}.default"] = _same(_name)
for _name in _TO_BOOL.split():
    LOWERINGS[f"{_name}.default"] = _to_bool(_name)
for _name in _COMPARE.split():
    LOWERINGS[f"{_name}.Tensor"] = LOWERINGS[f"{_name}.Scalar"] = _compare(_name)
for _name in _BINARY.split():
    LOWERINGS[f"{_name}.default"] = _binary(_name)
for _name, _op in (("bitwise_and", "and"), ("bitwise_or", "or"), ("bitwise_xor", "xor"),
                   ("bitwise_left_shift", "shl"), ("bitwise_right_shift", "shr")):  # fmt: skip
    if _op not in ("shl", "shr"):
        for _overload in ("Tensor", "Scalar", "Scalar_Tensor"):
            LOWERINGS[f"{_name}.{_overload}"] = _binary(_op)
for _name, _op in (("atan2", "atan2"), ("hypot", "hypot"), ("copysign", "copysign")):

    def _float_binary(t: Trace, a: Any, b: Any, op: str = _op) -> Value:
        return meet(t, op, a, b, dtype=float_of(result_dtype(a, b)))

    LOWERINGS[f"{_name}.{'Tensor' if _name == 'copysign' else 'default'}"] = _float_binary


@lowers("bitwise_not")
def _bitwise_not(t: Trace, x: Value) -> Value:
    return compute(t, "not", x, dtype=x.dtype)


def _truth(t: Trace, x: Any) -> Value:
    return operand(t, x, "bool")


@lowers("logical_not")
def _logical_not(t: Trace, x: Value) -> Value:
    return t.fn("not", _truth(t, x))


for _name, _op in (("logical_and", "and"), ("logical_or", "or"), ("logical_xor", "xor")):

    def _logical(t: Trace, a: Value, b: Value, op: str = _op) -> Value:
        return t.fn(op, _truth(t, a), _truth(t, b))

    LOWERINGS[f"{_name}.default"] = _logical


# -- arithmetic ----------------------------------------------------------------------------------


def _sum(t: Trace, name: str, a: Any, b: Any, alpha: Any, dtype: str) -> Value:
    """``a`` and ``alpha`` times ``b``, added or subtracted, all of them rounded first."""
    if is_number(alpha) and not isinstance(alpha, Value) and alpha == 1:
        return meet(t, name, a, b, dtype=dtype)
    inner = computes_as(dtype)
    scaled = compute(t, "mul", operand(t, b, dtype), operand(t, alpha, dtype), dtype=inner)
    return compute(t, name, operand(t, a, dtype), scaled, dtype=dtype)


@lowers("add.Tensor", "add.Scalar")
def _add(t: Trace, a: Any, b: Any, alpha: Any = 1) -> Value:
    dtype = result_dtype(a, b)
    name = "or" if kind(dtype) == "b" else "add"
    return _sum(t, name, a, b, alpha, dtype)


@lowers("sub.Tensor", "sub.Scalar")
def _sub(t: Trace, a: Any, b: Any, alpha: Any = 1) -> Value:
    return _sum(t, "sub", a, b, alpha, result_dtype(a, b))


@lowers("rsub.Tensor", "rsub.Scalar")
def _rsub(t: Trace, a: Any, b: Any, alpha: Any = 1) -> Value:
    return _sub(t, b, a, alpha)


@lowers("mul.Tensor", "mul.Scalar")
def _mul(t: Trace, a: Any, b: Any) -> Value:
    dtype = result_dtype(a, b)
    return compute(t, "and" if kind(dtype) == "b" else "mul", a, b, dtype=dtype)


@lowers("div.Tensor", "div.Scalar")
def _div(t: Trace, a: Any, b: Any) -> Value:
    return compute(t, "div", a, b, dtype=float_of(result_dtype(a, b)))


def _nonzero_integer(b: Any, dtype: str) -> None:
    if not is_float(dtype) and (isinstance(b, Value) or b == 0):
        raise Fallback("an integer division that may be by zero raises")


@lowers("div.Tensor_mode", "div.Scalar_mode")
def _div_mode(t: Trace, a: Any, b: Any, rounding_mode: Any = None) -> Value:
    if rounding_mode is None:
        return _div(t, a, b)
    dtype = result_dtype(a, b)
    _nonzero_integer(b, dtype)
    if rounding_mode == "floor":
        return compute(t, "floor_div", a, b, dtype=dtype)
    quotient = compute(t, "div", a, b, dtype=computes_as(dtype))
    return compute(t, "trunc", quotient, dtype=dtype)


@lowers("floor_divide", "floor_divide.Scalar")
def _floor_divide(t: Trace, a: Any, b: Any) -> Value:
    return _div_mode(t, a, b, "floor")


def _remainder_by(name: str) -> Callable[..., Value]:
    def lower(t: Trace, a: Any, b: Any) -> Value:
        dtype = result_dtype(a, b)
        _nonzero_integer(b, dtype)
        return meet(t, name, a, b, dtype=dtype)

    return lower


for _name in ("remainder", "fmod"):
    LOWERINGS[f"{_name}.Tensor"] = LOWERINGS[f"{_name}.Scalar"] = _remainder_by(_name)


#: Powers that eager does by other means, which differ at -0 and -inf; that of -1/2 not in 16 bits.
_POWERS: dict[float, Callable[[Trace, Value], Value]] = {
    1: lambda t, x: x,
    2: lambda t, x: t.fn("mul", x, x),
    3: lambda t, x: t.fn("mul", t.fn("mul", x, x), x),
    -1: lambda t, x: t.fn("reciprocal", x),
    -2: lambda t, x: t.fn("reciprocal", t.fn("mul", x, x)),
    0.5: lambda t, x: t.fn("sqrt", x),
    -0.5: lambda t, x: t.fn("reciprocal", t.fn("sqrt", x)),
}


def _simple_power(exponent: Any, dtype: str) -> Callable[[Trace, Value], Value] | None:
    if not isinstance(exponent, (int, float)) or isinstance(exponent, bool):
        return None
    if dtype in ("f16", "bf16") and exponent == -0.5:
        return None
    if not is_float(dtype) and exponent not in (1, 2, 3):
        return None
    return _POWERS.get(exponent)


@lowers("pow.Tensor_Tensor", "pow.Tensor_Scalar", "pow.Scalar")
def _pow(t: Trace, x: Any, exponent: Any) -> Value:
    dtype = result_dtype(x, exponent)
    simple = _simple_power(exponent, dtype)
    if simple is None or not isinstance(x, Value):
        return meet(t, "pow", x, exponent, dtype=dtype)
    inner = computes_as(dtype)
    check_accepts("mul", inner)
    return t.cast(simple(t, operand(t, x, inner)), dtype)


@lowers("square")
def _square(t: Trace, x: Value) -> Value:
    return _pow(t, x, 2)


@lowers("frac")
def _frac(t: Trace, x: Value) -> Value:
    inner = computes_as(x.dtype)
    v = t.cast(x, inner)
    return t.cast(t.fn("sub", v, t.fn("trunc", v)), x.dtype)


@lowers("sgn")
def _sgn(t: Trace, x: Value) -> Value:
    return compute(t, "sign", x, dtype=x.dtype)


@lowers("positive", "clone", "alias", "detach", "lift_fresh", "contiguous", "lift")
def _itself(t: Trace, x: Value, *_: Any) -> Value:
    return x


# -- ternary -------------------------------------------------------------------------------------


@lowers("where.self", "where.ScalarSelf", "where.ScalarOther", "where.Scalar")
def _where(t: Trace, condition: Value, a: Any, b: Any) -> Value:
    dtype = result_dtype(a, b)
    if condition.dtype != "bool":
        raise Fallback("where() with a condition that is not bool")
    return t.select(condition, operand(t, a, dtype), operand(t, b, dtype))


@lowers("masked_fill.Scalar", "masked_fill.Tensor")
def _masked_fill(t: Trace, x: Value, mask: Value, value: Any) -> Value:
    if mask.dtype != "bool":
        raise Fallback("a mask that is not bool")
    return t.select(mask, operand(t, value, x.dtype), x)


def _limited(t: Trace, x: Value, low: Any, high: Any, dtype: str) -> Value:
    inner = computes_as(dtype)
    out = operand(t, x, inner)
    if low is not None:
        out = compute(t, "maximum", out, low, dtype=inner)
    if high is not None:
        out = compute(t, "minimum", out, high, dtype=inner)
    return t.cast(out, dtype)


@lowers("clamp", "clamp.Tensor")
def _clamp(t: Trace, x: Value, low: Any = None, high: Any = None) -> Value:
    return _limited(t, x, low, high, result_dtype(x, low, high))


@lowers("clamp_min", "clamp_min.Tensor")
def _clamp_min(t: Trace, x: Value, low: Any) -> Value:
    return _limited(t, x, low, None, result_dtype(x, low))


@lowers("clamp_max", "clamp_max.Tensor")
def _clamp_max(t: Trace, x: Value, high: Any) -> Value:
    return _limited(t, x, None, high, result_dtype(x, high))


def _operands(t: Trace, dtype: str, *given: Any) -> tuple[Operand, ...]:
    inner = computes_as(dtype)
    return tuple(Operand(t, operand(t, x, inner)) for x in given)


@lowers("addcmul")
def _addcmul(t: Trace, x: Value, a: Value, b: Value, value: Any = 1) -> Value:
    dtype = result_dtype(x, a, b)
    self, p, q, by = _operands(t, dtype, x, a, b, value)
    product = p * q if not isinstance(value, Value) and value == 1 else by * p * q
    return t.cast((self + product).v, dtype)


@lowers("addcdiv")
def _addcdiv(t: Trace, x: Value, a: Value, b: Value, value: Any = 1) -> Value:
    dtype = float_of(result_dtype(x, a, b))
    self, p, q, by = _operands(t, dtype, x, a, b, value)
    quotient = p / q if not isinstance(value, Value) and value == 1 else by * (p / q)
    return t.cast((self + quotient).v, dtype)


@lowers("lerp.Tensor", "lerp.Scalar")
def _lerp(t: Trace, start: Value, end: Value, weight: Any) -> Value:
    dtype = result_dtype(start, end)
    a, b, w = _operands(t, dtype, start, end, weight)
    near, far = a + w * (b - a), b - (b - a) * (1.0 - w)
    small = t.fn("lt", t.fn("abs", w.v), t.const(0.5, w.dtype))
    return t.cast(t.select(small, near.v, far.v), dtype)


@lowers("nan_to_num")
def _nan_to_num(
    t: Trace, x: Value, nan: Any = None, posinf: Any = None, neginf: Any = None
) -> Value:
    if not is_float(x.dtype):
        return x
    import numpy as np

    inner = computes_as(x.dtype)
    greatest = {"f32": float(np.finfo(np.float32).max), "f64": float(np.finfo(np.float64).max),
                "f16": 65504.0, "bf16": 3.3895313892515355e38}[x.dtype]  # fmt: skip
    v = t.cast(x, inner)
    high = greatest if posinf is None else posinf
    low = -greatest if neginf is None else neginf
    inf = t.const(math.inf, inner)
    out = t.select(t.fn("eq", v, inf), operand(t, high, inner), v)
    out = t.select(t.fn("eq", v, t.const(-math.inf, inner)), operand(t, low, inner), out)
    out = t.select(t.fn("isnan", v), operand(t, 0.0 if nan is None else nan, inner), out)
    return t.cast(out, x.dtype)


# -- conversions ---------------------------------------------------------------------------------


@lowers("_to_copy")
def _to_copy(t: Trace, x: Value, dtype: Any = None, layout: Any = None, device: Any = None,
             *rest: Any) -> Value:  # fmt: skip

    if device is not None and getattr(device, "type", device) != "cpu":
        raise Fallback("a copy to another device")
    if dtype is None:
        return x
    name = loop_name(dtype)
    check_kinds(name, x.dtype)
    return t.cast(x, name)


@lowers("copy")
def _copy(t: Trace, x: Value, source: Value, non_blocking: bool = False) -> Value:
    check_kinds(x.dtype, source.dtype)
    return t.expand(t.cast(source, x.dtype), x.shape)


@lowers("fill.Scalar", "fill.Tensor")
def _fill(t: Trace, x: Value, value: Any) -> Value:
    return filled(t, x.shape, value, x.dtype)


@lowers("zero")
def _zero(t: Trace, x: Value) -> Value:
    return filled(t, x.shape, 0, x.dtype)


def filled(t: Trace, shape: tuple[int, ...], value: Any, dtype: str) -> Value:
    """``value`` everywhere."""
    kind(dtype)
    v = t.cast(operand(t, value, computes_as(dtype)), dtype)
    return t.view(v, (), shape) if v.op in SCALARS and shape else t.expand(v, shape)
