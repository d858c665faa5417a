"""The zip container written as PyTorch writes it, and put in place in one step.

Every record is STORED, its data at a multiple of the alignment (padded by an extra field of the
local header), its size and checksum in a descriptor behind it; times are zero, so that equal data
gives equal files.
"""

from __future__ import annotations

import contextlib
import os
import stat
import struct
import sys
import threading
import time
import zlib
from collections.abc import Generator
from typing import Any

from mortice.errors import InvalidState, InvalidValue
from mortice.serialization.checksum import Beside
from mortice.serialization.formats import ALIGNMENT

_LOCAL = struct.Struct("<4s5H3L2H")
_CENTRAL = struct.Struct("<4s6H3L5H2L")
_DESCRIPTOR = struct.Struct("<4s3L")
_DESCRIPTOR64 = struct.Struct("<4sL2Q")
_END64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR = struct.Struct("<4sLQL")
_END = struct.Struct("<4s4H2LH")

_UTF8 = 0x0800
_DESCRIBED = 0x0008  # size and checksum stand behind the data; empty records have none
_FULL16, _FULL32 = 0xFFFF, 0xFFFFFFFF
# From here on sizes and offsets are written in 64 bits.
_LARGE = _FULL32
_MADE_BY = 0x031E  # as PyTorch's writer says of itself
_STEP = 1 << 20
_STALE_SECONDS = 60


class _Entry:
    __slots__ = ("crc", "flags", "name", "offset", "size")

    def __init__(self, name: bytes, offset: int, size: int, crc: int) -> None:
        self.name = name
        self.offset = offset
        self.size = size
        self.crc = crc
        self.flags = _UTF8 | (_DESCRIBED if size else 0)


class ZipWriter:
    """Writes records to ``file`` (anything with ``write``) under the folder ``root``."""

    def __init__(
        self, file: Any, root: str, *, alignment: int = ALIGNMENT, checksums: bool = True
    ) -> None:
        self._file = file
        self._root = root
        self._alignment = alignment
        self._checksums = checksums
        self._entries: list[_Entry] = []
        self._at = 0
        self._id_crc = 0

    def add(self, name: str, data: bytes | memoryview) -> None:
        """Write one record."""
        view = memoryview(data).cast("B") if len(data) else memoryview(b"")
        self._begin(name, len(view))
        if len(view) > _STEP:
            self._end(self._write_large(view))
            return
        self._write(view)
        self._end(zlib.crc32(view) if self._checksums else 0)

    def _write_large(self, view: memoryview) -> int:
        beside = Beside(view) if self._checksums else None
        try:
            for start in range(0, len(view), _STEP):
                self._write(view[start : start + _STEP])
        finally:
            crc = beside.result() if beside is not None else 0
        return crc

    def _begin(self, name: str, size: int) -> None:
        full = f"{self._root}/{name}".encode()
        entry = _Entry(full, self._at, size, 0)
        self._write(self._header(full, entry))
        self._entries.append(entry)

    def _end(self, crc: int) -> None:
        entry = self._entries[-1]
        entry.crc = crc
        if entry.size:
            descriptor = _DESCRIPTOR64 if entry.size >= _LARGE else _DESCRIPTOR
            self._write(descriptor.pack(b"PK\x07\x08", crc, entry.size, entry.size))
        self._id_crc = zlib.crc32(struct.pack("<LQ", crc, entry.size), self._id_crc)

    def add_hole(self, name: str, size: int) -> None:
        """Write a record of zeros."""
        zeros = bytes(min(size, _STEP))
        self._begin(name, size)
        crc = 0
        for start in range(0, size, _STEP):
            piece = zeros[: min(_STEP, size - start)]
            crc = zlib.crc32(piece, crc) if self._checksums else 0
            self._write(piece)
        self._end(crc)

    def finish(self) -> None:
        """Write the record that identifies the contents, and the directory."""
        self.add(".data/serialization_id", self._identity())
        start = self._at
        for entry in self._entries:
            self._write(self._central(entry))
        size, count = self._at - start, len(self._entries)
        end64 = self._at
        self._write(
            _END64.pack(
                b"PK\x06\x06", _END64.size - 12, _MADE_BY, 45, 0, 0, count, count, size, start
            )
        )
        self._write(_LOCATOR.pack(b"PK\x06\x07", 0, end64, 1))
        short = min(count, _FULL16)
        self._write(
            _END.pack(b"PK\x05\x06", 0, 0, short, short, min(size, _FULL32), min(start, _FULL32), 0)
        )

    def _write(self, data: bytes | memoryview) -> None:
        self._file.write(data)
        self._at += len(data)

    def _header(self, name: bytes, entry: _Entry) -> bytes:
        extra = b""
        if entry.size >= _LARGE or entry.offset >= _LARGE:
            values = b""
            if entry.size >= _LARGE:
                values += struct.pack("<QQ", entry.size, entry.size)
            if entry.offset >= _LARGE:
                values += struct.pack("<Q", entry.offset)
            extra = struct.pack("<HH", 1, len(values)) + values
        start = entry.offset + _LOCAL.size + len(name) + len(extra) + 4
        padding = -start % self._alignment
        extra += struct.pack("<2sH", b"FB", padding) + b"Z" * padding
        return (
            _LOCAL.pack(b"PK\x03\x04", 0, entry.flags, 0, 0, 0, 0, 0, 0, len(name), len(extra))
            + name
            + extra
        )

    def _central(self, entry: _Entry) -> bytes:
        values = b""
        size, offset = entry.size, entry.offset
        if size >= _LARGE:
            values += struct.pack("<QQ", size, size)
            size = _FULL32
        if offset >= _LARGE:
            values += struct.pack("<Q", offset)
            offset = _FULL32
        extra = struct.pack("<HH", 1, len(values)) + values if values else b""
        return (
            _CENTRAL.pack(
                b"PK\x01\x02",
                0,
                0,
                entry.flags,
                0,
                0,
                0,
                entry.crc,
                size,
                size,
                len(entry.name),
                len(extra),
                0,
                0,
                0,
                0,
                offset,
            )
            + entry.name
            + extra
        )

    def _identity(self) -> bytes:
        """Forty digits that follow from names, sizes and checksums: equal data, equal id."""
        names = b"".join(entry.name.partition(b"/")[2] + b"\0" for entry in self._entries)
        first = zlib.crc32(names) << 32 | zlib.adler32(names)
        return f"{first:020d}{self._id_crc:020d}".encode()


