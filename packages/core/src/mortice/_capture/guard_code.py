"""Guards compiled into one Python function.

The function does one lookup per distinct source and one comparison per condition (10 to 40 ns
each), and returns the objects asked for, or the number of the guard that failed.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mortice._capture.guard_check import STATE, apart, is_inline, is_like, same_keys
from mortice._capture.guards import (
    SCALARS,
    AllArguments,
    Apart,
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
    Root,
    SizesFit,
    Slot,
    Source,
    TensorLike,
    class_lookup,
    same_value,
)
from mortice._capture.texts import Codes, made_of
from mortice._dispatch import keys as K
from mortice._dispatch.state import THREAD
from mortice._types.device import CPU, Device, current_default, default_devices
from mortice._types.dtypes import DType
from mortice._types.dtypes import default as default_dtype
from mortice._types.layout import Layout, MemoryFormat

#: ``check(args, kwargs)``: a tuple of the wanted objects, or the number of the failed guard.
Check = Callable[[Sequence[Any], dict[str, Any]], Any]

_FAST_STATE = {  # expressions that need no call, for the state read most
    "dispatch modes": ("THREAD.masks", {"THREAD": THREAD}),
    "default dtype": ("default_dtype.dtype", {"default_dtype": default_dtype}),
    "default device": (
        "current_default() if default_devices else CPU",
        {"default_devices": default_devices, "current_default": current_default, "CPU": CPU},
    ),
}


#: Types with one object per value.
_INTERNED = (DType, Device, Layout, MemoryFormat)


class Unreachable(Exception):
    """A source that no longer leads anywhere: the guards need not be compiled."""


def compile_check(guards: Sequence[Guard], wanted: Sequence[Source]) -> Check:
    """One function for ``guards``, in their order, that gathers the objects at ``wanted``."""
    return written_check(guards, wanted)(None)


def written_check(
    guards: Sequence[Guard], wanted: Sequence[Source]
) -> Callable[[Codes | None], Check]:
    """What makes the function of ``compile_check``; Unreachable is raised at once."""
    writer = Writer()
    for number, guard in enumerate(guards):
        writer.number = number
        writer.guard(guard)
    writer.number = len(guards)
    places = [writer.place(source) for source in wanted]
    return lambda known: writer.finish(places, known=known)


class Writer:
    """Writes the lines of a check, one guard after the other."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.namespace: dict[str, Any] = {
            "__builtins__": builtins,
            "ndarray": np.ndarray,
            "MISSING_ERRORS": (KeyError, IndexError, AttributeError, ValueError),
        }
        self.constants: dict[int, str] = {}
        self.places: dict[int, str] = {}
        self.number = 0
        #: Tensors whose metadata were compared: their handle's variable.
        self.handles: dict[int, str] = {}
        self.classes: set[int] = set()

    # -- names ---------------------------------------------------------------------------------

    def constant(self, value: Any) -> str:
        """The name of an object in the function's globals."""
        name = self.constants.get(id(value))
        if name is None:
            name = self.constants[id(value)] = f"c{len(self.constants)}"
            self.namespace[name] = value
        return name

    def fail(self, condition: str) -> None:
        self.lines.append(f"if {condition}: return {self.number}")

    def place(self, source: Source) -> str:
        """The variable that holds the object at ``source``, assigned at its first use."""
        name = self.places.get(id(source))
        if name is None:
            code = self.expression(source)
            name = f"v{len(self.places)}"
            self.lines.append(f"{name} = {code}")
            self.places[id(source)] = name
        return name

    def expression(self, source: Source) -> str:
        if isinstance(source, Argument):
            table = "args" if isinstance(source.key, int) else "kwargs"
            return f"{table}[{source.key!r}]"
        if isinstance(source, Root):
            return self.root(source)
        if isinstance(source, DictItem):
            return f"{self.place(source.holder)}[{self.key(source.key)}]"
        if isinstance(source, Element):
            return f"{self.place(source.holder)}[{source.index}]"
        if isinstance(source, CellContents):
            return f"{self.place(source.holder)}.cell_contents"
        if isinstance(source, (InstanceDict, Slot)):
            name = source.name if isinstance(source, Slot) else "__dict__"
            return f"{self.place(source.holder)}.{name}"
        if isinstance(source, GlobalState):
            return self.state(source)
        assert isinstance(source, ClassAttribute)
        lookup, cls, after = map(self.constant, (class_lookup, source.cls, source.after))
        return f"{lookup}({cls}, {source.name!r}, {after})"

    def root(self, source: Root) -> str:
        ref = source.ref
        if not ref.weak:
            return self.constant(ref.get())
        if not ref.alive():
            raise Unreachable(str(source))
        name = self.constant(ref)
        return f"{name}.get()"

    def key(self, key: Any) -> str:
        return repr(key) if type(key) in (str, int, bytes, bool) else self.constant(key)

    def state(self, source: GlobalState) -> str:
        fast = _FAST_STATE.get(source.name)
        if fast is not None:
            self.namespace.update(fast[1])
            return fast[0]
        return f"{self.constant(STATE[source.name])}()"

    # -- conditions ----------------------------------------------------------------------------

    def guard(self, guard: Guard) -> None:
        source, condition = guard.source, guard.condition
        if isinstance(source, AllArguments):
            assert isinstance(condition, HasForm)
            self.form(condition)
        elif isinstance(source, ClassAttribute) and not isinstance(condition, HasType):
            self.class_attribute(source, condition)
        elif isinstance(condition, IsMissing):
            self.missing(source)
        else:
            getattr(self, f"on_{type(condition).__name__}")(self.place(source), condition)

    def form(self, c: HasForm) -> None:
        given = f" or tuple(kwargs) != {c.names!r}" if c.names else " or kwargs"
        self.fail(f"len(args) != {c.count}{given}")

    def missing(self, source: Source) -> None:
        if isinstance(source, DictItem):
            self.fail(f"{self.key(source.key)} in {self.place(source.holder)}")
        elif isinstance(source, Argument):
            count = f"len(args) > {source.key}" if isinstance(source.key, int) else ""
            self.fail(count or f"{source.key!r} in kwargs")
        else:
            from mortice._capture.guard_check import find

            found = f"{self.constant(find)}({self.constant(source)}, args, kwargs)"
            from mortice._capture.guards import MISSING

            self.fail(f"{found} is not {self.constant(MISSING)}")

    def on_IsObject(self, name: str, c: IsObject) -> None:
        if c.ref.weak:  # asked, and not its address, where another object may lie by now
            reference = self.constant(c.ref.weak_reference)
            self.fail(f"{name} is None or {name} is not {reference}()")
        else:
            self.fail(f"{name} is not {self.constant(c.ref.get())}")

    def on_Equals(self, name: str, c: Equals) -> None:
        value = c.value
        if value is None or value is True or value is False or value is ...:
            self.fail(f"{name} is not {value!r}")
        elif type(value) in _INTERNED:
            self.fail(f"{name} is not {self.constant(value)}")
        elif type(value) in (int, str, bytes):
            k = self.constant(value)
            kind = type(value).__name__
            self.fail(f"{name} is not {k} and (type({name}) is not {kind} or {name} != {k})")
        elif type(value) is float and value == value and value:
            k = self.constant(value)
            self.fail(f"{name} is not {k} and (type({name}) is not float or {name} != {k})")
        elif type(value) is tuple and all(type(x) is int for x in value):
            k = self.constant(value)
            self.fail(
                f"{name} is not {k} and (type({name}) is not tuple or {name} != {k} "
                f"or not {self.constant(same_value)}({name}, {k}))"
            )
        elif type(value) is tuple and all(type(x) in (*SCALARS, tuple, slice) for x in value):
            k = self.constant(value)
            self.fail(f"{name} is not {k} and not {self.constant(same_value)}({name}, {k})")
        else:
            self.fail(f"not {self.constant(same_value)}({name}, {self.constant(value)})")

    def on_HasType(self, name: str, c: HasType) -> None:
        self.fail(f"type({name}) is not {self.constant(c.cls)}")

    def on_HasLength(self, name: str, c: HasLength) -> None:
        self.fail(f"len({name}) != {c.length}" if c.length else name)

    def on_HasKeys(self, name: str, c: HasKeys) -> None:
        self.fail(f"not {self.constant(same_keys)}({name}, {self.constant(c.keys)})")

    def on_Holds(self, name: str, c: Holds) -> None:
        self.fail(f"{self.key(c.value)} {'not in' if c.found else 'in'} {name}")

    def on_IsSame(self, name: str, c: IsSame) -> None:
        self.fail(f"{name} {'is not' if c.same else 'is'} {self.place(c.other)}")

    def on_SizesFit(self, name: str, c: SizesFit) -> None:
        tensors = "".join(f"{self.place(s)}, " for s in c.sources)
        self.fail(f"not {self.constant(c.fits)}(({tensors}))")

    def on_Apart(self, name: str, c: Apart) -> None:
        test = f"{self.constant(apart)}({name}, {self.place(c.other)})"
        self.fail(f"not {test}" if c.apart else test)

    def on_TensorLike(self, name: str, c: TensorLike) -> None:
        a = f"a{name[1:]}"
        kind, dtype = self.constant(c.cls), self.constant(c.dtype)
        stale = f" or {name}.requires_grad is not {c.requires_grad}" if c.keys & K.VIEW else ""
        self.fail(
            f"type({name}) is not {kind} or {name}._t is not {dtype}{stale} or {name}._k != {c.keys}"
        )
        self.lines.append(f"{a} = {name}._a")
        if c.strides is None or not is_inline(c):
            self.fail(f"not {self.constant(is_like)}({self.constant(c)}, {name})")
            return
        strides = tuple(s * c.dtype.itemsize for s in c.strides)
        self.fail(f"{a}.shape != {c.shape!r} or {a}.strides != {strides!r}")

    def class_attribute(self, source: ClassAttribute, condition: Any) -> None:
        """The lookup through the MRO, spelt out over the classes' own dicts."""
        known = self.places.get(id(source))
        if known is not None:  # looked up already, for another guard on what was found
            getattr(self, f"on_{type(condition).__name__}")(known, condition)
            return
        mro: tuple[type, ...] = type.__dict__["__mro__"].__get__(source.cls)
        if id(source.cls) not in self.classes:
            self.classes.add(id(source.cls))
            cls = self.constant(source.cls)
            read = self.constant(type.__dict__["__mro__"].__get__)
            plain = f"{cls}.__mro__" if type(source.cls) is type else f"{read}({cls})"
            self.fail(f"{plain} is not {self.constant(mro)}")
        rest = mro if source.after is None else mro[mro.index(source.after) + 1 :]
        for cls in rest:
            entries = type.__dict__["__dict__"].__get__(cls)
            if source.name not in entries:
                if _can_change(cls):
                    self.fail(f"{source.name!r} in {self.entries(cls, entries)}")
                continue
            if isinstance(condition, IsMissing):
                raise Unreachable(str(source))
            if _can_change(cls):
                name = f"v{len(self.places)}"
                self.places[id(source)] = name
                self.lines.append(f"{name} = {self.entries(cls, entries)}[{source.name!r}]")
                getattr(self, f"on_{type(condition).__name__}")(name, condition)
            return
        if not isinstance(condition, IsMissing):
            raise Unreachable(str(source))

    def entries(self, cls: type, proxy: Any) -> str:
        """The name of a class's dict (a live view of it)."""
        name = self.constants.get(id(cls) + 1)
        if name is None:
            name = self.constants[id(cls) + 1] = f"k{len(self.constants)}"
            self.namespace[name] = proxy
        return name

    # -- the function --------------------------------------------------------------------------

    def finish(
        self, results: Sequence[str], failed: str = "return -1", known: Codes | None = None
    ) -> Check:
        body = [*self.lines, f"return ({''.join(r + ', ' for r in results)})"]
        text = "\n".join(
            [
                "def check(args, kwargs):",
                " try:",
                *("  " + line for line in body),
                " except MISSING_ERRORS:",
                f"  {failed}",
            ]
        )
        return made_of(text, "<guards>", self.namespace, known)


def _can_change(cls: type) -> bool:
    """Built-in classes are immutable, and so is what a lookup finds in them."""
    return bool(cls.__flags__ & _HEAP_TYPE) and not cls.__flags__ & _IMMUTABLE


_HEAP_TYPE = 1 << 9
_IMMUTABLE = 1 << 8
