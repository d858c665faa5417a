"""Memory for results: asks the C library to keep what is freed for the next call, and the system for
huge pages before the first.

glibc gives memory back to the system when more than its trim threshold is free at the heap's end,
and large blocks at once. The results of the next call then fault in page by page: 4,700 pages, a
quarter of the time, in a training step of a small transformer. The thresholds follow the greatest
block that was ever freed (mallopt(3), M_MMAP_THRESHOLD), so one block, never touched, is enough:
blocks up to 32 MiB then come from the heap, of whose end 64 MiB stay. Whoever has set a threshold
(``MALLOC_TRIM_THRESHOLD_``, ``GLIBC_TUNABLES``) has also switched this off; other C libraries are
not affected.

What lives between the kernels of a graph is nobody's when it has run: graphs in native code have that
memory in common (``HugePages.shared``), so that a model of many graphs takes as much as the greatest of
them.

The first call would still fault in each page that it writes, at 1.5 us: 8 ms in that step. Where
the system gives huge pages to those who ask (madvise(2), MADV_HUGEPAGE), the heap's end is made of
them while it is free: 2 MiB at 0.09 ms.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from mortice_llvm.errors import LoadError
from mortice_llvm.runtime import memory

#: A little below the greatest block from which glibc learns.
GREATEST = (32 << 20) - (64 << 10)
HUGE = 2 << 20
#: From how many bytes on they are first asked for: numpy does so for arrays as large.
LEAST = 4 << 20
#: CPU seconds after which a huge page has cost more than the pages that it stands for: where memory is
#: fragmented the system moves others' pages about to have one, and a virtual machine's host may
#: have to find it first, at 5 ms.
DEAR = 0.001
#: What fixes glibc's thresholds.
_SETTINGS = (
    "GLIBC_TUNABLES", "MALLOC_MMAP_MAX_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_",
    "MALLOC_TRIM_THRESHOLD_",
)  # fmt: skip
#: Bytes at the end of a workspace for which a huge page is not worth its memory: half a MiB, and what
#: aligning takes.
_REST = HUGE // 4 + 4096
#: Address space for what graphs have in common, and from how many bytes on a graph lies there: fewer come
#: from the C library, which has such blocks, and would be in the way of huge pages.
SHARED, LITTLE = 64 << 20, 1 << 20
#: Bytes that glibc adds to a block.
_HEAD = 32
_HUGEPAGE, _NOHUGEPAGE = 14, 15
_SECOND_NODE = "/sys/devices/system/node/node1"
_ENABLED = "/sys/kernel/mm/transparent_hugepage/enabled"


@cache
def _libc() -> Any:
    """The C library, if it allocates memory with functions that can be called; else None."""
    try:
        libc = ctypes.CDLL(None)
        malloc, free, realloc = libc.malloc, libc.free, libc.realloc
    except (OSError, TypeError, AttributeError):
        return None  # Windows: nothing of the kind to ask
    malloc.restype, malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    realloc.restype, realloc.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_size_t]
    free.restype, free.argtypes = None, [ctypes.c_void_p]
    return libc


@cache
def keep_freed_memory() -> None:
    """Once per process: raises glibc's thresholds to their greatest."""
    libc = _libc()
    if libc is not None:
        libc.free(libc.malloc(GREATEST))


@cache
def _madvise() -> Callable[[int, int, int], int] | None:
    """madvise(2), where the system gives huge pages to who asks.

    Not on machines whose memory is in several places: there each thread is to touch what it uses.
    """
    if not sys.platform.startswith("linux") or os.path.exists(_SECOND_NODE):
        return None
    try:
        with open(_ENABLED) as f:
            if "[never]" in f.read():
                return None
    except OSError:
        return None
    found = getattr(_libc(), "madvise", None)
    if found is None:
        return None  # a C library whose functions cannot be called by name
    found.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return found


@cache
def _keeps() -> bool:
    """Whether the heap is glibc's, with the thresholds of ``keep_freed_memory``."""
    return hasattr(_libc(), "gnu_get_libc_version") and not any(map(os.environ.get, _SETTINGS))


