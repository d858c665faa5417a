"""Elementwise functions of one tensor."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from mortice.backend import dtypes
from mortice_cpu.kernels import _native, _special
from mortice_cpu.kernels._elementwise import (
    COMPLEX,
    FLOAT,
    Kernel,
    compute_type,
    finished,
    float_dtype,
    in_order,
    operand,
    silence,
    unary,
    wrap,
    write_back,
)

_float32 = np.dtype(np.float32)
_float64 = np.dtype(np.float64)

# -- array functions -------------------------------------------------------------------------------


def native_or(
    name: str, fallback: Callable[[Any], Any], least: int = _native.LARGE, wide: bool = False
) -> Callable[[Any], Any]:
    """The fused kernel for large contiguous float32 arrays, else ``fallback``.

    ``wide``: float64 as well, where numpy has nothing as fast.
    """

    def function(a: Any) -> Any:
        if a.size >= least and (a.dtype == _float32 or (wide and a.dtype == _float64)):
            found = _native.apply(name, a)
            if found is not None:
                return found
        return fallback(a)

    return function


def sigmoid(a: Any) -> Any:
    if a.dtype.kind == "c":
        return 1 / (1 + np.exp(-a))
    return 1 / (1 + np.exp(-a)) if a.dtype != _float32 else np.reciprocal(1 + np.exp(-a))


def rsqrt(a: Any) -> Any:
    return np.reciprocal(np.sqrt(a))


def sgn(a: Any) -> Any:
    if a.dtype.kind == "b":
        return a.copy("K")
    if a.dtype.kind != "c":
        return np.sign(a) if a.dtype.kind != "f" else _sign(a)
    size = np.abs(a)
    return np.where(size == 0, 0, a / np.where(size == 0, 1, size)).astype(a.dtype)


def _sign(a: Any) -> Any:
    """PyTorch's sign of nan is 0."""
    r = np.sign(a)
    return np.where(np.isnan(r), np.zeros((), r.dtype), r)


def reciprocal(a: Any) -> Any:
    return np.reciprocal(a)


def frac(a: Any) -> Any:
    return a - np.trunc(a)


def sinc(a: Any) -> Any:
    x = a * a.dtype.type(math.pi)
    zero = a == 0
    return np.where(zero, a.dtype.type(1), np.sin(x) / np.where(zero, a.dtype.type(1), x))


def deg2rad(a: Any) -> Any:
    return a * a.dtype.type(math.pi / 180)


def rad2deg(a: Any) -> Any:
    return a * a.dtype.type(180 / math.pi)


