"""Arithmetic of two tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from mortice.backend import CPU_KEYS, Tensor, dtypes
from mortice_cpu.kernels import _native
from mortice_cpu.kernels._elementwise import (
    FLOAT,
    NUMBERS,
    Kernel,
    binary,
    binary_integers,
    compute_type,
    finished,
    fused_half,
    inplace,
    number,
    operand,
    result_type,
    rounded,
    silence,
    unrounded,
    wrap,
    write_back,
)

_new = object.__new__
_ndarray = np.ndarray
_add = np.add

# -- sums ------------------------------------------------------------------------------------------


def add(self: Any, other: Any, alpha: Any) -> Any:
    t = self._t
    if alpha == 1:
        if type(other) is Tensor or type(other) not in NUMBERS:
            if t is other._t and t.itemsize > 2:
                try:
                    a = _add(self._a, other._a)
                except FloatingPointError:  # numpy was told to raise
                    return _sum(np.add, self, other, alpha)
                # `wrap` in line: 40 ns of 650 for the most frequent operator of all
                r = _new(Tensor)
                r._a = a if type(a) is _ndarray else np.asarray(a)
                r._k = CPU_KEYS
                r._t = t
                r._g = r._s = r._b = None
                return r
        elif t.kind == FLOAT and t.itemsize > 2 and type(other) is not complex:
            a = self._a
            return wrap(np.add(a, number(other, a.dtype)), t)
    return _sum(np.add, self, other, alpha)


def sub(self: Any, other: Any, alpha: Any) -> Any:
    t = self._t
    if alpha == 1:
        if type(other) not in NUMBERS:
            if t is other._t and t.itemsize > 2:
                try:
                    return wrap(np.subtract(self._a, other._a), t)
                except FloatingPointError:  # numpy was told to raise
                    return _sum(np.subtract, self, other, alpha)
        elif t.kind == FLOAT and t.itemsize > 2 and type(other) is not complex:
            a = self._a
            return wrap(np.subtract(a, number(other, a.dtype)), t)
    return _sum(np.subtract, self, other, alpha)


def _sum(function: Any, self: Any, other: Any, alpha: Any) -> Any:
    dtype = result_type((self, other))
    _check_alpha(dtype, alpha)
    if function is np.subtract and dtypes.bool_ in (self._t, getattr(other, "_t", None)):
        raise TypeError("bool")
    if alpha == 1 and dtype is self._t and dtype is getattr(other, "_t", None):
        fused = fused_half(_NATIVE[function], (self._a, other._a), dtype)
        if fused is not None:
            return fused
    with np.errstate(all="ignore"):
        a, b = rounded(self, dtype), rounded(other, dtype)
        if alpha != 1:
            b = b * rounded(alpha, dtype)
        return finished(function(a, b), dtype)


_NATIVE = {np.add: "add", np.subtract: "sub"}


def _check_alpha(dtype: Any, alpha: Any) -> None:
    kind = type(alpha)
    if (
        (kind is float and dtype.kind < FLOAT)
        or (kind is complex and not dtype.is_complex)
        or (kind is bool and dtype is not dtypes.bool_)
    ):
        raise TypeError("alpha")  # the shape rule words it


def rsub(self: Any, other: Any, alpha: Any) -> Any:
    if type(other) in NUMBERS:
        t = self._t
        if alpha == 1 and t.kind == FLOAT and t.itemsize > 2 and type(other) is not complex:
            a = self._a
            return wrap(np.subtract(number(other, a.dtype), a), t)
        dtype = result_type((self, other))
        _check_alpha(dtype, alpha)
        if self._t is dtypes.bool_:
            raise TypeError("bool")
        with np.errstate(all="ignore"):
            scaled = rounded(self, dtype) * rounded(alpha, dtype)
            return finished(np.subtract(rounded(other, dtype), scaled), dtype)
    return sub(other, self, alpha)


def _overlap(a: Any, b: Any) -> bool:
    """Whether a fused kernel would read what it has written: partly the same memory."""
    return a is not b and np.may_share_memory(a, b)


def _sum_inplace(name: str, function: Any, functional: Kernel) -> Kernel:
    def kernel(self: Any, other: Any, alpha: Any) -> Any:
        a = self._a
        t = self._t
        if t.itemsize > 2 and a.flags.c_contiguous and type(alpha) is not complex:
            b = None
            if type(other) not in NUMBERS:
                if t is other._t and (alpha == 1 or t.kind == FLOAT):
                    b = other._a
            elif t.kind == FLOAT and type(other) is not complex:
                b = number(other, a.dtype)
            if b is not None and (b.ndim == 0 or b.shape == a.shape):
                if alpha != 1 and a.size >= _native.LARGE and t.kind == FLOAT and b.ndim:
                    scale = alpha if function is np.add else -alpha
                    if not _overlap(a, b) and _native.apply_in_place(
                        "add_scaled", a, b, numbers=(scale,)
                    ):
                        return self
                if alpha != 1:
                    b = b * number(alpha, a.dtype)
                function(a, b, a)
                return self
        return write_back(name, self, functional(self, other, alpha))

    return kernel


mul = binary(np.multiply, native="mul", second=unrounded)

# -- quotients -------------------------------------------------------------------------------------

div = binary(np.true_divide, to_float=True, native="div", second=unrounded)


def div_mode(self: Any, other: Any, rounding_mode: str | None) -> Any:
    if rounding_mode is None:
        return div(self, other)
    if rounding_mode not in ("floor", "trunc"):
        raise TypeError(rounding_mode)
    dtype = result_type((self, other))
    kind = compute_type(dtype)
    with np.errstate(all="ignore"):
        a, b = rounded(self, dtype), unrounded(other, dtype)
        if kind.kind in "iub":
            return finished(_integer_quotient(a, b, rounding_mode == "floor"), dtype)
        if rounding_mode == "trunc":
            return finished(np.trunc(np.true_divide(a, b)), dtype)
        return finished(_floor_quotient(a, b), dtype)


def _integer_quotient(a: Any, b: Any, floor: bool) -> Any:
    if not np.all(b):
        from mortice.errors import DTypeError

        raise DTypeError("ZeroDivisionError: integer division by zero in the divisor tensor.")
    if a.dtype.kind == "b":
        return a
    q = np.floor_divide(a, b)
    if not floor and a.dtype.kind == "i":
        q = q + ((q < 0) & (q * b != a)).astype(a.dtype)
    return q


def _floor_quotient(a: Any, b: Any) -> Any:
    """Exact floor by way of the remainder; a / b where b is 0 or the quotient is infinite."""
    mod = np.fmod(a, b)
    q = (a - mod) / b
    q = np.where((mod != 0) & ((b < 0) != (mod < 0)), q - 1, q)
    nearest = np.floor(q)
    nearest = np.where(q - nearest > 0.5, nearest + 1, nearest)
    nearest = np.where(q == 0, np.copysign(np.zeros((), q.dtype), a / b), nearest)
    return np.where(b == 0, a / b, nearest).astype(a.dtype)


def _checked_integers(function: Any) -> Any:
    def apply(a: Any, b: Any) -> Any:
        if a.dtype.kind in "iub" and not np.all(b):
            from mortice.errors import DTypeError

            raise DTypeError("ZeroDivisionError: the divisor tensor of integers holds 0.")
        return function(a, b)

    return apply


def _remainder(a: Any, b: Any) -> Any:
    """Sign of the divisor, as Python's %; inf divisors follow the C fmod rule."""
    if a.dtype.kind in "iub":
        return np.remainder(a, b)
    r = np.fmod(a, b)
    return np.where((r != 0) & ((b < 0) != (r < 0)), r + b, r).astype(a.dtype)


