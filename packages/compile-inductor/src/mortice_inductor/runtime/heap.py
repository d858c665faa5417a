"""Memory for results and for what lies between kernels: the C library keeps what is freed for the next
call, and graphs share what nobody needs when they have run.

glibc gives memory back to the system when more than its trim threshold is free at the heap's end,
and large blocks at once. The results of the next call then fault in page by page: 4,700 pages, a
quarter of the time, in a training step of a small transformer. The thresholds follow the greatest
block that was ever freed (mallopt(3), M_MMAP_THRESHOLD), so one block, never touched, is enough:
blocks up to 32 MiB then come from the heap, of whose end 64 MiB stay. Whoever has set a threshold
(``MALLOC_TRIM_THRESHOLD_``, ``GLIBC_TUNABLES``) has also switched this off; other C libraries are
not affected.

What lies between the kernels of a graph is nobody's when it has run: graphs in native code have that
memory in common (``COMMON``), so that a model of many graphs takes as much as the greatest of them.

Huge pages are not asked for. Where there are free ones a first call has 22 MiB of memory 5 ms sooner, in a
training step of a small transformer; but where a virtual machine's host has to find them, one takes 5 ms,
and later calls are no faster by them.
"""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache

from mortice_llvm.errors import LoadError
from mortice_llvm.runtime import memory

#: A little below the greatest block from which glibc learns.
GREATEST = (32 << 20) - (64 << 10)
#: Address space for what graphs have in common, and from how many bytes on a graph lies there: fewer
#: come from the C library, which has such blocks.
ROOM, LITTLE = 64 << 20, 1 << 20


@cache
def keep_freed_memory() -> None:
    """Once per process: raises glibc's thresholds to their greatest."""
    try:
        libc = ctypes.CDLL(None)
        malloc, free = libc.malloc, libc.free
    except (OSError, TypeError, AttributeError):
        return  # Windows, or a C library whose functions cannot be called by name: nothing to ask
    malloc.restype, malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    free.restype, free.argtypes = None, [ctypes.c_void_p]
    free(malloc(GREATEST))


class Common:
    """The memory that graphs have in common."""

    def __init__(self) -> None:
        #: Not 0 while a graph is at work there without the GIL.
        self.busy = ctypes.c_int64(0)
        self._at: int | None = None

    def room(self, size: int) -> int | None:
        """Where ``size`` bytes lie that all graphs may use in turn, at the start of a page; ``busy`` says
        when. None where they need memory of their own.
        """
        if not LITTLE <= size <= ROOM or not sys.platform.startswith("linux"):
            return None
        if self._at is None:
            try:
                self._at = memory.new(ROOM)
            except LoadError:  # no room for as much: they may have as little as they need
                return None
        return self._at


COMMON = Common()


def _nobody_is_at_work() -> None:
    """In a child process there are none of its parent's other threads."""
    COMMON.busy.value = 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_nobody_is_at_work)
