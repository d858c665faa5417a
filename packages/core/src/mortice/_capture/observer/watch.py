"""What an observed call read, changed and could not account for.

Reads become guards, effects and unknowns become reasons why the call cannot be replayed. Objects
made in this call are free: nobody outside can have seen them. No method of a user's object is ever
called from here, ``==``, ``hash``, ``repr`` and ``isinstance`` included.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from mortice._capture.guard_check import STATE
from mortice._capture.guards import (
    MISSING,
    SCALARS,
    Argument,
    ClassAttribute,
    Condition,
    DictItem,
    Element,
    Equals,
    GlobalState,
    Guard,
    HasKeys,
    HasLength,
    HasType,
    Holds,
    IsMissing,
    IsObject,
    IsSame,
    Ref,
    Root,
    Slot,
    Source,
    TensorLike,
    class_lookup,
    holders,
)
from mortice._capture.identity import module_of, one_of
from mortice._capture.observer.framework import VALUE_TYPES, Kind, is_library, is_tensor, kind_of
from mortice._dispatch.state import THREAD


@dataclass(frozen=True)
class Reason:
    """Why a call always runs: ``kind`` is "effect" or "unknown"."""

    kind: str
    text: str
    where: str

    def __str__(self) -> str:
        return f"{self.text} ({self.where})" if self.where else self.text


#: Where the observed code is: (file, line, function).
Place = tuple[str, int, str]

CONTAINERS = (list, dict, OrderedDict, tuple, set, frozenset)
_BY_IDENTITY = (
    FunctionType,
    BuiltinFunctionType,
    ModuleType,
    CodeType,
    type(len.__call__),  # method-wrapper
    type(list.append),
    type(object.__init__),
    staticmethod,
    classmethod,
    property,
)


def is_plain(value: Any) -> bool:
    """Whether a value is immutable through and through and compared by value."""
    kind = type(value)
    if one_of(kind, SCALARS) or one_of(kind, VALUE_TYPES):
        return True
    if kind is tuple:
        return all(map(is_plain, value))
    if kind is slice:
        return is_plain((value.start, value.stop, value.step))
    return kind is range or (issubclass(kind, np.generic) and kind is not np.object_)


def is_settled(cls: type) -> bool:
    """Whether nobody can give a class other attributes: it is C code, or one of Python's own metaclasses."""
    flags = type.__dict__["__flags__"].__get__(cls)
    return not flags & _HEAP_TYPE or module_of(cls) in ("abc", "enum")


_HEAP_TYPE = 1 << 9
#: What is hashed alike in every process.
_HASHED_ALIKE = (int, float, complex, bool)


