"""Reductions. Half-precision types accumulate in float32 and round once."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from mortice.backend import dtypes, named_returns
from mortice_cpu.kernels import _native
from mortice_cpu.kernels._elementwise import (
    FLOAT,
    Kernel,
    compute_type,
    float_dtype,
    operand,
    packed,
    silence,
    wrap,
)

_int64 = np.dtype(np.int64)
Max = named_returns("max", ("values", "indices"))
Min = named_returns("min", ("values", "indices"))
AMinMax = named_returns("aminmax", ("min", "max"))


def axes(a: Any, dim: Any) -> tuple[int, ...]:
    """``dim`` (None or () for all) as numpy's axis; TypeError if out of range or twice."""
    n = a.ndim
    if dim is None or dim == ():
        return tuple(range(n))
    dims = (dim,) if type(dim) is int else tuple(dim)
    found: list[int] = []
    for d in dims:
        if not -max(n, 1) <= d < max(n, 1):
            raise TypeError("dim")
        found.append(d + n if d < 0 else d)
    if len(set(found)) != len(found):
        raise TypeError("dim")
    return tuple(found) if n else ()


def floating(self: Any) -> tuple[Any, Any]:
    """The array to compute with and the result's dtype, integers as the default float."""
    t = float_dtype(self._t)
    return operand(self, compute_type(t)), t


def _sum_dtype(self: Any, dtype: Any) -> Any:
    return dtype or (self._t if self._t.kind >= FLOAT else dtypes.int64)


# -- sums, means, products ---------------------------------------------------------------------------


def sum_all(self: Any, dtype: Any) -> Any:
    t = self._t
    if dtype is None and t.kind >= FLOAT and t.itemsize > 2:
        a = self._a
        if a.size >= _native.LARGE:
            return sum_dims(self, None, False, None)
        return wrap(np.add.reduce(a, None, None, np.empty((), a.dtype)), t)  # pyright: ignore[reportArgumentType]
    return sum_dims(self, None, False, dtype)


def sum_dims(self: Any, dim: Any, keepdim: bool, dtype: Any) -> Any:
    t = self._t
    a = self._a
    if dtype is None and t.kind >= FLOAT:
        if a.size >= _native.LARGE:
            axis = axes(a, dim)
            found = _fused_rows("sum", a, axis)
            if found is not None:
                return wrap(_kept(found, a, axis, keepdim), t)
        elif t.itemsize > 2 and type(dim) is tuple and dim and a.ndim:
            # numpy checks the dims itself
            r = np.add.reduce(a, dim, None, None, keepdim)  # pyright: ignore[reportCallIssue, reportArgumentType]
            return packed(r, t) if r.ndim > 1 else wrap(r, t)
    t = _sum_dtype(self, dtype)
    a = operand(self, compute_type(t))
    return packed(np.asarray(np.add.reduce(a, axes(a, dim), keepdims=keepdim)), t)


def nansum(self: Any, dim: Any, keepdim: bool, dtype: Any) -> Any:
    t = _sum_dtype(self, dtype)
    a = operand(self, compute_type(t))
    if a.dtype.kind not in "iub":
        a = np.where(np.isnan(a), a.dtype.type(0), a)
    with np.errstate(all="ignore"):
        return packed(np.asarray(a.sum(axis=axes(a, dim), keepdims=keepdim)), t)


def mean_all(self: Any, dtype: Any) -> Any:
    t = self._t
    if dtype is None and t.kind == FLOAT and t.itemsize > 2:
        a = self._a
        if a.size >= _native.LARGE:
            return mean_dims(self, None, False, None)
        r = np.add.reduce(a, None, None, np.empty((), a.dtype))  # pyright: ignore[reportArgumentType]
        np.divide(r, a.dtype.type(a.size), r)
        return wrap(r, t)
    return mean_dims(self, None, False, dtype)


