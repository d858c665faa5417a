"""What elementwise kernels share: quiet arithmetic, numbers as arrays, conversions, fast paths.

Half-precision types (float16, bfloat16, float8) are computed in float32 and rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from mortice.backend import (
    NUMBERS,
    Tensor,
    default_dtype,
    dtypes,
    promote,
    result_type,
    wrap,
    write_back,
)
from mortice_cpu.kernels import _native

Kernel = Callable[..., Any]

FLOAT = 3  # DType.kind of floating-point dtypes
COMPLEX = 4

_float32 = np.dtype(np.float32)


def silence(module: dict[str, Any]) -> None:
    """Let numpy's floating-point warnings from a kernel module's own code go nowhere.

    Overflow and nan are results like any other. ``np.errstate`` costs 670 ns a call, and 200 even
    by its context variable; Python drops warnings of code whose module has no name, for nothing.
    Called last in a module, with its globals().
    """
    module["__name__"] = None


_NUMBERS: dict[tuple[Any, Any], Any] = {}


def number(value: Any, dtype: np.dtype[Any]) -> Any:
    """A Python number as a 0-d array, converted as C does; kept, since making one costs 500 ns."""
    # -0.0 equals 0, so zeros other than the integer are told apart by their spelling
    key = (value, dtype) if value != 0 or type(value) is int else (str(value), dtype)
    found = _NUMBERS.get(key)
    if found is None:
        if len(_NUMBERS) > 1000:
            _NUMBERS.clear()
        found = _NUMBERS[key] = _make_number(value, dtype)
        found.flags.writeable = False
    return found


def _make_number(value: Any, dtype: np.dtype[Any]) -> Any:
    kind = dtype.kind
    if kind in "iu":
        value = int(value.real if isinstance(value, complex) else value)
        bits = dtype.itemsize * 8
        value &= (1 << bits) - 1
        if kind == "i" and value >> (bits - 1):
            value -= 1 << bits
        return np.array(value, dtype)
    if kind != "c" and isinstance(value, complex):
        value = value.real
    with np.errstate(all="ignore"):
        return (
            np.array(value).astype(dtype)
            if not isinstance(value, int)
            else np.array(
                float(value) if kind in "fcV" and value.bit_length() < 1024 else value
            ).astype(dtype)
        )


def fitting(value: Any, dtype: Any) -> Any:
    """As ``number`` for a mortice dtype, but DTypeError if the value does not fit."""
    r = number(value, dtype.numpy)
    if dtype.kind == FLOAT:
        lost = isinstance(value, complex) or (math.isfinite(value) and not math.isfinite(float(r)))
    elif dtype.kind == COMPLEX or dtype.kind == 0:
        lost = False
    else:
        lost = isinstance(value, complex) or not math.isfinite(value) or int(value) != int(r)
    if lost:
        from mortice.errors import DTypeError

        raise DTypeError(
            f"value cannot be converted to type {dtype.name} without overflow: {value}"
        )
    return r


def compute_type(dtype: Any) -> np.dtype[Any]:
    """The numpy dtype in which a mortice dtype is computed."""
    return _float32 if dtype.kind == FLOAT and dtype.itemsize < 4 else dtype.numpy


def operand(x: Any, dtype: np.dtype[Any]) -> Any:
    """A tensor's array or a number, in ``dtype``."""
    a = getattr(x, "_a", None)
    return number(x, dtype) if a is None else converted(a, dtype)


def converted(a: Any, dtype: np.dtype[Any]) -> Any:
    """An array in ``dtype``."""
    if a.dtype == dtype:
        return a
    if a.dtype.kind == "c" and dtype.kind != "c":
        a = a.real
    if 0 in a.strides and a.size:
        # Once for what repeats: cheaper, and repeated dimensions keep having no say in the order.
        once = a[tuple([slice(0, 1) if s == 0 else slice(None) for s in a.strides])]
        return np.broadcast_to(once.astype(dtype), a.shape)
    return a.astype(dtype)


