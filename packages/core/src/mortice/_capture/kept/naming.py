"""Objects as another process knows them: by what they are, said in plain data.

Guards speak of very objects: a function, a class, a module. Another process has others in their place,
which mean the same if they are of the same name and made of the same code. A description holds all that
of an object, and nothing that differs between two runs of one program.
"""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Callable
from typing import Any, NamedTuple

from mortice._capture.guards import Ref
from mortice._capture.identity import module_of
from mortice._capture.observer.framework import is_library, is_ours
from mortice._dispatch.state import STARTED
from mortice._types.dtypes import DType

#: A tuple that begins with the kind of the object, for marshal.
Description = tuple[Any, ...]


class Unnamed(Exception):
    """An object that another process cannot know; the text says which."""


def describe(value: Any) -> Description:
    """What an object is. Raises Unnamed."""
    if issubclass(type(value), type):
        return _type(value)
    write = _DESCRIBE.get(type(value))
    if write is None:
        raise Unnamed(f"a {type(value).__name__}")
    return write(value)


def _type(cls: Any) -> Description:
    """A class by its name, and by those of its bases and its metaclass."""
    mro = type.__dict__["__mro__"].__get__(cls)
    return ("type", *_class_name(type(cls)), *[part for c in mro for part in _class_name(c)])


def _class_name(cls: type) -> tuple[str, str]:
    return module_of(cls), type.__getattribute__(cls, "__qualname__")


def _module(module: Any) -> Description:
    name = module.__dict__.get("__name__")
    if type(name) is not str or sys.modules.get(name) is not module:
        raise Unnamed("a module that is not imported by its name")
    return "module", name


def _function(f: Any) -> Description:
    """A function by its name and code. What a user's has in its cells and defaults, guards say; of the
    framework's they do not, and what one closes over is part of what it is.
    """
    module = f.__globals__.get("__name__")
    if type(module) is not str:
        raise Unnamed(f"function {f.__qualname__} of a module without a name")
    cells: Any = f.__closure__ if is_library(module) else None
    write = _own_cell if is_ours(module) else _cell
    return "function", module, f.__qualname__, _code(f.__code__), *map(write, cells or ())


def _cell(cell: types.CellType) -> Description:
    value = cell.cell_contents
    if type(value) in _PLAIN:
        return type(value).__name__, repr(value)
    if type(value) is types.FunctionType and value.__closure__:
        raise Unnamed("a closure in a closure")  # it may be the one that is described
    return ("dtype", value.name) if type(value) is DType else describe(value)


def _own_cell(cell: types.CellType) -> Description:
    """Of core's functions no two differ in more than that (a test looks at all)."""
    try:
        return _cell(cell)
    except Unnamed:
        return ("a", type(cell.cell_contents).__name__)


_PLAIN = (bool, int, float, str, type(None))


def _code(code: types.CodeType) -> Description:
    """All of a code object but its file and lines."""
    shape = (
        code.co_name, code.co_flags, code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount,
        code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars,
        getattr(code, "co_exceptiontable", b""), code.co_code,
    )  # fmt: skip
    return "code", hash_of(repr((shape, [_constant(c) for c in code.co_consts])).encode())


def _constant(value: Any) -> Any:
    """A constant of a code object, the same in every process: sets have no order."""
    if type(value) is types.CodeType:
        return _code(value)
    if type(value) is tuple:
        return tuple(map(_constant, value))
    if type(value) is frozenset:
        return "set", sorted(repr(_constant(x)) for x in value)
    return type(value).__name__, repr(value)


def hash_of(data: bytes) -> bytes:
    """A hash of 16 bytes. The sources are the user's own: nobody forges them."""
    try:
        from _blake2 import blake2b  # hashlib would load OpenSSL first
    except ImportError:
        from hashlib import blake2b
    return blake2b(data, digest_size=16).digest()


def _builtin(f: Any) -> Description:
    owner = f.__self__
    if owner is not None and type(owner) is not types.ModuleType and not isinstance(owner, type):
        raise Unnamed(f"{f.__qualname__} of a {type(owner).__name__}")
    _standard(f.__module__ or "builtins")
    return ("builtin", f.__module__, f.__qualname__, *(() if owner is None else describe(owner)))


def _descriptor(kind: str) -> Callable[[Any], Description]:
    def write(value: Any) -> Description:
        return kind, value.__name__, *_type(value.__objclass__)

    return write


def _standard(module: str) -> None:
    """C code is known by the version of Python, so it has to be Python's own."""
    if module.partition(".")[0] not in sys.stdlib_module_names:
        raise Unnamed(f"C code of module {module}")


def _property(p: Any) -> Description:
    parts = [() if f is None else describe(f) for f in (p.fget, p.fset, p.fdel)]
    return "property", *parts


def _of_function(kind: str) -> Callable[[Any], Description]:
    return lambda value: (kind, *describe(value.__func__))


def _field(value: Any) -> Description:
    """A field of a named tuple: its position."""
    return "field", value.__reduce__()[1][0]


class _One(NamedTuple):
    x: int


