"""The device ``tenon``: two of them, in ordinary memory that only this module touches."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from mortice.backend import DeviceArray, DeviceRuntime, hookimpl

if TYPE_CHECKING:
    from collections.abc import Callable

#: How often each operator ran here; `mortice tenon-info` shows it, and so do the tests.
LAUNCHES: Counter[str] = Counter()


class Tenon(DeviceRuntime):
    """Buffers are bytearrays. Kernels see contiguous arrays, as ``Features.strided`` is false."""

    def count(self) -> int:
        return 2

    def allocate(self, nbytes: int, index: int) -> bytearray:
        return bytearray(nbytes)

    def copy_in(self, buffer: bytearray, offset: int, data: memoryview) -> None:
        buffer[offset : offset + data.nbytes] = data.cast("B")

    def copy_out(self, buffer: bytearray, offset: int, data: memoryview) -> None:
        data.cast("B")[:] = buffer[offset : offset + data.nbytes]

    def synchronize(self, index: int) -> None:
        """Nothing runs in the background here."""

    def kernel(self, op: str, dtypes: tuple[Any, ...]) -> Callable[..., None] | None:
        if any(dtype.numpy is None for dtype in dtypes):
            return None
        return KERNELS.get(op)


def memory(array: DeviceArray) -> np.ndarray[Any, Any]:
    """A buffer as this device's arithmetic sees it."""
    flat = np.frombuffer(array.buffer.value, array.dtype.numpy)
    return flat[array.offset : array.offset + array.size].reshape(array.shape)


def add(self: DeviceArray, other: DeviceArray, alpha: float, out: DeviceArray) -> None:
    LAUNCHES["add.Tensor"] += 1
    np.add(memory(self), np.multiply(memory(other), alpha), out=memory(out), casting="unsafe")


def relu(self: DeviceArray, out: DeviceArray) -> None:
    LAUNCHES["relu"] += 1
    np.maximum(memory(self), 0, out=memory(out))


KERNELS = {"add.Tensor": add, "relu": relu}


@hookimpl
def mortice_device(name: str) -> type[Tenon]:
    return Tenon
