"""Guards as plain data, and read again in another process, where they are checked as they are read.

What a guard says of an object it says of the object with the same description there
(``naming.describe``). Guards that name what only one process has are not written.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType, MethodType
from typing import Any

from mortice._capture.guard_check import find, holds, inside, is_like
from mortice._capture.guards import (
    MISSING,
    AllArguments,
    Argument,
    CellContents,
    ClassAttribute,
    DictItem,
    Element,
    Equals,
    GlobalState,
    Guard,
    HasForm,
    HasKeys,
    HasLength,
    HasType,
    Holds,
    InstanceDict,
    IsMissing,
    IsObject,
    IsSame,
    Ref,
    Root,
    Slot,
    Source,
    TensorLike,
    same_value,
)
from mortice._capture.kept.files import Unnamed
from mortice._capture.kept.naming import Reader, Writer, module_named
from mortice._capture.observer.framework import is_library
from mortice._dispatch import keys as K
from mortice._types.device import CPU, Device
from mortice._types.dtypes import DType, by_name
from mortice._types.shapes import Size


class Missed(Exception):
    """A guard that was read does not hold in this call."""


# -- values ----------------------------------------------------------------------------------------

_AS_THEY_ARE = frozenset((int, float, complex, bool, str, bytes, type(None), type(...)))


def write_value(value: Any) -> Any:
    """A plain value for marshal; each tuple begins with its kind. Raises Unnamed."""
    kind = type(value)
    if kind in _AS_THEY_ARE:
        return value
    write = _VALUES.get(kind)
    if write is None:
        raise Unnamed(f"a {kind.__name__}")
    return write(value)


_VALUES: dict[type, Callable[[Any], Any]] = {
    tuple: lambda v: ("tuple", *map(write_value, v)),
    Size: lambda v: ("size", *v),
    slice: lambda v: ("slice", *map(write_value, (v.start, v.stop, v.step))),
    range: lambda v: ("range", v.start, v.stop, v.step),
    DType: lambda v: ("dtype", v.name),
    Device: lambda v: ("device", str(v)),
}

_READ_VALUES: dict[str, Callable[..., Any]] = {
    "tuple": lambda *v: tuple(map(read_value, v)),
    "size": lambda *v: Size(v),
    "slice": lambda *v: slice(*map(read_value, v)),
    "range": range,
    "dtype": by_name,
    "device": Device,
}


def read_value(data: Any) -> Any:
    """What ``write_value`` wrote."""
    return _READ_VALUES[data[0]](*data[1:]) if type(data) is tuple else data


# -- writing -----------------------------------------------------------------------------------------


def _owner(fn: Any) -> Any:
    """The object at which paths to what a compiled callable uses begin."""
    return fn.__self__ if type(fn) is MethodType else fn


def _given(fn: Any) -> list[Any]:
    """What a compiled callable is made of: no guard says it, since it never changes."""
    owner = _owner(fn)
    known: list[Any] = [type(owner)]
    if type(fn) is MethodType:
        known.append(fn.__func__)
    if type(owner) is FunctionType or isinstance(owner, type):
        known.append(owner)
    return known


#: State that is another in each process.
_OWN_STATE = {
    "abstract base classes": "what isinstance() of an abstract base class says",
    "hash seed": "the hash of a string, or the order of a set,",
}


class GuardWriter:
    """Writes guards; sources are numbered, each behind those that it is reached through.

    ``fn`` is the compiled callable, which every process has; of a method, what it is bound to.
    """

    def __init__(self, names: Writer, fn: Any) -> None:
        self.names = names
        self.sources: list[tuple[Any, ...]] = []
        self._fn = _owner(fn)
        self._numbers: dict[int, int] = {}
        #: The numbers of what the callable is made of.
        self.given = [names.number(x) for x in _given(fn)]

    def source(self, source: Source) -> int:
        """The number of a source. Raises Unnamed."""
        found = self._numbers.get(id(source))
        if found is None:
            row = self._row(source)
            found = self._numbers[id(source)] = len(self.sources)
            self.sources.append(row)
        return found

    def _row(self, s: Source) -> tuple[Any, ...]:
        if isinstance(s, Root):
            return "root", s.label, self._anchor(s.ref.get()), not s.ref.weak
        if isinstance(s, ClassAttribute):
            after = None if s.after is None else self.names.number(s.after)
            return "class", self.names.number(s.cls), s.name, after
        if isinstance(s, GlobalState):
            if s.name in _OWN_STATE:
                raise Unnamed(_OWN_STATE[s.name])
            return "state", s.name
        if isinstance(s, AllArguments):
            return ("call",)
        if isinstance(s, Argument):
            return "argument", s.key
        if isinstance(s, InstanceDict):
            return "dict", self.source(s.holder)
        holder = self.source(s.holder)
        if isinstance(s, DictItem):
            return "item", holder, write_value(s.key)
        if isinstance(s, Element):
            return "element", holder, s.index
        return "slot" if isinstance(s, Slot) else "cell", holder, s.name

    def _anchor(self, held: Any) -> Any:
        """How a root is found: the compiled callable, the names of a module, or an object with one."""
        if held is None:
            raise Unnamed("an object that is gone")
        if held is self._fn:
            return None
        if type(held) is dict:
            name = held.get("__name__")
            module = sys.modules.get(name) if type(name) is str else None
            if module is None or module.__dict__ is not held:
                raise Unnamed("a dict that is not the names of a module")
            self.names.comes_from(str(name))
            return name
        return self.names.number(held)

    def guard(self, guard: Guard) -> tuple[Any, ...]:
        """A guard as data. Raises Unnamed."""
        condition = guard.condition
        write = _CONDITIONS.get(type(condition))
        if write is None:
            raise Unnamed(f"what {guard} says")
        return self.source(guard.source), *write(self, condition)


_CONDITIONS: Mapping[type, Callable[[GuardWriter, Any], tuple[Any, ...]]] = {
    HasForm: lambda w, c: ("form", c.count, c.names),
    IsMissing: lambda w, c: ("missing",),
    IsObject: lambda w, c: ("object", w.names.number(_held(c.ref)), not c.ref.weak),
    Equals: lambda w, c: ("equals", write_value(c.value)),
    HasType: lambda w, c: ("type", w.names.number(c.cls)),
    HasLength: lambda w, c: ("length", c.length),
    HasKeys: lambda w, c: ("keys", *map(write_value, c.keys)),
    Holds: lambda w, c: ("holds", write_value(c.value), c.found),
    IsSame: lambda w, c: ("same", w.source(c.other), c.same),
    TensorLike: lambda w, c: _tensor(w, c),
}


def _held(ref: Ref) -> Any:
    held = ref.get()
    if held is None:
        raise Unnamed("an object that is gone")
    return held


def _tensor(w: GuardWriter, c: TensorLike) -> tuple[Any, ...]:
    if c.strides is None:
        raise Unnamed("sizes that are open")
    cls = w.names.number(c.cls)
    keys, device = K.describe(c.keys), str(c.device)
    return "tensor", cls, keys, c.dtype.name, c.shape, c.strides, c.requires_grad, device


# -- reading -----------------------------------------------------------------------------------------


class GuardReader:
    """Reads guards for a call, and checks them. Whatever is not as it was raises Missed or LookupError."""

    def __init__(
        self, rows: list[Any], given: list[int], sources: list[Any], fn: Any, args: Sequence[Any],
        kwargs: Any,
    ) -> None:  # fmt: skip
        self.names = Reader(rows)
        found = _given(fn)
        if len(found) != len(given) or not all(map(self.names.is_it, given, found)):
            raise Missed
        self._rows = sources
        self._made: dict[int, Source] = {}
        #: What is at sources in this call: looked up once, since nobody's code runs meanwhile.
        self._values: dict[int, Any] = {}
        self._fn = _owner(fn)
        self._call = args, kwargs

    def source(self, number: int) -> Source:
        found = self._made.get(number)
        if found is None:
            kind, *rest = self._rows[number]
            found = self._made[number] = _SOURCES[kind](self, *rest)
        return found

    def value(self, number: int) -> Any:
        """What is at a source in this call, or MISSING."""
        found = self._values.get(number, self)
        if found is self:
            source, row = self.source(number), self._rows[number]
            if row[0] in _WITHIN:
                holder = self.value(row[1])
                found = MISSING if holder is MISSING else inside(source, holder)
            else:
                found = find(source, *self._call)
            if found is not MISSING:  # it may be bound yet
                self._values[number] = found
        return found

    def guard(self, row: Sequence[Any]) -> Guard:
        """The guard, which holds. Raises Missed."""
        number, kind, *rest = row
        found = self.value(number)
        if found is MISSING and kind != "missing":
            if self._bind(number):
                found = self.value(number)
            if found is MISSING:
                raise Missed
        read = _CHECKED.get(kind)
        if read is not None:
            condition = read(self, found, *rest)
        else:
            condition = _READ_CONDITIONS[kind](self, *rest)
            if not holds(condition, found, *self._call):
                raise Missed
        return Guard(self._made[number], condition)

    def refuse(self, row: Sequence[Any]) -> None:
        """Raise Missed if the guard does not hold; what it needs of other guards may not be known yet."""
        try:
            self.guard(row)
        except LookupError:
            pass

    def _bind(self, number: int) -> bool:
        """Let a module of the framework bind a name that it gives when it is first asked for."""
        kind, *rest = self._rows[number]
        holder = self._rows[rest[0]] if kind == "item" else ()
        if not (
            holder and holder[0] == "root" and type(holder[2]) is str and is_library(holder[2])
        ):
            return False
        return hasattr(module_named(holder[2]), rest[1])

    def _object(self, found: Any, number: int, strong: bool) -> IsObject:
        if not self.names.is_it(number, found):
            raise Missed
        return IsObject(Ref(found, strong=strong))

    def _type(self, found: Any, number: int) -> HasType:
        cls = type(found)
        if not self.names.is_it(number, cls):
            raise Missed
        return HasType(cls)

    def _equals(self, found: Any, value: Any) -> Equals:
        value = read_value(value)
        if not same_value(found, value):
            raise Missed
        return Equals(value)

    def _tensor(
        self, found: Any, cls: int, keys: str, dtype: str, shape: Any, strides: Any, grad: bool, device: str
    ) -> TensorLike:  # fmt: skip
        kind = self._type(found, cls).cls
        where = CPU if device == "cpu" else Device(device)
        condition = TensorLike(
            kind, K.described(keys), by_name(dtype), shape, strides, grad, where
        )  # fmt: skip
        if not is_like(condition, found):
            raise Missed
        return condition

    def root(self, label: str, anchor: Any, strong: bool) -> Root:
        if anchor is None:
            held = self._fn
        elif type(anchor) is str:
            held = module_named(anchor).__dict__
        else:
            held = self.names.get(anchor)
        return Root(label, Ref(held, strong=strong))

    def class_attribute(self, cls: int, name: str, after: int | None) -> ClassAttribute:
        behind = None if after is None else self.names.get(after)
        return ClassAttribute(self.names.get(cls), name, behind)


_SOURCES: Mapping[str, Callable[..., Source]] = {
    "root": GuardReader.root,
    "class": GuardReader.class_attribute,
    "state": lambda r, name: GlobalState(name),
    "call": lambda r: AllArguments(),
    "argument": lambda r, key: Argument(key),
    "dict": lambda r, holder: InstanceDict(r.source(holder)),
    "item": lambda r, holder, key: DictItem(r.source(holder), read_value(key)),
    "element": lambda r, holder, index: Element(r.source(holder), index),
    "slot": lambda r, holder, name: Slot(r.source(holder), name),
    "cell": lambda r, holder, name: CellContents(r.source(holder), name),
}

#: Sources that are reached through another, whose number comes first in their rows.
_WITHIN = frozenset(("dict", "item", "element", "slot", "cell"))

#: Conditions that are checked as they are read.
_CHECKED: Mapping[str, Callable[..., Any]] = {
    "object": GuardReader._object,  # pyright: ignore[reportPrivateUsage]
    "type": GuardReader._type,  # pyright: ignore[reportPrivateUsage]
    "equals": GuardReader._equals,  # pyright: ignore[reportPrivateUsage]
    "tensor": GuardReader._tensor,  # pyright: ignore[reportPrivateUsage]
}

_READ_CONDITIONS: Mapping[str, Callable[..., Any]] = {
    "form": lambda r, count, names: HasForm(count, names),
    "missing": lambda r: IsMissing(),
    "length": lambda r, length: HasLength(length),
    "keys": lambda r, *keys: HasKeys(tuple(map(read_value, keys))),
    "holds": lambda r, value, found: Holds(read_value(value), found),
    "same": lambda r, other, same: IsSame(r.source(other), same),
}