# -- powers ----------------------------------------------------------------------------------------


def power(self: Any, exponent: Any) -> Any:
    t = getattr(self, "_t", None)
    if t is not None and t.kind == FLOAT and t.itemsize > 2 and type(exponent) in (int, float):
        a = self._a
        simple = _SIMPLE_POWERS.get(exponent)
        if simple is not None:
            return wrap(simple(a), t)
        return wrap(np.power(a, number(exponent, a.dtype)), t)
    dtype = result_type((self, exponent))
    kind = compute_type(dtype)
    with np.errstate(all="ignore"):
        a, b = rounded(self, dtype), rounded(exponent, dtype)
        if kind.kind in "iub":
            return finished(_integer_power(a, b, exponent), dtype)
        if kind.kind == "c":
            return finished(_complex_power(a, b), dtype)
        if type(exponent) is float and exponent == 0.5:
            return finished(np.sqrt(a), dtype)  # as newer versions of numpy's power
        return finished(np.power(a, b), dtype)


_SIMPLE_POWERS: dict[Any, Any] = {
    0: np.ones_like,
    1: np.copy,
    2: np.square,
    3: lambda a: a * a * a,
    -1: np.reciprocal,
    0.5: np.sqrt,
    -0.5: lambda a: np.reciprocal(np.sqrt(a)),
    -2: lambda a: np.reciprocal(a * a),
}


