"""Convolutions and transposed convolutions."""

from __future__ import annotations

import math
from typing import Any

import mortice
from mortice import Tensor
from mortice.errors import InvalidValue, ShapeError
from mortice_nn import functional as F
from mortice_nn import init
from mortice_nn.modules.module import Module
from mortice_nn.parameter import Parameter

PADDING_MODES = ("zeros", "reflect", "replicate", "circular")


def ntuple(value: Any, n: int) -> tuple[int, ...]:
    """One number stands for n."""
    return tuple(value) if not isinstance(value, int) else (value,) * n


class _ConvNd(Module):
    """What all convolutions share; ``n`` is the number of spatial dimensions."""

    n: int
    transposed = False

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        n = self.n
        _check_channels(in_channels, out_channels, groups)
        if padding_mode not in PADDING_MODES:
            raise InvalidValue(
                f"padding_mode must be one of {PADDING_MODES}, but got padding_mode={padding_mode!r}"
            )
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = ntuple(kernel_size, n)
        self.stride = ntuple(stride, n)
        self.padding = padding if isinstance(padding, str) else ntuple(padding, n)
        self.dilation = ntuple(dilation, n)
        self.output_padding = (0,) * n
        self.groups = groups
        self.padding_mode = padding_mode
        self._pads = self._pads_both_sides()
        weight = (
            (in_channels, out_channels // groups)
            if self.transposed
            else (out_channels, in_channels // groups)
        )
        self.weight = Parameter(
            mortice.empty((*weight, *self.kernel_size), device=device, dtype=dtype)
        )
        if bias:
            self.bias = Parameter(mortice.empty(out_channels, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def _pads_both_sides(self) -> list[int]:
        """``padding`` as ``F.pad`` takes it, last dimension first."""
        if isinstance(self.padding, tuple):
            return [p for p in reversed(self.padding) for _ in range(2)]
        if self.padding == "valid":
            return [0] * (2 * self.n)
        if self.padding != "same":
            raise InvalidValue(
                f"Invalid padding string {self.padding!r}, should be one of 'valid', 'same'"
            )
        if any(s != 1 for s in self.stride):
            raise InvalidValue("padding='same' is not supported for strided convolutions")
        pads: list[int] = []
        for d, k in zip(reversed(self.dilation), reversed(self.kernel_size), strict=True):
            total = d * (k - 1)
            pads += [total // 2, total - total // 2]
        return pads

    def reset_parameters(self) -> None:
        """Both uniform in +-1 / sqrt(fan_in)."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in, _ = init.fan_in_and_out(self.weight)
            if fan_in != 0:
                bound = 1 / math.sqrt(fan_in)
                init.uniform_(self.bias, -bound, bound)

    def _conv_forward(self, function: Any, input: Tensor) -> Tensor:
        padding: Any = self.padding
        if self.padding_mode != "zeros":
            input = F.pad(input, self._pads, mode=self.padding_mode)
            padding = 0
        return function(
            input, self.weight, self.bias, self.stride, padding, self.dilation, self.groups
        )

    def extra_repr(self) -> str:
        parts = [
            f"{self.in_channels}, {self.out_channels}",
            f"kernel_size={self.kernel_size}, stride={self.stride}",
        ]
        zero = (0,) * self.n
        if self.padding != zero:
            shown = repr(self.padding) if isinstance(self.padding, tuple) else self.padding
            parts.append(f"padding={shown}")
        if self.dilation != (1,) * self.n:
            parts.append(f"dilation={self.dilation}")
        if self.output_padding != zero:
            parts.append(f"output_padding={self.output_padding}")
        if self.groups != 1:
            parts.append(f"groups={self.groups}")
        if self.bias is None:
            parts.append("bias=False")
        if self.padding_mode != "zeros":
            parts.append(f"padding_mode={self.padding_mode}")
        return ", ".join(parts)


def _check_channels(in_channels: int, out_channels: int, groups: int) -> None:
    if groups <= 0:
        raise InvalidValue(f"groups must be a positive integer, found {groups}")
    for name, channels in (("in_channels", in_channels), ("out_channels", out_channels)):
        if channels % groups:
            raise InvalidValue(f"{name} must be divisible by groups; found {channels} and {groups}")


class Conv1d(_ConvNd):
    """(N, C, L) or (C, L); weight (out, C / groups, k)."""

    n = 1

    def forward(self, input: Tensor) -> Tensor:
        return self._conv_forward(F.conv1d, input)


class Conv2d(_ConvNd):
    """(N, C, H, W) or (C, H, W); weight (out, C / groups, kh, kw)."""

    n = 2

    def forward(self, input: Tensor) -> Tensor:
        return self._conv_forward(F.conv2d, input)


class Conv3d(_ConvNd):
    """(N, C, D, H, W) or (C, D, H, W); weight (out, C / groups, kd, kh, kw)."""

    n = 3

    def forward(self, input: Tensor) -> Tensor:
        return self._conv_forward(F.conv3d, input)


class _ConvTransposeNd(_ConvNd):
    transposed = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Any = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if padding_mode != "zeros":
            raise InvalidValue(
                f"Only 'zeros' padding mode is supported for {type(self).__name__}, found "
                f"{padding_mode!r}"
            )
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            groups,
            bias,
            padding_mode,
            device,
            dtype,
        )
        self.output_padding = ntuple(output_padding, self.n)

    def _transpose_forward(self, function: Any, input: Tensor, output_size: Any) -> Tensor:
        extra = self._output_padding(input, output_size)
        return function(
            input,
            self.weight,
            self.bias,
            self.stride,
            self.padding,
            extra,
            self.groups,
            self.dilation,
        )

    def _output_padding(self, input: Tensor, output_size: Any) -> tuple[int, ...]:
        """What makes the output exactly ``output_size``; several sizes give the same input."""
        if output_size is None:
            return self.output_padding
        n = self.n
        wanted = list(output_size)
        if len(wanted) not in (n, input.ndim):
            raise InvalidValue(
                f"{type(self).__name__}: output_size must have {n} or {input.ndim} elements, found "
                f"{len(wanted)}"
            )
        wanted = wanted[-n:]
        extra: list[int] = []
        for i in range(n):
            assert isinstance(self.padding, tuple)
            smallest = (
                (input.shape[input.ndim - n + i] - 1) * self.stride[i]
                - 2 * self.padding[i]
                + self.dilation[i] * (self.kernel_size[i] - 1)
                + 1
            )
            if not smallest <= wanted[i] < smallest + self.stride[i]:
                raise InvalidValue(
                    f"requested an output size of {wanted}, but size {i} must be from {smallest} "
                    f"to {smallest + self.stride[i] - 1} for an input of {tuple(input.shape)}"
                )
            extra.append(wanted[i] - smallest)
        return tuple(extra)


class ConvTranspose1d(_ConvTransposeNd):
    """(N, C, L) or (C, L); weight (C, out / groups, k)."""

    n = 1

    def forward(self, input: Tensor, output_size: Any = None) -> Tensor:
        return self._transpose_forward(F.conv_transpose1d, input, output_size)


class ConvTranspose2d(_ConvTransposeNd):
    """(N, C, H, W) or (C, H, W); weight (C, out / groups, kh, kw)."""

    n = 2

    def forward(self, input: Tensor, output_size: Any = None) -> Tensor:
        return self._transpose_forward(F.conv_transpose2d, input, output_size)


class ConvTranspose3d(_ConvTransposeNd):
    """(N, C, D, H, W) or (C, D, H, W); weight (C, out / groups, kd, kh, kw)."""

    n = 3

    def forward(self, input: Tensor, output_size: Any = None) -> Tensor:
        return self._transpose_forward(F.conv_transpose3d, input, output_size)


class Unfold(Module):
    """Patches as columns; see ``functional.unfold``."""

    def __init__(
        self, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.dilation = dilation
        self.padding = padding
        self.stride = stride

    def forward(self, input: Tensor) -> Tensor:
        return F.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, dilation={self.dilation}, padding={self.padding}, "
            f"stride={self.stride}"
        )


class Fold(Module):
    """Columns summed back to an image; see ``functional.fold``."""

    def __init__(
        self,
        output_size: Any,
        kernel_size: Any,
        dilation: Any = 1,
        padding: Any = 0,
        stride: Any = 1,
    ) -> None:
        super().__init__()
        self.output_size = output_size
        self.kernel_size = kernel_size
        self.dilation = dilation
        self.padding = padding
        self.stride = stride

    def forward(self, input: Tensor) -> Tensor:
        if input.ndim not in (2, 3):
            raise ShapeError(f"Fold expects a 2-d or 3-d input, found {tuple(input.shape)}")
        return F.fold(
            input, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride
        )

    def extra_repr(self) -> str:
        return (
            f"output_size={self.output_size}, kernel_size={self.kernel_size}, "
            f"dilation={self.dilation}, padding={self.padding}, stride={self.stride}"
        )
