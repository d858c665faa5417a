"""Selection, clamping, interpolation and filling."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mortice.backend import dtypes
from mortice_cpu.kernels import _native
from mortice_cpu.kernels._elementwise import (
    FLOAT,
    NUMBERS,
    Kernel,
    compute_type,
    finished,
    fitting,
    in_order,
    number,
    operand,
    result_type,
    rounded,
    silence,
    unrounded,
    wrap,
    write_back,
)

_float32 = np.dtype(np.float32)


def lerp(self: Any, end: Any, weight: Any) -> Any:
    """From the nearer end, so that weight 1 gives ``end`` exactly."""
    t = self._t
    for x in (end, weight):
        if hasattr(x, "_t") and x._t is not t:
            raise TypeError("dtype")
    if t.kind < FLOAT:
        raise TypeError("dtype")
    kind = compute_type(t)
    a, b = operand(self, kind), operand(end, kind)
    with np.errstate(all="ignore"):
        if type(weight) in NUMBERS:
            w = number(weight, kind)
            near = abs(weight) < 0.5
            r = a + w * (b - a) if near else b - (b - a) * (1 - w)
        else:
            w = operand(weight, kind)
            r = np.where(np.abs(w) < 0.5, a + w * (b - a), b - (b - a) * (1 - w))
    return finished(r, t)


def addcmul(self: Any, tensor1: Any, tensor2: Any, value: Any) -> Any:
    dtype = result_type((self, tensor1, tensor2))
    if type(value) is float and dtype.kind < FLOAT:
        raise TypeError("value")
    with np.errstate(all="ignore"):
        product = rounded(tensor1, dtype) * rounded(tensor2, dtype)
        if value != 1:
            product = product * unrounded(value, dtype)
        return finished(rounded(self, dtype) + product, dtype)


def addcdiv(self: Any, tensor1: Any, tensor2: Any, value: Any) -> Any:
    if tensor1._t.kind < FLOAT and tensor2._t.kind < FLOAT:
        raise TypeError("integers")
    dtype = result_type((self, tensor1, tensor2))
    with np.errstate(all="ignore"):
        quotient = rounded(tensor1, dtype) / rounded(tensor2, dtype)
        if value != 1:
            quotient = quotient * unrounded(value, dtype)
        return finished(rounded(self, dtype) + quotient, dtype)


def _ternary_inplace(name: str, function: Any, functional: Kernel) -> Kernel:
    """``self += value * function(tensor1, tensor2)`` straight into self where dtypes agree."""

    def kernel(self: Any, tensor1: Any, tensor2: Any, value: Any) -> Any:
        a = self._a
        t = self._t
        b, c = tensor1._a, tensor2._a
        if (
            t.kind == FLOAT
            and t.itemsize > 2
            and t is tensor1._t
            and t is tensor2._t
            and a.shape == b.shape == c.shape
            and a.ndim  # arithmetic on 0-d arrays gives numpy scalars, which cannot be written to
            and a.flags.c_contiguous
            and type(value) is not complex
        ):
            if a.size >= _native.LARGE and not (
                np.may_share_memory(a, b) or np.may_share_memory(a, c)
            ):
                fused = "addcmul" if function is np.multiply else "addcdiv"
                if _native.apply_in_place(fused, a, b, c, numbers=(value,)):
                    return self
            product = function(b, c)
            if value != 1:
                np.multiply(product, number(value, a.dtype), product)
            np.add(a, product, a)
            return self
        return write_back(name, self, functional(self, tensor1, tensor2, value))

    return kernel


def lerp_inplace(self: Any, end: Any, weight: Any) -> Any:
    a, t = self._a, self._t
    if (
        type(weight) in (float, int)
        and 0 <= weight < 0.5
        and t.kind == FLOAT
        and t.itemsize > 2
        and end._t is t
        and end._a.shape == a.shape
        and a.ndim
        and a.flags.c_contiguous
    ):
        step = end._a - a
        np.multiply(step, number(weight, a.dtype), step)
        np.add(a, step, a)
        return self
    return write_back("lerp_.Tensor", self, lerp(self, end, weight))


def where(condition: Any, self: Any, other: Any) -> Any:
    if condition._t is not dtypes.bool_ and condition._t is not dtypes.uint8:
        raise TypeError("condition")
    dtype = result_type((self, other))
    kind = dtype.numpy
    chosen = condition._a
    if chosen.dtype.kind != "b":
        chosen = chosen.astype(bool)
    return wrap(np.where(chosen, operand(self, kind), operand(other, kind)), dtype)


def clamp(self: Any, low: Any, high: Any) -> Any:
    if low is None and high is None:
        raise TypeError("bounds")
    t = self._t
    if t.kind == FLOAT and not hasattr(low, "_a") and not hasattr(high, "_a"):
        dtype = t if complex not in (type(low), type(high)) else result_type((self, low, high))
    else:
        dtype = result_type((self, low, high))
    if dtype.is_complex:
        raise TypeError("complex")
    kind = compute_type(dtype)
    r = operand(self, kind)
    if r.size >= _native.LARGE and kind == _float32:
        found = _clamp_large(r, low, high)
        if found is not None:
            return finished(found, dtype)
    if low is not None:
        r = np.maximum(r, operand(low, kind))
    if high is not None:
        r = np.minimum(r, operand(high, kind))
    return finished(r, dtype)


def _clamp_large(a: Any, low: Any, high: Any) -> Any:
    """Between two numbers by one fused pass; None where it does not apply."""
    if hasattr(low, "_a") or hasattr(high, "_a"):
        return None
    bounds = (-math.inf if low is None else low, math.inf if high is None else high)
    if bounds[0] != bounds[0] or bounds[1] != bounds[1] or bounds[0] > bounds[1]:
        return None  # nan bounds and crossed ones have rules of their own
    return _native.apply("hardtanh", a, numbers=bounds)


def clamp_min(self: Any, low: Any) -> Any:
    return clamp(self, low, None)


def clamp_max(self: Any, high: Any) -> Any:
    return clamp(self, None, high)


def fill(self: Any, value: Any) -> Any:
    kind = self._t.numpy
    r = np.empty_like(self._a)
    if hasattr(value, "_a"):
        if value._a.ndim:
            raise TypeError("value")
        r[...] = operand(value, kind)
    else:
        r[...] = number(value, kind)
    return wrap(r, self._t)


def zero(self: Any) -> Any:
    return wrap(np.zeros_like(self._a), self._t)


def masked_fill(self: Any, mask: Any, value: Any) -> Any:
    if mask._t is not dtypes.bool_ or getattr(value, "ndim", 0):
        raise TypeError("mask")
    return wrap(np.where(mask._a, _value(value, self._t), self._a), self._t)


def _value(value: Any, dtype: Any) -> Any:
    if not hasattr(value, "_a"):
        return fitting(value, dtype)
    if value._t.is_complex and not dtype.is_complex:
        return fitting(value._a.item(), dtype)
    return operand(value, dtype.numpy)


def masked_fill_inplace(self: Any, mask: Any, value: Any) -> Any:
    a, m = self._a, mask._a
    if mask._t is not dtypes.bool_ or getattr(value, "ndim", 0) or 0 in a.strides:
        return write_back("masked_fill_.Scalar", self, masked_fill(self, mask, value))
    if m.ndim > a.ndim:
        return write_back("masked_fill_.Scalar", self, masked_fill(self, mask, value))
    np.copyto(a, _value(value, self._t), where=m)
    return self


KERNELS: dict[str, Kernel] = {
    "lerp.Tensor": lerp,
    "lerp_.Tensor": lerp_inplace,
    "addcmul": in_order(addcmul),
    "addcmul_": _ternary_inplace("addcmul_", np.multiply, addcmul),
    "addcdiv": in_order(addcdiv),
    "addcdiv_": _ternary_inplace("addcdiv_", np.true_divide, addcdiv),
    "where.self": where,
    "clamp": clamp,
    "clamp.Tensor": clamp,
    "clamp_min": clamp_min,
    "clamp_min.Tensor": clamp_min,
    "clamp_max": clamp_max,
    "clamp_max.Tensor": clamp_max,
    "fill.Scalar": fill,
    "fill.Tensor": fill,
    "zero": zero,
    "masked_fill.Scalar": masked_fill,
    "masked_fill.Tensor": masked_fill,
    "masked_fill_.Scalar": masked_fill_inplace,
    "masked_fill_.Tensor": masked_fill_inplace,
}

silence(globals())