def _complex_or(real: Any, for_complex: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def function(a: Any) -> Any:
        return for_complex(a) if a.dtype.kind == "c" else real(a)

    return function


def _exp2_complex(a: Any) -> Any:
    return np.exp(a * a.dtype.type(math.log(2.0)))


def _on_floats(function: Any) -> Any:
    """Rounding of integers and bools is the identity."""

    def rounded(a: Any) -> Any:
        return a.copy("K") if a.dtype.kind in "iub" else function(a)

    return rounded


# -- kernels with arguments or other result types ------------------------------------------------


def absolute(self: Any) -> Any:
    a = self._a
    t = self._t
    if t.kind == COMPLEX:
        return wrap(np.abs(a), t.to_real())
    if t is dtypes.bool_:
        return wrap(a.copy("K"), t)
    if t.kind == FLOAT and t.itemsize < 4:
        return finished(np.abs(operand(self, _float32)), t)
    return wrap(np.abs(a), t)


def absolute_inplace(self: Any) -> Any:
    if self._t.kind == COMPLEX:
        from mortice.errors import DTypeError

        raise DTypeError("In-place abs is not supported for complex tensors.")
    return write_back("abs_", self, absolute(self))


def neg(self: Any) -> Any:
    if self._t is dtypes.bool_:
        raise TypeError("bool")
    return wrap(np.negative(self._a), self._t)


def round_decimals(self: Any, decimals: int) -> Any:
    t = self._t
    if t.kind < FLOAT:
        return wrap(self._a.copy("K"), t)
    a = operand(self, compute_type(t))
    with np.errstate(all="ignore"):
        if decimals == 0:
            return finished(np.rint(a), t)
        scale = a.dtype.type(10.0 ** abs(decimals))
        r = np.rint(a * scale) / scale if decimals > 0 else np.rint(a / scale) * scale
    return finished(r, t)


def polygamma(n: int, self: Any) -> Any:
    if self._t.is_complex or n < 0:
        raise TypeError("complex")
    dtype = float_dtype(self._t)
    with np.errstate(all="ignore"):
        return finished(_special.polygamma(n, operand(self, compute_type(dtype))), dtype)


def logit(self: Any, eps: float | None) -> Any:
    if self._t.is_complex:
        raise TypeError("complex")
    dtype = float_dtype(self._t)
    a = operand(self, compute_type(dtype))
    with np.errstate(all="ignore"):
        if eps is not None:
            low = a.dtype.type(eps)
            a = np.minimum(np.maximum(a, low), 1 - low)
        return finished(np.log(a / (1 - a)), dtype)


def logit_backward(grad: Any, self: Any, eps: float | None) -> Any:
    kind = compute_type(self._t)
    g, x = operand(grad, kind), operand(self, kind)
    with np.errstate(all="ignore"):
        r = g / (x * (1 - x))
        if eps is not None:
            r = np.where((x < eps) | (x > 1 - eps), x.dtype.type(0), r)
        else:
            r = np.where((x < 0) | (x > 1), x.dtype.type(math.nan), r)
    return finished(r, grad._t)


def nan_to_num(self: Any, nan: float | None, posinf: float | None, neginf: float | None) -> Any:
    t = self._t
    if t.kind < FLOAT:
        return wrap(self._a.copy("K"), t)
    a = operand(self, compute_type(t))
    if a.dtype.kind == "c":
        r, info = a.copy("K"), _limits(t.to_real())
        r.real = _replaced(a.real, info, nan, posinf, neginf)
        r.imag = _replaced(a.imag, info, nan, posinf, neginf)
        return finished(r, t)
    return finished(_replaced(a, _limits(t), nan, posinf, neginf), t)


def _limits(t: Any) -> Any:
    if t.itemsize > 2 or t is dtypes.float16:
        return np.finfo(t.numpy)
    import ml_dtypes

    return ml_dtypes.finfo(t.numpy)


def _replaced(a: Any, info: Any, nan: Any, posinf: Any, neginf: Any) -> Any:
    r = a.copy("K")
    odd = ~np.isfinite(a)
    if not odd.any():
        return r
    kind = a.dtype.type
    high = float(info.max) if posinf is None else posinf
    low = float(info.min) if neginf is None else neginf
    with np.errstate(all="ignore"):
        x = a[odd]
        r[odd] = np.where(np.isnan(x), kind(nan or 0.0), np.where(x > 0, kind(high), kind(low)))
    return r


def angle(self: Any) -> Any:
    dtype = float_dtype(self._t)
    a = operand(self, compute_type(dtype))
    if a.dtype.kind == "c":
        return wrap(np.angle(a), dtype.to_real())
    r = np.where(a < 0, a.dtype.type(math.pi), a.dtype.type(0))
    return finished(np.where(np.isnan(a), a, r), dtype)


def conj_physical(self: Any) -> Any:
    return wrap(np.conjugate(self._a) if self._t.kind == COMPLEX else self._a.copy("K"), self._t)


def _test(function: Callable[[Any], Any], otherwise: bool) -> Kernel:
    """A question about floating values; integers all answer ``otherwise``."""

    def kernel(self: Any) -> Any:
        t = self._t
        if t.kind < FLOAT:
            return wrap(np.full_like(self._a, otherwise, bool), dtypes.bool_)
        return wrap(function(operand(self, compute_type(t))), dtypes.bool_)

    return kernel


def signbit(self: Any) -> Any:
    t = self._t
    if t.kind < FLOAT:
        return wrap(self._a < 0 if t is not dtypes.bool_ else np.zeros_like(self._a), dtypes.bool_)
    return wrap(np.signbit(operand(self, compute_type(t))), dtypes.bool_)


def isreal(self: Any) -> Any:
    if self._t.kind == COMPLEX:
        return wrap(self._a.imag == 0, dtypes.bool_)
    return wrap(np.ones_like(self._a, bool), dtypes.bool_)


def logical_not(self: Any) -> Any:
    return wrap(np.logical_not(operand(self, compute_type(self._t))), dtypes.bool_)


def bitwise_not(self: Any) -> Any:
    return wrap(np.invert(self._a), self._t)


def complex_(real: Any, imag: Any) -> Any:
    if real._t is not imag._t or real._t.kind != FLOAT:
        raise TypeError("parts")
    kind = np.result_type(real._a.dtype, np.complex64)
    r = np.empty(np.broadcast_shapes(real._a.shape, imag._a.shape), kind)
    r.real, r.imag = real._a, imag._a
    return wrap(r, real._t.to_complex())


def polar(size: Any, angle: Any) -> Any:
    if size._t is not angle._t or size._t.kind != FLOAT:
        raise TypeError("parts")
    kind = np.result_type(size._a.dtype, np.complex64)
    r = np.empty(np.broadcast_shapes(size._a.shape, angle._a.shape), kind)
    r.real, r.imag = size._a * np.cos(angle._a), size._a * np.sin(angle._a)
    return wrap(r, size._t.to_complex())


_TO_FLOAT: dict[str, Callable[[Any], Any]] = {
    "reciprocal": reciprocal,
    "sqrt": np.sqrt,
    "rsqrt": rsqrt,
    "exp": native_or("exp", np.exp),
    "exp2": _complex_or(native_or("exp2", np.exp2), _exp2_complex),
    "expm1": native_or("expm1", np.expm1),
    "log": native_or("log", np.log),
    "log2": native_or("log2", np.log2),
    "log10": native_or("log10", np.log10),
    "log1p": native_or("log1p", np.log1p),
    "sin": native_or("sin", np.sin),
    "cos": native_or("cos", np.cos),
    "tan": native_or("tan", np.tan),
    "asin": native_or("asin", np.arcsin),
    "acos": native_or("acos", np.arccos),
    "atan": native_or("atan", np.arctan),
    "sinh": native_or("sinh", np.sinh),
    "cosh": native_or("cosh", np.cosh),
    "tanh": native_or("tanh", np.tanh),
    "asinh": native_or("asinh", np.arcsinh),
    "acosh": native_or("acosh", np.arccosh),
    "atanh": native_or("atanh", np.arctanh),
    "erf": native_or("erf", _special.erf, _native.SLOW, wide=True),
    "erfc": native_or("erfc", _special.erfc, _native.SLOW, wide=True),
    "erfinv": _special.erfinv,
    "lgamma": _special.lgamma,
    "digamma": _special.digamma,
    "sigmoid": native_or("sigmoid", sigmoid, _native.COSTLY),
    "i0": _special.bessel_i0,
    "sinc": sinc,
    "deg2rad": deg2rad,
    "rad2deg": rad2deg,
}

#: Those that mortice_llvm has.
_FUSED = frozenset(_TO_FLOAT) - {
    "erfinv", "lgamma", "digamma", "i0", "sinc", "deg2rad", "rad2deg",
}  # fmt: skip

_REAL_ONLY = frozenset(
    (
        "erf", "erfc", "erfinv", "lgamma", "digamma", "i0", "deg2rad", "rad2deg",
    )
)  # fmt: skip


def _real_only(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def checked(a: Any) -> Any:
        if a.dtype.kind == "c":
            raise TypeError("complex")  # the shape rule words it
        return function(a)

    return checked


_SAME: dict[str, Callable[[Any], Any]] = {
    "sign": native_or("sign", sgn),
    "sgn": sgn,
    "ceil": _on_floats(np.ceil),
    "floor": _on_floats(np.floor),
    "round": _on_floats(np.rint),
    "trunc": _on_floats(np.trunc),
    "frac": frac,
}

KERNELS: dict[str, Kernel] = {
    **{
        name: unary(
            _real_only(function) if name in _REAL_ONLY else function,
            to_float=True,
            native=name if name in _FUSED else "",
        )
        for name, function in _TO_FLOAT.items()
    },
    **{name: unary(function) for name, function in _SAME.items()},
    "special_i1": in_order(unary(_real_only(_special.bessel_i1), to_float=True)),
    "abs": absolute,
    "abs_": absolute_inplace,
    "neg": neg,
    "round.decimals": round_decimals,
    "polygamma": in_order(polygamma),
    "logit": logit,
    "logit_backward": logit_backward,
    "nan_to_num": nan_to_num,
    "angle": angle,
    "conj_physical": conj_physical,
    "isnan": _test(np.isnan, False),
    "isinf": _test(np.isinf, False),
    "isfinite": _test(np.isfinite, True),
    "isposinf": _test(np.isposinf, False),
    "isneginf": _test(np.isneginf, False),
    "signbit": signbit,
    "isreal": isreal,
    "logical_not": logical_not,
    "bitwise_not": bitwise_not,
    "complex": in_order(complex_),
    "polar": in_order(polar),
}

silence(globals())
