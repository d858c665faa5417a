"""Resampling of images: every separable method is a matrix per spatial dimension.

The matrices live with the devices' kernels; the gradient is the product with their transposes,
``_resample_adjoint``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Any

from mortice._base.errors import InvalidValue, RangeError, ShapeError
from mortice._ops.formulas import call
from mortice._types.shapes import numel

Ints = Sequence[int]


def upsample(self: Any, output_size: Ints, *rest: Any) -> Any:
    shape = tuple(self._a.shape)
    n = len(output_size)
    if len(shape) != n + 2:
        raise ShapeError(f"It is expected input_size equals to {n + 2}, but got size {len(shape)}")
    if any(m <= 0 for m in output_size) or any(m <= 0 for m in shape[2:]):
        raise ShapeError(
            "Input and output sizes should be greater than 0, but got input "
            f"{list(shape[2:])} output {list(output_size)}"
        )
    return (*shape[:2], *output_size), self._t


def adjoint(self: Any, size: Ints, *rest: Any) -> Any:
    return (*self._a.shape[:2], *size), self._t


def _vec(x: Any, output_size: Any, factors: Any, n: int) -> tuple[tuple[int, ...], Any]:
    if (output_size is None) == (factors is None):
        raise InvalidValue("Must specify exactly one of output_size and scale_factors")
    if output_size is not None:
        return tuple(output_size), (None,) * n
    sizes = tuple(math.floor(m * f) for m, f in zip(x._a.shape[2:], factors))
    return sizes, tuple(factors)


def nearest2d_vec(input: Any, output_size: Any, scale_factors: Any) -> Any:
    size, scales = _vec(input, output_size, scale_factors, 2)
    return call("upsample_nearest2d", input, size, *scales)


def bilinear2d_vec(input: Any, output_size: Any, align: bool, scale_factors: Any) -> Any:
    size, scales = _vec(input, output_size, scale_factors, 2)
    return call("upsample_bilinear2d", input, size, align, *scales)


# -- gradients -------------------------------------------------------------------------------------


def _scales(scales: Sequence[Any]) -> tuple[float, ...]:
    """0.0 stands for a scale that is not given."""
    return tuple(0.0 if s is None else float(s) for s in scales)


def nearest_grad(grad: Any, shape: Ints, scales: Any, exact: bool) -> Any:
    mode = "nearest-exact" if exact else "nearest"
    return call("_resample_adjoint", grad, tuple(shape[2:]), mode, False, _scales(scales))


def linear_grad(grad: Any, shape: Ints, align: bool, scales: Any) -> Any:
    return call("_resample_adjoint", grad, tuple(shape[2:]), "linear", align, _scales(scales))


def cubic_grad(grad: Any, shape: Ints, align: bool, scales: Any) -> Any:
    return call("_resample_adjoint", grad, tuple(shape[2:]), "cubic", align, _scales(scales))


_FORWARD = {
    ("nearest", 1): "upsample_nearest1d",
    ("nearest", 2): "upsample_nearest2d",
    ("nearest", 3): "upsample_nearest3d",
    ("nearest-exact", 1): "_upsample_nearest_exact1d",
    ("nearest-exact", 2): "_upsample_nearest_exact2d",
    ("nearest-exact", 3): "_upsample_nearest_exact3d",
    ("linear", 1): "upsample_linear1d",
    ("linear", 2): "upsample_bilinear2d",
    ("linear", 3): "upsample_trilinear3d",
    ("cubic", 2): "upsample_bicubic2d",
}


def adjoint_grad(grad: Any, shape: Ints, mode: str, align: bool, scales: Sequence[float]) -> Any:
    given = tuple(s or None for s in scales)
    name = _FORWARD[mode, len(scales)]
    size = tuple(shape[2:])
    if mode.startswith("nearest"):
        return call(name, grad, size, *given)
    return call(name, grad, size, align, *given)


# -- grid sampling -----------------------------------------------------------------------------------

BILINEAR, NEAREST, BICUBIC = 0, 1, 2
ZEROS, BORDER, REFLECTION = 0, 1, 2


def grid_sampler(input: Any, grid: Any, mode: int, padding: int, align: bool) -> Any:
    n = len(input._a.shape)
    if n not in (4, 5):
        raise ShapeError(
            "grid_sampler(): expected 4D or 5D input and grid with same number of dimensions, but "
            f"got input with sizes {list(input.shape)} and grid with sizes {list(grid.shape)}"
        )
    return call(f"grid_sampler_{n - 2}d", input, grid, mode, padding, align)


def grid_sampler_2d(input: Any, grid: Any, mode: int, padding: int, align: bool) -> Any:
    """Read ``input`` (N, C, H, W) at the places (x, y) in [-1, 1] of ``grid`` (N, h, w, 2)."""
    x, g = tuple(input._a.shape), tuple(grid._a.shape)
    if len(x) != 4 or len(g) != 4 or g[3] != 2 or g[0] != x[0]:
        raise ShapeError(
            "grid_sampler(): expected input (N, C, H, W) and grid (N, h, w, 2) of the same batch "
            f"size, but got {list(x)} and {list(g)}"
        )
    height, width = x[2], x[3]
    if not height or not width:
        raise ShapeError(
            f"grid_sampler(): expected input with non-empty spatial sizes, got {list(x)}"
        )
    px = _place(grid.select(3, 0), width, align)
    py = _place(grid.select(3, 1), height, align)
    if mode != BICUBIC:
        px = _padded_place(px, width, padding, align)
        py = _padded_place(py, height, padding, align)
    if mode == NEAREST:
        return _read(input, py.round(), px.round(), padding, align)
    if mode == BILINEAR:
        return _bilinear(input, py, px, padding, align)
    return _bicubic(input, py, px, padding, align)


def grid_sampler_3d(input: Any, grid: Any, mode: int, padding: int, align: bool) -> Any:
    """Read ``input`` (N, C, D, H, W) at (x, y, z) in [-1, 1] of ``grid`` (N, d, h, w, 3)."""
    x, g = tuple(input._a.shape), tuple(grid._a.shape)
    if len(x) != 5 or len(g) != 5 or g[4] != 3 or g[0] != x[0] or not all(x[2:]):
        raise ShapeError(
            "grid_sampler(): expected input (N, C, D, H, W), not empty, and grid (N, d, h, w, 3) of "
            f"the same batch size, but got {list(x)} and {list(g)}"
        )
    if mode == BICUBIC:
        raise RangeError("grid_sampler(): bicubic interpolation only supports 4D input")
    sizes = x[2:]
    places = [
        _padded_place(_place(grid.select(4, 2 - i), n, align), n, padding, align)
        for i, n in enumerate(sizes)
    ]
    if mode == NEAREST:
        return _read_volume(input, [p.round() for p in places])
    low = [p.detach().floor() for p in places]
    weights = [(p - q).unsqueeze(1) for p, q in zip(places, low)]
    total: Any = None
    for corner in product((0, 1), repeat=3):
        part = _read_volume(input, [q + c for q, c in zip(low, corner)])
        for w, c in zip(weights, corner):
            part = part * (w if c else 1 - w)
        total = part if total is None else total + part
    return total


def _read_volume(input: Any, places: Sequence[Any]) -> Any:
    """input[n, :, z, y, x] with places outside reading 0; places hold whole numbers."""
    n, c, *sizes = input._a.shape
    flat: Any = None
    inside: Any = None
    for p, m in zip(places, sizes):
        here = (p >= 0) & (p <= m - 1)
        inside = here if inside is None else inside & here
        index = p.clamp(0, m - 1).long()
        flat = index if flat is None else flat * m + index
    shape = tuple(flat._a.shape)[1:]
    count = numel(shape)
    index = flat.view((n, 1, count)).expand((n, c, count))
    values = input.reshape((n, c, numel(sizes))).gather(2, index).view((n, c, *shape))
    return values * inside.unsqueeze(1).to(values._t)


def _place(u: Any, n: int, align: bool) -> Any:
    return (u + 1) * ((n - 1) / 2) if align else ((u + 1) * n - 1) / 2


def _padded_place(p: Any, n: int, padding: int, align: bool) -> Any:
    if padding == REFLECTION:
        p = _reflect(p, 0, 2 * (n - 1)) if align else _reflect(p, -1, 2 * n - 1)
    return p if padding == ZEROS else p.clamp(0, n - 1)


def _reflect(p: Any, twice_low: int, twice_high: int) -> Any:
    if twice_low == twice_high:
        return p * 0
    low, span = twice_low / 2, (twice_high - twice_low) / 2
    d = (p - low).abs()
    extra = d.fmod(span)
    flips = (d / span).detach().floor()
    even = flips.remainder(2) == 0
    return call("where.self", even, extra + low, span - extra + low)


def _read(input: Any, iy: Any, ix: Any, padding: int, align: bool) -> Any:
    """input[n, :, iy, ix] with places outside reading 0; iy and ix hold whole numbers."""
    n, c, height, width = input._a.shape
    inside = (ix >= 0) & (ix <= width - 1) & (iy >= 0) & (iy <= height - 1)
    flat = iy.clamp(0, height - 1).long() * width + ix.clamp(0, width - 1).long()
    _, h, w = flat._a.shape
    index = flat.view((n, 1, h * w)).expand((n, c, h * w))
    values = input.reshape((n, c, height * width)).gather(2, index).view((n, c, h, w))
    return values * inside.unsqueeze(1).to(values._t)


def _bilinear(input: Any, py: Any, px: Any, padding: int, align: bool) -> Any:
    x0, y0 = px.detach().floor(), py.detach().floor()
    wx, wy = (px - x0).unsqueeze(1), (py - y0).unsqueeze(1)
    top = (
        _read(input, y0, x0, padding, align) * (1 - wx)
        + _read(input, y0, x0 + 1, padding, align) * wx
    )
    bottom = (
        _read(input, y0 + 1, x0, padding, align) * (1 - wx)
        + _read(input, y0 + 1, x0 + 1, padding, align) * wx
    )
    return top * (1 - wy) + bottom * wy


def _cubic_weights(t: Any) -> list[Any]:
    """Keys' cubic convolution with a = -0.75, at distances 1 + t, t, 1 - t, 2 - t."""
    a = -0.75

    def near(d: Any) -> Any:
        return ((a + 2) * d - (a + 3)) * d * d + 1

    def far(d: Any) -> Any:
        return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a

    return [far(t + 1), near(t), near(1 - t), far(2 - t)]


