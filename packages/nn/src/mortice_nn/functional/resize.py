"""Padding, resizing and rearranging of (N, C, ...) tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import mortice
from mortice import Tensor
from mortice.errors import InvalidValue, ShapeError
from mortice_nn import operators as op

# mode -> spatial dimensions it works on
INTERPOLATE_MODES = {
    "nearest": (1, 2, 3),
    "nearest-exact": (1, 2, 3),
    "area": (1, 2, 3),
    "linear": (1,),
    "bilinear": (2,),
    "trilinear": (3,),
    "bicubic": (2,),
}
ALIGNABLE_MODES = ("linear", "bilinear", "trilinear", "bicubic")
_UPSAMPLE = {
    ("nearest", 1): "upsample_nearest1d",
    ("nearest", 2): "upsample_nearest2d",
    ("nearest", 3): "upsample_nearest3d",
    ("nearest-exact", 1): "_upsample_nearest_exact1d",
    ("nearest-exact", 2): "_upsample_nearest_exact2d",
    ("nearest-exact", 3): "_upsample_nearest_exact3d",
    ("linear", 1): "upsample_linear1d",
    ("bilinear", 2): "upsample_bilinear2d",
    ("trilinear", 3): "upsample_trilinear3d",
    ("bicubic", 2): "upsample_bicubic2d",
}


def pad(
    input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None
) -> Tensor:
    """Grow (or, by negative numbers, shrink) the last dimensions.

    ``pad`` is (before, after) of the last dimension, then of the one before it, and so on.
    ``mode`` is "constant" (with ``value``), "reflect", "replicate" or "circular"; the last three
    take 2, 4 or 6 numbers for an input with 1 or 2 leading dimensions.
    """
    pad = list(pad)
    if len(pad) % 2:
        raise InvalidValue(f"pad must have an even number of entries, found {len(pad)}")
    if len(pad) // 2 > input.ndim:
        raise InvalidValue(
            f"pad has entries for {len(pad) // 2} dimensions, the input has {input.ndim}"
        )
    if mode == "constant":
        return op.constant_pad_nd(input, pad, 0.0 if value is None else value)
    if mode not in ("reflect", "replicate", "circular"):
        raise NotImplementedError(
            f"Unrecognised padding mode {mode!r}; constant, reflect, replicate and circular exist"
        )
    if value is not None and value != 0:
        raise InvalidValue(f"padding mode {mode!r} doesn't take in value argument")
    n = len(pad) // 2
    if n not in (1, 2, 3) or input.ndim not in (n + 1, n + 2):
        raise NotImplementedError(
            f"padding mode {mode!r} pads the last 1, 2 or 3 dimensions of an input with 1 or 2 "
            f"more; found {n} and {input.ndim}"
        )
    return op.pad(input, pad, mode)


def interpolate(
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """Resize (N, C, L), (N, C, H, W) or (N, C, D, H, W) to ``size``, or by ``scale_factor``.

    Modes: nearest, nearest-exact, area, linear (3-d input), bilinear and bicubic (4-d), trilinear
    (5-d). Coordinates map centres to centres, or corners to corners with ``align_corners``.
    """
    n = input.ndim - 2
    _check_interpolate(mode, n, align_corners, antialias)
    scales: list[float | None]
    target, scales = _interpolate_target(input, n, size, scale_factor, recompute_scale_factor)
    if mode == "area":
        from mortice_nn.functional import pooling

        pools: list[Any] = [pooling.adaptive_avg_pool1d, pooling.adaptive_avg_pool2d]
        pools.append(pooling.adaptive_avg_pool3d)
        return pools[n - 1](input, target)
    function = getattr(op, _UPSAMPLE[mode, n])
    if mode.startswith("nearest"):
        return function(input, target, *scales)
    return function(input, target, bool(align_corners), *scales)


def _check_interpolate(mode: str, n: int, align_corners: bool | None, antialias: bool) -> None:
    if mode not in INTERPOLATE_MODES:
        raise NotImplementedError(
            f"interpolate: no mode {mode!r}; there are {', '.join(INTERPOLATE_MODES)}"
        )
    if n not in INTERPOLATE_MODES[mode]:
        wanted = " or ".join(f"{d + 2}-d" for d in INTERPOLATE_MODES[mode])
        raise NotImplementedError(
            f"interpolate: mode {mode!r} takes {wanted} inputs, not {n + 2}-d"
        )
    if align_corners is not None and mode not in ALIGNABLE_MODES:
        raise InvalidValue(f"align_corners option can only be set with {ALIGNABLE_MODES}")
    if antialias:
        raise NotImplementedError("interpolate: antialias=True is not implemented")


def _interpolate_target(
    input: Tensor, n: int, size: Any, scale_factor: Any, recompute: bool | None
) -> tuple[list[int], list[float | None]]:
    """Sizes to produce, and the scales to sample by (None: the ratio of the sizes)."""
    if (size is None) == (scale_factor is None):
        raise InvalidValue("interpolate: pass either size or scale_factor, one of the two")
    if size is not None:
        sizes = list(size) if isinstance(size, Sequence) else [size] * n
        if len(sizes) != n:
            raise InvalidValue(f"interpolate: size must have {n} entries, found {tuple(sizes)}")
        return sizes, [None] * n
    factors = list(scale_factor) if isinstance(scale_factor, Sequence) else [scale_factor] * n
    if len(factors) != n:
        raise InvalidValue(
            f"interpolate: scale_factor must have {n} entries, found {tuple(factors)}"
        )
    target = [
        math.floor(have * factor) for have, factor in zip(input.shape[2:], factors, strict=True)
    ]
    return target, ([None] * n if recompute else [float(factor) for factor in factors])


def upsample(
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Tensor:
    """The older name of ``interpolate``."""
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """The older name of ``interpolate(mode="nearest")``."""
    return interpolate(input, size, scale_factor, "nearest")


def upsample_bilinear(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """The older name of ``interpolate(mode="bilinear", align_corners=True)``."""
    return interpolate(input, size, scale_factor, "bilinear", align_corners=True)


def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """(*, C r r, H, W) -> (*, C, H r, W r)."""
    return op.pixel_shuffle(input, upscale_factor)


def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """(*, C, H r, W r) -> (*, C r r, H, W)."""
    return op.pixel_unshuffle(input, downscale_factor)


def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """(N, g k, ...) with channels regrouped as (N, k g, ...)."""
    return op.channel_shuffle(input, groups)


def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """Sampling grid (N, H, W, 2) of the affine maps ``theta`` (N, 2, 3), for ``grid_sample``.

    With theta (N, 3, 4) and 5 sizes the grid is (N, D, H, W, 3).
    """
    n = len(size) - 2
    if n not in (2, 3) or tuple(theta.shape[1:]) != (n, n + 1):
        raise ShapeError(
            f"affine_grid expects theta (N, 2, 3) with 4 sizes or (N, 3, 4) with 5, found theta "
            f"{tuple(theta.shape)} and {len(size)} sizes"
        )
    space = list(size[2:])
    axes = [_grid_axis(length, bool(align_corners), theta) for length in space]
    coordinates: list[Tensor] = []
    for k in range(n):  # x is the last dimension, so axes are read backwards
        axis = axes[n - 1 - k]
        shape = [1] * n
        shape[n - 1 - k] = -1
        coordinates.append(axis.reshape(shape).expand(space))
    coordinates.append(mortice.ones_like(coordinates[0]))
    base = mortice.stack(coordinates, -1).reshape(1, -1, n + 1)
    grid = base.expand(size[0], -1, -1).matmul(theta.transpose(1, 2))
    return grid.reshape(size[0], *space, n)


def _grid_axis(length: int, align: bool, like: Tensor) -> Tensor:
    number = mortice.arange(length, dtype=like.dtype, device=like.device)
    if align:
        return number * (2.0 / (length - 1)) - 1.0 if length > 1 else number * 0.0
    return (number * 2.0 + 1.0) / length - 1.0


GRID_MODES = ("bilinear", "nearest", "bicubic")
GRID_PADDING = ("zeros", "border", "reflection")


def grid_sample(
    input: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Tensor:
    """Sample (N, C, H, W) at ``grid`` (N, H', W', 2) of (x, y) in [-1, 1] -> (N, C, H', W').

    Volumes (N, C, D, H, W) take a grid (N, D', H', W', 3) of (x, y, z), and no bicubic mode.
    """
    if mode not in GRID_MODES or padding_mode not in GRID_PADDING:
        raise InvalidValue(
            f"grid_sample: mode must be in {GRID_MODES} and padding_mode in {GRID_PADDING}, found "
            f"{mode!r} and {padding_mode!r}"
        )
    return op.grid_sampler(
        input, grid, GRID_MODES.index(mode), GRID_PADDING.index(padding_mode), bool(align_corners)
    )