def rounded(x: Any, dtype: Any) -> Any:
    """As ``operand`` in the type that ``dtype`` is computed in, rounded to ``dtype`` before: in
    float16, what was made from 0.1 is equal to 0.1.
    """
    a = getattr(x, "_a", None)
    if a is None:
        return _rounded_number(x, dtype, "" if x else str(x))
    return converted(converted(a, dtype.numpy), compute_type(dtype))


@lru_cache(1000)
def _rounded_number(value: Any, dtype: Any, zero: str) -> Any:
    """Kept as ``number`` keeps them; ``zero`` tells -0.0 from 0."""
    made = number(value, dtype.numpy).astype(compute_type(dtype))
    made.flags.writeable = False
    return made


def unrounded(x: Any, dtype: Any) -> Any:
    """``operand`` in the type that ``dtype`` is computed in."""
    return operand(x, compute_type(dtype))


def finished(array: Any, dtype: Any) -> Any:
    """A computed array as a tensor of ``dtype``, rounded if it was computed wider."""
    target = dtype.numpy
    if array.dtype != target:
        array = np.asarray(array).astype(target)
    return wrap(array, dtype)


def packed(array: Any, dtype: Any) -> Any:
    """As ``finished``, in row-major order, which numpy keeps only for row-major operands."""
    target = dtype.numpy
    if array.dtype != target:
        array = np.asarray(array).astype(target)
    if array.ndim > 1 and not array.flags.c_contiguous:
        array = np.ascontiguousarray(array)
    return wrap(array, dtype)


def row_major(kernel: Kernel) -> Kernel:
    """A kernel whose results are made row-major, where the order of its operands shows in them."""

    def packing(*args: Any) -> Any:
        results = kernel(*args)
        for r in results if isinstance(results, tuple) else (results,):
            if not r._a.flags.c_contiguous:
                r._a = np.ascontiguousarray(r._a)
        return results

    return packing


def in_order(kernel: Kernel) -> Kernel:
    """A kernel whose row-major result is given the order in which its operands lie in memory."""

    def ordering(*args: Any) -> Any:
        r = kernel(*args)
        arrays = [x._a for x in args if hasattr(x, "_a")]
        for a in arrays:
            if not a.flags.c_contiguous:
                r._a = _like(r._a, arrays)
                break
        return r

    return ordering


def _like(result: Any, arrays: list[Any]) -> Any:
    """A copy of the result in the order that numpy gives an elementwise result of the operands."""
    flags: Any = [["readonly"]] * len(arrays) + [["writeonly", "allocate"]]
    iterator: Any = np.nditer(
        [*arrays, None],
        flags=["zerosize_ok", "refs_ok"],
        op_flags=flags,
        op_dtypes=[a.dtype for a in arrays] + [result.dtype],
        order="K",
        itershape=result.shape,
    )
    out = iterator.operands[-1]
    out[...] = result
    return out


def float_dtype(dtype: Any) -> Any:
    """The dtype itself if floating or complex, else the default floating dtype."""
    return dtype if dtype.kind >= FLOAT else default_dtype()


# -- factories -----------------------------------------------------------------------------------


def fused_half(name: str, arrays: tuple[Any, ...], dtype: Any) -> Any:
    """A native kernel's result on large contiguous arrays of half precision; None otherwise.

    It loads and stores 16 bits and computes in float32, four times as fast as converting.
    """
    first = arrays[0]
    if not name or first.size < _native.LARGE or dtype.kind != FLOAT or dtype.itemsize != 2:
        return None
    found = _native.apply(name, *arrays)
    return None if found is None else wrap(found, dtype)


def unary(function: Callable[[Any], Any], to_float: bool = False, native: str = "") -> Kernel:
    """A kernel from an array function; the fast path is for types computed as they are.

    ``native`` names the kernel of mortice_llvm for large arrays of half precision.
    """

    def kernel(self: Any) -> Any:
        t = self._t
        if t.kind >= FLOAT and t.itemsize > 2:
            try:
                return wrap(function(self._a), t)
            except FloatingPointError:  # numpy was told to raise
                return general(self)
        return general(self)

    def general(self: Any) -> Any:
        dtype = float_dtype(self._t) if to_float else self._t
        fused = fused_half(native, (self._a,), self._t)
        if fused is not None:
            return fused
        with np.errstate(all="ignore"):
            return finished(function(operand(self, compute_type(dtype))), dtype)

    return kernel