def mean_dims(self: Any, dim: Any, keepdim: bool, dtype: Any) -> Any:
    t = dtype or self._t
    if t.kind < FLOAT:
        raise TypeError("dtype")
    a = operand(self, compute_type(t))
    axis = axes(a, dim)
    count = math.prod(a.shape[d] for d in axis)
    total = _fused_rows("sum", a, axis)
    if total is not None:
        return packed(_kept(np.asarray(total / a.dtype.type(count)), a, axis, keepdim), t)
    total = np.add.reduce(a, axis, keepdims=keepdim)
    return packed(np.asarray(total / a.dtype.type(count)), t)


def prod_all(self: Any, dtype: Any) -> Any:
    return prod_dims(self, None, False, dtype)


def prod_dims(self: Any, dim: Any, keepdim: bool, dtype: Any) -> Any:
    t = _sum_dtype(self, dtype)
    a = operand(self, compute_type(t))
    axis = axes(a, dim)
    found = _fused_rows("prod", a, axis)
    if found is not None:
        return packed(_kept(found, a, axis, keepdim), t)
    with np.errstate(all="ignore"):
        return packed(
            np.asarray(np.multiply.reduce(a, axes(a, dim), keepdims=keepdim, dtype=a.dtype)), t
        )


def _kept(r: Any, a: Any, axis: tuple[int, ...], keepdim: bool) -> Any:
    """A result without the reduced dimensions, with them as 1 on request."""
    if not keepdim:
        return r
    return np.reshape(r, [1 if d in axis else n for d, n in enumerate(a.shape)])


def _fused_rows(name: str, a: Any, axis: tuple[int, ...]) -> Any:
    """A native row kernel over trailing dimensions of a large contiguous array, or None.

    The result lacks the reduced dimensions. One long row is cut into pieces of 4,096 that are
    summed by numpy, which keeps rounding small and threads busy.
    """
    n = a.size
    if n < _native.LARGE or a.dtype.kind in "iubc" or not a.flags.c_contiguous:
        return None
    if axis != tuple(range(a.ndim - len(axis), a.ndim)):
        return None
    columns = math.prod(a.shape[d] for d in axis)
    if columns < 32:
        return None
    kernel = _native.row(name, a.dtype)
    if kernel is None:
        return None
    rows = n // columns
    if rows == 1 and columns > 8192:
        if a.itemsize < 4 or name != "sum":
            return None
        return np.add.reduce(_pieces(kernel, a))
    out = np.empty(a.shape[: a.ndim - len(axis)], a.dtype)
    kernel(_native.address(out), _native.address(a), rows, columns)
    return out


def _pieces(kernel: Any, a: Any) -> Any:
    rows, rest = divmod(a.size, 4096)
    out = np.empty(rows + 1, a.dtype)
    start = _native.address(a)
    kernel(_native.address(out), start, rows, 4096)
    out[-1] = np.add.reduce(a.reshape(-1)[rows * 4096 :]) if rest else 0
    return out


# -- extrema ----------------------------------------------------------------------------------------


def _comparable(self: Any) -> Any:
    """The array in a type whose order numpy knows."""
    if self._t.is_complex:
        raise TypeError("complex")
    return operand(self, compute_type(self._t))


def _extremum_dims(function: Any) -> Kernel:
    def kernel(self: Any, dim: Any, keepdim: bool) -> Any:
        a = _comparable(self)
        axis = axes(a, dim)
        if any(a.shape[d] == 0 for d in axis):
            raise TypeError("empty")
        return packed(np.asarray(function.reduce(a, axis, keepdims=keepdim)), self._t)

    return kernel


def _extremum_all(function: Any) -> Kernel:
    def kernel(self: Any) -> Any:
        a = _comparable(self)
        if not a.size:
            raise TypeError("empty")
        return packed(np.asarray(function.reduce(a, None)), self._t)

    return kernel


