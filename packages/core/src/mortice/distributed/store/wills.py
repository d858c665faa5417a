"""Wills of a FileStore: files beside it whose lock ends with the process that holds it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator

_SCAN_EVERY = 0.1


class Wills:
    """What this process leaves, and what others left, for one store's path."""

    def __init__(self, path: str) -> None:
        self._prefix = f"{path}.will-"
        self._mine: dict[str, tuple[int, str]] = {}
        self._scanned = float("-inf")

    def leave(self, key: str, value: bytes) -> bool:
        """Hold a locked file with key and value; False where files have no such locks."""
        if sys.platform == "win32":
            return False
        import fcntl

        path = f"{self._prefix}{os.getpid()}-{os.urandom(4).hex()}"
        number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        fcntl.flock(number, fcntl.LOCK_EX)
        os.write(number, key.encode() + b"\0" + value)
        self._mine[key] = number, path
        return True

    def revoke(self, key: str) -> None:
        """Take one back."""
        number, path = self._mine.pop(key, (-1, ""))
        if path:
            os.unlink(path)
            os.close(number)

    def forget(self) -> None:
        """After fork, in the child: the parent's locks must end with the parent."""
        for number, _ in self._mine.values():
            os.close(number)
        self._mine.clear()

    def due(self) -> Iterator[tuple[str, bytes]]:
        """Key and value of each will whose process has ended since; looks every 0.1 s."""
        now = time.monotonic()
        if sys.platform == "win32" or now - self._scanned < _SCAN_EVERY:
            return
        self._scanned = now
        folder, name = os.path.split(self._prefix)
        own = {path for _, path in self._mine.values()}
        for entry in os.listdir(folder):
            path = os.path.join(folder, entry)
            if entry.startswith(name) and path not in own:
                yield from _opened(path)


def _opened(path: str) -> Iterator[tuple[str, bytes]]:
    """The will in a file whose lock nobody holds; the file is removed."""
    import fcntl

    try:
        number = os.open(path, os.O_RDWR)
    except FileNotFoundError:  # taken back, or opened by another rank
        return
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        key, separator, value = os.read(number, 1 << 16).partition(b"\0")
        if separator and os.path.exists(path):
            os.unlink(path)
            yield key.decode(), value
    except BlockingIOError:
        pass  # its process is alive
    finally:
        os.close(number)
