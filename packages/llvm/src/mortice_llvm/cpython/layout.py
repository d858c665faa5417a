"""Where the fields of CPython's and numpy's objects lie, and the test that they do.

Offsets are those of CPython 3.10 to 3.14 and numpy 1.26 to 2.x on 64-bit platforms, default
builds. They are facts of the two projects' headers; ``unsupported`` reads live objects through
them before any code is made, so that a build that differs is refused instead of crashed.
"""

from __future__ import annotations

import ctypes
import struct
import sys
import weakref
from collections.abc import Callable
from functools import cache
from types import FunctionType
from typing import Any

#: 32 bits of it, which is all that 3.14 has.
OB_REFCOUNT = 0
OB_TYPE = 8
FLOAT_VALUE = 16
TUPLE_SIZE = 16
#: From 3.14 on a tuple's hash lies before its items.
TUPLE_ITEMS = 32 if sys.version_info >= (3, 14) else 24
LIST_SIZE = 16
LIST_ITEMS = 24
CELL_VALUE = 16
#: What a weak reference is to; None once that is gone.
WEAK_OBJECT = 16
BYTES_DATA = 32
DICT_SIZE = 16
TYPE_VECTORCALL = 56
TYPE_FLAGS = 168
ARRAY_DATA = 16
ARRAY_NDIM = 24
ARRAY_DIMS = 32
ARRAY_STRIDES = 40
ARRAY_BASE = 48
ARRAY_DESCR = 56
ARRAY_FLAGS = 64

#: Bits of a type's flags: subclasses of list, tuple and dict.
LIST_KIND, TUPLE_KIND, DICT_KIND = 1 << 25, 1 << 26, 1 << 29
TYPE_KINDS = LIST_KIND | TUPLE_KIND | DICT_KIND

#: numpy's flag bits.
C_CONTIGUOUS, OWN_DATA, ALIGNED, WRITEABLE = 0x1, 0x4, 0x100, 0x400

#: Positions in numpy's table of exported functions; they never move.
ARRAY_TYPE, NEW_FROM_DESCR = 2, 94


def word(address: int) -> int:
    """The 8 bytes at an address."""
    return ctypes.c_uint64.from_address(address).value


def half(address: int) -> int:
    """The 4 bytes at an address."""
    return ctypes.c_int32.from_address(address).value


@cache
def numpy_function(index: int) -> int:
    """The address of an entry of numpy's function table."""
    import numpy as np

    core: Any = getattr(np, "_core", None) or np.core
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype = ctypes.c_void_p
    get.argtypes = [ctypes.py_object, ctypes.c_char_p]
    table = get(core._multiarray_umath._ARRAY_API, None)
    return word(table + 8 * index)


#: Python 3.10 has it in its headers alone.
HAS_VECTORCALL = hasattr(ctypes.pythonapi, "PyObject_Vectorcall")


@cache
def python_function(name: str) -> int:
    """The address of a function of Python's C API."""
    address = ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value
    assert address is not None
    return address


def _plain() -> None:
    pass


def vectorcall_place(function: Callable[..., Any] = _plain) -> int:
    """Where a Python function keeps the address of what runs when C code calls it."""
    return id(function) + word(id(FunctionType) + TYPE_VECTORCALL)


def set_vectorcall(function: Callable[..., Any], address: int) -> None:
    """Lets C code that calls a Python function run what is at an address."""
    if hasattr(ctypes.pythonapi, "PyFunction_SetVectorcall"):  # 3.12: calls are specialised there
        put = ctypes.pythonapi.PyFunction_SetVectorcall
        put.restype, put.argtypes = None, [ctypes.py_object, ctypes.c_void_p]
        put(function, address)
    else:
        ctypes.c_uint64.from_address(vectorcall_place(function)).value = address


