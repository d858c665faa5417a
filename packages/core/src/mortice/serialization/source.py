"""Random access to the bytes of a checkpoint, whatever it was given as.

A path is read with plain positioned reads (a file that shrinks under us gives an error, where a
mapping would give SIGBUS); `map()` maps it when the caller asked for that. A file object must be
seekable. Small reads are served from one window, so that the ten thousand small records of a large
checkpoint cost a few dozen system calls.
"""

from __future__ import annotations

import io
import mmap
import os
import zlib
from collections.abc import Callable
from typing import Any

from mortice.errors import CheckpointError, InvalidValue
from mortice.serialization.checksum import combine, in_parts

_WINDOW = 1 << 20
_STEP = 1 << 20
# Threads that read one large record, and the least that each has to do.
_THREADS = 4
_SHARE = 8 << 20
_SMALL = 1 << 16


class Source:
    """Bytes ``[0, size)`` of a path or file object. ``path`` is for messages, None if unknown."""

    __slots__ = (
        "_file",
        "_finished",
        "_left_at",
        "_owned",
        "_start",
        "_window",
        "_window_at",
        "path",
        "real_path",
        "size",
    )

    def __init__(self, f: Any) -> None:
        self._window = b""
        self._window_at = 0
        self._start = 0
        self._finished = 0
        self._left_at = 0
        self.real_path: str | None = None
        if isinstance(f, (str, bytes, os.PathLike)):
            self.real_path = os.fsdecode(f)
            self.path: str | None = self.real_path
            self._file: Any = open(self.real_path, "rb", buffering=0)  # noqa: SIM115
            self._owned = True
            self.size = self._file.seek(0, io.SEEK_END)
            return
        if not (hasattr(f, "read") and hasattr(f, "seek") and hasattr(f, "tell")):
            raise InvalidValue(
                f"load takes a path or a file object with read, seek and tell, not "
                f"{type(f).__name__}. Wrap the bytes: io.BytesIO(data)."
            )
        name = getattr(f, "name", None)
        self.path = name if isinstance(name, str) else None
        self._file = f
        self._owned = False
        # A checkpoint may follow other data in one stream: it starts where the file stands.
        try:
            self._start = f.tell()
            end = f.seek(0, io.SEEK_END)
            self.size = (end if isinstance(end, int) else f.tell()) - self._start
            self._finished = self.size
            f.seek(self._start)
        except (OSError, io.UnsupportedOperation) as error:
            raise CheckpointError(
                f"the file object cannot seek ({error})",
                path=self.path,
                fix="Read it whole first: io.BytesIO(f.read()).",
            ) from error
        if isinstance(f, io.TextIOBase):
            raise InvalidValue("the file is open for text. Open it with mode 'rb'.")

    def close(self) -> None:
        """Close what we opened; a caller's file object stays open, where it stood or was left."""
        self._window = b""
        if self._owned:
            self._file.close()
        else:
            self._file.seek(self._start + self._left_at)

    def finish(self, at: int) -> None:
        """Note where the checkpoint ends, for those that follow it in one stream."""
        self._finished = at

    def leave(self) -> None:
        """Close will leave a caller's file object behind the checkpoint."""
        self._left_at = self._finished

    def read_into(self, offset: int, view: memoryview) -> None:
        """Fill ``view`` from ``offset``. Raises CheckpointError where the file ends early."""
        if len(view) <= _SMALL:
            view[:] = self.read(offset, len(view))
        else:
            self._read_exactly(self._file, offset, view)

    def _read_exactly(self, file: Any, offset: int, view: memoryview) -> None:
        length = len(view)
        file.seek(self._start + offset)
        done = 0
        readinto = getattr(file, "readinto", None)
        while done < length:
            if readinto is not None:
                got = readinto(view[done:])
            else:
                piece = file.read(min(length - done, 1 << 24))
                got = len(piece)
                view[done : done + got] = piece
            if not got:
                raise self._short(offset, length, done)
            done += got

    def read(self, offset: int, length: int) -> bytes:
        """``length`` bytes at ``offset``. Raises CheckpointError where the file ends early."""
        if length <= _SMALL:
            start = offset - self._window_at
            if not (start >= 0 and start + length <= len(self._window)):
                self._fill_window(offset)
                start = 0
            part = self._window[start : start + length]
            if len(part) != length:
                raise self._short(offset, length, len(part))
            return part
        if offset + length > self.size:
            raise self._short(offset, length, max(0, self.size - offset))
        whole = bytearray(length)
        self.read_into(offset, memoryview(whole))
        return bytes(whole)

    def read_large(self, offset: int, view: memoryview, checksum: bool) -> int:
        """Fill a large ``view`` from ``offset``, by several threads; its CRC-32, or 0.

        Copying from the page cache and touching new memory is what takes the time (0.4 s for a GiB
        by one thread), and both scale with cores. Each thread opens the file anew, for positions of
        its own.
        """
        count = min(_THREADS, os.cpu_count() or 1, len(view) // _SHARE)
        if self.real_path is None or count < 2:
            return self._read_part(self._file, offset, view, checksum)
        share = -(-len(view) // count) // _STEP * _STEP or _STEP
        starts = list(range(0, len(view), share))

        def part(start: int) -> Callable[[], int]:
            return lambda: self._read_anew(offset + start, view[start : start + share], checksum)

        crcs = in_parts([part(start) for start in starts])
        total = crcs[0]
        for start, crc in zip(starts[1:], crcs[1:], strict=True):
            total = combine(total, crc, min(share, len(view) - start))
        return total

    def _read_anew(self, offset: int, view: memoryview, checksum: bool) -> int:
        assert self.real_path is not None
        with open(self.real_path, "rb", buffering=0) as file:
            ours, theirs = os.fstat(self._file.fileno()), os.fstat(file.fileno())
            if (ours.st_dev, ours.st_ino) != (theirs.st_dev, theirs.st_ino):
                raise CheckpointError(
                    "the file was replaced while it was read", path=self.path, fix="Load it again."
                )
            return self._read_part(file, offset, view, checksum)

    def _read_part(self, file: Any, offset: int, view: memoryview, checksum: bool) -> int:
        crc = 0
        # In steps that stay in the cache, so that the checksum costs no second trip to memory.
        for start in range(0, len(view), _STEP):
            piece = view[start : start + _STEP]
            self._read_exactly(file, offset + start, piece)
            if checksum:
                crc = zlib.crc32(piece, crc)
        return crc

    def map(self, writable_copy: bool) -> mmap.mmap:
        """The whole file mapped: private copy-on-write, or shared with the file."""
        if self.real_path is None:
            raise InvalidValue(
                "mmap=True needs a path: a file object cannot be mapped. Pass the file's path."
            )
        access = mmap.ACCESS_COPY if writable_copy else mmap.ACCESS_WRITE
        if writable_copy:
            return mmap.mmap(self._file.fileno(), 0, access=access)
        with open(self.real_path, "r+b") as writable:
            return mmap.mmap(writable.fileno(), 0, access=access)

    def map_to_read(self) -> mmap.mmap:
        """The whole file mapped, read-only."""
        return mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)

    def _fill_window(self, offset: int) -> None:
        self._file.seek(self._start + offset)
        parts: list[bytes] = []
        wanted = min(_WINDOW, max(0, self.size - offset))
        while wanted > 0:
            piece = self._file.read(wanted)
            if not piece:
                break
            parts.append(piece)
            wanted -= len(piece)
        self._window = b"".join(parts)
        self._window_at = offset

    def _short(self, offset: int, wanted: int, got: int) -> CheckpointError:
        return CheckpointError(
            f"the file ends early: {wanted} bytes expected, {got} found",
            path=self.path,
            file_offset=offset,
            fix="It was cut short; copy or download it again.",
        )
