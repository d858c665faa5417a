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
from typing import Any

from mortice.errors import CheckpointError, InvalidValue

_WINDOW = 1 << 20
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
        length = len(view)
        if length <= _SMALL:
            start = offset - self._window_at
            if not (start >= 0 and start + length <= len(self._window)):
                self._fill_window(offset)
                start = 0
            part = self._window[start : start + length]
            if len(part) != length:
                raise self._short(offset, length, len(part))
            view[:] = part
            return
        self._file.seek(self._start + offset)
        done = 0
        readinto = getattr(self._file, "readinto", None)
        while done < length:
            if readinto is not None:
                got = readinto(view[done:])
            else:
                piece = self._file.read(min(length - done, 1 << 24))
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
