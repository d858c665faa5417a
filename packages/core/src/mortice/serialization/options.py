"""Defaults of load and save that a process or a block can change."""

from __future__ import annotations

import enum
import mmap as _mmap
import threading
from typing import Any

from mortice.errors import InvalidValue


class LoadEndianness(enum.Enum):
    """Byte order assumed for files that do not say theirs."""

    NATIVE = 1
    LITTLE = 2
    BIG = 3


class _Options:
    __slots__ = ("checksums", "endianness", "mmap_flags")

    def __init__(self) -> None:
        self.endianness: LoadEndianness | None = None
        self.checksums = True
        # Windows has no flags for mappings; 2 is MAP_PRIVATE everywhere else.
        self.mmap_flags: int = getattr(_mmap, "MAP_PRIVATE", 2)


_options = _Options()
_local = threading.local()


def get_default_load_endianness() -> LoadEndianness | None:
    """The byte order assumed for files that do not say theirs; None means little."""
    return _options.endianness


def set_default_load_endianness(endianness: LoadEndianness | None) -> None:
    """Change `get_default_load_endianness`. Raises InvalidValue for anything else."""
    if endianness is not None and not isinstance(endianness, LoadEndianness):
        raise InvalidValue(f"expected a LoadEndianness or None, not {endianness!r}.")
    _options.endianness = endianness


def get_crc32_options() -> bool:
    """Whether save computes checksums."""
    return _options.checksums


def set_crc32_options(compute_crc32: bool) -> None:
    """Whether save computes checksums. Without them, damage to a file goes unnoticed."""
    _options.checksums = bool(compute_crc32)


def get_default_mmap_options() -> int:
    """The flags of mappings that load makes: MAP_PRIVATE or MAP_SHARED."""
    return _options.mmap_flags


class set_default_mmap_options:
    """Map files with ``flags`` (mmap.MAP_PRIVATE or mmap.MAP_SHARED), for good or for a block.

    With MAP_SHARED a write to a loaded tensor goes to the file.
    """

    def __init__(self, flags: int) -> None:
        allowed = [getattr(_mmap, name, None) for name in ("MAP_PRIVATE", "MAP_SHARED")]
        if flags not in allowed or flags is None:
            raise InvalidValue(
                f"expected mmap.MAP_PRIVATE or mmap.MAP_SHARED, not {flags!r}. "
                "Other systems than POSIX have no such flags."
            )
        self._before = _options.mmap_flags
        _options.mmap_flags = flags

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exception: object) -> None:
        _options.mmap_flags = self._before


def shares_mappings() -> bool:
    """Whether mappings write through to the file."""
    return _options.mmap_flags == getattr(_mmap, "MAP_SHARED", None)


class skip_data:
    """Context manager: save leaves holes for the data of storages, load leaves them zero.

    Names, shapes and strides are all there. For files whose data is filled in by other means.
    """

    def __init__(self, materialize_fake_tensors: bool = False) -> None:
        self.materialize_fake_tensors = materialize_fake_tensors
        self._before: Any = None

    def __enter__(self) -> None:
        self._before = skipping()
        _local.skip = self

    def __exit__(self, *exception: object) -> None:
        _local.skip = self._before


def skipping() -> skip_data | None:
    """The `skip_data` in force on this thread."""
    return getattr(_local, "skip", None)
