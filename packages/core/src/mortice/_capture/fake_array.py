"""The handle of a fake tensor, and telling fake tensors from real ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mortice._dispatch import keys as K
from mortice._tensor.array import DeviceArray
from mortice._types.device import Device
from mortice._types.dtypes import DType
from mortice._types.shapes import Shape

if TYPE_CHECKING:
    from mortice._capture.fake import FakeTensorMode


class FakeArray(DeviceArray):
    """The handle of a fake tensor: a DeviceArray without a buffer that knows its mode.

    ``constant``: (real tensor, version of the fake's storage) where the values are known, which
    holds while the storage has that version.
    """

    __slots__ = ("constant", "mode")

    mode: FakeTensorMode
    constant: tuple[Any, int] | None

    def __init__(
        self,
        mode: FakeTensorMode,
        shape: Shape,
        dtype: DType,
        device: Device,
        strides: Shape | None = None,
        offset: int = 0,
    ) -> None:
        super().__init__(None, shape, dtype, device, strides, offset)
        self.mode = mode
        self.constant = None

    def restride(
        self, shape: Shape, strides: Shape, offset: int, dtype: DType | None = None
    ) -> FakeArray:
        """The same storage seen differently."""
        return FakeArray(self.mode, shape, dtype or self.dtype, self.device, strides, offset)

    def __repr__(self) -> str:
        return f"<FakeArray {tuple(self.shape)} {self.dtype.name} on {self.device}>"


def is_fake(value: Any) -> bool:
    """Whether a value is a fake tensor."""
    return bool(getattr(value, "_k", 0) & K.FAKE)


def mode_of(value: Any) -> FakeTensorMode | None:
    """The mode that a fake tensor, or the first in nested lists and tuples, belongs to; or None."""
    keys = getattr(value, "_k", None)
    if keys is not None:
        return value._a.mode if keys & K.FAKE else None
    if isinstance(value, (list, tuple)):
        for item in value:  # pyright: ignore[reportUnknownVariableType]
            found = mode_of(item)
            if found is not None:
                return found
    return None


def is_real(value: Any) -> bool:
    """Whether a value is a tensor with data, or on device meta."""
    return (
        hasattr(value, "_k")
        and not value._k & K.FAKE
        and isinstance(value._a, (np.ndarray, DeviceArray))
    )


def constant_of(t: Any) -> Any:
    """The real tensor with the values of a fake one, where they are known; else None."""
    found = t._a.constant
    return found[0] if found is not None and t._version == found[1] else None
