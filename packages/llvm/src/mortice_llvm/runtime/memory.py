"""Memory straight from the system: fresh, zero, and on pages of its own."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

from ..errors import LoadError

PAGE = 4096
_FAILED = ctypes.c_void_p(-1).value
_READ_WRITE, _PRIVATE_ANONYMOUS = 3, 0x22  # Linux


@cache
def _libc() -> Any:
    libc = ctypes.CDLL(None, use_errno=True)
    number, size = ctypes.c_int, ctypes.c_size_t
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, size, number, number, number, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, size]
    libc.mprotect.argtypes = [ctypes.c_void_p, size, number]
    return libc


def new(size: int) -> int:
    """The address of ``size`` readable and writable bytes; LoadError if there are none. For Linux."""
    at = _libc().mmap(None, size, _READ_WRITE, _PRIVATE_ANONYMOUS, -1, 0)
    if at in (None, _FAILED):
        raise LoadError(f"cannot map {size} bytes: errno {ctypes.get_errno()}")
    return at


def give_back(at: int, size: int) -> None:
    """To the system; nobody may use it any more."""
    _libc().munmap(at, size)


def protect(at: int, size: int, rights: int) -> int:
    """0, or the number of the error for which the pages cannot have these rights."""
    return ctypes.get_errno() if _libc().mprotect(at, size, rights) else 0
