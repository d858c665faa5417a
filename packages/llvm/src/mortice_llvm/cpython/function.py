"""The Python object that runs a native function."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from typing import Any

from ..runtime.library import Library, load
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


def loaded(code: Code) -> Library:
    """The machine code of a text, loaded once however many functions are made of it."""
    if code.library is None:
        text = code.text()
        code.library = load(b"cpython/" + text.encode(), lambda _: text, uses_pool=False)
    return code.library


def make(
    code: Code,
    name: str,
    doc: str = "",
    first: Sequence[int] = (),
    kept: Sequence[object] = (),
) -> Callable[..., Any]:
    """A builtin function that runs ``code``; it is freed with the last reference to it.

    ``first`` are the numbers for the table's reserved places (``Code(reserved=n)``), by which
    functions of one text differ, and ``kept`` what must live as long as this one does. Its
    ``__self__`` is the table, its ``__module__`` the tuple of what it keeps.
    """
    library = loaded(code)
    address = library.address(code.name)
    definition = _Definition(name.encode(), address, _FASTCALL_KEYWORDS, doc.encode() or None)
    numbers = [*first, *code.table[len(first) :]]
    table = struct.pack(f"<{len(numbers)}Q", *(n & (1 << 64) - 1 for n in numbers))
    keeps = (definition, library, *code.kept, *kept)
    new = ctypes.pythonapi.PyCFunction_NewEx
    new.restype = ctypes.py_object
    new.argtypes = [ctypes.c_void_p, ctypes.py_object, ctypes.py_object]
    return new(ctypes.addressof(definition), table, keeps)
