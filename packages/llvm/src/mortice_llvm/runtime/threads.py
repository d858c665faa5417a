"""The process's thread pool: made at first use, made again after fork."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .library import Library

# One lock for making and loading code, the pool's included; held by whoever forks, so that a child
# never finds it held by a thread that it does not have.
lock = threading.RLock()
_library: Library | None = None
_threads: int = 0


def _default() -> int:
    for name in ("MORTICE_NUM_THREADS", "OMP_NUM_THREADS"):
        word = os.environ.get(name, "")
        if word.isdigit() and int(word) > 0:
            return int(word)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _pool() -> Library:
    global _library
    with lock:
        if _library is None:
            from .library import load
            from .pool_text import pool_text

            _library = load(
                b"pool", lambda target: pool_text(target, sys.platform), uses_pool=False
            )
            reset = _library.function("mortice_pool_reset")
            reset()
            _apply(get_num_threads())
            if hasattr(os, "register_at_fork"):
                os.register_at_fork(after_in_child=reset)
        return _library


def _apply(n: int) -> None:
    """Tells the pool how many threads it may use; they start with the first job."""
    assert _library is not None
    # Threads are started by the pool itself when a job needs them; growing here would start
    # them in processes that never run a large kernel.
    _library.function("mortice_pool_allow", ctypes.c_int)(n)


def parallel_for() -> int:
    """The address of ``mortice_parallel_for(fn, arg, n, chunk)``."""
    return _pool().address("mortice_parallel_for")


def get_num_threads() -> int:
    """How many threads, the caller's included, a large kernel uses."""
    global _threads
    if not _threads:
        _threads = _default()
    return _threads


def set_num_threads(n: int) -> None:
    """Sets how many threads, the caller's included, a large kernel uses; ValueError below 1."""
    global _threads
    if n < 1:
        raise ValueError(f"expected at least 1 thread, found {n}")
    with lock:
        _threads = n
        if _library is not None:
            _apply(n)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release
    )
