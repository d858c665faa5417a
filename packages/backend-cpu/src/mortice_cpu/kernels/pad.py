"""Padding by numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mortice.backend import shape_rule, wrap

Array = Any


def _pairs(pad: Any, ndim: int) -> list[tuple[int, int]]:
    out = [(0, 0)] * ndim
    for i in range(len(pad) // 2):
        out[ndim - 1 - i] = (pad[2 * i], pad[2 * i + 1])
    return out


def _cropped(a: Array, pairs: list[tuple[int, int]]) -> Array:
    """Negative padding takes elements away."""
    return a[tuple(slice(max(-b, 0), n - max(-c, 0)) for n, (b, c) in zip(a.shape, pairs))]


def constant_pad_nd(self: Any, pad: Any, value: Any) -> Any:
    shape, dtype = shape_rule("constant_pad_nd")(self, pad, value)
    pairs = _pairs(pad, self._a.ndim)
    fill = np.asarray(value).astype(dtype.numpy)
    out = np.full(shape, fill, dtype.numpy)
    inside = tuple(slice(max(b, 0), n - max(c, 0)) for n, (b, c) in zip(shape, pairs))
    out[inside] = _cropped(self._a, pairs)
    return wrap(out, dtype)


def _copying(mode: str, family: str) -> Callable[..., Any]:
    def padded(self: Any, padding: Any) -> Any:
        n = len(padding) // 2
        shape_rule(f"{family}{n}d")(self, padding)
        pairs = _pairs(padding, self._a.ndim)
        a = self._a
        for axis, (before, after) in enumerate(pairs):
            if before or after:
                i = np.arange(-before, a.shape[axis] + after)
                last = a.shape[axis] - 1
                if mode == "edge":
                    i = np.clip(i, 0, last)
                else:
                    i = np.abs(i)
                    i = np.where(i > last, 2 * last - i, i)
                a = np.take(a, i, axis=axis)
        return wrap(a.copy() if a is self._a else a, self._t)

    return padded


KERNELS: dict[str, Callable[..., Any]] = {
    "constant_pad_nd": constant_pad_nd,
    **{f"reflection_pad{n}d": _copying("reflect", "reflection_pad") for n in (1, 2, 3)},
    **{f"replication_pad{n}d": _copying("edge", "replication_pad") for n in (1, 2, 3)},
}
