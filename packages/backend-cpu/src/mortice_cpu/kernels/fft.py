"""Fourier transforms by numpy's pocketfft."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mortice.backend import shape_rule, wrap

#: numpy's name for each normalization, forwards and backwards.
_FORWARD = ("backward", "ortho", "forward")
_BACKWARD = ("forward", "ortho", "backward")


def fft_c2c(self: Any, dim: Any, normalization: int, forward: bool) -> Any:
    _, dtype, _ = shape_rule("_fft_c2c")(self, dim, normalization, forward)
    if forward:
        r = np.fft.fftn(self._a, axes=dim, norm=_FORWARD[normalization])
    else:
        r = np.fft.ifftn(self._a, axes=dim, norm=_BACKWARD[normalization])
    return wrap(r.astype(dtype.numpy, copy=False), dtype)


def fft_r2c(self: Any, dim: Any, normalization: int, onesided: bool) -> Any:
    _, dtype, _ = shape_rule("_fft_r2c")(self, dim, normalization, onesided)
    transform = np.fft.rfftn if onesided else np.fft.fftn
    r = transform(self._a, axes=dim, norm=_FORWARD[normalization])
    return wrap(r.astype(dtype.numpy, copy=False), dtype)


def fft_c2r(self: Any, dim: Any, normalization: int, last_dim_size: int) -> Any:
    shape, dtype, _ = shape_rule("_fft_c2r")(self, dim, normalization, last_dim_size)
    sizes = [shape[d] for d in dim]
    r = np.fft.irfftn(self._a, s=sizes, axes=dim, norm=_BACKWARD[normalization])
    return wrap(r.astype(dtype.numpy, copy=False), dtype)


KERNELS: dict[str, Callable[..., Any]] = {
    "_fft_c2c": fft_c2c,
    "_fft_r2c": fft_r2c,
    "_fft_c2r": fft_c2r,
}