def _bicubic(input: Any, py: Any, px: Any, padding: int, align: bool) -> Any:
    height, width = input._a.shape[2:]
    x0, y0 = px.detach().floor(), py.detach().floor()
    wx, wy = _cubic_weights((px - x0).unsqueeze(1)), _cubic_weights((py - y0).unsqueeze(1))
    total: Any = None
    for i in range(4):
        row: Any = None
        for j in range(4):
            iy = _padded_place(y0 + (i - 1), height, padding, align)
            ix = _padded_place(x0 + (j - 1), width, padding, align)
            part = _read(input, iy, ix, padding, align) * wx[j]
            row = part if row is None else row + part
        row = row * wy[i]
        total = row if total is None else total + row
    return total


def affine_grid_generator(theta: Any, size: Ints, align: bool) -> Any:
    """Grid of an affine map (N, 2, 3) for an output of sizes (N, C, H, W)."""
    from mortice._tensor.construct import tensor

    n, _, height, width = size

    def axis(m: int) -> list[float]:
        if m <= 1:
            return [0.0] * m
        points = [-1 + 2 * i / (m - 1) for i in range(m)]
        return points if align else [p * (m - 1) / m for p in points]

    base = tensor(
        [[[x, y, 1.0] for x in axis(width)] for y in axis(height)],
        dtype=theta._t, device=theta.device,
    )  # fmt: skip
    flat = base.view((1, height * width, 3)).expand((n, height * width, 3))
    return flat.matmul(theta.transpose(1, 2)).view((n, height, width, 2))