def _arg(function: Callable[..., Any]) -> Kernel:
    """numpy's first index; a nan wins, as in PyTorch."""

    def kernel(self: Any, dim: int | None, keepdim: bool) -> Any:
        a = _comparable(self)
        if dim is None:
            if not a.size:
                raise TypeError("empty")
            r = np.asarray(function(a), _int64)
            return wrap(r.reshape((1,) * a.ndim) if keepdim else r, dtypes.int64)
        (axis,) = axes(a, dim) or (0,)
        if not a.ndim:
            return wrap(np.zeros((), _int64), dtypes.int64)
        if a.shape[axis] == 0:
            raise TypeError("empty")
        return packed(np.asarray(function(a, axis, keepdims=keepdim), _int64), dtypes.int64)

    return kernel


argmax = _arg(np.ndarray.argmax)
argmin = _arg(np.ndarray.argmin)


def taken(a: Any, indices: Any, axis: int) -> Any:
    """``np.take_along_axis``, which costs 8 us, for indices of size 1 along ``axis``."""
    if a.ndim == 1:
        return a[indices]
    if a.ndim == 2 and indices.shape[axis] == 1:
        rows = np.arange(a.shape[1 - axis % 2])
        if axis % 2:
            return a[rows, indices[:, 0]][:, None]
        return a[indices[0], rows][None]
    return np.take_along_axis(a, indices, axis)


def _selected(arg: Kernel, result: Any) -> Kernel:
    def kernel(self: Any, dim: int, keepdim: bool) -> Any:
        a = self._a
        indices = arg(self, dim, True)
        if not a.ndim:
            return result(wrap(a.copy(), self._t), indices)
        values = taken(a, indices._a, dim)
        if not keepdim:
            values = values.squeeze(dim)
            indices = wrap(indices._a.squeeze(dim), dtypes.int64)
        return result(packed(values, self._t), indices)

    return kernel


_amin = _extremum_dims(np.minimum)
_amax = _extremum_dims(np.maximum)


def aminmax(self: Any, dim: int | None, keepdim: bool) -> Any:
    dims = () if dim is None else (dim,)
    return AMinMax(_amin(self, dims, keepdim), _amax(self, dims, keepdim))


# -- truth ------------------------------------------------------------------------------------------


def _truth(function: Any, everything: bool) -> Kernel:
    def kernel(self: Any, dim: Any = None, keepdim: bool = False) -> Any:
        a = self._a
        t = self._t
        if t.kind != 0 and t.itemsize < 4 and t.kind == FLOAT:
            a = a.astype(np.float32)
        if everything and dim is not None and type(dim) is not int and not len(dim):
            r = a.astype(bool)
        else:
            axis = axes(a, dim)
            r = np.asarray(function.reduce(a.astype(bool), axis, keepdims=keepdim))
        uint8 = dtypes.uint8
        return packed(r, uint8 if t is uint8 else dtypes.bool_)

    return kernel


# -- variance ---------------------------------------------------------------------------------------


def _moments(self: Any, dim: Any, correction: Any, keepdim: bool) -> tuple[Any, Any, Any]:
    """(variance, mean, array): two passes, the mean in the accumulation type."""
    t = self._t
    if t.kind < FLOAT:
        raise TypeError("dtype")
    a = operand(self, compute_type(t))
    axis = axes(a, dim)
    count = math.prod(a.shape[d] for d in axis)
    real = a.real.dtype.type
    free = max(count - (1 if correction is None else correction), 0)
    mean = np.add.reduce(a, axis, keepdims=True) / real(count)
    off = a - mean
    square = off * off if a.dtype.kind != "c" else off.real * off.real + off.imag * off.imag
    var = np.asarray(np.add.reduce(square, axis, keepdims=keepdim) / real(free))
    mean = np.asarray(mean)
    if not keepdim and axis:
        mean = mean.squeeze(axis)
    return var, mean, a


def var(self: Any, dim: Any, correction: Any, keepdim: bool) -> Any:
    with np.errstate(all="ignore"):
        r, _, _ = _moments(self, dim, correction, keepdim)
    return packed(r, self._t.to_real())


def std(self: Any, dim: Any, correction: Any, keepdim: bool) -> Any:
    with np.errstate(all="ignore"):
        r, _, _ = _moments(self, dim, correction, keepdim)
        return packed(np.sqrt(r), self._t.to_real())


