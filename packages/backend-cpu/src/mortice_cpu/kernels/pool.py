"""Pooling over windows: taps of the kernel one after the other, each over the whole image."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np

from mortice import int64
from mortice.backend import shape_rule, wrap
from mortice.errors import DTypeError
from mortice_cpu.precision import narrow, widen

Array = Any


def _spread(values: Sequence[int], n: int) -> tuple[int, ...]:
    return tuple(values) * n if len(values) == 1 else tuple(values)


def _lowest(dtype: Any) -> Any:
    return -np.inf if dtype.kind not in "iub" else np.iinfo(dtype).min


def _padded(a: Array, n: int, before: Sequence[int], after: Sequence[int], fill: Any) -> Array:
    if not any(before) and not any(after):
        return a
    shape = a.shape[:-n] + tuple(b + s + c for b, s, c in zip(before, a.shape[-n:], after))
    out = np.full(shape, fill, a.dtype)
    out[(..., *(slice(b, b + s) for b, s in zip(before, a.shape[-n:])))] = a
    return out


def _window(tap: Any, dilation: Any, stride: Any, out: Any) -> tuple[Any, ...]:
    return tuple(
        slice(i * d, i * d + s * (o - 1) + 1, s) for i, d, s, o in zip(tap, dilation, stride, out)
    )


def _max_pool(n: int) -> Callable[..., Any]:
    name = f"max_pool{n}d_with_indices"

    def max_pool(
        self: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil: bool
    ) -> Any:
        shape = shape_rule(name)(self, kernel, stride, padding, dilation, ceil)[0][0]
        k, p, d = _spread(kernel, n), _spread(padding, n), _spread(dilation, n)
        s = _spread(stride, n) if stride else k
        a = widen(self._a)
        size, out = a.shape[-n:], shape[-n:]
        after = [
            max(0, (o - 1) * t + (q - 1) * e + 1 - m - b)
            for o, t, q, e, m, b in zip(out, s, k, d, size, p)
        ]
        padded = _padded(a, n, p, after, _lowest(a.dtype))
        places = _padded(np.arange(int(np.prod(size))).reshape(size), n, p, after, -1)
        best = np.full(shape, _lowest(a.dtype), a.dtype)
        where = np.full(shape, -1, np.int64)
        for tap in product(*map(range, k)):
            w = _window(tap, d, s, out)
            value, place = padded[(..., *w)], places[w]
            better = (value > best) | ((where < 0) & (place >= 0))
            if value.dtype.kind == "f":
                better |= np.isnan(value)
            np.copyto(best, value, where=better)
            np.copyto(where, place, where=better)
        return wrap(narrow(best, self._a.dtype), self._t), wrap(where, int64)

    return max_pool


def pool_scatter(self: Any, indices: Any, count: int) -> Any:
    """Add each element at its position of a row of ``count`` elements."""
    a = widen(self._a)
    rows = a.reshape(-1, a.shape[-1])
    n = rows.shape[0]
    flat = indices._a.reshape(n, -1) + np.arange(n)[:, None] * count
    if a.dtype == np.float64 or a.dtype == np.float32:
        out = np.bincount(flat.reshape(-1), rows.reshape(-1), n * count).astype(a.dtype)
    else:
        out = np.zeros(n * count, a.dtype)
        np.add.at(out, flat.reshape(-1), rows.reshape(-1))
    return wrap(narrow(out.reshape(*a.shape[:-1], count), self._a.dtype), self._t)


class _Average:
    """Geometry of an average pooling, and how many elements each window counts."""

    def __init__(
        self, n: int, shape: Any, size: Any, kernel: Any, stride: Any, padding: Any,
        include: bool, divisor: Any,
    ) -> None:  # fmt: skip
        self.n = n
        self.out = tuple(shape[-n:])
        self.size = tuple(size[-n:])
        self.kernel = _spread(kernel, n)
        self.stride = _spread(stride, n) if stride else self.kernel
        self.padding = _spread(padding, n)
        self.after = [
            max(0, (o - 1) * s + k - m - p)
            for o, s, k, m, p in zip(self.out, self.stride, self.kernel, self.size, self.padding)
        ]
        self.divisor = divisor or self._counts(include)

    def _counts(self, include: bool) -> Array:
        count: Any = np.ones((1,) * self.n)
        for i in range(self.n):
            start = np.arange(self.out[i]) * self.stride[i] - self.padding[i]
            end = np.minimum(start + self.kernel[i], self.size[i] + self.padding[i])
            if not include:
                start, end = np.maximum(start, 0), np.minimum(end, self.size[i])
            shape = [1] * self.n
            shape[i] = self.out[i]
            count = count * (end - start).reshape(shape)
        return count

    def windows(self) -> Any:
        for tap in product(*map(range, self.kernel)):
            yield (..., *_window(tap, (1,) * self.n, self.stride, self.out))


def _avg_pool(n: int) -> Callable[..., Any]:
    name = f"avg_pool{n}d"

    def avg_pool(
        self: Any, kernel: Any, stride: Any, padding: Any, ceil: bool, include: bool, divisor: Any
    ) -> Any:
        shape, _ = shape_rule(name)(self, kernel, stride, padding, ceil, include, divisor)
        a = widen(self._a)
        g = _Average(n, shape, a.shape, kernel, stride, padding, include, divisor)
        padded = _padded(a, n, g.padding, g.after, 0)
        total = np.zeros(shape, a.dtype)
        for window in g.windows():
            total += padded[window]
        if a.dtype.kind in "iu":
            # Rounded towards zero, as C divides.
            divisor = np.asarray(g.divisor).astype(a.dtype)
            whole = np.abs(total) // np.abs(divisor)
            total = np.where((total < 0) != (divisor < 0), -whole, whole)
        else:
            total /= np.asarray(g.divisor, a.dtype)
        return wrap(narrow(total, self._a.dtype), self._t)

    return avg_pool


def _avg_pool_backward(n: int) -> Callable[..., Any]:
    def avg_pool_backward(
        grad: Any, self: Any, kernel: Any, stride: Any, padding: Any, ceil: bool, include: bool,
        divisor: Any,
    ) -> Any:  # fmt: skip
        dy = widen(grad._a)
        size = self._a.shape
        g = _Average(n, dy.shape, size, kernel, stride, padding, include, divisor)
        share = dy / np.asarray(g.divisor, dy.dtype)
        spatial = tuple(p + m + q for p, m, q in zip(g.padding, g.size, g.after))
        out = np.zeros((*size[:-n], *spatial), dy.dtype)
        for window in g.windows():
            out[window] += share
        inside = (..., *(slice(p, p + m) for p, m in zip(g.padding, g.size)))
        return wrap(np.ascontiguousarray(narrow(out[inside], grad._a.dtype)), grad._t)

    return avg_pool_backward


# -- adaptive: output i of m averages inputs floor(i * n / m) to ceil((i + 1) * n / m) ---------------


def _bounds(n: int, m: int) -> list[tuple[int, int]]:
    return [(i * n // m, -((-(i + 1) * n) // m)) for i in range(m)]


def _averaging(n: int, m: int, dtype: Any) -> Array:
    """Matrix (n, m) that averages n inputs to m outputs."""
    out = np.zeros((n, m), dtype)
    for i, (start, stop) in enumerate(_bounds(n, m)):
        out[start:stop, i] = 1.0 / (stop - start)
    return out


def _along(a: Array, axis: int, matrix: Array) -> Array:
    return np.moveaxis(np.moveaxis(a, axis, -1) @ matrix, -1, axis)


def _adaptive_avg(n: int) -> Callable[..., Any]:
    def adaptive(self: Any, output_size: Any) -> Any:
        shape, _ = shape_rule(f"_adaptive_avg_pool{n}d")(self, output_size)
        a = widen(self._a)
        if a.dtype.kind in "iu":
            if 0 not in shape:
                raise DTypeError(
                    f"_adaptive_avg_pool{n}d is not implemented for {self._t!r}; it takes floating "
                    "and complex dtypes. Convert first, for example with .float()."
                )
            return wrap(np.empty(shape, a.dtype), self._t)
        for i in range(n):
            axis = a.ndim - n + i
            a = _along(a, axis, _averaging(a.shape[axis], shape[axis], a.dtype))
        return wrap(np.ascontiguousarray(narrow(a, self._a.dtype)), self._t)

    return adaptive


def _adaptive_avg_backward(n: int) -> Callable[..., Any]:
    def backward(grad: Any, self: Any) -> Any:
        a = widen(grad._a)
        for i in range(n):
            axis = a.ndim - n + i
            a = _along(a, axis, _averaging(self._a.shape[axis], a.shape[axis], a.dtype).T)
        return wrap(np.ascontiguousarray(narrow(a, grad._a.dtype)), grad._t)

    return backward


def _adaptive_max(n: int) -> Callable[..., Any]:
    def adaptive(self: Any, output_size: Any) -> Any:
        shape = shape_rule(f"adaptive_max_pool{n}d")(self, output_size)[0][0]
        a = self._a
        size = a.shape[-n:]
        places = np.arange(int(np.prod(size))).reshape(size)
        values = np.empty(shape, a.dtype)
        indices = np.empty(shape, np.int64)
        for at in product(*(enumerate(_bounds(m, o)) for m, o in zip(size, shape[-n:]))):
            window = tuple(slice(*b) for _, b in at)
            block = a[(..., *window)].reshape(*a.shape[:-n], -1)
            best = widen(block).argmax(axis=-1)
            cell = (..., *(i for i, _ in at))
            values[cell] = np.take_along_axis(block, best[..., None], -1)[..., 0]
            indices[cell] = places[window].reshape(-1)[best]
        return wrap(values, self._t), wrap(indices, int64)

    return adaptive


KERNELS: dict[str, Callable[..., Any]] = {
    "max_pool2d_with_indices": _max_pool(2),
    "max_pool3d_with_indices": _max_pool(3),
    "_pool_scatter": pool_scatter,
    "avg_pool2d": _avg_pool(2),
    "avg_pool3d": _avg_pool(3),
    "avg_pool2d_backward": _avg_pool_backward(2),
    "avg_pool3d_backward": _avg_pool_backward(3),
    "_adaptive_avg_pool2d": _adaptive_avg(2),
    "_adaptive_avg_pool3d": _adaptive_avg(3),
    "_adaptive_avg_pool2d_backward": _adaptive_avg_backward(2),
    "_adaptive_avg_pool3d_backward": _adaptive_avg_backward(3),
    "adaptive_max_pool2d": _adaptive_max(2),
    "adaptive_max_pool3d": _adaptive_max(3),
}
