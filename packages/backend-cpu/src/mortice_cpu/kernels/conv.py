"""Convolutions as matrix products over patches (im2col), in blocks that stay in the cache.

A block of images is unfolded into columns of shape (C * kernel, images * positions), so that the
weight, a matrix of shape (O, C * kernel), multiplies it in one BLAS call. 1x1 kernels need no
unfolding; depthwise kernels are summed tap by tap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np

from mortice.backend import shape_rule, wrap
from mortice_cpu.precision import narrow, widen

Array = Any
#: Bytes of columns per block; measured best between 1 and 4 MiB where L2 is 1 MiB.
BLOCK_BYTES = 2 << 20


class Geometry:
    """Sizes of one (non-transposed) convolution of an image with ``size`` spatial extents."""

    def __init__(
        self, size: Sequence[int], kernel: Sequence[int], stride: Sequence[int],
        padding: Sequence[int], dilation: Sequence[int], out: Sequence[int] | None = None,
    ) -> None:  # fmt: skip
        n = len(kernel)
        self.size = tuple(size)
        self.kernel = tuple(kernel)
        self.stride = tuple(stride) * n if len(stride) == 1 else tuple(stride)
        self.padding = tuple(padding) * n if len(padding) == 1 else tuple(padding)
        self.dilation = tuple(dilation) * n if len(dilation) == 1 else tuple(dilation)
        # A transposed convolution knows its small side; output_padding can hide it from the sizes.
        self.out = (
            tuple(out)
            if out is not None
            else tuple(
                (s + 2 * p - d * (k - 1) - 1) // t + 1
                for s, k, t, p, d in zip(
                    self.size, self.kernel, self.stride, self.padding, self.dilation
                )
            )
        )
        self.positions = prod(self.out)
        self.taps = prod(self.kernel)

    @property
    def is_pointwise(self) -> bool:
        return self.taps == 1 and all(s == 1 for s in self.stride) and not any(self.padding)

    def windows(
        self, first: int = 0, rows: int | None = None
    ) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...]]]:
        """Each kernel tap with the slices of the padded image that it reads.

        ``first`` and ``rows`` choose some of the outputs along the first spatial dimension.
        """
        out = self.out if rows is None else (rows, *self.out[1:])
        shift = (first * self.stride[0], *(0,) * (len(out) - 1))
        for tap in product(*map(range, self.kernel)):
            yield (
                tap,
                tuple(
                    slice(a + i * d, a + i * d + t * (o - 1) + 1, t)
                    for a, i, d, t, o in zip(shift, tap, self.dilation, self.stride, out)
                ),
            )

    def pad(self, x: Array) -> Array:
        """``x`` (images, channels, *size) with zeros around."""
        if not any(self.padding):
            return x
        shape = x.shape[:2] + tuple(s + 2 * p for s, p in zip(self.size, self.padding))
        out = np.zeros(shape, x.dtype)
        out[(slice(None), slice(None), *self.inside())] = x
        return out

    def inside(self) -> tuple[slice, ...]:
        return tuple(slice(p, p + s) for s, p in zip(self.size, self.padding))

    def images_per_block(self, channels: int, itemsize: int) -> int:
        return max(1, BLOCK_BYTES // max(1, channels * self.taps * self.positions * itemsize))

    def rows_per_block(self, channels: int, itemsize: int, images: int) -> int:
        """Output rows whose columns fill a block, where one image alone is larger than that."""
        row = channels * self.taps * images * itemsize * prod(self.out[1:])
        return min(self.out[0], max(1, BLOCK_BYTES // max(1, row)))


def unfold(
    g: Geometry, padded: Array, first: int = 0, rows: int | None = None, into: Array = None
) -> Array:
    """Columns (C * taps, images * positions) of a padded block of images, or of some output rows.

    ``into`` is a flat buffer to reuse: fresh memory costs a page fault per 4 KiB.
    """
    images, channels = padded.shape[:2]
    out = g.out if rows is None else (rows, *g.out[1:])
    shape = (channels, g.taps, images, *out)
    columns = np.empty(shape, padded.dtype) if into is None else into[: prod(shape)].reshape(shape)
    by_channel = padded.swapaxes(0, 1)
    for i, (_, window) in enumerate(g.windows(first, rows)):
        columns[:, i] = by_channel[(slice(None), slice(None), *window)]
    return columns.reshape(channels * g.taps, images * prod(out))


def fold(g: Geometry, columns: Array, images: int, channels: int) -> Array:
    """The adjoint of ``unfold``: columns added back into images, padding cut off."""
    shape = (channels, images, *(s + 2 * p for s, p in zip(g.size, g.padding)))
    out = np.zeros(shape, columns.dtype)
    taps = columns.reshape(channels, g.taps, images, *g.out)
    for i, (_, window) in enumerate(g.windows()):
        out[(slice(None), slice(None), *window)] += taps[:, i]
    return out[(slice(None), slice(None), *g.inside())].swapaxes(0, 1)


def forward(g: Geometry, x: Array, weight: Array, groups: int) -> Array:
    """Convolution of x (N, C, *size) with weight (O, C / groups, *kernel)."""
    n, channels = x.shape[:2]
    outputs = weight.shape[0]
    if groups == channels and weight.shape[1] == 1 and groups > 1:
        return _depthwise(g, x, weight)
    out = np.empty((n, outputs, *g.out), x.dtype)
    c, o = channels // groups, outputs // groups
    for k in range(groups):
        w = np.ascontiguousarray(weight[k * o : (k + 1) * o]).reshape(o, c * g.taps)
        part = x[:, k * c : (k + 1) * c]
        target = out[:, k * o : (k + 1) * o]
        if g.is_pointwise:
            np.matmul(w, part.reshape(n, c, g.positions), out=_flat(target, groups, n, o))
        else:
            _blocks(g, part, w, target)
    return out


def _flat(target: Array, groups: int, n: int, o: int) -> Array:
    """(N, O, positions) view of an output block, which BLAS may write to."""
    return target.reshape(n, o, -1) if groups == 1 else _reshaped_view(target, n, o)


def _reshaped_view(target: Array, n: int, o: int) -> Array:
    return target.reshape(n, o, -1, copy=False)


def _blocks(g: Geometry, x: Array, w: Array, out: Array) -> None:
    n, c = x.shape[:2]
    o = w.shape[0]
    step = g.images_per_block(c, x.itemsize)
    rows = g.rows_per_block(c, x.itemsize, min(step, n))
    row = c * g.taps * min(step, n) * prod(g.out[1:])
    buffer = np.empty(row * rows, x.dtype)
    for start in range(0, n, step):
        stop = min(start + step, n)
        padded = g.pad(x[start:stop])
        for first in range(0, g.out[0], rows):
            last = min(first + rows, g.out[0])
            result = np.dot(w, unfold(g, padded, first, last - first, buffer))
            shaped = result.reshape(o, stop - start, last - first, *g.out[1:])
            out[start:stop, :, first:last] = shaped.swapaxes(0, 1)


def _depthwise(g: Geometry, x: Array, weight: Array) -> Array:
    """One kernel per channel (or a few): taps are summed, no matrix product."""
    n, channels = x.shape[:2]
    multiplier = weight.shape[0] // channels
    padded = g.pad(x)[:, :, None]
    taps = weight.reshape(channels, multiplier, *g.kernel)
    out = np.zeros((n, channels, multiplier, *g.out), x.dtype)
    ones = (1,) * len(g.out)
    for tap, window in g.windows():
        w = taps[(slice(None), slice(None), *tap)].reshape(channels, multiplier, *ones)
        out += padded[(slice(None), slice(None), slice(None), *window)] * w
    return out.reshape(n, channels * multiplier, *g.out)


def input_grad(g: Geometry, grad: Array, weight: Array, groups: int) -> Array:
    """Gradient for x of ``forward``; also the transposed convolution of ``grad``."""
    n = grad.shape[0]
    c, o = weight.shape[1], weight.shape[0] // groups
    out = np.empty((n, c * groups, *g.size), grad.dtype)
    step = g.images_per_block(c, grad.itemsize)
    for k in range(groups):
        w = np.ascontiguousarray(weight[k * o : (k + 1) * o]).reshape(o, c * g.taps).T
        part = grad[:, k * o : (k + 1) * o]
        for start in range(0, n, step):
            stop = min(start + step, n)
            rows = np.ascontiguousarray(part[start:stop].swapaxes(0, 1)).reshape(o, -1)
            columns = np.dot(w, rows)
            out[start:stop, k * c : (k + 1) * c] = fold(g, columns, stop - start, c)
    return out


def weight_grad(g: Geometry, grad: Array, x: Array, groups: int, shape: Sequence[int]) -> Array:
    """Gradient for the weight of ``forward``."""
    n = x.shape[0]
    o, c = shape[0] // groups, shape[1]
    out = np.zeros((groups, o, c * g.taps), grad.dtype)
    step = g.images_per_block(c, grad.itemsize)
    for k in range(groups):
        for start in range(0, n, step):
            stop = min(start + step, n)
            columns = unfold(g, g.pad(x[start:stop, k * c : (k + 1) * c]))
            part = grad[start:stop, k * o : (k + 1) * o].swapaxes(0, 1)
            out[k] += np.dot(np.ascontiguousarray(part).reshape(o, -1), columns.T)
    return out.reshape(tuple(shape))


# -- operators ---------------------------------------------------------------------------------------


def convolution(
    input: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any,
    transposed: bool, output_padding: Any, groups: int,
) -> Any:  # fmt: skip
    shape, dtype = shape_rule("convolution")(
        input, weight, bias, stride, padding, dilation, transposed, output_padding, groups
    )
    x, w = widen(input._a), widen(weight._a)
    kernel = w.shape[2:]
    if 0 in shape or 0 in x.shape or 0 in w.shape:
        r = np.zeros(shape, x.dtype)
    elif transposed:
        g = Geometry(shape[2:], kernel, stride, padding, dilation, x.shape[2:])
        r = input_grad(g, x, w, groups)
    else:
        r = forward(Geometry(x.shape[2:], kernel, stride, padding, dilation), x, w, groups)
    if bias is not None:
        r += widen(bias._a).reshape(-1, *(1,) * len(kernel))
    return wrap(narrow(r, input._a.dtype), dtype)


def convolution_backward(
    grad_output: Any, input: Any, weight: Any, bias_sizes: Any, stride: Any, padding: Any,
    dilation: Any, transposed: bool, output_padding: Any, groups: int, output_mask: Any,
) -> Any:  # fmt: skip
    grad, x, w = widen(grad_output._a), widen(input._a), widen(weight._a)
    kernel = w.shape[2:]
    image, deep = (grad, x) if transposed else (x, grad)
    g = Geometry(image.shape[2:], kernel, stride, padding, dilation, deep.shape[2:])
    found: list[Any] = [None, None, None]
    empty = 0 in grad.shape or 0 in x.shape or 0 in w.shape
    if output_mask[0]:
        if empty:
            found[0] = np.zeros(x.shape, x.dtype)
        else:
            found[0] = forward(g, grad, w, groups) if transposed else input_grad(g, grad, w, groups)
    if output_mask[1]:
        found[1] = (
            np.zeros(w.shape, w.dtype) if empty else weight_grad(g, deep, image, groups, w.shape)
        )
    if output_mask[2]:
        found[2] = grad.sum(axis=(0, *range(2, grad.ndim)))
    dtype = input._t
    return tuple(
        None if r is None else wrap(narrow(np.ascontiguousarray(r), input._a.dtype), dtype)
        for r in found
    )


KERNELS: dict[str, Callable[..., Any]] = {
    "convolution": convolution,
    "convolution_backward": convolution_backward,
}
