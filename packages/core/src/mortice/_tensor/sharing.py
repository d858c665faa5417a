"""Host storages in memory that several processes see.

The memory is an unnamed file: its descriptor is handed to the other process, so nothing has to be
cleaned up, whoever ends first. Where descriptors cannot be passed (Windows), workers get copies.
"""

from __future__ import annotations

import gc
import mmap
import os
import weakref
from typing import Any

import numpy as np

from mortice._base.errors import DeviceError
from mortice._tensor import make
from mortice._tensor.storage import Storage, host_storage
from mortice._types.device import CPU


class _Descriptor:
    """Closes a file descriptor with the last storage that needs it."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self, close: Any = os.close) -> None:
        close(self.number)


_descriptors: weakref.WeakKeyDictionary[Storage, _Descriptor] = weakref.WeakKeyDictionary()


def shared_fd(storage: Storage) -> int | None:
    """The descriptor of a storage's shared memory, or None."""
    found = _descriptors.get(storage)
    return None if found is None else found.number


def share(storage: Storage) -> None:
    """Move a host storage into shared memory; all its tensors move with it.

    numpy arrays that were taken of it before keep the old memory.
    """
    if storage.device is not CPU:
        raise DeviceError(f"share_memory_(): a storage on {storage.device} cannot be shared.")
    if shared_fd(storage) is not None or not storage.nbytes():
        return
    descriptor = _Descriptor(_new_file(storage.nbytes()))
    memory = _mapped(descriptor.number, storage.nbytes())
    memory[...] = storage.bytes()
    replace_memory(storage, memory)
    _descriptors[storage] = descriptor


def replace_memory(storage: Storage, memory: np.ndarray[Any, Any]) -> None:
    """Let a storage and all tensors over it see other bytes, of which there must be enough."""
    views: list[tuple[Any, int]] = [
        (owner, owner.storage_offset())
        for owner in gc.get_referrers(storage)
        if getattr(owner, "_s", None) is storage and hasattr(owner, "_a")
    ]
    geometry = [(t, tuple(t.shape), t.stride(), offset) for t, offset in views]
    storage.root = memory
    storage.exported = True
    storage._bytes = memory  # pyright: ignore[reportPrivateUsage]
    storage._nbytes = memory.nbytes  # pyright: ignore[reportPrivateUsage]
    for t, shape, stride, offset in geometry:
        if (make.storage_extent(shape, stride, offset)) * t._t.itemsize > memory.nbytes:
            # A storage that was emptied: the tensor keeps its sizes and must not be read.
            continue
        t._a = make.host_array(storage, t._t, shape, stride, offset)


def _new_file(nbytes: int) -> int:
    if hasattr(os, "memfd_create"):
        number = os.memfd_create("mortice", getattr(os, "MFD_CLOEXEC", 0))
    else:
        import tempfile

        with tempfile.TemporaryFile() as file:
            number = os.dup(file.fileno())
    os.ftruncate(number, nbytes)
    return number


def _mapped(number: int, nbytes: int) -> np.ndarray[Any, Any]:
    return np.frombuffer(mmap.mmap(number, nbytes), np.uint8)


def reduce_for_worker(storage: Storage) -> Any:
    """How a storage travels to another process: as a descriptor, or as its bytes."""
    if storage.device is not CPU or not storage.nbytes() or os.name == "nt":
        return storage.__reduce__()
    from multiprocessing.reduction import DupFd

    share(storage)
    number = shared_fd(storage)
    assert number is not None
    return _from_descriptor, (DupFd(number), storage.nbytes())


def _from_descriptor(descriptor: Any, nbytes: int) -> Storage:
    held = _Descriptor(descriptor.detach())
    storage = host_storage(_mapped(held.number, nbytes))
    _descriptors[storage] = held
    return storage
