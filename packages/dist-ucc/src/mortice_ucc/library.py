"""The UCC that is there, through its C API."""

from __future__ import annotations

import ctypes
import os
import sys
from ctypes import c_char_p, c_int, c_uint
from ctypes import c_void_p as pointer
from typing import Any

from mortice.backend import Unavailable
from mortice.errors import DistBackendError

from . import structures as ucc

_NAME = "libucc.so.1"
# The version of the API that is used, which a library must have.
_API = 1, 2
_FIX = "Install UCC, as in conda install -c conda-forge ucc, or load NVIDIA's HPC-X"
_library: Any = None
_handle: Any = None
# What an operation that was given up may still write to or read from.
abandoned: list[Any] = []


def load() -> Any:
    """The library. Raises Unavailable where it is not there, cannot be loaded or is too old."""
    global _library
    if _library is None:
        # UCX would take the place of Python's handlers of signals that end a process.
        os.environ.setdefault("UCX_HANDLE_ERRORS", "none")
        os.environ.setdefault("UCC_LOG_LEVEL", "error")
        _library = _declared(_opened())
    return _library


def start() -> tuple[Any, Any]:
    """(the library, its handle), started so that several threads may call it."""
    global _handle
    library = load()
    if _handle is None:
        parameters = ucc.LibParams(mask=ucc.LIB_THREAD_MODE, thread_mode=ucc.THREAD_MULTIPLE)
        config, handle = pointer(), pointer()
        check("ucc_lib_config_read", library.ucc_lib_config_read(None, None, config))
        code = library.ucc_init_version(*_API, parameters, config, handle)
        library.ucc_lib_config_release(config)
        check("ucc_init", code)
        _handle = handle
    return library, _handle


def check(name: str, code: int) -> int:
    """Raise DistBackendError for a status that is an error; returns it otherwise."""
    if code < 0:
        text = load().ucc_status_string(code).decode(errors="replace")
        raise DistBackendError(f"{name} returned {code}: {text}")
    return code


def _places() -> list[str]:
    """Where UCC may be: HPC-X's, the environment's, the system's."""
    folders = [os.environ.get("HPCX_UCC_DIR", ""), sys.prefix]
    paths = [os.path.join(folder, "lib", _NAME) for folder in folders if folder]
    return [*filter(os.path.exists, paths), _NAME]


def _opened() -> Any:
    place = _places()[0]
    try:
        return ctypes.CDLL(place)
    except OSError as error:
        reason = f"{place} cannot be loaded: {error}"
        if place == _NAME and str(error).startswith(f"{_NAME}: cannot open"):
            reason = f"there is no {_NAME} in HPCX_UCC_DIR, in {sys.prefix}, or in the system"
        raise Unavailable(reason, _FIX) from error


def _declared(library: Any) -> Any:
    ref = ctypes.POINTER
    signatures: dict[str, list[Any]] = {
        "ucc_get_version": [ref(c_uint), ref(c_uint), ref(c_uint)],
        "ucc_status_string": [c_int],
        "ucc_lib_config_read": [c_char_p, c_char_p, ref(pointer)],
        "ucc_lib_config_release": [pointer],
        "ucc_init_version": [c_uint, c_uint, ref(ucc.LibParams), pointer, ref(pointer)],
        "ucc_context_config_read": [pointer, c_char_p, ref(pointer)],
        "ucc_context_config_release": [pointer],
        "ucc_context_create": [pointer, ref(ucc.ContextParams), pointer, ref(pointer)],
        "ucc_context_progress": [pointer],
        "ucc_context_destroy": [pointer],
        "ucc_team_create_post": [ref(pointer), c_uint, ref(ucc.TeamParams), ref(pointer)],
        "ucc_team_create_test": [pointer],
        "ucc_team_destroy": [pointer],
        "ucc_collective_init": [ref(ucc.Arguments), ref(ref(c_int)), pointer],
        "ucc_collective_post": [ref(c_int)],
        "ucc_collective_finalize": [ref(c_int)],
    }
    try:
        for name, arguments in signatures.items():
            getattr(library, name).argtypes = arguments
    except AttributeError as error:
        raise Unavailable(f"this {_NAME} is no UCC that is known here: {error}", _FIX) from error
    library.ucc_status_string.restype = c_char_p
    library.ucc_lib_config_release.restype = None
    library.ucc_context_config_release.restype = None
    found = c_uint(), c_uint(), c_uint()
    library.ucc_get_version(*found)
    version = tuple(number.value for number in found)
    if version[0] != _API[0] or version < _API:
        raise Unavailable(f"UCC {'.'.join(map(str, version))} is there; it takes 1.2 to 1.x", _FIX)
    return library
