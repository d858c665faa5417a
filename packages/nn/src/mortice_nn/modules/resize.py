"""Padding, upsampling and shuffling modules."""

from __future__ import annotations

from typing import Any

from mortice import Tensor
from mortice_nn import functional as F
from mortice_nn.modules.conv import ntuple
from mortice_nn.modules.module import Module


class _PadNd(Module):
    """Pads the last ``n`` dimensions by ``padding``: one number, or (before, after) of each, the
    last dimension first.
    """

    n: int
    mode: str
    value: float | None = None

    def __init__(self, padding: Any) -> None:
        super().__init__()
        self.padding = ntuple(padding, 2 * self.n)

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, self.mode, self.value)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _ConstantPadNd(_PadNd):
    mode = "constant"

    def __init__(self, padding: Any, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class ConstantPad1d(_ConstantPadNd):
    """``value`` around (*, L)."""

    n = 1


class ConstantPad2d(_ConstantPadNd):
    """``value`` around (*, H, W)."""

    n = 2


class ConstantPad3d(_ConstantPadNd):
    """``value`` around (*, D, H, W)."""

    n = 3


class ZeroPad1d(ConstantPad1d):
    """Zeros around (*, L)."""

    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class ZeroPad2d(ConstantPad2d):
    """Zeros around (*, H, W)."""

    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class ZeroPad3d(ConstantPad3d):
    """Zeros around (*, D, H, W)."""

    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class ReflectionPad1d(_PadNd):
    """Mirrored at the edges, which are not repeated."""

    n, mode = 1, "reflect"


class ReflectionPad2d(_PadNd):
    """Mirrored at the edges, which are not repeated."""

    n, mode = 2, "reflect"


class ReflectionPad3d(_PadNd):
    """Mirrored at the edges, which are not repeated."""

    n, mode = 3, "reflect"


class ReplicationPad1d(_PadNd):
    """The edges repeated."""

    n, mode = 1, "replicate"


class ReplicationPad2d(_PadNd):
    """The edges repeated."""

    n, mode = 2, "replicate"


class ReplicationPad3d(_PadNd):
    """The edges repeated."""

    n, mode = 3, "replicate"


class CircularPad1d(_PadNd):
    """Continued from the other side."""

    n, mode = 1, "circular"


class CircularPad2d(_PadNd):
    """Continued from the other side."""

    n, mode = 2, "circular"


class CircularPad3d(_PadNd):
    """Continued from the other side."""

    n, mode = 3, "circular"


class Upsample(Module):
    """Resizes by ``functional.interpolate``."""

    def __init__(
        self,
        size: Any = None,
        scale_factor: Any = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
    ) -> None:
        super().__init__()
        self.name = type(self).__name__
        self.size = size
        if isinstance(scale_factor, tuple):
            self.scale_factor: Any = tuple(float(factor) for factor in scale_factor)
        else:
            self.scale_factor = float(scale_factor) if scale_factor else None
        self.mode = mode
        self.align_corners = align_corners
        self.recompute_scale_factor = recompute_scale_factor

    def forward(self, input: Tensor) -> Tensor:
        return F.interpolate(
            input,
            self.size,
            self.scale_factor,
            self.mode,
            self.align_corners,
            self.recompute_scale_factor,
        )

    def extra_repr(self) -> str:
        if self.scale_factor is not None:
            return f"scale_factor={self.scale_factor!r}, mode={self.mode!r}"
        return f"size={self.size!r}, mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    """Upsample with mode "nearest"."""

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, mode="nearest")


class UpsamplingBilinear2d(Upsample):
    """Upsample with mode "bilinear" and aligned corners."""

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, mode="bilinear", align_corners=True)


class PixelShuffle(Module):
    """(*, C r r, H, W) -> (*, C, H r, W r)."""

    def __init__(self, upscale_factor: int) -> None:
        super().__init__()
        self.upscale_factor = upscale_factor

    def forward(self, input: Tensor) -> Tensor:
        return F.pixel_shuffle(input, self.upscale_factor)

    def extra_repr(self) -> str:
        return f"upscale_factor={self.upscale_factor}"


class PixelUnshuffle(Module):
    """(*, C, H r, W r) -> (*, C r r, H, W)."""

    def __init__(self, downscale_factor: int) -> None:
        super().__init__()
        self.downscale_factor = downscale_factor

    def forward(self, input: Tensor) -> Tensor:
        return F.pixel_unshuffle(input, self.downscale_factor)

    def extra_repr(self) -> str:
        return f"downscale_factor={self.downscale_factor}"


class ChannelShuffle(Module):
    """(N, g k, ...) with channels regrouped as (N, k g, ...)."""

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups

    def forward(self, input: Tensor) -> Tensor:
        return F.channel_shuffle(input, self.groups)

    def extra_repr(self) -> str:
        return f"groups={self.groups}"
