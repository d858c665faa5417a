"""Marks that a plug-in is being loaded, so that the next process knows if this one dies of it.

A marker is a file that its process keeps locked. The lock goes with the process, however it ends,
so a marker that can be locked belongs to the dead; no process numbers are compared, which would be
wrong across containers and after reuse. Where files cannot be written or locked there are no
markers, and a crash is not remembered.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from zlib import crc32

from . import store
from .entry import Entry

PROBE_VARIABLE = "MORTICE_PROBE_CHILD"

_numbers = itertools.count()


def key(entry: Entry) -> str:
    """A file name for the entry in its present version."""
    text = "\0".join((*entry.key, entry.distribution.version, entry.value))
    return f"{crc32(text.encode()):08x}"


def folder(name: str) -> str | None:
    base = store.folder()
    return None if base is None else os.path.join(base, name)


class Marker:
    """One load under way. ``keep`` leaves the marker behind, as a crash would."""

    __slots__ = ("_descriptor", "_path", "keep")

    def __init__(self, path: str, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor
        self.keep = False

    def close(self) -> None:
        if self._descriptor < 0:
            return
        # Taken away before it is unlocked, or another process could find it unlocked; Windows
        # lets nobody remove an open file.
        if not self.keep and sys.platform != "win32":
            _remove(self._path)
        os.close(self._descriptor)
        if not self.keep and sys.platform == "win32":
            _remove(self._path)


@contextmanager
def loading(entry: Entry) -> Generator[Marker, None, None]:
    """Keep a marker for the time of the block."""
    marker = _make(entry)
    try:
        yield marker
    finally:
        marker.close()


def _make(entry: Entry) -> Marker:
    where = folder("loading")
    if where is None or PROBE_VARIABLE in os.environ:
        return Marker("", -1)
    path = os.path.join(where, f"{key(entry)}.{os.getpid()}.{next(_numbers)}")
    # It gets the name that others look for when it is locked (Windows cannot rename an open file).
    first = path if sys.platform == "win32" else f"{path}.new"
    try:
        os.makedirs(where, mode=0o700, exist_ok=True)
        descriptor = os.open(first, os.O_CREAT | os.O_RDWR, 0o600)
    except OSError:
        return Marker("", -1)
    if not _try_lock(descriptor) or not _renamed(first, path):
        os.close(descriptor)
        _remove(first)
        return Marker("", -1)
    return Marker(path, descriptor)


def _renamed(first: str, path: str) -> bool:
    try:
        os.replace(first, path)
    except OSError:
        return False
    return True


def abandoned(entry: Entry, *, remove: bool) -> bool:
    """Whether a process died while it loaded the entry. ``remove`` takes its markers away."""
    where = folder("loading")
    if where is None or PROBE_VARIABLE in os.environ:
        return False
    try:
        mine = f"{key(entry)}."
        names = [n for n in os.listdir(where) if n.startswith(mine) and not n.endswith(".new")]
    except OSError:
        return False
    dead = [path for path in (os.path.join(where, name) for name in names) if _is_dead(path)]
    if remove:
        for path in dead:
            _remove(path)
    return bool(dead)


def _is_dead(path: str) -> bool:
    try:
        descriptor = os.open(path, os.O_RDWR)
    except OSError:
        return False
    try:
        return _try_lock(descriptor)
    finally:
        os.close(descriptor)


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:  # another process saw it dead, too, and was faster
        pass


if sys.platform == "win32":
    import msvcrt

    def _try_lock(descriptor: int) -> bool:
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _try_lock(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True
