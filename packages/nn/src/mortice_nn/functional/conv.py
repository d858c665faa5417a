"""Convolutions over (N, C, ...) or unbatched (C, ...) inputs, unfold and fold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mortice.errors import ShapeError
from mortice_nn import operators as op

if TYPE_CHECKING:
    from mortice import Tensor

    Size = int | Sequence[int]


def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size | str = 0,
    dilation: Size = 1,
    groups: int = 1,
) -> Tensor:
    """input (N, C, L), weight (out, C / groups, k), bias (out) -> (N, out, L')."""
    return op.conv1d(input, weight, bias, stride, padding, dilation, groups)


def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size | str = 0,
    dilation: Size = 1,
    groups: int = 1,
) -> Tensor:
    """input (N, C, H, W), weight (out, C / groups, kh, kw), bias (out) -> (N, out, H', W').

    ``padding`` is zeros on each side, "valid" (none) or "same" (stride must be 1).
    """
    return op.conv2d(input, weight, bias, stride, padding, dilation, groups)


def conv3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size | str = 0,
    dilation: Size = 1,
    groups: int = 1,
) -> Tensor:
    """input (N, C, D, H, W), weight (out, C / groups, kd, kh, kw) -> (N, out, D', H', W')."""
    return op.conv3d(input, weight, bias, stride, padding, dilation, groups)


def conv_transpose1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size = 0,
    output_padding: Size = 0,
    groups: int = 1,
    dilation: Size = 1,
) -> Tensor:
    """The gradient of conv1d as a map: weight (C, out / groups, k) -> (N, out, L')."""
    return op.conv_transpose1d(
        input, weight, bias, stride, padding, output_padding, groups, dilation
    )


def conv_transpose2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size = 0,
    output_padding: Size = 0,
    groups: int = 1,
    dilation: Size = 1,
) -> Tensor:
    """The gradient of conv2d as a map: weight (C, out / groups, kh, kw) -> (N, out, H', W')."""
    return op.conv_transpose2d(
        input, weight, bias, stride, padding, output_padding, groups, dilation
    )


def conv_transpose3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size = 0,
    output_padding: Size = 0,
    groups: int = 1,
    dilation: Size = 1,
) -> Tensor:
    """The gradient of conv3d as a map: weight (C, out / groups, kd, kh, kw)."""
    return op.conv_transpose3d(
        input, weight, bias, stride, padding, output_padding, groups, dilation
    )


def unfold(
    input: Tensor, kernel_size: Size, dilation: Size = 1, padding: Size = 0, stride: Size = 1
) -> Tensor:
    """Patches of (N, C, H, W) as columns: (N, C kh kw, number of patches)."""
    if input.ndim not in (3, 4):
        raise ShapeError(f"unfold expects a 3-d or 4-d input, found {tuple(input.shape)}")
    return op.im2col(input, pair(kernel_size), pair(dilation), pair(padding), pair(stride))


def fold(
    input: Tensor,
    output_size: Size,
    kernel_size: Size,
    dilation: Size = 1,
    padding: Size = 0,
    stride: Size = 1,
) -> Tensor:
    """Sum columns (N, C kh kw, patches) back to (N, C, *output_size); unfold's transpose."""
    if input.ndim not in (2, 3):
        raise ShapeError(f"fold expects a 2-d or 3-d input, found {tuple(input.shape)}")
    return op.col2im(
        input, pair(output_size), pair(kernel_size), pair(dilation), pair(padding), pair(stride)
    )


def pair(size: Size) -> list[int]:
    """One number for both dimensions, or one each."""
    return [size, size] if isinstance(size, int) else list(size)
