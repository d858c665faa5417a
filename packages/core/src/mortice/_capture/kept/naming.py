"""Objects as another process knows them: by what they are, said in plain data.

Guards speak of very objects: a function, a class, a module. Another process has others in their place,
which mean the same if they are of the same name and made of the same code. A description holds all that
of an object, and nothing that differs between two runs of one program; what an object is made of, the
bases of a class or the function in a property, is described by itself.
"""

from __future__ import annotations

import marshal
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from mortice._capture.identity import module_of
from mortice._capture.kept.files import FileMark, Unnamed, is_known, is_standard, mark_of
from mortice._capture.observer.framework import (
    IN_GRAPH,
    is_library,
    is_operator_object,
    is_ours,
)
from mortice._capture.texts import hash_of
from mortice._types.dtypes import DType

#: A tuple that begins with the kind of the object, for marshal.
Description = tuple[Any, ...]


def describe(value: Any) -> Description:
    """What an object is. Raises Unnamed."""
    kind = type(value)
    write = _DESCRIBE.get(kind)
    if write is not None:
        return write(value)
    if issubclass(kind, type):
        return _type(value)
    if is_operator_object(value):
        return _operator(value)
    raise Unnamed(f"a {kind.__name__}")


def parts_of(value: Any) -> tuple[Any, ...]:
    """The objects that an object is made of."""
    kind = type(value)
    read = _PARTS.get(kind)
    if read is not None:
        return read(value)
    if issubclass(kind, type):
        return kind, *_bases(value)
    return ()


_mro: Callable[[type], tuple[type, ...]] = type.__dict__["__mro__"].__get__


def _bases(cls: type) -> tuple[type, ...]:
    return _mro(cls)[1:]


def _class_of(f: types.BuiltinFunctionType) -> tuple[Any, ...]:
    return (f.__self__,) if isinstance(f.__self__, type) else ()


def _functions(p: property) -> tuple[Any, ...]:
    return tuple(f for f in (p.fget, p.fset, p.fdel) if f is not None)


_PARTS: dict[type, Callable[[Any], tuple[Any, ...]]] = {
    type: _bases,
    types.BuiltinFunctionType: _class_of,
    property: _functions,
    staticmethod: lambda value: (value.__func__,),
    classmethod: lambda value: (value.__func__,),
    # Descriptors of the attributes of a class written in C.
    **dict.fromkeys(
        (
            types.WrapperDescriptorType, types.MethodDescriptorType, types.ClassMethodDescriptorType,
            types.GetSetDescriptorType, types.MemberDescriptorType,
        ),
        lambda value: (value.__objclass__,),
    ),
}  # fmt: skip


def _type(cls: Any) -> Description:
    """A class by its name and its special methods; those that its instances have say what Python does
    with them, and not each use is guarded.
    """
    own = type.__dict__["__dict__"].__get__(cls)
    module = module_of(cls)
    named: list[str] = []
    if not is_known(module):
        every = issubclass(cls, type)
        named = sorted(
            n for n in own if every or (n.startswith("__") and type(own[n]) not in _DATA)
        )
    return "type", module, type.__getattribute__(cls, "__qualname__"), *named


#: What stands in classes under names of two underscores without being a method; Python adds some later.
_DATA = (dict, str, tuple, type(None), types.MappingProxyType)


def _operator(value: Any) -> Description:
    """``mortice.ops.aten.add``, or an overload of it: what those of others do only their packages know."""
    name = str(value)
    if name.partition(".")[0] not in ("aten", "prims"):
        raise Unnamed(f"operator {name}")
    return "operator", name


def _module(module: Any) -> Description:
    name = module.__dict__.get("__name__")
    if type(name) is not str or sys.modules.get(name) is not module:
        raise Unnamed("a module that is not imported by its name")
    return "module", name


def _function(f: Any) -> Description:
    """A function by its name and code. What a user's has in its cells and defaults, guards say; of the
    framework's they do not, and what one has there is part of what it is.
    """
    module = f.__globals__.get("__name__")
    if type(module) is not str:
        raise Unnamed(f"function {f.__qualname__} of a module without a name")
    library = is_library(module)
    if not library:
        found = sys.modules.get(module)
        if found is None or vars(found) is not f.__globals__:
            raise Unnamed(f"function {f.__qualname__} with globals of its own")
        if f in IN_GRAPH:
            raise Unnamed(
                f"what function {f.__qualname__} reads, which is trusted to be operators,"
            )
    row = "function", module, f.__qualname__, _code(f.__code__)
    if not library:
        return row
    cells: Any = map(_contents, f.__closure__ or ())
    if is_ours(module):  # its defaults are as its sources say
        return *row, *map(_loosely, cells)
    named = sorted((f.__kwdefaults__ or {}).items())
    defaults = (
        *map(_loosely, f.__defaults__ or ()),
        *[("keyword", n, _loosely(x)) for n, x in named],
    )
    return *row, *map(_known, cells), *defaults


def _contents(cell: types.CellType) -> Any:
    return cell.cell_contents


def _known(value: Any) -> Description:
    """What a function of the framework closes over."""
    if type(value) in _PLAIN:
        return type(value).__name__, repr(value)
    if type(value) is types.FunctionType and value.__closure__:
        raise Unnamed("a closure in a closure")  # it may be the one that is described
    return ("dtype", value.name) if type(value) is DType else describe(value)


def _loosely(value: Any) -> Description:
    """The same, and of what has no name its type. Of core's functions no two differ in more than that (a
    test looks at all).
    """
    try:
        return _known(value)
    except Unnamed:
        return ("a", type(value).__name__)


