"""Guards as plain data, which are checked in another process as they are, and made when they are asked for.

What a guard says of an object it says of the object with the same description there
(``naming.describe``). Guards that name what only one process has are not written.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import FunctionType, MethodType
from typing import Any
from weakref import ref

from mortice._capture.guard_check import (
    STATE,
    argument,
    attribute,
    contents,
    element,
    holds,
    is_inline,
    item,
)
from mortice._capture.guards import (
    MISSING,
    AllArguments,
    Argument,
    CellContents,
    ClassAttribute,
    Condition,
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
    class_lookup,
)
from mortice._capture.kept.files import Unnamed
from mortice._capture.kept.naming import Reader, Writer, module_named
from mortice._capture.kept.unbound import Unbound, will_be
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
    """Writes guards, each as two numbers: of its source, behind those of what that is reached through, and
    of its condition, which guards have in common.

    ``fn`` is the compiled callable, which every process has; of a method, what it is bound to.
    """

    def __init__(self, names: Writer, fn: Any) -> None:
        self.names = names
        self.sources: list[tuple[Any, ...]] = []
        self.conditions: list[tuple[Any, ...]] = []
        self._fn = _owner(fn)
        self._numbers: dict[int, int] = {}
        self._known: dict[Any, int] = {}
        self._given = [names.number(x) for x in _given(fn)]

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

    def guards(self, guards: Iterable[Guard]) -> tuple[Any, ...]:
        """Guards as data, with all that is numbered, also later. Raises Unnamed."""
        rows = [self._guard(g) for g in guards]
        return self.names.rows, self._given, self.sources, self.conditions, rows

    def _guard(self, guard: Guard) -> tuple[int, int]:
        condition = guard.condition
        write = _CONDITIONS.get(type(condition))
        if write is None:
            raise Unnamed(f"what {guard} says")
        source, row = self.source(guard.source), write(self, condition)
        key = _shared(condition, row)
        number = self._known.get(key)
        if number is None:
            number = self._known[key] = len(self.conditions)
            self.conditions.append(row)
        return source, number


def _shared(condition: Any, row: tuple[Any, ...]) -> Any:
    """A key for conditions that can be one object, without which a check would be another text: that of
    the plan as it was made is known, and its code.
    """
    if isinstance(condition, Equals):
        return Equals, id(condition.value)
    if isinstance(condition, HasType):
        return HasType, id(condition.cls)
    if isinstance(condition, TensorLike) and is_inline(condition):
        return TensorLike, row
    return IsMissing if isinstance(condition, IsMissing) else id(condition)


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


class FoundGuards:
    """Guards that were read, and hold in the call they were read for: ``found()`` makes them. That call
    needs none, and has the value of each source already.

    Attributes:
        sources, conditions: those made so far, by number. classes: those that sources are of, by number.
        held: by the numbers of conditions, the objects (weakly, where they are not held) and types that
            these are of. unbound: those that are to be bound before.
    """

    def __init__(self, sources: list[Any], conditions: list[Any], guards: list[Any]) -> None:
        self._rows = sources, conditions, guards
        self.sources: dict[int, Source] = {}
        self.conditions: dict[int, Condition] = {}
        self.classes: dict[int, Any] = {}
        self.held: dict[int, Any] = {}
        self.unbound: dict[int, Unbound] = {}

    def source(self, number: int) -> Source:
        """A source by its number."""
        found = self.sources.get(number)
        if found is None:
            row = self._rows[0][number]
            found = self.sources[number] = _SOURCES[row[0]](self, *row[1:])
        return found

    def _condition(self, number: int) -> Condition:
        found = self.conditions.get(number)
        if found is None:
            found = self.conditions[number] = self._made(number)
        return found

    def _made(self, number: int) -> Condition:
        unbound = self.unbound.get(number)
        if unbound is not None:
            return IsObject(Ref.of(unbound.bind()))
        row, held = self._rows[1][number], self.held[number]
        if row[0] == "type":
            return HasType(held)
        return IsObject(Ref(held, strong=True) if row[2] else Ref.of(held))

    def __call__(self) -> tuple[Guard, ...]:
        source, condition = self.source, self._condition
        return tuple([Guard(source(number), condition(at)) for number, at in self._rows[2]])

    def class_attribute(self, cls: int, name: str, after: int | None) -> ClassAttribute:
        behind = None if after is None else self.classes[after]
        return ClassAttribute(self.classes[cls], name, behind)


#: How sources are made; roots are as they are looked up.
_SOURCES: Mapping[str, Callable[..., Source]] = {
    "class": FoundGuards.class_attribute,
    "state": lambda f, name: GlobalState(name),
    "call": lambda f: AllArguments(),
    "argument": lambda f, key: Argument(key),
    "dict": lambda f, holder: InstanceDict(f.source(holder)),
    "item": lambda f, holder, key: DictItem(f.source(holder), read_value(key)),
    "element": lambda f, holder, index: Element(f.source(holder), index),
    "slot": lambda f, holder, name: Slot(f.source(holder), name),
    "cell": lambda f, holder, name: CellContents(f.source(holder), name),
}


class GuardReader:
    """Checks guards as they were written, in a call. Whatever is not as it was raises Missed or LookupError.

    Attributes:
        found: the guards, of which those before ``at`` hold.
    """

    def __init__(self, data: tuple[Any, ...], fn: Any, args: Sequence[Any], kwargs: Any) -> None:
        rows, given, sources, conditions, guards = data
        self.names = Reader(rows)
        known = _given(fn)
        if len(known) != len(given) or not all(map(self.names.is_it, given, known)):
            raise Missed
        self.found = FoundGuards(sources, conditions, guards)
        self.at = 0
        self._sources, self._conditions, self._guards = sources, conditions, guards
        #: What is at sources in this call: looked up once, since nobody's code runs meanwhile.
        self._values: dict[int, Any] = {}
        self._fn = _owner(fn)
        self._call = args, kwargs

    def check(self) -> None:
        """Raise Missed or LookupError if one of the guards does not hold."""
        self._check(self._guards)

    def refuse(self, at: int) -> None:
        """Raise Missed if one guard does not hold, or one on the way to it; what it needs of others may not
        be known yet. What is read of an object of another type may be somebody's code.
        """
        if at >= len(self._guards):
            return
        number, condition = self._guards[at]
        way = {*self._way(number)}
        kind, *rest = self._conditions[condition]
        if kind == "same":
            way.update(self._way(rest[0]))
        try:
            self._check([g for g in self._guards[: at + 1] if g[0] in way])
        except LookupError:
            pass

    def _way(self, number: int) -> Iterator[int]:
        """The numbers of a source, and of those that it is reached through."""
        yield number
        while self._sources[number][0] in _WITHIN:
            number = self._sources[number][1]
            yield number

    def _check(self, guards: list[Any]) -> None:
        for number, at in guards:
            row = self._conditions[at]
            kind = row[0]
            value = self.value(number)
            if value is MISSING and kind != "missing":
                module, name = self._lacking(number)
                if kind == "object" and self._will_be(number, at, module, name, row[1]):
                    self.at += 1
                    continue
                if hasattr(module_named(module), name):  # it may bind it now
                    value = self.value(number)
                if value is MISSING:
                    raise Missed
            if not _HOLDS.get(kind, _holds)(self, at, value, row):
                raise Missed
            self.at += 1

    def value(self, number: int) -> Any:
        """What is at a source in this call, or MISSING."""
        value = self._values.get(number, self)
        if value is self:
            row = self._sources[number]
            look = _WITHIN.get(row[0])
            if look is None:
                value = _LOOK[row[0]](self, number, *row[1:])
            else:
                holder = self.value(row[1])
                value = MISSING if holder is MISSING else look(holder, *row[2:])
            if value is not MISSING:  # it may be bound yet
                self._values[number] = value
        return value

    def source(self, number: int) -> Source:
        """A source, which is looked up in this call."""
        self.value(number)
        return self.found.source(number)

    def _lacking(self, number: int) -> tuple[str, Any]:
        """A module of the framework, and the name for which it has nothing yet. Raises Missed."""
        kind, *rest = self._sources[number]
        holder = self._sources[rest[0]] if kind == "item" else ()
        if not (
            holder and holder[0] == "root" and type(holder[2]) is str and is_library(holder[2])
        ):
            raise Missed
        return holder[2], rest[1]

    def _will_be(self, number: int, at: int, module: str, name: Any, function: int) -> bool:
        """Whether a name will be the function that a condition is on, and nothing is reached through it."""
        described = self.names.description(function)
        if not will_be(module, name, described):
            return False
        if any(row[0] in _WITHIN and row[1] == number for row in self._sources):
            return False
        self.found.unbound[at] = Unbound(module, name, described)
        return True

    # -- sources where a lookup begins ---------------------------------------------------------

    def _root(self, number: int, label: str, anchor: Any, strong: bool) -> Any:
        if anchor is None:
            held = self._fn
        elif type(anchor) is str:
            held = module_named(anchor).__dict__
        else:
            held = self.names.get(anchor)
        self.found.sources[number] = Root(label, Ref(held, strong=strong))
        return held

    def _class(self, _: int, cls: int, name: str, after: int | None) -> Any:
        classes, get = self.found.classes, self.names.get
        classes[cls] = get(cls)
        if after is not None:
            classes[after] = get(after)
        return class_lookup(classes[cls], name, None if after is None else classes[after])

    def _argument(self, _: int, key: int | str) -> Any:
        return argument(key, *self._call)

    # -- conditions ----------------------------------------------------------------------------

    def _object(self, at: int, value: Any, row: tuple[Any, ...]) -> bool:
        held = self.names.is_it(row[1], value)
        if held:
            self.found.held[at] = value if row[2] else ref(value)
        return held

    def _type(self, at: int, value: Any, row: tuple[Any, ...]) -> bool:
        cls = self.found.held[at] = type(value)
        return self.names.is_it(row[1], cls)

    def _tensor(
        self, value: Any, cls: int, keys: str, dtype: str, shape: Any, strides: Any, grad: bool, device: str
    ) -> TensorLike:  # fmt: skip
        kind = type(value)
        if not self.names.is_it(cls, kind):
            raise Missed
        where = CPU if device == "cpu" else Device(device)
        return TensorLike(
            kind, K.described(keys), by_name(dtype), shape, strides, grad, where
        )  # fmt: skip


def _holds(r: GuardReader, at: int, value: Any, row: tuple[Any, ...]) -> bool:
    """Whether a condition holds, which says no more than what is written."""
    conditions = r.found.conditions
    found = conditions.get(at)
    if found is None:
        found = conditions[at] = _READ_CONDITIONS[row[0]](r, value, *row[1:])
    return holds(found, value, *r._call)  # pyright: ignore[reportPrivateUsage]


#: What is at sources that are reached through another, whose number comes first in their rows.
_WITHIN: Mapping[str, Callable[..., Any]] = {
    "dict": lambda holder: attribute(holder, "__dict__"),
    "item": lambda holder, key: item(holder, read_value(key)),
    "element": element,
    "slot": attribute,
    "cell": lambda holder, name: contents(holder),
}

#: What is at the others.
_LOOK: Mapping[str, Callable[..., Any]] = {
    "root": GuardReader._root,  # pyright: ignore[reportPrivateUsage]
    "class": GuardReader._class,  # pyright: ignore[reportPrivateUsage]
    "state": lambda r, _, name: STATE[name](),
    "call": lambda r, _: r._call,
    "argument": GuardReader._argument,  # pyright: ignore[reportPrivateUsage]
}

#: Conditions on objects as another process described them.
_HOLDS: Mapping[str, Callable[[GuardReader, int, Any, Any], bool]] = {
    "object": GuardReader._object,  # pyright: ignore[reportPrivateUsage]
    "type": GuardReader._type,  # pyright: ignore[reportPrivateUsage]
}

_READ_CONDITIONS: Mapping[str, Callable[..., Condition]] = {
    "tensor": GuardReader._tensor,  # pyright: ignore[reportPrivateUsage]
    "equals": lambda r, _, value: Equals(read_value(value)),
    "form": lambda r, _, count, names: HasForm(count, names),
    "missing": lambda r, _: IsMissing(),
    "length": lambda r, _, length: HasLength(length),
    "keys": lambda r, _, *keys: HasKeys(tuple(map(read_value, keys))),
    "holds": lambda r, _, value, found: Holds(read_value(value), found),
    "same": lambda r, _, other, same: IsSame(r.source(other), same),
}
