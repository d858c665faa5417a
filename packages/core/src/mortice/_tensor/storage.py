"""The memory behind tensors that share it, with one version counter.

A Storage comes into being at the first view, detach, in-place write or save of an output for
backward; tensors that nobody shares never pay for one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mortice._base.errors import FakeTensorError, InvalidState
from mortice._dispatch.state import GLOBAL
from mortice._types.device import CPU, Device

_new = object.__new__
BY_ADDRESS = "by address"


class Storage:
    """Bytes on one device.

    Attributes:
        root: what owns the bytes: a numpy array on the host, else the device's buffer; None for
            meta storages.
        version: count of in-place writes; autograd compares it with the version at save time.
        epoch: count of in-place writes that gave the viewed tensor a new gradient history.
        device: where the bytes are.
        pending: the recorder of a compiled call that is yet to read or write the bytes, or None.
        owner: the storage whose memory this one shares without sharing its version (``.data``).
        exported: whether somebody outside may write to the bytes: True where they hold the memory
            (numpy, DLPack), ``BY_ADDRESS`` where they only know where it is.
    """

    __slots__ = (
        "__weakref__", "_bytes", "_nbytes", "device", "epoch", "exported", "owner", "pending",
        "root", "version",
    )  # fmt: skip

    root: Any
    _bytes: np.ndarray[Any, Any] | None
    _nbytes: int | None
    version: int
    epoch: int
    device: Device
    pending: Any
    owner: Storage | None
    exported: bool | str

    def nbytes(self) -> int:
        """Size in bytes."""
        if self._nbytes is None:
            self._nbytes = self.host_bytes().nbytes
        return self._nbytes

    def bytes(self) -> np.ndarray[Any, Any]:
        """All bytes of a host storage as a 1-d uint8 array that shares the memory."""
        if GLOBAL.watch:
            GLOBAL.settle(self, "storage")
        return self.host_bytes()

    def host_bytes(self) -> np.ndarray[Any, Any]:
        """As ``bytes``, whatever a compiled call is yet to write to them."""
        if self._bytes is None:
            if self.device is not CPU:
                raise InvalidState(
                    f"the bytes of a storage on {self.device} cannot be read on the host. Copy "
                    "the tensor with .cpu() first."
                )
            if self.root is None:
                raise FakeTensorError(
                    "the storage of a fake tensor has no bytes. Do what needs them on the real "
                    "tensor, outside the FakeTensorMode."
                )
            self._bytes = root_bytes(self.root)
        return self._bytes

    def data_ptr(self) -> int:
        """Address of the first byte; 0 for meta storages."""
        if self.device.type == "meta":
            return 0
        if self.device is CPU:
            self.exported = BY_ADDRESS
            return int(self.bytes().__array_interface__["data"][0])
        return int(self.root.address)

    def size(self) -> int:
        return self.nbytes()

    def __new__(cls, nbytes: int = 0, *, device: Any = "cpu") -> Storage:
        if Device(device) is CPU:
            return host_storage(np.zeros(nbytes, np.uint8))
        from mortice._tensor.make import empty, storage_of
        from mortice._types.dtypes import uint8

        return storage_of(empty((nbytes,), uint8, Device(device)))

    def __len__(self) -> int:
        return self.nbytes()

    def __getitem__(self, index: Any) -> Any:
        """One byte as an integer, or a storage over a slice of the bytes."""
        found = self.bytes()[index]
        return host_storage(found) if isinstance(index, slice) else int(found)

    def __setitem__(self, index: Any, value: Any) -> None:
        self.bytes()[index] = value.bytes() if isinstance(value, Storage) else value
        self.version += 1

    def tolist(self) -> list[int]:
        """All bytes as integers."""
        return self.bytes().tolist()

    def fill_(self, value: int) -> Storage:
        """Set every byte."""
        self.bytes()[...] = value
        self.version += 1
        return self

    def copy_(self, source: Storage, non_blocking: bool = False) -> Storage:
        """Copy the bytes of another storage of the same size."""
        from mortice._tensor.make import from_storage
        from mortice._types.dtypes import uint8

        if source.nbytes() != self.nbytes():
            raise InvalidState(
                f"copy_(): the storage has {self.nbytes()} bytes, the source {source.nbytes()}."
            )
        n = (self.nbytes(),)
        from_storage(self, uint8, n).copy_(from_storage(source, uint8, n))
        return self

    def cpu(self) -> Storage:
        """A storage on the host with the same bytes; itself if it is there."""
        if self.device is CPU:
            return self
        from mortice._tensor.copying import storage_bytes

        return host_storage(storage_bytes(self))

    def to(self, *, device: Any, non_blocking: bool = False) -> Storage:
        """A storage on another device with the same bytes; itself if it is there."""
        if Device(device) is self.device:
            return self
        made = Storage(self.nbytes(), device=device)
        return made.copy_(self)

    def resize_(self, nbytes: int) -> None:
        """Give the storage more or fewer bytes, keeping those that fit; its tensors follow."""
        from mortice._tensor.sharing import replace_memory

        if self.device is not CPU:
            if self.root is not None:
                self.root.resize(nbytes)
            self._nbytes = nbytes
            return
        have = self.bytes()
        memory = np.empty(nbytes, np.uint8)
        kept = min(nbytes, have.nbytes)
        memory[:kept] = have[:kept]
        replace_memory(self, memory)

    def is_shared(self) -> bool:
        """Whether the bytes are in memory that other processes can see."""
        from mortice._tensor.sharing import shared_fd

        return self.device is not CPU or shared_fd(self) is not None

    def share_memory_(self) -> Storage:
        """Move the bytes to memory that other processes can see."""
        from mortice._tensor.sharing import share

        share(self)
        return self

    def element_size(self) -> int:
        return 1

    def untyped(self) -> Storage:
        return self

    @property
    def is_cuda(self) -> bool:
        return self.device.type == "cuda"

    @property
    def filename(self) -> str | None:
        return None

    def __repr__(self) -> str:
        return f"<Storage of {self.nbytes()} bytes on {self.device}, version {self.version}>"


def host_storage(array: np.ndarray[Any, Any]) -> Storage:
    """The storage of a host array that has had none so far."""
    s = _new(Storage)
    s.root = array
    s.version = 0
    s.epoch = 0
    s.device = CPU
    s.pending = None
    s.owner = None
    s.exported = False
    s._bytes = None  # pyright: ignore[reportPrivateUsage]
    s._nbytes = None  # pyright: ignore[reportPrivateUsage]
    return s


def device_storage(buffer: Any, nbytes: int, device: Device) -> Storage:
    s = _new(Storage)
    s.root = buffer
    s.version = 0
    s.epoch = 0
    s.device = device
    s.pending = None
    s.owner = None
    s.exported = False
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
