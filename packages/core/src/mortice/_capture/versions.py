"""CPython's own counters of changes to dicts and classes, read in 20 ns.

A dict has a number that is new after every change (``ma_version_tag``, up to Python 3.12), a class one
that is given up at every change of it or of a base (``tp_version_tag``). Where reading them as they
lie in memory passes the tests below, guards on unchanged dicts and classes need no lookups. They are
an accelerator: guards say what must hold, and hold with or without them.
"""

from __future__ import annotations

import ctypes
import sys
from collections import OrderedDict
from functools import cache
from typing import Any

#: Byte offsets in the structures of a 64-bit CPython.
_DICT_VERSION = 24
_TYPE_VERSION = 384


def dict_version(values: dict[Any, Any]) -> Any:
    """A sequence of one element: the dict's version now. The dict must stay alive."""
    return (
        memoryview((ctypes.c_char * 8).from_address(id(values) + _DICT_VERSION)).cast("B").cast("Q")
    )


def type_version(cls: type) -> Any:
    """A sequence of one element: the class's version now, 0 while it has none."""
    return memoryview((ctypes.c_char * 4).from_address(id(cls) + _TYPE_VERSION)).cast("B").cast("I")


@cache
def can_read() -> bool:
    """Whether both counters are where they are expected, and count what they are expected to."""
    if sys.implementation.name != "cpython" or not (3, 10) <= sys.version_info[:2] <= (3, 12):
        return False
    if ctypes.sizeof(ctypes.c_void_p) != 8 or hasattr(sys, "gettotalrefcount"):
        return False
    return _dicts_count() and _instances_count() and _types_count()


def _dicts_count() -> bool:
    plain, ordered = {"a": 1, "b": object()}, OrderedDict(a=1)
    changes: list[Any] = [
        lambda d: d.__setitem__("a", 2),
        lambda d: d.__setitem__("c", 1),
        lambda d: d.pop("c"),
        lambda d: d.update(a=3),
        lambda d: d.setdefault("e", 4),
        lambda d: d.popitem(),
        lambda d: d.clear(),
    ]
    return all(
        _moves(dict_version(d), lambda c=c, d=d: c(d)) for d in (plain, ordered) for c in changes
    )


def _instances_count() -> bool:
    class Some:
        pass

    some = Some()
    some.a = 1  # type: ignore[attr-defined]
    values = some.__dict__
    version = dict_version(values)
    changes: list[Any] = [
        lambda: setattr(some, "a", 2),
        lambda: setattr(some, "b", 2),
        lambda: delattr(some, "a"),
        lambda: object.__setattr__(some, "b", 3),
        lambda: values.update(b=4),
    ]
    if not all(_moves(version, change) for change in changes):
        return False
    still = version[0]
    some.__dict__ = {"b": 5}
    return some.__dict__ is not values and version[0] == still


def _types_count() -> bool:
    class Base:
        pass

    class Middle:
        pass

    class Derived(Base):
        def method(self) -> None:
            pass

    version = type_version(Derived)
    changes: list[Any] = [
        lambda: setattr(Derived, "x", 1),
        lambda: setattr(Base, "y", 1),
        lambda: delattr(Base, "y"),
        lambda: setattr(Derived, "method", None),
        lambda: setattr(Derived, "__bases__", (Middle,)),
        lambda: setattr(Middle, "z", 1),
    ]
    for change in changes:
        Derived().__init__()  # a lookup gives the class a version
        if not version[0] or not _moves(version, change):
            return False
    Derived().__init__()
    return bool(version[0]) and version[0] != type_version(Middle)[0]


def _moves(version: Any, change: Any) -> bool:
    """Whether a change shows, and nothing else does."""
    before = version[0]
    if version[0] != before:
        return False
    change()
    return version[0] != before