# -- putting a file in place ---------------------------------------------------------------------


@contextlib.contextmanager
def replacing(path: str, durable: bool = False) -> Generator[Any, None, None]:
    """A file to write that becomes ``path`` only when the block ends well.

    Until then it has another name in the same folder, so whoever is killed leaves the old file or
    the new one, never a part. ``durable`` also waits until the disk has it (fsync), which a loss of
    power asks for. What is no regular file (a pipe, a device) is written as it is.
    """
    target = os.path.realpath(path)
    try:
        before: os.stat_result | None = os.stat(target)
    except FileNotFoundError:
        before = None
    if before is not None and not stat.S_ISREG(before.st_mode):
        if stat.S_ISDIR(before.st_mode):
            raise InvalidValue(f"{path!r} is a folder. Give the name of a file in it.")
        with open(target, "wb") as direct:
            yield direct
        return
    folder, name = os.path.split(target)
    _sweep(folder, name)
    temporary = os.path.join(folder, f".{name[:100]}.{_unique()}.mortice-tmp")
    try:
        file = open(temporary, "xb", buffering=1 << 16)  # noqa: SIM115
    except PermissionError as error:
        raise InvalidState(
            f"cannot make a file beside {path!r} to write to before it is replaced ({error}). "
            "Save to another folder, or pass an open file: mortice.save(obj, open(path, 'wb'))."
        ) from error
    try:
        with file:
            _lock(file)
            yield file
            file.flush()
            if before is not None and hasattr(os, "fchmod"):
                os.fchmod(file.fileno(), stat.S_IMODE(before.st_mode))
            if durable:
                os.fsync(file.fileno())
        os.replace(temporary, target)
        if durable:
            _sync_folder(folder)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def _unique() -> str:
    return f"{os.getpid()}-{threading.get_ident():x}-{time.monotonic_ns():x}"


def _lock(file: Any) -> None:
    """Hold a lock on a file while it is written: a sweep spares what is locked."""
    if sys.platform == "win32":
        return  # an open file cannot be unlinked there
    import fcntl

    # Some network file systems have no locks; then the age alone protects the file.
    with contextlib.suppress(OSError):
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)


def _sweep(folder: str, name: str) -> None:
    """Remove what killed writers of the same name left behind."""
    prefix = f".{name[:100]}."
    now = time.time()
    # A folder that cannot be listed, or a file that is gone or in use: nothing to remove.
    with contextlib.suppress(OSError), os.scandir(folder or ".") as entries:
        for entry in entries:
            if not (entry.name.startswith(prefix) and entry.name.endswith(".mortice-tmp")):
                continue
            with contextlib.suppress(OSError):
                if now - entry.stat().st_mtime > _STALE_SECONDS and not _in_use(entry.path):
                    os.unlink(entry.path)


def _in_use(path: str) -> bool:
    if sys.platform == "win32":
        return False
    import fcntl

    with open(path, "rb") as file:
        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def _sync_folder(folder: str) -> None:
    if sys.platform == "win32":
        return
    descriptor = os.open(folder or ".", os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
