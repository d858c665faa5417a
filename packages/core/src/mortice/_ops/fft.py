"""Fourier transforms: shape rules, the public forms over three primitive transforms, gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mortice._base.errors import DimensionError, DTypeError, InvalidValue, ShapeError
from mortice._ops.formulas import call
from mortice._types import dtypes
from mortice._types.shapes import dense_strides_like, strides_as, wrap_dim, wrap_dims

Ints = Sequence[int]

# -- shape rules ---------------------------------------------------------------------------------


def fft_c2c(self: Any, dim: Ints, normalization: int, forward: bool) -> Any:
    if not self._t.is_complex:
        raise DTypeError(f"_fft_c2c: expected a complex tensor, got {self._t!r}")
    return tuple(self._a.shape), self._t, dense_strides_like(self._a.shape, self.stride())


def fft_r2c(self: Any, dim: Ints, normalization: int, onesided: bool) -> Any:
    if not self._t.is_floating_point:
        raise DTypeError(f"_fft_r2c: expected a floating point tensor, got {self._t!r}")
    shape = list(self._a.shape)
    if onesided:
        shape[dim[-1]] = shape[dim[-1]] // 2 + 1
    return tuple(shape), self._t.to_complex(), strides_as(shape, self)


def fft_c2r(self: Any, dim: Ints, normalization: int, last_dim_size: int) -> Any:
    if not self._t.is_complex:
        raise DTypeError(f"_fft_c2r: expected a complex tensor, got {self._t!r}")
    shape = list(self._a.shape)
    shape[dim[-1]] = last_dim_size
    return tuple(shape), self._t.to_real(), strides_as(shape, self)


# -- public forms ----------------------------------------------------------------------------------

_MODES = {None: (0, 2), "backward": (0, 2), "ortho": (1, 1), "forward": (2, 0)}


def _mode(norm: str | None, forward: bool) -> int:
    found = _MODES.get(norm)
    if found is None:
        raise InvalidValue(
            f"Invalid normalization mode: {norm!r}. It is 'forward', 'backward' or 'ortho'."
        )
    return found[0 if forward else 1]


def _floating(x: Any) -> Any:
    """Integers in the default dtype; half precision is refused."""
    if x._t.itemsize == 2 and x._t.is_floating_point:
        raise DTypeError(
            f"fft: unsupported dtype {x._t!r} on the CPU. Convert with .float() first."
        )
    return x if x._t.differentiable else x.to(dtypes.default.dtype)


def _complex(x: Any) -> Any:
    x = _floating(x)
    return x if x._t.is_complex else x.to(x._t.to_complex())


def _sized(x: Any, dim: int, n: int | None) -> Any:
    """``x`` cut or padded with zeros to ``n`` along ``dim``."""
    have = x._a.shape[dim]
    if n is None or n == have:
        if have < 1:
            raise ShapeError(f"Invalid number of data points ({have}) specified")
        return x
    if n < 1:
        raise ShapeError(f"Invalid number of data points ({n}) specified")
    if n < have:
        return call("slice.Tensor", x, dim, 0, n, 1)
    pad = [0, 0] * (len(x._a.shape) - dim)
    pad[-1] = n - have
    return call("constant_pad_nd", x, tuple(pad), 0)


def _dim(x: Any, dim: int) -> int:
    if not x._a.shape:
        raise DimensionError(
            f"Dimension specified as {dim} but tensor has no dimensions: a transform needs one."
        )
    return wrap_dim(dim, len(x._a.shape))


def fft_fft(self: Any, n: int | None, dim: int, norm: str | None) -> Any:
    d = _dim(self, dim)
    if not self._t.is_complex:
        x = _sized(_floating(self), d, n)
        return call("_fft_r2c", x, (d,), _mode(norm, True), False)
    return call("_fft_c2c", _sized(self, d, n), (d,), _mode(norm, True), True)


def fft_ifft(self: Any, n: int | None, dim: int, norm: str | None) -> Any:
    d = _dim(self, dim)
    return call("_fft_c2c", _sized(_complex(self), d, n), (d,), _mode(norm, False), False)


def fft_rfft(self: Any, n: int | None, dim: int, norm: str | None) -> Any:
    _real_only(self, "rfft")
    d = _dim(self, dim)
    return call("_fft_r2c", _sized(_floating(self), d, n), (d,), _mode(norm, True), True)


def _real_only(x: Any, name: str) -> None:
    if x._t.is_complex:
        raise DTypeError(f"{name} expects a real input tensor, but got {x._t!r}")


def fft_irfft(self: Any, n: int | None, dim: int, norm: str | None) -> Any:
    return _to_real(self, n, _dim(self, dim), _mode(norm, False))


def _to_real(x: Any, n: int | None, d: int, mode: int) -> Any:
    last = 2 * (x._a.shape[d] - 1) if n is None else n
    if last < 1:
        raise ShapeError(f"Invalid number of data points ({last}) specified")
    return call("_fft_c2r", _sized(_complex(x), d, last // 2 + 1), (d,), mode, last)


def fft_hfft(self: Any, n: int | None, dim: int, norm: str | None) -> Any:
    return _to_real(_complex(self).conj(), n, _dim(self, dim), _mode(norm, True))


def fft_ihfft(self: Any, n: int | None, dim: int, norm: str | None) -> Any:
    _real_only(self, "ihfft")
    d = _dim(self, dim)
    x = _sized(_floating(self), d, n)
    return call("_fft_r2c", x, (d,), _mode(norm, False), True).conj()


def _several(x: Any, s: Any, dim: Any) -> tuple[tuple[int, ...], list[int | None]]:
    """Dimensions and sizes of an n-dimensional transform; -1 keeps a size."""
    ndim = len(x._a.shape)
    if dim is None:
        dims = tuple(range(ndim)) if s is None else tuple(range(ndim - len(s), ndim))
        if s is not None and len(s) > ndim:
            raise ShapeError(
                f"Got shape with {len(s)} values but input tensor only has {ndim} dimensions."
            )
    else:
        dims = wrap_dims(tuple(dim), ndim) if len(dim) else ()
    if s is not None and len(s) != len(dims):
        raise ShapeError(
            f"When given, dim and shape arguments must have the same length, got {len(dims)} and {len(s)}"
        )
    sizes: list[int | None] = (
        [None if n == -1 else n for n in s] if s is not None else [None] * len(dims)
    )
    return dims, sizes


def fft_fftn(self: Any, s: Any, dim: Any, norm: str | None) -> Any:
    return _c2c(self, s, dim, norm, True)


def fft_ifftn(self: Any, s: Any, dim: Any, norm: str | None) -> Any:
    return _c2c(self, s, dim, norm, False)


def _c2c(x: Any, s: Any, dim: Any, norm: str | None, forward: bool) -> Any:
    x = _complex(x)
    dims, sizes = _several(x, s, dim)
    for d, n in zip(dims, sizes):
        x = _sized(x, d, n)
    return call("_fft_c2c", x, dims, _mode(norm, forward), forward) if dims else x.clone()


def fft_rfftn(self: Any, s: Any, dim: Any, norm: str | None) -> Any:
    _real_only(self, "rfftn")
    x = _floating(self)
    dims, sizes = _several(x, s, dim)
    if not dims:
        raise ShapeError("rfftn must transform at least one axis")
    for d, n in zip(dims, sizes):
        x = _sized(x, d, n)
    return call("_fft_r2c", x, dims, _mode(norm, True), True)


def fft_irfftn(self: Any, s: Any, dim: Any, norm: str | None) -> Any:
    x = _complex(self)
    dims, sizes = _several(x, s, dim)
    if not dims:
        raise ShapeError("irfftn must transform at least one axis")
    for d, n in zip(dims[:-1], sizes[:-1]):
        x = _sized(x, d, n)
    last = sizes[-1]
    last = 2 * (x._a.shape[dims[-1]] - 1) if last is None else last
    if last < 1:
        raise ShapeError(f"Invalid number of data points ({last}) specified")
    x = _sized(x, dims[-1], last // 2 + 1)
    return call("_fft_c2r", x, dims, _mode(norm, False), last)


def _shifted(x: Any, dim: Any, sign: int) -> Any:
    ndim = len(x._a.shape)
    dims = wrap_dims(dim, ndim)
    shifts = tuple(x._a.shape[d] // 2 if sign > 0 else -(x._a.shape[d] // 2) for d in dims)
    return call("roll", x, shifts, dims)


def fft_fftshift(self: Any, dim: Any) -> Any:
    return _shifted(self, dim, 1)


def fft_ifftshift(self: Any, dim: Any) -> Any:
    return _shifted(self, dim, -1)


# -- gradients -------------------------------------------------------------------------------------


def fft_r2c_grad(grad: Any, shape: Ints, dim: Ints, normalization: int, onesided: bool) -> Any:
    """The adjoint: the missing half of a one-sided spectrum counts as zero."""
    if onesided:
        grad = _sized(grad, dim[-1], shape[dim[-1]])
    return call("_fft_c2c", grad, tuple(dim), normalization, False).real


def fft_c2r_grad(grad: Any, dim: Ints, normalization: int) -> Any:
    """The adjoint: inner frequencies stand for two conjugate ones, so they count twice."""
    full = call("_fft_r2c", grad, tuple(dim), normalization, True)
    d = dim[-1]
    n = grad._a.shape[d]
    count = full._a.shape[d]
    doubled = count - 1 if n % 2 == 0 else count
    if doubled <= 1:
        return full
    parts = [
        call("slice.Tensor", full, d, 0, 1, 1),
        call("slice.Tensor", full, d, 1, doubled, 1) * 2,
    ]
    if doubled < count:
        parts.append(call("slice.Tensor", full, d, doubled, count, 1))
    return call("cat", tuple(parts), d)


__all__ = [name for name in dir() if not name.startswith("_")]
