"""Sequences as numpy arrays, computed in float64 or int64 and rounded once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import mortice
from mortice.backend import shape_rule, wrap

Kernel = Callable[..., Any]


def _is_integer(dtype: Any) -> bool:
    return not (dtype.differentiable or dtype is mortice.bool)


def _rule(name: str, *args: Any) -> Any:
    """The operator's shape rule, which also checks the arguments."""
    return shape_rule(name)(*args)


def arange(start: Any, end: Any, step: Any, dtype: Any, *rest: Any) -> Any:
    (n,), dtype = _rule("arange.start_step", start, end, step, dtype)
    if _is_integer(dtype):
        first, by = int(start), int(step)
        values = np.arange(n, dtype=np.int64)
        if by != 1:
            values *= by
        if first:
            values += first
    else:
        values = np.arange(n, dtype=np.float64) * step + start
    return wrap(values.astype(dtype.numpy, copy=False), dtype)


def range_(start: Any, end: Any, step: Any, dtype: Any, *rest: Any) -> Any:
    (n,), dtype = _rule("range.step", start, end, step, dtype)
    return wrap((np.arange(n, dtype=np.float64) * step + start).astype(dtype.numpy), dtype)


def _spaced(start: Any, end: Any, steps: int, dtype: Any) -> Any:
    """Evenly spaced from both ends towards the middle, so that both ends are exact."""
    wide = np.complex128 if dtype.is_complex else np.float64
    if steps == 1:
        return np.full(1, start, wide)
    if _is_integer(dtype):
        start, end = int(start), int(end)
    by = (end - start) / (steps - 1) if steps else 0
    i = np.arange(steps)
    return np.where(i < steps // 2, start + by * i, end - by * (steps - 1 - i)).astype(wide)


def linspace(start: Any, end: Any, steps: int, dtype: Any, *rest: Any) -> Any:
    _, dtype = _rule("linspace", start, end, steps, dtype)
    return _converted(_spaced(start, end, steps, dtype), dtype)


def logspace(start: Any, end: Any, steps: int, base: float, dtype: Any, *rest: Any) -> Any:
    _, dtype = _rule("logspace", start, end, steps, base, dtype)
    with np.errstate(all="ignore"):
        return _converted(np.power(base, _spaced(start, end, steps, dtype)), dtype)


def _converted(values: Any, dtype: Any) -> Any:
    with np.errstate(all="ignore"):
        return wrap(values.astype(dtype.numpy, copy=False), dtype)


def eye(n: int, m: int, dtype: Any, *rest: Any) -> Any:
    _, dtype = _rule("eye.m", n, m, dtype)
    out = np.zeros((n, m), dtype.numpy)
    np.einsum("ii->i", out[: min(n, m), : min(n, m)])[...] = 1
    return wrap(out, dtype)


KERNELS: dict[str, Kernel] = {
    "arange.start_step": arange,
    "range.step": range_,
    "linspace": linspace,
    "logspace": logspace,
    "eye.m": eye,
}
