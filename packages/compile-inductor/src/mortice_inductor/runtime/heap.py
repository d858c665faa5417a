"""Memory for results: asks the C library to keep what is freed for the next call.

glibc gives memory back to the system when more than its trim threshold is free at the heap's end,
and large blocks at once. The results of the next call then fault in page by page: 4,700 pages, a
quarter of the time, in a training step of a small transformer. The thresholds follow the greatest
block that was ever freed (mallopt(3), M_MMAP_THRESHOLD), so one block, never touched, is enough:
blocks up to 32 MiB then come from the heap, of whose end 64 MiB stay. Whoever has set a threshold
(``MALLOC_TRIM_THRESHOLD_``, ``GLIBC_TUNABLES``) has also switched this off; other C libraries are
not affected.
"""

from __future__ import annotations

import ctypes
from functools import cache

#: A little below the greatest block from which glibc learns.
GREATEST = (32 << 20) - (64 << 10)


@cache
def keep_freed_memory() -> None:
    """Once per process: raises glibc's thresholds to their greatest."""
    try:
        libc = ctypes.CDLL(None)
        malloc, free = libc.malloc, libc.free
    except (OSError, TypeError, AttributeError):
        return  # Windows: nothing of the kind to ask
    malloc.restype, malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    free.restype, free.argtypes = None, [ctypes.c_void_p]
    free(malloc(GREATEST))
