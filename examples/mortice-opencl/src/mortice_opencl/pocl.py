"""PoCL 3.0, the newest that is a wheel, on processors that are newer than it.

It compiles for the processor that its LLVM 14 recognises. Where that recognises none it says "generic",
a name that LLVM takes and its clang does not, so that no program builds. The name is a string that the
device's own structure points to; here it is replaced by that of the processor's level.
"""

from __future__ import annotations

import ctypes
import struct
from pathlib import Path
from typing import Any

_UNKNOWN = b"generic\0"
#: A flag of the processor -> the level of x86-64 that has it, the highest first.
_LEVELS = (("avx512vl", b"x86-64-v4"), ("avx2", b"x86-64-v3"), ("sse4_2", b"x86-64-v2"))
_kept: list[Any] = []


def name_processor(device: Any) -> bool:
    """Give a PoCL device a name for its processor, if it has none; return whether it was needed."""
    if not device.version.rstrip().endswith("x86_64-unknown-linux-gnu-generic"):
        return False
    with open("/proc/self/mem", "rb", buffering=0) as memory:
        structure = _read(memory, device.int_ptr, 1024)
        found = [
            at
            for at in range(0, len(structure) - 7, 8)
            if _read(memory, struct.unpack_from("Q", structure, at)[0], len(_UNKNOWN)) == _UNKNOWN
        ]
    if len(found) != 1:  # another version of PoCL, which may know better
        return False
    name = ctypes.create_string_buffer(_level())
    _kept.append(name)
    ctypes.c_void_p.from_address(device.int_ptr + found[0]).value = ctypes.addressof(name)
    return True


def _read(memory: Any, address: int, count: int) -> bytes:
    """Bytes of this process; empty where there is nothing."""
    try:
        memory.seek(address)
        return memory.read(count)
    except (OSError, OverflowError, ValueError):
        return b""


def _level() -> bytes:
    text = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    flags = next((line.split() for line in text.splitlines() if line.startswith("flags")), [])
    return next((level for flag, level in _LEVELS if flag in flags), b"x86-64")
