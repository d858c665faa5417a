"""Gloo itself: the extension in xoscar's wheel, loaded alone, and mended in two places.

The binding holds the GIL while Gloo waits for the network, so that nothing else of the process
runs. And Gloo's thread for the network, where it finds a connection locked, tries again at once:
on a core that the lock's holder needs too, until the scheduler's tick ends that (64 KiB between
two ranks: 4 ms instead of 0.2 ms). Where machine code for this processor is at hand, the calls are
led through a few instructions that give the GIL back meanwhile, and the core after each vain try
(tools/thunk.py): the addresses that the dynamic linker wrote for these functions are replaced by
that code's.
"""

from __future__ import annotations

import ctypes
import importlib.machinery
import importlib.util
import mmap
import os
import platform
import struct
import sys
import threading
from collections.abc import Iterator
from typing import Any

from mortice.backend import Unavailable

# Functions, by the start of their names, that wait for other ranks. What the binding calls ...
WAITING = tuple(
    f"_ZN4gloo{name}E"
    for name in (
        "9allreduce", "9allgather", "10allgatherv", "8alltoall", "7barrier", "9broadcast",
        "6gather", "6reduce", "7scatter",
        # ... and what it reaches through tables of virtual functions.
        "9transport3tcp13UnboundBuffer8waitRecv", "9transport3tcp13UnboundBuffer8waitSend",
        "9transport3tcp4Pair7connect",
    )
)  # fmt: skip
# With what its thread tries the lock of a connection; the system's.
_TRY = "pthread_mutex_trylock"
_RELA = 4
_ADDRESS, _JUMP = 1, 7  # relocations: R_X86_64_64, R_X86_64_JUMP_SLOT
_FIX = "pip install xoscar"
_lock = threading.Lock()
_module: Any = None
#: Whether other threads run while Gloo waits; decided when the library is loaded.
releases_gil = False


def library_path() -> str:
    """The extension's file; raises Unavailable where xoscar, or the extension in it, is not there."""
    found = importlib.util.find_spec("xoscar")  # finds, and does not import
    if found is None or not found.submodule_search_locations:
        raise Unavailable("the distribution xoscar, which holds Gloo, is not installed", _FIX)
    for folder in found.submodule_search_locations:
        for suffix in importlib.machinery.EXTENSION_SUFFIXES:
            path = os.path.join(folder, "collective", f"xoscar_pygloo{suffix}")
            if os.path.exists(path):
                return path
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    raise Unavailable(
        f"xoscar is installed without Gloo for Python {version} on {sys.platform}", _FIX
    )


def load() -> Any:
    """The extension module, loaded once."""
    global _module, releases_gil
    with _lock:
        if _module is None:
            path = library_path()
            loader = importlib.machinery.ExtensionFileLoader("xoscar_pygloo", path)
            spec = importlib.util.spec_from_loader("xoscar_pygloo", loader)
            assert spec is not None
            try:
                module = importlib.util.module_from_spec(spec)
                loader.exec_module(module)
            except ImportError as error:
                raise Unavailable(f"Gloo cannot be loaded from {path}: {error}", _FIX) from error
            if not module.transport_tcp_available():
                raise Unavailable("this build of Gloo has no TCP transport", _FIX)
            releases_gil = _free(path)
            _module = module
        return _module


# -- the GIL ------------------------------------------------------------------------------------