_PLAIN = (bool, int, float, str, type(None))


def _code(code: types.CodeType) -> Description:
    """All of a code object but its file and lines."""
    shape = (
        code.co_name, code.co_flags, code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount,
        code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars,
        getattr(code, "co_exceptiontable", b""), code.co_code, *map(_constant, code.co_consts),
    )  # fmt: skip
    return "code", hash_of(_bytes(shape))


def _bytes(data: Any) -> bytes:
    """Plain data as bytes, the same in every process: later versions say which strings are interned."""
    return marshal.dumps(data, 0)


def _constant(value: Any) -> Any:
    """A constant of a code object, the same in every process: sets have no order."""
    kind = type(value)
    if kind in _AS_THEY_ARE:
        return value
    if kind is types.CodeType:
        return _code(value)
    if kind is tuple:
        return "tuple", *map(_constant, value)
    if kind is frozenset:
        return "set", sorted(_bytes(_constant(x)) for x in value)
    return kind.__name__, repr(value)


_AS_THEY_ARE = frozenset((bool, int, float, complex, str, bytes, type(None), type(...)))


def _builtin(f: Any) -> Description:
    owner = f.__self__
    if owner is not None and type(owner) is not types.ModuleType and not isinstance(owner, type):
        raise Unnamed(f"{f.__qualname__} of a {type(owner).__name__}")
    module = f.__module__ or "builtins"
    if not is_standard(
        module
    ):  # C code is known by the version of Python, so it has to be Python's own
        raise Unnamed(f"C code of module {module}")
    where = owner.__name__ if type(owner) is types.ModuleType else ""
    return "builtin", f.__module__, f.__qualname__, where


def _descriptor(kind: str) -> Callable[[Any], Description]:
    def write(value: Any) -> Description:
        return kind, value.__name__

    return write


def _property(p: Any) -> Description:
    return "property", *[f is None for f in (p.fget, p.fset, p.fdel)]


def _field(value: Any) -> Description:
    """A field of a named tuple: its position."""
    return "field", value.__reduce__()[1][0]


class _One(NamedTuple):
    x: int


_DESCRIBE: dict[type, Callable[[Any], Description]] = {
    type: _type,
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
    staticmethod: lambda value: ("static",),
    classmethod: lambda value: ("class",),
    type(vars(_One)["x"]): _field,
}


def _modules(row: Any) -> Iterator[str]:
    """The modules in which what a description speaks of was written."""
    if row[0] in ("type", "module", "function"):
        yield row[1]
    for part in row:
        if type(part) is tuple and part:
            yield from _modules(part)


class Writer:
    """Numbers for the objects that guards speak of, and what says that their sources are the same.

    Attributes:
        rows: (description, numbers of what it is made of), by number.
        files: modules, other than Python's own and core's -> what their files are known by.
    """

    def __init__(self) -> None:
        self.rows: list[tuple[Description, list[int]]] = []
        self.files: dict[str, FileMark] = {}
        self._numbers: dict[int, int] = {}
        self._keep: list[Any] = []

    def number(self, value: Any) -> int:
        """The number of an object. Raises Unnamed."""
        found = self._numbers.get(id(value))
        if found is None:
            row = describe(value)
            for module in _modules(row):
                self.comes_from(module)
            parts = [self.number(x) for x in parts_of(value)]
            found = self._numbers[id(value)] = len(self.rows)
            self.rows.append((row, parts))
            self._keep.append(value)
        return found

    def comes_from(self, module: str) -> None:
        """The code of a module has a part in what is written. Raises Unnamed if it has no file."""
        if is_ours(module) or is_standard(module):
            return  # known by core's sources, and by Python's version
        if module not in self.files:
            self.files[module] = mark_of(module)


class Reader:
    """The objects of this process in the place of those that were described.

    One object stands for one description, and two for two: what was told apart still is.
    """

    def __init__(self, rows: list[tuple[Description, list[int]]]) -> None:
        self._rows = rows
        self._objects: dict[int, Any] = {}
        self._numbers: dict[int, int] = {}
        #: Code of functions that were described: by its address, which it keeps as long as they do.
        self._codes: dict[int, Description] = {}

    def description(self, number: int) -> Description:
        """What the object with a number was."""
        return self._rows[number][0]

    def is_it(self, number: int, value: Any) -> bool:
        """Whether an object is, or can be, the one with this number."""
        objects = self._objects
        if number in objects:
            return objects[number] is value
        if id(value) in self._numbers:
            return False
        row, parts = self._rows[number]
        try:
            if (self._codes.get(id(value)) or describe(value)) != row:
                return False
        except Unnamed:
            return False
        if row[0] == "function":
            self._codes[id(value.__code__)] = row[3]
        objects[number] = value
        self._numbers[id(value)] = number
        found = parts_of(value)
        return len(found) == len(parts) and (not found or all(map(self.is_it, parts, found)))

    def get(self, number: int) -> Any:
        """The object with a number: found before, or by its name. Raises LookupError."""
        if number not in self._objects:
            row, _ = self._rows[number]
            if not self.is_it(number, _by_name(row)):
                raise LookupError(f"another {row[0]}")
        return self._objects[number]


def _by_name(row: Description) -> Any:
    kind = row[0]
    if kind == "module":
        return module_named(row[1])
    if kind not in ("type", "function"):
        raise LookupError(f"a {kind} has no name of its own")
    return _in_module(row[1], row[2])


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