def _is_vectorcall() -> bool:
    """Whether the place is the one that is set; found out with a function that nobody calls."""
    if not 0 < vectorcall_place() - id(_plain) < FunctionType.__basicsize__:
        return False
    before = word(vectorcall_place())
    if hasattr(ctypes.pythonapi, "_PyFunction_Vectorcall"):  # up to Python 3.12
        return before == python_function("_PyFunction_Vectorcall")
    set_vectorcall(_plain, 1)
    found = word(vectorcall_place())
    set_vectorcall(_plain, before)
    return found == 1


@cache
def unsupported() -> str | None:
    """Why native functions are off in this interpreter; None if they are on."""
    if sys.implementation.name != "cpython":
        return f"the interpreter is {sys.implementation.name}, not CPython"
    if not (3, 10) <= sys.version_info[:2] <= (3, 14):
        return f"Python {sys.version_info[0]}.{sys.version_info[1]} has not been looked at"
    if struct.calcsize("P") != 8 or sys.byteorder != "little":
        return "the platform is not a 64-bit little-endian one"
    if "free-threading" in sys.version:  # sysconfig says it as well, in a millisecond
        return "the interpreter is built without the GIL"
    if hasattr(sys, "gettotalrefcount"):
        return "the interpreter is a debug build"
    wrong = [name for name, holds in _probes() if not holds]
    return f"the layout of {', '.join(wrong)} is not the expected one" if wrong else None


def _probes() -> list[tuple[str, bool]]:
    """(object, whether its fields are where the offsets say)."""
    import numpy as np

    marker = object()
    array = np.zeros((3, 5), np.float32)
    at = id(array)
    part = array[1:]
    named = {"a": 1, "b": 2, "c": 3}
    pair, pair_list = (marker, None), [marker, None]

    def closed() -> object:
        return marker

    assert closed.__closure__ is not None
    cell = closed.__closure__[0]
    weak = weakref.ref(closed)
    data = b"mortice"
    number = float("2.5")
    float_bits = struct.unpack("<Q", struct.pack("<d", 2.5))[0]
    flags = half(at + ARRAY_FLAGS)
    return [
        ("object", word(id(marker) + OB_TYPE) == id(object)
                   and half(id(pair_list) + OB_REFCOUNT) == 1),
        ("float", word(id(number) + FLOAT_VALUE) == float_bits),
        ("tuple", word(id(pair) + TUPLE_SIZE) == 2 and word(id(pair) + TUPLE_ITEMS) == id(marker)),
        ("list", word(id(pair_list) + LIST_SIZE) == 2
                 and word(word(id(pair_list) + LIST_ITEMS)) == id(marker)),
        ("dict", word(id(named) + DICT_SIZE) == 3),
        ("type", word(id(dict) + TYPE_FLAGS) & TYPE_KINDS == DICT_KIND
                 and word(id(list) + TYPE_FLAGS) & TYPE_KINDS == LIST_KIND
                 and word(id(tuple) + TYPE_FLAGS) & TYPE_KINDS == TUPLE_KIND),
        ("cell", word(id(cell) + CELL_VALUE) == id(marker)),
        ("weak reference", word(id(weak) + WEAK_OBJECT) == id(closed)),
        ("bytes", ctypes.string_at(id(data) + BYTES_DATA, 7) == data),
        ("ndarray", word(at + ARRAY_DATA) == array.ctypes.data
                    and half(at + ARRAY_NDIM) == 2
                    and word(word(at + ARRAY_DIMS)) == 3
                    and word(word(at + ARRAY_STRIDES)) == 20
                    and word(at + ARRAY_DESCR) == id(array.dtype)
                    and word(at + ARRAY_BASE) == 0
                    and word(id(part) + ARRAY_BASE) == at
                    and half(id(part) + ARRAY_FLAGS) & OWN_DATA == 0
                    and flags & (C_CONTIGUOUS | OWN_DATA | WRITEABLE)
                        == C_CONTIGUOUS | OWN_DATA | WRITEABLE),
        ("function", _is_vectorcall()),
        ("numpy's function table", numpy_function(ARRAY_TYPE) == id(np.ndarray)),
    ]  # fmt: skip
