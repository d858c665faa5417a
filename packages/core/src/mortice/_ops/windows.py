"""Windows of signal processing, made of public operators. Declared in ``factory.yaml``."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from mortice._base.errors import ShapeError
from mortice._ops.formulas import call
from mortice._types import dtypes

Options = tuple[Any, ...]


def _made(n: int, periodic: bool, options: Options, shape: Callable[[Any, int], Any]) -> Any:
    """``shape(positions, last)`` for n samples; a periodic window drops the sample after its end."""
    dtype, lay, device, pin = options
    dtype = dtype or dtypes.default.dtype
    if not dtype.differentiable:
        raise ShapeError(f"window functions expect floating point dtypes, got: {dtype!r}")
    if n < 0:
        raise ShapeError(f"window_length must be non-negative, got {n}")
    if n <= 1:
        return call("ones", (n,), dtype, lay, device, pin)
    total = n + 1 if periodic else n
    k = call("arange.start_step", 0, total, 1, dtypes.float64, lay, device, pin)
    return call("slice.Tensor", shape(k, total - 1), 0, 0, n, 1).to(dtype)


def _cosine(n: int, periodic: bool, options: Options, alpha: float, beta: float) -> Any:
    return _made(
        n, periodic, options, lambda k, last: alpha - beta * (k * (2 * math.pi / last)).cos()
    )


def hann_window(n: int, *options: Any) -> Any:
    return _cosine(n, True, options, 0.5, 0.5)


def hann_window_periodic(n: int, periodic: bool, *options: Any) -> Any:
    return _cosine(n, periodic, options, 0.5, 0.5)


def hamming_window(n: int, *options: Any) -> Any:
    return _cosine(n, True, options, 0.54, 0.46)


def hamming_window_periodic(n: int, periodic: bool, *options: Any) -> Any:
    return _cosine(n, periodic, options, 0.54, 0.46)


def hamming_window_periodic_alpha(n: int, periodic: bool, alpha: float, *options: Any) -> Any:
    return _cosine(n, periodic, options, alpha, 0.46)


def hamming_window_periodic_alpha_beta(
    n: int, periodic: bool, alpha: float, beta: float, *options: Any
) -> Any:
    return _cosine(n, periodic, options, alpha, beta)


def bartlett_window(n: int, *options: Any) -> Any:
    return bartlett_window_periodic(n, True, *options)


def bartlett_window_periodic(n: int, periodic: bool, *options: Any) -> Any:
    return _made(n, periodic, options, lambda k, last: 1 - (k * (2 / last) - 1).abs())


def blackman_window(n: int, *options: Any) -> Any:
    return blackman_window_periodic(n, True, *options)


def blackman_window_periodic(n: int, periodic: bool, *options: Any) -> Any:
    def shape(k: Any, last: int) -> Any:
        angle = k * (2 * math.pi / last)
        return 0.42 - 0.5 * angle.cos() + 0.08 * (angle * 2).cos()

    return _made(n, periodic, options, shape)


def kaiser_window(n: int, *options: Any) -> Any:
    return kaiser_window_beta(n, True, 12.0, *options)


def kaiser_window_periodic(n: int, periodic: bool, *options: Any) -> Any:
    return kaiser_window_beta(n, periodic, 12.0, *options)


def kaiser_window_beta(n: int, periodic: bool, beta: float, *options: Any) -> Any:
    def shape(k: Any, last: int) -> Any:
        x = k * (2 / last) - 1
        inside = (1 - x * x).clamp_min(0).sqrt() * beta
        full = call("full", (), beta, dtypes.float64, None, k.device, None)
        return call("i0", inside) / call("i0", full)

    return _made(n, periodic, options, shape)


__all__ = [name for name in dir() if not name.startswith("_")]