def var_mean(self: Any, dim: Any, correction: Any, keepdim: bool) -> Any:
    with np.errstate(all="ignore"):
        r, mean, _ = _moments(self, dim, correction, keepdim)
    return packed(r, self._t.to_real()), packed(mean, self._t)


def std_mean(self: Any, dim: Any, correction: Any, keepdim: bool) -> Any:
    with np.errstate(all="ignore"):
        r, mean, _ = _moments(self, dim, correction, keepdim)
        return packed(np.sqrt(r), self._t.to_real()), packed(mean, self._t)


# -- norms and counts ---------------------------------------------------------------------------------


def vector_norm(self: Any, ord: Any, dim: Any, keepdim: bool, dtype: Any) -> Any:
    t = dtype or self._t
    if t.kind < FLOAT or self._t.kind < FLOAT or t.is_complex != self._t.is_complex:
        raise TypeError("dtype")
    a = operand(self, compute_type(t))
    axis = axes(a, dim)
    if (ord < 0 or ord == math.inf) and any(a.shape[d] == 0 for d in axis):
        raise TypeError("empty")
    with np.errstate(all="ignore"):
        return packed(np.asarray(_norm(a, float(ord), axis, keepdim)), t.to_real())


def _norm(a: Any, order: float, axis: tuple[int, ...], keepdim: bool) -> Any:
    if order == 2 and a.dtype.kind == "f":
        square = a * a
        total = _fused_rows("sum", square, axis)
        if total is None:
            return np.sqrt(np.add.reduce(square, axis, keepdims=keepdim))
        return _kept(np.sqrt(total), a, axis, keepdim)
    if order == 0:
        return np.add.reduce((a != 0).astype(a.real.dtype), axis, keepdims=keepdim)
    size = np.abs(a)
    if order == math.inf:
        return np.maximum.reduce(size, axis, keepdims=keepdim)
    if order == -math.inf:
        return np.minimum.reduce(size, axis, keepdims=keepdim)
    if order == 1:
        return np.add.reduce(size, axis, keepdims=keepdim)
    if order == 2:
        return np.sqrt(np.add.reduce(size * size, axis, keepdims=keepdim))
    kind = size.dtype.type
    return np.add.reduce(size ** kind(order), axis, keepdims=keepdim) ** kind(1.0 / order)


def count_nonzero(self: Any, dim: Any) -> Any:
    a = operand(self, compute_type(self._t))
    return packed(np.asarray(np.count_nonzero(a, axis=axes(a, dim)), _int64), dtypes.int64)


def trace(self: Any) -> Any:
    if self._a.ndim != 2:
        raise TypeError("matrix")
    t = _sum_dtype(self, None)
    a = operand(self, compute_type(t))
    return packed(np.asarray(np.trace(a), a.dtype), t)


KERNELS: dict[str, Kernel] = {
    "sum": sum_all,
    "sum.dim_IntList": sum_dims,
    "nansum": nansum,
    "mean": mean_all,
    "mean.dim": mean_dims,
    "prod": prod_all,
    "prod.dim_int": prod_dims,
    "amax": _amax,
    "amin": _amin,
    "aminmax": aminmax,
    "max": _extremum_all(np.maximum),
    "min": _extremum_all(np.minimum),
    "max.dim": _selected(argmax, Max),
    "min.dim": _selected(argmin, Min),
    "argmax": argmax,
    "argmin": argmin,
    "any": _truth(np.logical_or, False),
    "any.dim": _truth(np.logical_or, False),
    "any.dims": _truth(np.logical_or, True),
    "all": _truth(np.logical_and, False),
    "all.dim": _truth(np.logical_and, False),
    "all.dims": _truth(np.logical_and, True),
    "var.correction": var,
    "std.correction": std,
    "var_mean.correction": var_mean,
    "std_mean.correction": std_mean,
    "linalg_vector_norm": vector_norm,
    "count_nonzero": count_nonzero,
    "count_nonzero.dim_IntList": count_nonzero,
    "trace": trace,
}

silence(globals())
