"""Two devices to test with: ``ref`` computes, slowly and on its own memory; ``null`` never does.

``ref`` keeps tensors in memory that the host path cannot see, so that what forgets to copy, or takes
a device tensor for a numpy array, fails on any machine. It has kernels for a few operators; the rest
decomposes or falls back. There are two of it. ``null`` accepts every operator and leaves all results
undefined (zeros): what remains is the cost of dispatch and the pattern of allocations.

Both are marked ``debug``: ``mortice list-backends --all`` shows them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mortice.backend import DeviceRuntime, Features, hookimpl

Kernel = Callable[..., None]


# -- ref ---------------------------------------------------------------------------------------


def _seen(array: Any) -> np.ndarray[Any, Any]:
    """A DeviceArray of ref as a numpy array over its bytes."""
    item = array.dtype.itemsize
    return np.ndarray(
        tuple(array.shape), array.dtype.numpy, array.buffer.value, array.offset * item,
        tuple(step * item for step in array.strides),
    )  # fmt: skip


def _elementwise(compute: Callable[..., Any]) -> Kernel:
    """A kernel that writes ``compute(*inputs)`` to its last argument."""

    def kernel(*arguments: Any) -> None:
        *inputs, out = (_seen(a) if hasattr(a, "buffer") else a for a in arguments)
        out[...] = compute(*inputs)

    return kernel


# Operator -> what it computes, with the schema's arguments in order.
_REF: dict[str, Kernel] = {
    "neg": _elementwise(np.negative),
    "abs": _elementwise(np.abs),
    "exp": _elementwise(np.exp),
    "tanh": _elementwise(np.tanh),
    "relu": _elementwise(lambda x: np.maximum(x, 0)),
    "add.Tensor": _elementwise(lambda x, y, alpha: x + alpha * y),
    "sub.Tensor": _elementwise(lambda x, y, alpha: x - alpha * y),
    "mul.Tensor": _elementwise(np.multiply),
    "mm": _elementwise(np.matmul),
    "bmm": _elementwise(np.matmul),
}


class RefFeatures(Features):
    """Kernels see any strides and numbers; ordinary memory lives on in a forked child."""

    strided = True
    numbers = True
    fork = "keep"


class RefDevice(DeviceRuntime):
    """Device ``ref``: two devices of ordinary memory, and kernels in plain numpy."""

    features = RefFeatures

    def __init__(self) -> None:
        self.live = 0  # bytes allocated and not freed

    def count(self) -> int:
        """Two, so that copies between devices of one type are tested as well."""
        return 2

    def allocate(self, nbytes: int, index: int) -> Any:
        """A bytearray; its bytes are 0xa5, so that reading what was never written shows."""
        self.live += nbytes
        return bytearray(b"\xa5" * nbytes)

    def free(self, buffer: Any) -> None:
        self.live -= len(buffer)

    def copy_in(self, buffer: Any, offset: int, data: memoryview) -> None:
        buffer[offset : offset + data.nbytes] = data.cast("B")

    def copy_out(self, buffer: Any, offset: int, data: memoryview) -> None:
        data.cast("B")[:] = buffer[offset : offset + data.nbytes]

    def copy_device(
        self, target: Any, target_offset: int, source: Any, source_offset: int, nbytes: int
    ) -> None:
        moved = bytes(source[source_offset : source_offset + nbytes])  # the two may be one
        target[target_offset : target_offset + nbytes] = moved

    def synchronize(self, index: int) -> None:
        """Nothing to wait for: kernels run when called."""

    def kernel(self, op: str, dtypes: tuple[Any, ...]) -> Kernel | None:
        """A kernel if all tensors are of one floating dtype that numpy has; else None."""
        if len(set(dtypes)) != 1 or dtypes[0].name not in ("float32", "float64"):
            return None
        return _REF.get(op)


# -- null --------------------------------------------------------------------------------------


def _nothing(*arguments: Any) -> None:
    """The kernel of every operator."""


class NullFeatures(Features):
    """Nothing is computed, and there is nothing that a child could not keep."""

    strided = True
    numbers = True
    fork = "keep"
    computes = False


class NullDevice(DeviceRuntime):
    """Device ``null``: memory of no bytes, kernels that do nothing, results that are zeros."""

    features = NullFeatures

    def __init__(self) -> None:
        self.live = 0

    def count(self) -> int:
        return 1

    def allocate(self, nbytes: int, index: int) -> Any:
        self.live += nbytes
        return nbytes

    def free(self, buffer: Any) -> None:
        self.live -= buffer

    def copy_in(self, buffer: Any, offset: int, data: memoryview) -> None:
        """Data is dropped."""

    def copy_out(self, buffer: Any, offset: int, data: memoryview) -> None:
        data.cast("B")[:] = bytes(data.nbytes)

    def copy_device(
        self, target: Any, target_offset: int, source: Any, source_offset: int, nbytes: int
    ) -> None:
        """Nothing is copied."""

    def synchronize(self, index: int) -> None:
        """Nothing to wait for."""

    def kernel(self, op: str, dtypes: tuple[Any, ...]) -> Kernel | None:
        return _nothing


DEVICES: dict[str, type[DeviceRuntime]] = {"ref": RefDevice, "null": NullDevice}


@hookimpl
def mortice_device(name: str) -> type[DeviceRuntime]:
    """The runtime class for ``ref`` or ``null``."""
    return DEVICES[name]
