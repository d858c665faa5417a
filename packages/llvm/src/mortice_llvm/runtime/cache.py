"""The object cache: files named by a hash of everything that made them.

An entry is a head (magic, hash of the object) and the object. It is written to a temporary file
and renamed, so readers see whole entries; one that is damaged all the same counts as a miss and
is written anew. The directory is ``$MORTICE_CACHE_DIR/llvm``, or where ``follow`` said, else the
platform's cache directory. A directory that cannot be written leaves the cache empty: kernels are then compiled in
each process.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial

from .._version import __version__

MAGIC = b"MRTOBJ1\n"
_LIMIT = 512 << 20
_source_hash: bytes | None = None
_chosen: Callable[[], str | None] = partial(os.environ.get, "MORTICE_CACHE_DIR")


def follow(chosen: Callable[[], str | None]) -> None:
    """Let entries lie where a program's configuration has them: ``chosen()`` gives the directory of all
    that it keeps, in a folder of which they then are; None for the platform's.
    """
    global _chosen
    _chosen = chosen


def digest(*parts: bytes) -> bytes:
    """A 20-byte hash of the parts, each with its length."""
    try:
        from _blake2 import blake2b  # hashlib would load OpenSSL first
    except ImportError:
        from hashlib import blake2b
    h = blake2b(digest_size=20)
    for part in parts:
        h.update(len(part).to_bytes(8, "little"))
        h.update(part)
    return h.digest()


def directory() -> str:
    """Where entries lie (the directory may not exist yet)."""
    root = _chosen()
    if root:
        return os.path.join(os.path.abspath(os.path.expanduser(root)), "llvm")
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or os.path.expanduser("~\\AppData\\Local")
    elif sys.platform == "darwin":
        base = os.path.expanduser("~/Library/Caches")
    else:
        base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(base, "mortice", "llvm")


def source_hash() -> bytes:
    """A hash of this package's sources: other sources may make other code."""
    global _source_hash
    if _source_hash is None:
        root = os.path.dirname(os.path.dirname(__file__))
        parts = [__version__.encode()]  # all there is where sources are not installed
        for folder in (".", "cpython", "emit", "gemm", "ir", "kernels", "runtime"):
            try:
                names = sorted(os.listdir(os.path.join(root, folder)))
            except OSError:  # inside a zip archive
                break
            for name in names:
                if name.endswith(".py"):
                    with open(os.path.join(root, folder, name), "rb") as f:
                        parts.append(f.read())
        _source_hash = digest(*parts)
    return _source_hash


def _path(key: bytes) -> str:
    return os.path.join(directory(), key.hex() + ".o")


def read(key: bytes) -> bytes | None:
    """The object stored under ``key``, or None."""
    try:
        with open(_path(key), "rb") as f:
            entry = f.read()
    except OSError:
        return None
    head = len(MAGIC) + 20
    if entry[: len(MAGIC)] != MAGIC or digest(entry[head:]) != entry[len(MAGIC) : head]:
        return None
    return entry[head:]


def write(key: bytes, obj: bytes) -> bool:
    """Stores ``obj`` under ``key``; returns False where the directory cannot be written."""
    path = _path(key)
    temporary = f"{path}.{os.getpid()}.{os.urandom(4).hex()}.tmp"
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        with open(temporary, "wb") as f:
            f.write(MAGIC + digest(obj) + obj)
        os.replace(temporary, path)
        if key[0] < 8:  # now and then: one write in 32
            prune(os.path.dirname(path), limit())
    except OSError:
        try:
            os.unlink(temporary)
        except OSError:
            pass  # it was never made, or the same fault hinders removing it
        return False
    return True


def limit() -> int:
    """Bytes that the cache may hold: ``MORTICE_CACHE_LIMIT``, else 512 MiB. A warning, once for each such
    value, where that is no number of bytes.
    """
    word = os.environ.get("MORTICE_CACHE_LIMIT", "").strip()
    try:
        if not word or int(word) >= 0:
            return int(word or _LIMIT)
    except ValueError:
        pass  # told below
    import warnings

    warnings.warn(
        f"MORTICE_CACHE_LIMIT is {word!r}; expected a whole number of bytes, such as {_LIMIT} (512 MiB), "
        "which holds now. Set one, or unset the variable.",
        stacklevel=2,
    )
    return _LIMIT


def prune(folder: str, most: int) -> int:
    """Removes the oldest entries until three quarters of ``most`` bytes are left, if there are
    more than ``most``; returns how many. Other processes may do the same at the same time.
    """
    entries: list[tuple[float, int, str]] = []
    for e in os.scandir(folder):
        try:
            found = e.stat()
        except OSError:
            continue  # another process removed it
        entries.append((found.st_mtime, found.st_size, e.path))
    total = sum(size for _, size, _ in entries)
    removed = 0
    if total <= most:
        return removed
    for _, size, path in sorted(entries):
        if total <= most * 3 // 4:
            break
        try:
            os.unlink(path)
        except OSError:
            pass  # another process removed it, or holds it open (Windows)
        else:
            removed += 1
        total -= size
    return removed
