"""oneCCL's C API through ctypes."""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Any

from mortice.backend import Unavailable

_NAME = "libccl.so.2"
_FIX = "pip install oneccl"
# Bytes of onecclUniqueId, which is passed by value.
IDENTITY = 256
# Which of oneCCL's plug-ins is to be used; on a machine without Intel GPUs there is no other.
_PLUGIN = "ONECCL_LEGACY_CPU"
# What oneCCL opens by name when it is used.
_LATER = ("libccl_legacy_cpu.so", "libfabric.so.1")
_library: Any = None


class UniqueId(ctypes.Structure):
    """onecclUniqueId."""

    _fields_ = [("data", ctypes.c_uint8 * IDENTITY)]


def load() -> Any:
    """The library. Raises Unavailable where it is not there or cannot be loaded."""
    global _library
    if _library is None:
        os.environ.setdefault("CCL_PLUGIN", _PLUGIN)
        os.environ.setdefault("CCL_LOG_LEVEL", "error")
        # Its threads wait in loops, which by default keep other ranks from their core: 4 ranks on 2
        # cores then take 6 times as long.
        os.environ.setdefault("CCL_YIELD", "sched_yield")
        _library = _declared(_opened())
    return _library


def _opened() -> Any:
    folder = os.path.join(sys.prefix, "lib")
    own = os.path.join(folder, _NAME)
    reason = f"neither {own} nor a system's {_NAME} is there"
    try:
        if os.path.exists(own):
            for name in (*_LATER, _NAME):
                _loaded(folder, name)
            return _loaded(folder, _NAME)
        return ctypes.CDLL(_NAME)
    except OSError as error:
        if os.path.exists(own):
            reason = f"oneCCL cannot be loaded: {error}"
        raise Unavailable(reason, _FIX) from error


def _loaded(folder: str, name: str) -> Any:
    """A library of a wheel's folder, those of the same folder that it needs first.

    The wheel counts on LD_LIBRARY_PATH; what is loaded already is found without.
    """
    for _ in range(40):
        try:
            return ctypes.CDLL(os.path.join(folder, name), ctypes.RTLD_GLOBAL)
        except OSError as error:
            missing = str(error).partition(":")[0]
            if missing == name or not os.path.exists(os.path.join(folder, missing)):
                raise
            _loaded(folder, missing)
    raise OSError(f"{name} needs too many libraries")


def _declared(library: Any) -> Any:
    pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    library.onecclGetErrorString.restype = ctypes.c_char_p
    signatures: dict[str, list[Any]] = {
        "onecclGetUniqueId": [pointer],
        "onecclCommInitRank": [pointer, number, UniqueId, number],
        "onecclCommDestroy": [pointer],
        "onecclAllReduce": [pointer, pointer, size, number, number, pointer, pointer],
        "onecclReduce": [pointer, pointer, size, number, number, number, pointer, pointer],
        "onecclReduceScatter": [pointer, pointer, size, number, number, pointer, pointer],
        "onecclBroadcast": [pointer, pointer, size, number, number, pointer, pointer],
        "onecclAllGather": [pointer, pointer, size, number, pointer, pointer],
        "onecclAllToAll": [pointer, pointer, size, number, pointer, pointer],
    }
    try:
        for name, arguments in signatures.items():
            getattr(library, name).argtypes = arguments
    except AttributeError as error:
        raise Unavailable(f"this oneCCL is too old: {error}", _FIX) from error
    return library