_DESCRIBE: dict[type, Callable[[Any], Description]] = {
    types.ModuleType: _module,
    types.FunctionType: _function,
    types.CodeType: _code,
    types.BuiltinFunctionType: _builtin,
    types.WrapperDescriptorType: _descriptor("wrapper"),
    types.MethodDescriptorType: _descriptor("method"),
    types.ClassMethodDescriptorType: _descriptor("class method"),
    types.GetSetDescriptorType: _descriptor("getset"),
    types.MemberDescriptorType: _descriptor("member"),
    property: _property,
    staticmethod: _of_function("static"),
    classmethod: _of_function("class"),
    type(vars(_One)["x"]): _field,
}


class Writer:
    """Numbers for the objects that guards speak of, and what says that their sources are the same.

    Attributes:
        rows: the descriptions, by number.
        files: modules of users -> (path, size, time in ns) of the file that they come from.
        packages: packages of the framework, other than core, that have a part in it.
    """

    def __init__(self) -> None:
        self.rows: list[Description] = []
        self.files: dict[str, tuple[str, int, int]] = {}
        self.packages: set[str] = set()
        self._numbers: dict[int, int] = {}
        self._keep: list[Any] = []

    def number(self, value: Any) -> int:
        """The number of an object. Raises Unnamed."""
        found = self._numbers.get(id(value))
        if found is None:
            row = describe(value)
            for module in _modules(row):
                self.comes_from(module)
            found = self._numbers[id(value)] = len(self.rows)
            self.rows.append(row)
            self._keep.append(value)
        return found

    def comes_from(self, module: str) -> None:
        """The code of a module has a part in what is written. Raises Unnamed if it has no file."""
        top = module.partition(".")[0]
        if top == "mortice" or top in sys.stdlib_module_names:
            return  # known by core's sources, and by Python's version
        if is_library(module):
            self.packages.add(top)
        elif module not in self.files:
            self.files[module] = file_of(module)


def _modules(row: Description) -> list[str]:
    """The modules whose code a description speaks of."""
    kind = row[0]
    if kind == "type":
        return [m for m in row[1::2] if m]
    if kind in ("module", "function"):
        return [row[1]]
    if kind in ("static", "class"):
        return _modules(row[1:])
    if kind == "property":
        return [m for part in row[1:] if part for m in _modules(part)]
    return _modules(row[2:]) if len(row) > 2 and row[2] == "type" else []


def file_of(module: str) -> tuple[str, int, int]:
    """(path, size, time of change in ns) of a module's file. Raises Unnamed."""
    found = sys.modules.get(module)
    path = getattr(found, "__file__", None) if type(found) is types.ModuleType else None
    if type(path) is not str:
        raise Unnamed(f"module {module}, which comes from no file")
    try:
        stat = os.stat(path)
    except OSError:
        raise Unnamed(f"module {module}, whose file is gone") from None
    if stat.st_mtime_ns > STARTED:
        raise Unnamed(f"module {module}, whose file was changed since it may have been imported")
    return path, stat.st_size, stat.st_mtime_ns


class Reader:
    """The objects of this process in the place of those that were described.

    One object stands for one description, and two for two: what was told apart still is.
    """

    def __init__(self, rows: list[Description]) -> None:
        self._rows = rows
        self._objects: dict[int, Any] = {}
        self._numbers: dict[int, int] = {}

    def is_it(self, number: int, value: Any) -> bool:
        """Whether an object is, or can be, the one with this number."""
        if number in self._objects:
            return self._objects[number] is value
        if id(value) in self._numbers:
            return False
        try:
            same = describe(value) == self._rows[number]
        except Unnamed:
            return False
        if same:
            self._objects[number] = value
            self._numbers[id(value)] = number
        return same

    def get(self, number: int) -> Any:
        """The object with a number: found before, or by its name. Raises LookupError."""
        if number not in self._objects:
            value = _by_name(self._rows[number])
            if not self.is_it(number, value):
                raise LookupError(f"another {self._rows[number][0]}")
        return self._objects[number]

    def ref(self, number: int, value: Any, strong: bool) -> Ref | None:
        """A reference to an object that was found, if it is the one with this number."""
        return Ref(value, strong=strong) if self.is_it(number, value) else None


def _by_name(row: Description) -> Any:
    kind = row[0]
    if kind == "module":
        return module_named(row[1])
    if kind == "type":
        module, name = row[3], row[4]
    elif kind == "function":
        module, name = row[1], row[2]
    else:
        raise LookupError(f"a {kind} has no name of its own")
    return _in_module(module, name)


def _in_module(module: str, name: str) -> Any:
    """An object by its qualified name. Raises LookupError."""
    found: Any = module_named(module)
    for part in name.split("."):
        try:
            found = vars(found)[part]
        except TypeError:
            raise LookupError(name) from None
    return found


def module_named(name: str) -> types.ModuleType:
    """A module that is imported; those of the framework are imported now. Raises LookupError."""
    if name not in sys.modules and is_library(name):
        from importlib import import_module

        try:
            import_module(name)
        except ImportError:
            raise LookupError(name) from None
    found = sys.modules[name]
    if type(found) is not types.ModuleType:
        raise LookupError(name)
    return found