def binary_integers(function: Callable[[Any, Any], Any], bools: bool = False) -> Kernel:
    """A kernel as ``binary`` gives, of integers alone; TypeError for other dtypes.

    With ``bools``, of bool, too.
    """
    kernel = binary(function)

    def checked(self: Any, other: Any) -> Any:
        dtype = result_type((self, other))
        if dtype.kind >= FLOAT or (dtype is dtypes.bool_ and not bools):
            raise TypeError("integers")
        return kernel(self, other)

    return checked


def binary(
    function: Callable[[Any, Any], Any], to_float: bool = False, native: str = "",
    second: Callable[[Any, Any], Any] = rounded,
) -> Kernel:  # fmt: skip
    """A kernel of two operands that meet in the promoted dtype; either may be a number.

    ``native`` is as for ``unary``. What is wider is rounded to the dtype first, as PyTorch's CPU
    does; only what multiplies or divides is not: ``second`` is then ``unrounded``.
    """

    def kernel(self: Any, other: Any) -> Any:
        t = self._t
        if type(other) not in NUMBERS:
            if t is other._t and t.itemsize > 2 and (t.kind >= FLOAT or not to_float):
                try:
                    return wrap(function(self._a, other._a), t)
                except FloatingPointError:  # numpy was told to raise
                    return general(self, other)
        elif t.kind == FLOAT and t.itemsize > 2 and type(other) is not complex:
            a = self._a
            try:
                return wrap(function(a, number(other, a.dtype)), t)
            except FloatingPointError:
                return general(self, other)
        return general(self, other)

    def general(self: Any, other: Any) -> Any:
        dtype = result_type((self, other))
        if to_float:
            dtype = float_dtype(dtype)
        if dtype is getattr(self, "_t", None) and dtype is getattr(other, "_t", None):
            fused = fused_half(native, (self._a, other._a), dtype)
            if fused is not None:
                return fused
        with np.errstate(all="ignore"):
            return finished(function(rounded(self, dtype), second(other, dtype)), dtype)

    return kernel


def predicate(function: Callable[[Any, Any], Any]) -> Kernel:
    """A kernel of two operands that meet in the promoted dtype, with a bool result."""
    from mortice.backend import dtypes

    boolean = dtypes.bool_

    def kernel(self: Any, other: Any) -> Any:
        t = self._t
        if type(other) not in NUMBERS:
            if t is other._t and t.itemsize > 2:
                return wrap(function(self._a, other._a), boolean)
        elif t.kind == FLOAT and t.itemsize > 2 and type(other) is not complex:
            a = self._a
            return wrap(function(a, number(other, a.dtype)), boolean)
        dtype = result_type((self, other))
        with np.errstate(all="ignore"):
            return wrap(function(rounded(self, dtype), rounded(other, dtype)), boolean)

    return kernel


def inplace(name: str, function: Any, functional: Kernel) -> Kernel:
    """The in-place form: straight into ``self`` where dtypes agree, else by the functional kernel."""

    def kernel(self: Any, other: Any) -> Any:
        a = self._a
        t = self._t
        if t.itemsize > 2 and a.flags.c_contiguous:
            b = None
            if type(other) not in NUMBERS:
                if t is other._t:
                    b = other._a
            elif t.kind == FLOAT and type(other) is not complex:
                b = number(other, a.dtype)
            if b is not None and (b.ndim == 0 or b.shape == a.shape):
                function(a, b, a)
                return self
        return write_back(name, self, functional(self, other))

    return kernel


__all__ = [
    "COMPLEX", "FLOAT", "NUMBERS", "Kernel", "Tensor", "binary", "compute_type",
    "default_dtype", "finished", "fitting", "float_dtype", "fused_half", "in_order", "inplace", "number", "operand", "packed",
    "predicate", "promote", "result_type", "rounded", "row_major", "silence", "unary", "unrounded", "wrap", "write_back",
]  # fmt: skip

silence(globals())
