"""Resampling: one matrix per spatial dimension, and patches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from mortice.backend import shape_rule, wrap
from mortice_cpu.kernels.conv import Geometry, fold, unfold
from mortice_cpu.precision import narrow, widen

Array = Any


def _ratio(n: int, m: int, align: bool, scale: float | None) -> float:
    """Source elements per output element."""
    if align:
        return (n - 1) / (m - 1) if m > 1 else 0.0
    return 1 / scale if scale else n / m


@lru_cache(maxsize=256)
def _positions(n: int, m: int, exact: bool, scale: float | None) -> Array:
    """Source index of each output of a nearest-neighbour resampling."""
    ratio = np.float32(_ratio(n, m, False, scale))
    i = np.arange(m, dtype=np.float32)
    source = np.floor((i + np.float32(0.5)) * ratio) if exact else np.floor(i * ratio)
    return np.minimum(source.astype(np.int64), n - 1)


@lru_cache(maxsize=256)
def matrix(n: int, m: int, mode: str, align: bool, scale: float | None) -> Array:
    """(n, m) matrix that takes n inputs to m outputs."""
    out = np.zeros((n, m))
    columns = np.arange(m)
    if mode.startswith("nearest"):
        out[_positions(n, m, mode == "nearest-exact", scale), columns] = 1
        return out
    ratio = _ratio(n, m, align, scale)
    source = columns * ratio if align else (columns + 0.5) * ratio - 0.5
    if mode == "linear":
        source = np.maximum(source, 0)
        low = np.minimum(np.floor(source).astype(np.int64), n - 1)
        t = np.minimum(source - low, 1.0)
        np.add.at(out, (low, columns), 1 - t)
        np.add.at(out, (np.minimum(low + 1, n - 1), columns), t)
        return out
    low = np.floor(source).astype(np.int64)
    for k, w in enumerate(_cubic(source - low)):
        np.add.at(out, (np.clip(low - 1 + k, 0, n - 1), columns), w)
    return out


def _cubic(t: Array) -> list[Array]:
    """Keys' cubic convolution, a = -0.75."""
    a = -0.75
    near = [((a + 2) * d - (a + 3)) * d * d + 1 for d in (t, 1 - t)]
    far = [((a * d - 5 * a) * d + 8 * a) * d - 4 * a for d in (t + 1, 2 - t)]
    return [far[0], near[0], near[1], far[1]]


def _apply(a: Array, size: Sequence[int], mode: str, align: bool, scales: Any, back: bool) -> Array:
    for i, m in enumerate(size):
        axis = i + 2
        n = a.shape[axis]
        scale = scales[i] or None
        if mode.startswith("nearest") and not back:
            a = np.take(a, _positions(n, m, mode == "nearest-exact", scale), axis=axis)
            continue
        w = matrix(m, n, mode, align, scale).T if back else matrix(n, m, mode, align, scale)
        a = np.moveaxis(np.moveaxis(a, axis, -1) @ w.astype(a.dtype), -1, axis)
    return np.ascontiguousarray(a)


def _integral(a: Array, size: Sequence[int], mode: str, align: bool, scales: Any) -> Array:
    """As _apply for uint8: fixed-point weights of 16 bits, columns first, rounded after each pass."""
    limits = np.iinfo(a.dtype)
    for i in reversed(range(len(size))):
        axis = i + 2
        w = matrix(a.shape[axis], size[i], mode, align, scales[i] or None)
        bits = next((b for b in range(22) if int(0.5 + w.max() * 2 ** (b + 1)) >= 1 << 15), 22)
        fixed = np.trunc(w * 2**bits + np.copysign(0.5, w)).astype(np.int64)
        r = np.moveaxis(np.moveaxis(a.astype(np.int64), axis, -1) @ fixed, -1, axis)
        a = np.clip((r + (1 << bits >> 1)) >> bits, limits.min, limits.max).astype(a.dtype)
    return np.ascontiguousarray(a)


def _upsample(name: str, mode: str) -> Callable[..., Any]:
    def upsample(self: Any, output_size: Any, *rest: Any) -> Any:
        shape_rule(name)(self, output_size, *rest)
        align, scales = (False, rest) if mode.startswith("nearest") else (rest[0], rest[1:])
        integral = self._a.dtype.kind in "iu"
        a = widen(self._a)
        if integral and not mode.startswith("nearest"):
            r = _integral(a, output_size, mode, align, scales)
        else:
            r = _apply(a, output_size, mode, align, scales, False)
        return wrap(narrow(r, self._a.dtype), self._t)

    return upsample


def resample_adjoint(self: Any, size: Any, mode: str, align: bool, scales: Any) -> Any:
    r = _apply(widen(self._a), size, mode, align, scales, True)
    return wrap(narrow(r, self._a.dtype), self._t)


def im2col(self: Any, kernel: Any, dilation: Any, padding: Any, stride: Any) -> Any:
    shape, dtype = shape_rule("im2col")(self, kernel, dilation, padding, stride)
    a = self._a if self._a.ndim == 4 else self._a[None]
    g = Geometry(a.shape[2:], kernel, stride, padding, dilation)
    columns = unfold(g, g.pad(a)).reshape(a.shape[1] * g.taps, a.shape[0], g.positions)
    return wrap(np.ascontiguousarray(columns.swapaxes(0, 1)).reshape(shape), dtype)


def col2im(
    self: Any, output_size: Any, kernel: Any, dilation: Any, padding: Any, stride: Any
) -> Any:
    shape, dtype = shape_rule("col2im")(self, output_size, kernel, dilation, padding, stride)
    a = widen(self._a)
    a = a if a.ndim == 3 else a[None]
    g = Geometry(output_size, kernel, stride, padding, dilation)
    columns = np.ascontiguousarray(a.swapaxes(0, 1)).reshape(a.shape[1], a.shape[0] * a.shape[2])
    out = fold(g, columns, a.shape[0], a.shape[1] // g.taps)
    return wrap(narrow(np.ascontiguousarray(out), self._a.dtype).reshape(shape), dtype)


_MODES = {
    "upsample_nearest1d": "nearest",
    "upsample_nearest2d": "nearest",
    "upsample_nearest3d": "nearest",
    "_upsample_nearest_exact1d": "nearest-exact",
    "_upsample_nearest_exact2d": "nearest-exact",
    "_upsample_nearest_exact3d": "nearest-exact",
    "upsample_linear1d": "linear",
    "upsample_bilinear2d": "linear",
    "upsample_trilinear3d": "linear",
    "upsample_bicubic2d": "cubic",
}

KERNELS: dict[str, Callable[..., Any]] = {
    **{name: _upsample(name, mode) for name, mode in _MODES.items()},
    "_resample_adjoint": resample_adjoint,
    "im2col": im2col,
    "col2im": col2im,
}
