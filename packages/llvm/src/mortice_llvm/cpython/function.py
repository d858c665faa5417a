"""The Python object that runs a native function."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from typing import Any

from ..runtime.library import Library, load
from . import layout
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
    entry: str = "",
) -> Callable[..., Any]:
    """A builtin function that runs ``code``; it is freed with the last reference to it.

    ``first`` are the numbers for the table's reserved places (``Code(reserved=n)``), by which
    functions of one text differ, and ``kept`` what must live as long as this one does; ``entry`` is
    the function of the text, if it is not the first. Its ``__self__`` is the table, its
    ``__module__`` the tuple of what it keeps.
    """
    library = loaded(code)
    address = library.address(entry or code.name)
    definition = _Definition(name.encode(), address, _FASTCALL_KEYWORDS, doc.encode() or None)
    table = _table(code, first)
    keeps = (definition, library, *code.kept, *kept)
    new = ctypes.pythonapi.PyCFunction_NewEx
    new.restype = ctypes.py_object
    new.argtypes = [ctypes.c_void_p, ctypes.py_object, ctypes.py_object]
    return new(ctypes.addressof(definition), table, keeps)


def _table(code: Code, first: Sequence[int] = ()) -> bytes:
    numbers = [*first, *code.table[len(first) :]]
    return struct.pack(f"<{len(numbers)}Q", *(n & (1 << 64) - 1 for n in numbers))


#: Tables of texts that have taken functions over: machine code may use them as long as it lives.
_SHARED: dict[int, tuple[Code, bytes]] = {}


def take_over(function: Callable[..., Any], code: Code, entry: str) -> None:
    """Lets calls that C code makes of a Python function go to ``entry`` (``Code.taken``).

    The function stays the object that it is, and bytecode that calls it by name still runs its own
    bytecode (up to Python 3.11): what profits are functions that Python's operators call, such as a
    class's ``__add__``. ``give_back`` ends it.
    """
    library = loaded(code)
    if id(code) not in _SHARED:
        _SHARED[id(code)] = code, _table(code)
        library.function("share", ctypes.c_void_p)(id(_SHARED[id(code)][1]))
    layout.set_vectorcall(function, library.address(entry))


def give_back(function: Callable[..., Any]) -> None:
    """A Python function is called as it was before ``take_over``."""
    layout.set_vectorcall(function, layout.word(layout.vectorcall_place()))
