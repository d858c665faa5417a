"""The bytes of a checkpoint's storages: read, or mapped, and in this machine's byte order."""

from __future__ import annotations

import mmap as mmap_module
import sys
from typing import Any

import numpy as np

from mortice.serialization import options
from mortice.serialization.checkpoint import Checkpoint
from mortice.serialization.specs import StorageRef

_PAGED = 32 << 20


def _new_memory(nbytes: int) -> np.ndarray:
    """Memory for a storage.

    Large ones by pages of the usual size: numpy asks for huge pages, which the kernel may first have
    to make by moving others (2 s for a GiB on a machine whose memory is full of cached files).
    """
    if nbytes < _PAGED or not hasattr(mmap_module, "MAP_ANONYMOUS"):
        return np.empty(nbytes, np.uint8)
    flags = mmap_module.MAP_PRIVATE | mmap_module.MAP_ANONYMOUS
    return np.frombuffer(mmap_module.mmap(-1, nbytes, flags=flags), np.uint8)


class StorageReader:
    """The bytes of a checkpoint's storages as uint8 arrays, in this machine's byte order."""

    def __init__(self, checkpoint: Checkpoint, *, mapped: bool, verify: bool) -> None:
        self._checkpoint = checkpoint
        self._verify = verify
        self._swap = checkpoint.big != (sys.byteorder == "big")
        self._mapping: Any = None
        if mapped:
            self._mapping = checkpoint.source.map(not options.shares_mappings())

    def read(self, ref: StorageRef) -> np.ndarray:
        """The bytes of one storage: read, mapped, or zero under `skip_data`."""
        if options.skipping() is not None:
            return np.zeros(ref.nbytes, np.uint8)
        buffer = self._mapped(ref) if self._mapping is not None else None
        if buffer is None:
            buffer = _new_memory(ref.nbytes)
            self._checkpoint.read_storage(ref, buffer.data, self._verify)
        if self._swap and ref.unit > 1:
            # Into a copy where the memory may be the file's.
            inplace = self._mapping is None
            buffer = self._swapped(buffer, ref.unit, inplace)
        elif self._swap and ref.unit < 0:
            raise self._checkpoint.at(
                ref.at,
                f"storage {ref.key!r} in foreign byte order is used with elements of several sizes",
                "Save its tensors as copies of each other: tensor.clone().",
            )
        return buffer

    def _swapped(self, buffer: np.ndarray, unit: int, inplace: bool) -> np.ndarray:
        whole = buffer.size // unit * unit
        words = buffer[:whole].view(f"u{unit}")
        if inplace:
            words.byteswap(inplace=True)
            return buffer
        copy = np.array(buffer)
        copy[:whole] = words.byteswap().view(np.uint8)
        return copy

    def _mapped(self, ref: StorageRef) -> np.ndarray | None:
        at = self._checkpoint.place_of(ref)
        # Compressed data cannot be mapped, and elements that straddle their alignment are slow or
        # worse; both are read instead.
        if at is None or at % max(1, ref.unit) or not ref.nbytes:
            return None
        buffer = np.frombuffer(self._mapping, np.uint8, ref.nbytes, at)
        if self._verify:
            self._checkpoint.verify_mapped(ref, buffer.data)
        return buffer