def _free(path: str) -> bool:
    """Lead the waiting functions through code that releases the GIL; False where there is none."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return False
    from . import _thunk

    with open(path, "rb") as file:
        image = file.read()
    library = ctypes.CDLL(path)
    places = [*_relocations(image)]
    base = _base(library, places)
    if base is None:
        return False
    code: dict[str, int] = {}
    for name, where, value in places:
        if name not in code:
            code[name] = (
                _placed(_address(library, _TRY), _thunk.PATIENT)
                if name == _TRY
                else _placed(base + value, _thunk.THUNK)
            )
        _write(base + where, code[name])
    return True


def _relocations(image: bytes) -> Iterator[tuple[str, int, int]]:
    """(name, place, value) of each relocation, in a shared library, of a function that is led
    elsewhere; the value of one from outside is 0.
    """
    (table,) = struct.unpack_from("<Q", image, 40)
    (count,) = struct.unpack_from("<H", image, 60)
    heads = [struct.unpack_from("<IIQQQQIIQQ", image, table + 64 * k) for k in range(count)]
    for _, kind, _, _, offset, size, link, _, _, _ in heads:
        if kind != _RELA:
            continue
        symbols = heads[link][4]
        texts = heads[heads[link][6]][4]
        for where, info, _ in struct.iter_unpack("<QQq", image[offset : offset + size]):
            if info & 0xFFFFFFFF not in (_ADDRESS, _JUMP):
                continue
            start, _, _, _, value, _ = struct.unpack_from(
                "<IBBHQQ", image, symbols + 24 * (info >> 32)
            )
            begin = texts + start
            if image.startswith((b"_ZN4gloo", _TRY.encode()), begin):
                name = image[begin : image.index(b"\0", begin)].decode()
                if name == _TRY or (name.startswith(WAITING) and value):
                    yield name, where, value


def _base(library: ctypes.CDLL, places: list[tuple[str, int, int]]) -> int | None:
    """Where the library lies in memory; None where it has no function that waits."""
    for name, _, value in places:
        if value:
            return _address(library, name) - value
    return None


def _address(library: ctypes.CDLL, name: str) -> int:
    return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0


def _placed(target: int, entry: int) -> int:
    """The address of a copy of the code for ``target``; it stays for the life of the process."""
    from . import _thunk

    python, unwinder, cxx = (
        ctypes.pythonapi,
        ctypes.CDLL("libgcc_s.so.1"),
        ctypes.CDLL("libstdc++.so.6"),
    )
    slots = {
        "target": target,
        "holds_gil": _address(python, "PyGILState_Check"),
        "release": _address(python, "PyEval_SaveThread"),
        "acquire": _address(python, "PyEval_RestoreThread"),
        "personality": _address(cxx, "__gxx_personality_v0"),
        "resume": _address(unwinder, "_Unwind_Resume"),
        "yield": _address(ctypes.CDLL(None), "sched_yield"),
    }
    at = _memory()
    ctypes.memmove(at, _thunk.IMAGE, len(_thunk.IMAGE))
    for k, name in enumerate(_thunk.SLOTS):
        ctypes.c_uint64.from_address(at + _thunk.SLOT + 8 * k).value = slots[name]
    _protect(at, mmap.PROT_READ | mmap.PROT_EXEC)
    unwinder.__register_frame(ctypes.c_void_p(at + _thunk.FRAMES))
    return at + entry


def _memory() -> int:
    """A fresh page that is never given back: Gloo's threads may be in it when the process ends."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    access = mmap.PROT_READ | mmap.PROT_WRITE
    at = libc.mmap(None, ctypes.c_size_t(mmap.PAGESIZE), access, private, -1, ctypes.c_long(0))
    if at in (None, ctypes.c_void_p(-1).value):
        raise Unavailable(f"no memory for code: {os.strerror(ctypes.get_errno())}")
    return int(at)


def _protect(at: int, access: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    page = ctypes.c_void_p(at & ~(mmap.PAGESIZE - 1))
    if libc.mprotect(page, ctypes.c_size_t(mmap.PAGESIZE), access):
        number = ctypes.get_errno()
        raise Unavailable(f"memory cannot be made executable or writable: {os.strerror(number)}")


def _write(at: int, value: int) -> None:
    """Write an address into a table of the library, whose page may be read-only."""
    _protect(at, mmap.PROT_READ | mmap.PROT_WRITE)
    ctypes.c_uint64.from_address(at).value = value
