"""Addresses of numpy's own BLAS routines, for calls without Python.

numpy's wheels carry an OpenBLAS whose names have a prefix and a suffix (``scipy_cblas_sgemm64_``)
and whose integers have 64 bits. Loading the library by the path from which numpy loaded it gives
the same copy. Where numpy was built in another way there is none: ``routine`` returns None and
callers use ``numpy.matmul``.
"""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from .errors import NotAvailable

if TYPE_CHECKING:
    from .target import Target

ROW_MAJOR, NO_TRANS, TRANS = 101, 111, 112


class Routine(NamedTuple):
    """A BLAS routine: its address and the size of its integers (64 bits: ILP64)."""

    address: int
    integer_bits: int


_library: ctypes.CDLL | None = None
_searched = False


def _candidates() -> list[str]:
    """Paths of OpenBLAS libraries that numpy's wheel brought."""
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        home = next(iter(numpy.__path__))
    else:
        from importlib.util import find_spec

        spec = find_spec("numpy")
        if spec is None or not spec.submodule_search_locations:
            return []
        home = spec.submodule_search_locations[0]
    out: list[str] = []
    for folder in (home + ".libs", os.path.join(home, ".dylibs")):
        if os.path.isdir(folder):
            out += [os.path.join(folder, n) for n in sorted(os.listdir(folder)) if "blas" in n]
    return out


def library() -> ctypes.CDLL | None:
    """numpy's OpenBLAS, or None."""
    global _library, _searched
    if not _searched:
        _searched = True
        for path in _candidates():
            try:
                _library = ctypes.CDLL(path)
            except OSError:
                continue  # not a library that this process can load
            break
    return _library


def routine(name: str) -> Routine | None:
    """The CBLAS routine ``name`` (``cblas_sgemm``, ``cblas_dgemm``, ...), or None.

    ``tile_f32`` and ``tile_f64`` are ours, with parameters of their own: ``gemm.tile.PARAMETERS``.
    Raises NotAvailable for a tile of another dtype.
    """
    if name.startswith("tile_"):
        return Routine(_tile(name.removeprefix("tile_")), 64)
    lib = library()
    if lib is None:
        return None
    for decorated, bits in ((f"scipy_{name}64_", 64), (f"{name}64_", 64), (f"scipy_{name}", 32)):
        found = getattr(lib, decorated, None)
        if found is not None:
            return Routine(ctypes.cast(found, ctypes.c_void_p).value or 0, bits)
    return None


@cache
def _tile(dtype: str) -> int:
    """The address of our own product for ``dtype``."""
    from .runtime.library import load

    if dtype not in ("f32", "f64"):
        raise NotAvailable(f"products by tiles are for f32 and f64, but got {dtype!r}")

    def text(target: Target) -> str:
        from .gemm.tile import module_text

        return module_text(target, dtype, _TILE)

    return load(f"tile {dtype}".encode(), text, uses_pool=False).address(_TILE)


#: Of the function, in each type's code.
_TILE = "mortice_tile"


@cache
def thread_functions() -> tuple[int, int] | None:
    """Addresses of ``int get()`` and ``void set(int)`` for the number of threads that numpy's
    OpenBLAS uses; None where there is none.
    """
    lib = library()
    for prefix, suffix in (("scipy_", "64_"), ("", "64_"), ("scipy_", ""), ("", "")):
        pair = [
            getattr(lib, f"{prefix}openblas_{what}_num_threads{suffix}", None)
            for what in ("get", "set")
        ]
        if all(pair):
            return tuple(ctypes.cast(f, ctypes.c_void_p).value or 0 for f in pair)  # type: ignore[return-value, arg-type]
    return None


def set_num_threads(n: int) -> bool:
    """Sets how many threads numpy's OpenBLAS uses; False where there is none to set."""
    lib = library()
    for name in ("scipy_openblas_set_num_threads64_", "openblas_set_num_threads64_",
                 "scipy_openblas_set_num_threads", "openblas_set_num_threads"):  # fmt: skip
        fn = getattr(lib, name, None) if lib is not None else None
        if fn is not None:
            fn(ctypes.c_int(n))
            return True
    return False