class Watch:
    """Collects the reads, effects and unknowns of one call.

    ``look_into(watch, f, args, kwargs)`` is how calls are made (``calls.call``); ``stage`` gives
    the number of tensor values that Python has read so far.
    """

    def __init__(self, look_into: Callable[..., Any], stage: Callable[[], int] = int) -> None:
        self._look_into = look_into
        self.guards: list[Guard] = []
        self.reasons: list[Reason] = []
        self.stage = stage
        self.frames: list[Any] = []
        #: Whether Python, or the framework between two operators, looked at a size.
        self.sizes_read = False
        #: (run, position among its numbers) -> the ``numbers.Traced`` that it is.
        self.number_sources: dict[tuple[int, int], Any] = {}
        self._readers: dict[int, tuple[str, Any]] = {}
        #: Tensors made from Python data, each with its memory as it was made.
        self.constants: list[tuple[Any, Any]] = []
        self._fresh: dict[int, Any] = {}
        self._sources: dict[int, Source] = {}
        #: Interned sources by (kind, holder, key); whether they were read, by their id.
        self._interned: dict[tuple[Any, ...], Source] = {}
        self._read: set[int] = set()
        self._done: set[tuple[Any, ...]] = set()
        self._keep: list[Any] = []
        #: Functions that arguments led to, by their id: guarded by their parts, not to be that very one.
        self._given: set[int] = set()

    def call(self, f: Any, args: Sequence[Any], kwargs: dict[str, Any] | None = None) -> Any:
        """``f(*args, **kwargs)``, looked into."""
        return self._look_into(self, f, args, kwargs or {})

    # -- reasons -------------------------------------------------------------------------------

    def effect(self, text: str) -> None:
        """The call changes something outside."""
        self._because("effect", text)

    def unknown(self, text: str) -> None:
        """The call does something whose reads and effects are not known."""
        self._because("unknown", text)

    def _because(self, kind: str, text: str) -> None:
        place = self.place()
        where = f"{place[0]}:{place[1]}, in {place[2]}" if place else ""
        reason = Reason(kind, text, where)
        if reason not in self.reasons:
            self.reasons.append(reason)

    def place(self) -> Place | None:
        """The line that the innermost observed frame executes, the framework's left out."""
        for frame in reversed(self.frames):
            module = frame.function.__globals__.get("__name__")
            if not (type(module) is str and is_library(module)):
                return frame.place()
        return self.frames[-1].place() if self.frames else None

    # -- objects of this call --------------------------------------------------------------------

    def fresh(self, value: Any) -> Any:
        """Note an object as made in this call; returns it."""
        self._fresh[id(value)] = value
        return value

    def is_fresh(self, value: Any) -> bool:
        """Whether an object was made in this call; tensors that no read has found are."""
        if id(value) in self._fresh:
            return True
        return is_tensor(value) and id(value) not in self._sources

    def is_outer(self, value: Any) -> bool:
        """Whether a mutable object was there before the call."""
        return not self.is_fresh(value)

    # -- sources ---------------------------------------------------------------------------------

    def source(self, value: Any, label: str = "") -> Source:
        """Where an outer object can be found again; it becomes a root if no path leads to it."""
        found = self._sources.get(id(value))
        if found is None:
            found = self.root(value, label or f"a {type(value).__name__}")
        return found

    def root(self, value: Any, label: str, strong: bool = False) -> Source:
        """Hold an object, and reach others from it."""
        found = self._sources.get(id(value))
        if found is None:
            found = Root(label, Ref(value, strong=strong))
            self._hold(value, found)
        return found

    def know(self, value: Any, source: Source) -> None:
        """An outer object can be reached by ``source``; nothing of it is guarded yet."""
        if id(value) not in self._sources:
            self._hold(value, source)

    def _hold(self, value: Any, source: Source) -> None:
        """Know an object by its identity, and keep it alive for that; not once it is for nothing."""
        if not self.reasons:
            self._sources[id(value)] = source
            self._keep.append(value)

    def source_if_known(self, value: Any) -> Source | None:
        return self._sources.get(id(value))

    def intern(self, kind: type, *fields: Any) -> Any:
        """The one source of this kind with these fields."""
        key = (kind, *(_field_key(f) for f in fields))
        found = self._interned.get(key)
        if found is None:
            found = self._interned[key] = kind(*fields)
        return found

    # -- reads -----------------------------------------------------------------------------------

    def read(self, source: Source, value: Any) -> Any:
        """Note that ``value`` (MISSING if nothing) was found at ``source``; returns it."""
        if id(source) in self._read:
            return value
        self._read.add(id(source))
        if value is MISSING:
            self.guard(source, IsMissing())
            return value
        known = None if is_plain(value) else self._sources.get(id(value))
        if known is not None and known is not source:
            return self._second_path(source, known, value)
        if self._is_given(source, value):
            return self._function(source, value)
        self.guard(source, self._condition(value))
        if not is_plain(value):
            self.know(value, source)
            if (
                type(value) is MethodType
            ):  # mostly made anew for each call: its parts say what it is
                for name in ("__func__", "__self__"):
                    self.read(self.intern(Slot, source, name), getattr(value, name))
            elif type(value) is tuple or self.is_tuple(value):
                self.guard(source, HasLength(len(value)))
        return value

    def read_later(self, source: Source, value: Any) -> None:
        """A number is there; its value is guarded when something looks at it (``numbers``)."""
        self._read.add(id(source))
        self.guard(source, HasType(type(value)))

    def _second_path(self, source: Source, known: Source, value: Any) -> Any:
        held = isinstance(known, ClassAttribute) and isinstance(self._held(value), IsObject)
        if held or (one_of(type(value), _BY_IDENTITY) and id(value) not in self._given):
            self.guard(source, IsObject(Ref(value)))
        else:
            self.guard(source, IsSame(known))
        return value

    def _is_given(self, source: Source, value: Any) -> bool:
        """Whether a value is a user's function that an argument led to: mostly made anew for each call."""
        return (
            type(value) is FunctionType
            and not isinstance(source, Slot)  # a method's
            and isinstance(next(holders(source)), Argument)
            and kind_of(value) is Kind.USER
        )

    def _function(self, source: Source, f: FunctionType) -> FunctionType:
        """Guard what a function is made of: its code and globals; the rest is, where it is called."""
        self._given.add(id(f))
        self.guard(source, HasType(FunctionType))
        self.know(f, source)
        self.read(self.intern(Slot, source, "__code__"), f.__code__)
        names = self.root(f.__globals__, f"globals of {f.__globals__.get('__name__')}", strong=True)
        self.guard(self.intern(Slot, source, "__globals__"), IsSame(names))
        return f

    def _condition(self, value: Any) -> Condition:
        if is_plain(value):
            return Equals(value)
        kind = type(value)
        if one_of(kind, _BY_IDENTITY) or issubclass(kind, type):
            return IsObject(Ref(value))
        if is_tensor(value):
            return tensor_like(value)
        return HasType(kind)

    def guard(self, source: Source, condition: Condition) -> None:
        self.guards.append(Guard(source, condition, self.stage()))

    def once(self, *key: Any) -> bool:
        """True the first time it is asked with this key."""
        if key in self._done:
            return False
        self._done.add(key)
        return True

    def pin(self, value: Any) -> None:
        """The identity of an object matters: guard it, if it came from outside."""
        if is_plain(value) or self.is_fresh(value):
            return
        source = self.source(value)
        if (
            isinstance(source, Root)
            or (one_of(type(value), _BY_IDENTITY) and id(value) not in self._given)
            or issubclass(type(value), type)
        ):
            return
        if self.once("pin", id(source)):
            self.guard(source, IsObject(Ref(value)))

    def identity(self, a: Any, b: Any) -> None:
        """Whether two outer objects are one matters."""
        if a is b:
            return  # paths that lead to an object already known are guarded to lead to that one
        if is_plain(a) or is_plain(b):
            self.pin(a)
            self.pin(b)
            return
        first, second = self.source(a), self.source(b)
        if self.once("identity", id(first), id(second)):
            self.guard(first, IsSame(second, same=False))

    # -- contents of containers ----------------------------------------------------------------

    def length(self, container: Any) -> None:
        """The number of entries of an outer container was read."""
        if self.is_outer(container) and not issubclass(type(container), tuple):
            source = self.source(container)
            if self.once("length", id(source)):
                self.guard(source, HasLength(len(container)))

    def element(self, container: Any, index: int) -> None:
        """One element of an outer list or tuple was read; counted from the front."""
        if self.is_fresh(container) or is_plain(container):
            return
        self.length(container)
        value = container[index]
        self.read(self.intern(Element, self.source(container), index), value)

    def item(self, container: Any, key: Any) -> Any:
        """One key of an outer dict was looked up: its value or MISSING."""
        value = dict.get(container, key, MISSING)
        if self.is_outer(container):
            self.read(self.intern(DictItem, self.source(container), key), value)
        return value

    def membership(self, container: Any, key: Any, found: bool) -> None:
        if self.is_outer(container):
            source = self.source(container)
            if self.once("holds", id(source), type(key), key):
                self.guard(source, Holds(key, found))

    def entries(self, container: Any) -> bool:
        """All of an outer container is read, in order. False if that cannot be guarded."""
        if one_of(type(container), (set, frozenset)):
            self.order(container)
        if self.is_fresh(container) or is_plain(container):
            return True
        kind = type(container)
        if one_of(kind, (list, tuple)) or self.is_tuple(container):
            self.length(container)
            for index in range(len(container)):
                self.element(container, index)
            return True
        if one_of(kind, (dict, OrderedDict)):
            return self._dict_entries(container)
        return one_of(kind, (set, frozenset)) and self._set_entries(container)

    def keys(self, container: Any) -> bool:
        """The keys of an outer dict are read, in order."""
        if self.is_fresh(container):
            return True
        if not container:
            self.length(container)
            return True
        if not all(map(is_plain, container)):
            return False
        source = self.source(container)
        if self.once("keys", id(source)):
            self.guard(source, HasKeys(tuple(container)))
        return True

    def _dict_entries(self, container: Any) -> bool:
        if not self.keys(container):
            return False
        for key in container:
            self.item(container, key)
        return True

    def _set_entries(self, container: Any) -> bool:
        """Only empty sets: equal ones may have another order, and 1 in the place of 1.0."""
        if container:
            return False
        self.length(container)
        return True

    def order(self, container: Any) -> None:
        """The order of a set's entries was read: that of strings is another in each process."""
        if len(container) > 1 and not all(one_of(type(x), _HASHED_ALIKE) for x in container):
            self.state("hash seed")

    def deep(self, value: Any) -> bool:
        """A value is read through and through by somebody else. False if it has hidden state."""
        kind = type(value)
        if id(value) in self._given:
            self.pin(value)
        if (
            is_plain(value)
            or is_tensor(value)
            or one_of(kind, _BY_IDENTITY)
            or issubclass(kind, type)
        ):
            return True
        if kind is MethodType:
            self.pin(value.__func__)
            self.pin(value.__self__)
            return True
        if not (one_of(kind, CONTAINERS) or self.is_tuple(value)) or not self.entries(value):
            return False
        inside = value.values() if one_of(kind, (dict, OrderedDict)) else value
        return all(self.deep(x) for x in inside)

    # -- the framework -------------------------------------------------------------------------

    def state(self, name: str) -> None:
        """State of the framework or of Python was read (a name of ``guard_check.STATE``)."""
        source = self.intern(GlobalState, name)
        self.read(source, STATE[name]())

    def constant(self, tensor: Any) -> None:
        """A tensor was made from Python data: its values now are those of every call."""
        self.constants.append((tensor, tensor._a.copy() if hasattr(tensor._a, "copy") else None))

    def whole(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call what is one operator; if more than one is recorded, its choice may rest on sizes."""
        recorder = THREAD.recorder
        before = None if recorder is None else recorder.at
        result = function(*args)
        if recorder is None or recorder.at.parent is not before or not is_tensor(result):
            self.sizes_read = True
        return result

    def known_tensors(self) -> Iterator[tuple[Any, Source]]:
        """The tensors from outside, each with where it was found."""
        for value in self._keep:
            if is_tensor(value):
                yield value, self._sources[id(value)]

    def number_source(self, run: int, position: int, number: Any) -> Any:
        """A number that went into a graph: itself, or where it comes from at each call."""
        found = self.number_sources.get((run, position))
        return number if found is None else found.origin

    def settle_numbers(self, run: int) -> None:
        """What a run's graph was made for depends on its numbers: guard their values."""
        for (owner, _), number in self.number_sources.items():
            if owner == run:
                for source, value in number.sources.values():
                    if self.once("settled", id(source)):
                        self.guard(source, Equals(value))

    def converted(self, kind: str, value: Any) -> None:
        """The value read last went to Python as ``kind(value)``."""
        stage = self.stage()
        if stage:
            self._readers[stage - 1] = (kind, value)

    def reader_of(self, index: int, value: Any) -> tuple[str, Any]:
        """How the value read at a place went to Python, and as what."""
        return self._readers.get(index, ("item", value))

    def release(self) -> None:
        """The call is over: keep none of the objects that it made alive."""
        self._fresh.clear()

    def close(self) -> None:
        """Nothing more is asked: keep no object alive."""
        for held in (self._fresh, self._keep, self._sources, self._interned, self.constants):
            held.clear()

    # -- classes -------------------------------------------------------------------------------

    def class_attribute(self, cls: type, name: str, after: type | None = None) -> Any:
        """Look a name up in a class, and guard what was found."""
        value = class_lookup(cls, name, after)
        source = self.intern(ClassAttribute, cls, name, after)
        if id(source) not in self._read:
            self._read.add(id(source))
            self.guard(source, IsMissing() if value is MISSING else self._held(value))
            known = None if is_plain(value) else self._sources.get(id(value))
            if (
                known is not None
                and known is not source
                and not isinstance(self._held(value), IsObject)
            ):
                self.guard(source, IsSame(known))
            if value is not MISSING and not is_plain(value) and not self.is_fresh(value):
                self.know(value, source)
                for part in _FUNCTIONS.get(type(value), ()):
                    self._know_part(value, source, part)
        return value

    def entry(self, cls: type, name: str) -> Any:
        """As ``class_attribute``, without a guard where the class cannot change."""
        return class_lookup(cls, name) if is_settled(cls) else self.class_attribute(cls, name)

    def is_tuple(self, value: Any) -> bool:
        """A named tuple or another subclass of tuple that is read as tuples are."""
        kind = type(value)
        return issubclass(kind, tuple) and all(
            self.entry(kind, name) is tuple.__dict__[name]
            for name in ("__iter__", "__getitem__", "__len__")
        )

    def _know_part(self, descriptor: Any, source: Source, name: str) -> None:
        """A function inside a descriptor of a class has a path, too."""
        found = getattr(descriptor, name)
        if found is not None:
            self.know(found, self.intern(Slot, source, name))

    def _held(self, value: Any) -> Condition:
        if is_plain(value):
            return Equals(value)
        if one_of(type(value), CONTAINERS) or is_tensor(value):
            return self._condition(value)
        return IsObject(Ref(value, strong=True))


#: Descriptors made of functions, and where these are.
_FUNCTIONS: Mapping[type, tuple[str, ...]] = {
    property: ("fget", "fset", "fdel"),
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
}


def tensor_like(t: Any) -> TensorLike:
    """The metadata of a tensor as a condition."""
    requires_grad = t.requires_grad  # first: it refreshes the key set of a view
    return TensorLike(
        type(t),
        t._k,
        t._t,
        tuple(t._a.shape),
        tuple(t.stride()),
        requires_grad,
        t.device,
    )


def _field_key(field: Any) -> Any:
    kind = type(field)
    if one_of(kind, SCALARS):
        return (kind, repr(field))
    if kind is tuple and is_plain(field):
        return (tuple, repr(field))
    return id(field)


__all__ = ["CONTAINERS", "Place", "Reason", "Watch", "is_plain", "tensor_like"]
