"""The Python object that runs a native function."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from typing import Any

from ..runtime.library import load
from .code import Code

_FASTCALL_KEYWORDS = 0x82


class _Definition(ctypes.Structure):
    """PyMethodDef."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("call", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    ]


def make(code: Code, name: str, doc: str = "") -> Callable[..., Any]:
    """A builtin function that runs ``code``; it is freed with the last reference to it.

    Its ``__self__`` is the table of constants, its ``__module__`` the tuple of what it keeps.
    """
    text = code.text()
    library = load(b"cpython/" + text.encode(), lambda _: text, uses_pool=False)
    definition = _Definition(
        name.encode(), library.address(code.name), _FASTCALL_KEYWORDS, doc.encode() or None
    )
    table = struct.pack(f"<{len(code.table)}Q", *code.table)
    kept = (definition, library, *code.kept)
    new = ctypes.pythonapi.PyCFunction_NewEx
    new.restype = ctypes.py_object
    new.argtypes = [ctypes.c_void_p, ctypes.py_object, ctypes.py_object]
    return new(ctypes.addressof(definition), table, kept)
