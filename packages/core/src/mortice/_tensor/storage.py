"""The memory behind tensors that share it, with one version counter.

A Storage comes into being at the first view, detach, in-place write or save of an output for
backward; tensors that nobody shares never pay for one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mortice._base.errors import InvalidState
from mortice._types.device import CPU, Device

_new = object.__new__


class Storage:
    """Bytes on one device.

    Attributes:
        root: what owns the bytes: a numpy array on the host, else the device's buffer; None for
            meta storages.
        version: count of in-place writes; autograd compares it with the version at save time.
        epoch: count of in-place writes that gave the viewed tensor a new gradient history.
        device: where the bytes are.
    """

    __slots__ = ("__weakref__", "_bytes", "_nbytes", "device", "epoch", "root", "version")

    root: Any
    version: int
    epoch: int
    device: Device

    def nbytes(self) -> int:
        """Size in bytes."""
        if self._nbytes is None:
            self._nbytes = self.bytes().nbytes
        return self._nbytes

    def bytes(self) -> np.ndarray[Any, Any]:
        """All bytes of a host storage as a 1-d uint8 array that shares the memory."""
        if self._bytes is None:
            if self.device is not CPU:
                raise InvalidState(
                    f"the bytes of a storage on {self.device} cannot be read on the host. Copy "
                    "the tensor with .cpu() first."
                )
            self._bytes = root_bytes(self.root)
        return self._bytes

    def data_ptr(self) -> int:
        """Address of the first byte; 0 for meta storages."""
        if self.device.type == "meta":
            return 0
        if self.device is CPU:
            return int(self.bytes().__array_interface__["data"][0])
        return int(self.root.address)

    def size(self) -> int:
        return self.nbytes()

    def __len__(self) -> int:
        return self.nbytes()

    def __repr__(self) -> str:
        return f"<Storage of {self.nbytes()} bytes on {self.device}, version {self.version}>"


def host_storage(array: np.ndarray[Any, Any]) -> Storage:
    """The storage of a host array that has had none so far."""
    s = _new(Storage)
    s.root = array
    s.version = 0
    s.epoch = 0
    s.device = CPU
    s._bytes = None  # pyright: ignore[reportPrivateUsage]
    s._nbytes = None  # pyright: ignore[reportPrivateUsage]
    return s


def device_storage(buffer: Any, nbytes: int, device: Device) -> Storage:
    s = _new(Storage)
    s.root = buffer
    s.version = 0
    s.epoch = 0
    s.device = device
    s._bytes = None  # pyright: ignore[reportPrivateUsage]
    s._nbytes = nbytes  # pyright: ignore[reportPrivateUsage]
    return s


class _Memory:
    """Presents an address range to numpy and keeps its owner alive."""

    __slots__ = ("__array_interface__", "owner")

    def __init__(self, address: int, nbytes: int, read_only: bool, owner: Any) -> None:
        self.owner = owner
        self.__array_interface__ = {
            "version": 3,
            "data": (address, read_only),
            "shape": (nbytes,),
            "typestr": "|u1",
        }


def root_bytes(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The bytes from the first to the last element of ``array``, gaps included, as uint8."""
    if array.flags.c_contiguous and array.size:
        return array.reshape(-1).view(np.uint8)
    address, read_only = array.__array_interface__["data"]
    nbytes = 0
    if array.size:
        last = sum((n - 1) * s for n, s in zip(array.shape, array.strides))
        nbytes = last + array.itemsize
    if not nbytes:
        return np.empty(0, np.uint8)
    return np.asarray(_Memory(address, nbytes, read_only, array))
