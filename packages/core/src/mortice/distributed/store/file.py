"""FileStore: a table as a log in a file that all ranks can open.

Each change is one record behind the others, written under a lock on the file; a reader takes in
what is new. A record that its writer left unfinished, being killed, is cut off by the next writer.
"""

from __future__ import annotations

import os
import struct
import sys
import threading
import time
import weakref
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from datetime import timedelta

from mortice.errors import DistStoreError

from .base import DEFAULT_TIMEOUT, Deadline, Store, as_bytes, seconds, timed_out
from .table import Table
from .wills import Wills

_HEAD = struct.Struct("<cII")  # what, bytes of the key, bytes of the value
_SET, _DELETE = b"S", b"D"
_USERS = "\0users"  # never a key of anybody: how many have the file open; the first one written
_stores: weakref.WeakSet[FileStore] = weakref.WeakSet()
_POLL_FIRST, _POLL_MOST = 0.001, 0.05


class FileStore(Store):
    """A store in the file ``file_name``, on a file system that has locks.

    With ``world_size``, the last of that many users to close it removes the file.
    """

    def __init__(
        self,
        file_name: str | os.PathLike[str],
        world_size: int = -1,
        timeout: timedelta | float = DEFAULT_TIMEOUT,
    ) -> None:
        super().__init__(timeout)
        self.path = os.path.abspath(os.fspath(file_name))
        self._world_size = world_size
        self._table = Table()
        self._read = 0
        # The file's lock is between processes; this one between the threads of this one.
        self._threads = threading.Lock()
        try:
            self._file: int | None = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise DistStoreError(f"FileStore cannot open {self.path}: {error.strerror}.") from error
        self._wills = Wills(self.path)
        _stores.add(self)
        try:
            with self._locked():
                self._write(_SET, _USERS, str(self._table.add(_USERS, 1)).encode())
        except BaseException:
            os.close(self._file)
            self._file = None
            raise

    def set(self, key: str, value: str | bytes) -> None:
        data = as_bytes(value)
        with self._locked():
            self._write(_SET, key, data)

    def get(self, key: str) -> bytes:
        self.wait([key])
        with self._locked():
            found = self._table.get(key)
        if found is None:
            raise timed_out(repr(self), self._timeout, [key])
        return found

    def add(self, key: str, amount: int) -> int:
        with self._locked():
            total = self._table.add(key, amount)
            self._write(_SET, key, str(total).encode())
            return total

    def append(self, key: str, value: str | bytes) -> None:
        data = as_bytes(value)
        with self._locked():
            self._write(_SET, key, (self._table.get(key) or b"") + data)

    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        with self._locked():
            before = self._table.get(key)
            result = self._table.compare_set(key, as_bytes(expected), as_bytes(desired))
            after = self._table.get(key)
            if after is not None and after != before:
                self._write(_SET, key, after)
            return result

    def delete_key(self, key: str) -> bool:
        with self._locked():
            found = self._table.get(key) is not None
            if found:
                self._write(_DELETE, key, b"")
            return found

    def num_keys(self) -> int:
        with self._locked():
            return len(self._table.values) - 1

    def check(self, keys: Sequence[str]) -> bool:
        with self._locked():
            return not self._table.missing(keys)

    def wait(self, keys: Sequence[str], timeout: timedelta | float | None = None) -> None:
        limit = self._timeout if timeout is None else seconds(timeout)
        deadline, pause = Deadline(limit), _POLL_FIRST
        while True:
            with self._locked():
                missing = self._table.missing(keys)
            if not missing:
                return
            left = deadline.left()
            if not left:
                raise timed_out(repr(self), limit, missing)
            time.sleep(min(pause, left))
            pause = min(2 * pause, _POLL_MOST)

    def leave_will(self, key: str, value: str | bytes) -> bool:
        return self._wills.leave(key, as_bytes(value))

    def revoke_will(self, key: str) -> None:
        self._wills.revoke(key)

    def close(self) -> None:
        if self._file is None:
            return
        with self._locked():
            left = self._table.add(_USERS, -1)
            self._write(_SET, _USERS, str(left).encode())
            if left == 0 and self._world_size > 0:
                os.unlink(self.path)
        os.close(self._file)
        self._file = None

    def __repr__(self) -> str:
        return f"FileStore({self.path!r})"

    # -- the file --------------------------------------------------------------------------------

    @contextmanager
    def _locked(self) -> Generator[None, None, None]:
        """Hold the file's lock, having taken in what others wrote."""
        with self._threads:
            if self._file is None:
                raise DistStoreError(f"{self!r} is closed.")
            _lock(self._file)
            try:
                self._take_in(self._file)
                for key, value in self._wills.due():
                    self._write(_SET, key, (self._table.get(key) or b"") + value)
                yield
            finally:
                _unlock(self._file)

    def _take_in(self, file: int) -> None:
        size = os.fstat(file).st_size
        if size == self._read:
            return
        os.lseek(file, self._read, os.SEEK_SET)
        data = _read_all(file, size - self._read)
        if self._read == 0 and not _is_log(data):
            raise DistStoreError(
                f"{self.path} is no store: it holds something else, which is left as it is. Name a "
                "file that is not there yet."
            )
        at = 0
        while at + _HEAD.size <= len(data):
            what, nkey, nvalue = _HEAD.unpack_from(data, at)
            end = at + _HEAD.size + nkey + nvalue
            if end > len(data):
                break
            key = data[at + _HEAD.size : at + _HEAD.size + nkey].decode()
            if what == _DELETE:
                self._table.delete(key)
            else:
                self._table.set(key, data[end - nvalue : end])
            at = end
        self._read += at
        if at < len(data):  # its writer was killed: we hold the lock, so nobody is at it
            os.ftruncate(file, self._read)

    def _write(self, what: bytes, key: str, value: bytes) -> None:
        assert self._file is not None
        name = key.encode()
        record = _HEAD.pack(what, len(name), len(value)) + name + value
        os.lseek(self._file, self._read, os.SEEK_SET)
        view = memoryview(record)
        while view:
            view = view[os.write(self._file, view) :]
        self._read += len(record)
        if what == _DELETE:
            self._table.delete(key)
        else:
            self._table.set(key, value)


def _is_log(data: bytes) -> bool:
    """Whether a file begins as a store does, as far as it goes."""
    name = _USERS.encode()
    head = _HEAD.pack(_SET, len(name), 0)[:5]  # the length of the value may be any
    begins = data[:5] == head[: len(data)]
    return (
        begins
        and data[_HEAD.size : _HEAD.size + len(name)] == name[: max(0, len(data) - _HEAD.size)]
    )


def _after_fork() -> None:
    for store in _stores:
        store._wills.forget()  # pyright: ignore[reportPrivateUsage]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _read_all(file: int, nbytes: int) -> bytes:
    parts: list[bytes] = []
    while nbytes:
        part = os.read(file, nbytes)
        if not part:
            break
        parts.append(part)
        nbytes -= len(part)
    return b"".join(parts)


if sys.platform == "win32":
    import msvcrt

    def _lock(file: int) -> None:
        os.lseek(file, 0x7FFFFFFE, os.SEEK_SET)
        msvcrt.locking(file, msvcrt.LK_LOCK, 1)

    def _unlock(file: int) -> None:
        os.lseek(file, 0x7FFFFFFE, os.SEEK_SET)
        msvcrt.locking(file, msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def _lock(file: int) -> None:
        fcntl.flock(file, fcntl.LOCK_EX)

    def _unlock(file: int) -> None:
        fcntl.flock(file, fcntl.LOCK_UN)