# -- rearranging pixels ------------------------------------------------------------------------------


def pixel_shuffle(self: Any, r: int) -> Any:
    shape = tuple(self._a.shape)
    if len(shape) < 3:
        raise ShapeError(
            f"pixel_shuffle expects input to have at least 3 dimensions, but got {len(shape)}"
        )
    if r <= 0 or shape[-3] % (r * r):
        raise ShapeError(
            "pixel_shuffle expects its input's 'channel' dimension to be divisible by the square "
            f"of upscale_factor, but input.size(-3)={shape[-3]} is not divisible by {r * r}"
        )
    *batch, c, h, w = shape
    k = len(batch)
    x = self.reshape((*batch, c // (r * r), r, r, h, w))
    x = x.permute((*range(k), k, k + 3, k + 1, k + 4, k + 2))
    return x.reshape((*batch, c // (r * r), h * r, w * r))


def pixel_unshuffle(self: Any, r: int) -> Any:
    shape = tuple(self._a.shape)
    if len(shape) < 3:
        raise ShapeError(
            f"pixel_unshuffle expects input to have at least 3 dimensions, but got {len(shape)}"
        )
    if r <= 0 or shape[-2] % r or shape[-1] % r:
        raise ShapeError(
            "pixel_unshuffle expects height and width to be divisible by downscale_factor, but "
            f"got {shape[-2]} x {shape[-1]} and {r}"
        )
    *batch, c, h, w = shape
    k = len(batch)
    x = self.reshape((*batch, c, h // r, r, w // r, r))
    x = x.permute((*range(k), k, k + 2, k + 4, k + 1, k + 3))
    return x.reshape((*batch, c * r * r, h // r, w // r))


def channel_shuffle(self: Any, groups: int) -> Any:
    shape = tuple(self._a.shape)
    if len(shape) < 3 or groups <= 0 or shape[1] % groups:
        raise ShapeError(
            f"channel_shuffle: {shape[1] if len(shape) > 1 else 0} channels cannot be divided into "
            f"{groups} groups"
        )
    n, c, *rest = shape
    return self.reshape((n, groups, c // groups, *rest)).transpose(1, 2).reshape(shape)


# -- patches -----------------------------------------------------------------------------------------


def _blocks(size: Ints, kernel: Ints, dilation: Ints, padding: Ints, stride: Ints) -> int:
    counts = [
        (size[i] + 2 * padding[i] - dilation[i] * (kernel[i] - 1) - 1) // stride[i] + 1
        for i in range(2)
    ]
    if any(c <= 0 for c in counts):
        raise ShapeError(
            f"the sliding blocks of kernel {list(kernel)} do not fit into size {list(size)}: "
            f"their array has shape {counts}"
        )
    return counts[0] * counts[1]


def im2col(self: Any, kernel: Ints, dilation: Ints, padding: Ints, stride: Ints) -> Any:
    shape = tuple(self._a.shape)
    if len(shape) not in (3, 4):
        raise ShapeError(f"Expected 3D or 4D (batch mode) tensor for input, but got: {list(shape)}")
    count = _blocks(shape[-2:], kernel, dilation, padding, stride)
    return (*shape[:-3], shape[-3] * numel(kernel), count), self._t


def col2im(
    self: Any, output_size: Ints, kernel: Ints, dilation: Ints, padding: Ints, stride: Ints
) -> Any:
    shape = tuple(self._a.shape)
    taps = numel(kernel)
    if len(shape) not in (2, 3) or shape[-2] % taps:
        raise ShapeError(
            "Expected size of input's dimension 1 to be divisible by the product of kernel_size, "
            f"but got input of shape {list(shape)} and kernel_size={list(kernel)}"
        )
    count = _blocks(output_size, kernel, dilation, padding, stride)
    if shape[-1] != count:
        raise ShapeError(
            f"Given output_size={list(output_size)}, kernel_size={list(kernel)}, expected size of "
            f"input's last dimension to be the number of sliding blocks, {count}, but got {shape[-1]}"
        )
    return (*shape[:-2], shape[-2] // taps, *output_size), self._t


__all__ = [name for name in dir() if not name.startswith("_")]