def _integer_power(a: Any, b: Any, exponent: Any) -> Any:
    """Wrapping powers; a negative exponent leaves 1, -1 or 0, as PyTorch's tensors of exponents."""
    if type(exponent) is int and exponent < 0:
        raise TypeError("negative")
    if a.dtype.kind == "b":
        return a | ~b
    if a.dtype.kind == "u":
        return np.power(a, b)
    r = np.power(a, np.maximum(b, 0))
    odd = (b & 1) == 1
    below = np.where(a == 1, 1, np.where(a == -1, np.where(odd, -1, 1), 0))
    return np.where(b < 0, below, r).astype(a.dtype)


def _complex_power(a: Any, b: Any) -> Any:
    r = np.power(a, b)
    return np.where(b == 0, a.dtype.type(1), r)


# -- extrema and the rest ----------------------------------------------------------------------------


def _copysign(a: Any, b: Any) -> Any:
    return np.copysign(a, b)


def _gcd(a: Any, b: Any) -> Any:
    return np.gcd(a, b)


def _heaviside(a: Any, b: Any) -> Any:
    if a.dtype.kind == "f":
        one, zero = a.dtype.type(1), a.dtype.type(0)
        return np.where(a == 0, b, np.where(a > 0, one, zero))
    return np.where(a == 0, b, (a > 0).astype(a.dtype))


def _logaddexp(a: Any, b: Any) -> Any:
    if a.dtype.kind == "c":
        first = a.real >= b.real
        high, low = np.where(first, a, b), np.where(first, b, a)
        return high + np.log1p(np.exp(low - high))
    return np.logaddexp(a, b)


def _xlogy(a: Any, b: Any) -> Any:
    if a.dtype.kind == "c":
        raise TypeError("complex")
    r = np.where(a == 0, a.dtype.type(0), a * np.log(b))
    return np.where(np.isnan(b), b, r)


def _nextafter(self: Any, other: Any) -> Any:
    dtype = result_type((self, other))
    if dtype.kind != FLOAT:
        raise TypeError("nextafter")
    return finished(np.nextafter(operand(self, dtype.numpy), operand(other, dtype.numpy)), dtype)


def _lcm(a: Any, b: Any) -> Any:
    return np.abs(np.lcm(a, b))


KERNELS: dict[str, Kernel] = {
    "add.Tensor": add,
    "add_.Tensor": _sum_inplace("add_.Tensor", np.add, add),
    "sub.Tensor": sub,
    "sub_.Tensor": _sum_inplace("sub_.Tensor", np.subtract, sub),
    "rsub.Tensor": rsub,
    "mul.Tensor": mul,
    "mul_.Tensor": inplace("mul_.Tensor", np.multiply, mul),
    "div.Tensor": div,
    "div.Tensor_mode": div_mode,
    "fmod.Tensor": binary(_checked_integers(np.fmod)),
    "remainder.Tensor": binary(_checked_integers(_remainder)),
    "pow.Tensor_Tensor": power,
    "pow.Scalar": power,
    "maximum": binary(np.maximum, native="maximum"),
    "minimum": binary(np.minimum, native="minimum"),
    "fmax": binary(np.fmax),
    "fmin": binary(np.fmin),
    "atan2": binary(np.arctan2, to_float=True),
    "hypot": binary(np.hypot),
    "copysign.Tensor": binary(_copysign, to_float=True),
    "nextafter": _nextafter,
    "gcd": binary_integers(_gcd),
    "lcm": binary_integers(_lcm),
    "heaviside": binary(_heaviside),
    "logaddexp": binary(_logaddexp, to_float=True),
    "logaddexp2": binary(np.logaddexp2, to_float=True),
    "xlogy.Tensor": binary(_xlogy, to_float=True),
}

silence(globals())
