"""The handle of a tensor that is not on the host: a buffer seen through sizes and strides."""

from __future__ import annotations

from typing import Any

from mortice._base.errors import InvalidState
from mortice._types.device import Device
from mortice._types.dtypes import DType
from mortice._types.shapes import Shape, contiguous_strides, numel

_new = object.__new__


class _Shaped:
    """What follows from sizes and dtype."""

    __slots__ = ()

    shape: Shape
    dtype: DType

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return numel(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements (not of the buffer)."""
        return numel(self.shape) * self.dtype.itemsize


class DeviceArray(_Shaped):
    """Sizes, strides and offset (in elements) over a device's buffer.

    ``buffer`` is whatever the device's runtime allocates; None on device ``meta`` and in tensors
    without data, whose sizes may be symbolic.
    """

    __slots__ = ("__weakref__", "buffer", "device", "dtype", "offset", "shape", "strides")

    buffer: Any
    strides: Shape
    offset: int
    device: Device

    def __init__(
        self,
        buffer: Any,
        shape: Shape,
        dtype: DType,
        device: Device,
        strides: Shape | None = None,
        offset: int = 0,
    ) -> None:
        self.buffer = buffer
        self.shape = shape
        self.strides = contiguous_strides(shape) if strides is None else strides
        self.offset = offset
        self.dtype = dtype
        self.device = device

    def restride(
        self, shape: Shape, strides: Shape, offset: int, dtype: DType | None = None
    ) -> DeviceArray:
        """The same buffer seen differently."""
        return DeviceArray(self.buffer, shape, dtype or self.dtype, self.device, strides, offset)

    def __repr__(self) -> str:
        return f"<DeviceArray {tuple(self.shape)} {self.dtype.name} on {self.device}>"


class PendingArray(_Shaped):
    """The handle of a tensor that a compiled call has recorded and not computed yet.

    Sizes and strides are known (in elements, as for a DeviceArray); there is no memory. ``home`` is
    the tree that the call is recorded in, which knows how to compute it. ``start`` is where it begins
    in what it is a view of, if that is a tensor in memory, and in its own memory otherwise.
    """

    __slots__ = (
        "__weakref__", "device", "dtype", "home", "output", "shape", "start", "strides",
    )  # fmt: skip

    def __init__(
        self,
        home: Any,
        shape: Shape,
        dtype: DType,
        device: Device,
        strides: Shape | None = None,
        start: int = 0,
    ) -> None:
        self.home = home
        self.output: Any = None
        self.shape = shape
        self.strides = contiguous_strides(shape) if strides is None else strides
        self.start = start
        self.dtype = dtype
        self.device = device

    @property
    def offset(self) -> int:
        """Where it begins in its memory, in elements."""
        return self.start if self.output is None else self.start + self.output.moved()

    @property
    def buffer(self) -> Any:
        """InvalidState: whoever reads memory brings it up to date first, and this cannot be."""
        if self.home.recorder is not None:
            self.home.recorder.flush()
        raise InvalidState("the tensor has no value: the compiled call that made it has ended.")

    def __repr__(self) -> str:
        return f"<PendingArray {tuple(self.shape)} {self.dtype.name} on {self.device}>"