class HugePages:
    """What is made of huge pages in this process."""

    def __init__(self) -> None:
        #: Whether one has cost too much: then no more are asked for.
        self.dear = False
        #: From how many bytes on they are asked for.
        self._least = LEAST
        #: Whether results begin at a huge page.
        self._begun = False
        #: Where the memory that graphs have in common begins; its pages; bytes of huge ones asked for.
        self._shared = 0
        self._pages: _Pages | None = None
        self._asked = 0
        #: Not 0 while a graph is at work there without the GIL.
        self.busy = ctypes.c_int64(0)

    def touch(self, start: int, size: int) -> int:
        """Makes huge pages of fresh memory, as far as it spans whole ones, while they are cheap;
        returns how many.
        """
        madvise = _madvise()
        first, last = _up(start), (start + size) // HUGE * HUGE
        if madvise is None or self.dear or last <= first:
            return 0
        if madvise(first, last - first, _HUGEPAGE):
            return 0  # a system without them
        before = time.thread_time()
        for at in range(first, last, HUGE):
            ctypes.memset(at, 0, 1)
            now = time.thread_time()
            if now - before > DEAR:
                self.dear = True
                madvise(at + HUGE, last - at - HUGE, _NOHUGEPAGE)
                return (at - first) // HUGE + 1
            before = now
        self._least = HUGE
        return (last - first) // HUGE

    def workspace(self, size: int) -> np.ndarray[Any, Any]:
        """An uninitialised array of ``size`` bytes.

        A large one has pages of its own: also where huge ones are dear, since numpy would ask for them.
        """
        if size < self._least or _madvise() is None:
            return np.empty(size, np.uint8)
        huge = _up(size - _REST)
        try:
            pages = _Pages(max(huge, size) + HUGE)
        except LoadError:
            return np.empty(size, np.uint8)  # which says so if there is no memory left
        first = _up(pages.at)
        self.touch(first, huge)
        return np.asarray(pages)[first - pages.at :][:size]

    def shared(self, size: int) -> int | None:
        """Where ``size`` bytes lie that all graphs may use in turn, at the start of a page; ``busy`` says
        when. None where they need memory of their own.
        """
        if not LITTLE <= size <= SHARED or _madvise() is None:
            return None
        if self._pages is None:
            try:
                self._pages = _Pages(SHARED + HUGE)
            except LoadError:  # no room for as much: they may have as little as they need
                return None
            self._shared = _up(self._pages.at)
        # What the first graph begins another will go on with: in a page that is in use it is too late.
        huge = _up(size - _REST if self._asked else size)
        if size >= self._least and huge > self._asked:
            self.touch(self._shared + self._asked, huge - self._asked)
            self._asked = huge
        return self._shared

    def results(self, size: int) -> int:
        """Makes the ``size`` bytes that are allocated next lie in huge pages, as far as these are to
        be had; returns how many were touched.
        """
        if size < self._least or self.dear or _madvise() is None or not _keeps():
            return 0
        libc = _libc()
        # Far more than is needed: behind a block glibc writes a word, and where a page of 4 KiB is in
        # use there can be no huge one.
        block = libc.malloc(GREATEST)
        if not block:
            return 0
        begins = block if self._begun else _up(block)
        made = self.touch(begins, min(_up(begins + size), block + GREATEST) - begins)
        if not self._begun and begins - block > _HEAD:
            # What lies before is left alone, and never touched: results begin at a huge page.
            self._begun = libc.realloc(block, begins - block - _HEAD) == block
        else:
            libc.free(block)
        return made


class _Pages:
    """Memory of its own for an array: given back when nobody looks at it any more, but not at the
    process's end, when some thread may still be at work in it.
    """

    def __init__(self, size: int) -> None:
        self._give_back = memory.give_back
        self.size = size
        self.at = memory.new(size)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return {"version": 3, "shape": (self.size,), "typestr": "|u1", "data": (self.at, False)}

    def __del__(self, ends: Callable[[], bool] = sys.is_finalizing) -> None:
        if hasattr(self, "at") and not ends():
            self._give_back(self.at, self.size)


def _up(at: int) -> int:
    """The next multiple of a huge page's size."""
    return -(-at // HUGE) * HUGE


PAGES = HugePages()


def _nobody_is_at_work() -> None:
    """In a child process there are none of its parent's other threads."""
    PAGES.busy.value = 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_nobody_is_at_work)
