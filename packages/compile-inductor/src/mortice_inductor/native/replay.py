"""From a replay plan to the machine's program: guards and results become words.

Every guard that the machine has an instruction for is checked by it; those that compare plain
values of other types ask core's own functions. A plan with a guard of neither kind stays Python's.
"""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Callable, Sequence
from typing import Any

import mortice
from mortice import native as core
from mortice.native import NativeEntry, NativePlan
from mortice.native import guards as g
from mortice_llvm.cpython import layout as c
from mortice_llvm.cpython import make, unsupported

from .checking import WIDTH, version_of, versions_work
from .machine import CODE, HEAD, machine
from .runner import is_runner

_HEAP_TYPE, _IMMUTABLE = 1 << 9, 1 << 8


class Unsuited(Exception):
    """A plan that the machine has no instructions for; the text says for what."""


def native_entry(plan: NativePlan) -> NativeEntry | None:
    """A plan as one native function; None where the Python form must do."""
    if unsupported() is not None or not versions_work():
        return None
    try:
        program = _Program(plan)
    except Unsuited:
        return None
    return program.entry()


class _Program:
    """Collects instructions; keeps alive whatever they point to."""

    def __init__(self, plan: NativePlan) -> None:
        self.plan = plan
        self.words: list[int] = []
        self.kept: list[Any] = [plan.guards, plan.wanted]  # not the call's arguments
        self.registers: dict[int, int] = {}
        self.types: dict[int, type] = {}
        self.classes: dict[int, int] = {}
        self.count = 0
        self.core = core.layout()
        self.plain = core.dispatch_modes() == core.NO_MODES
        if self.plain:
            self.op("word", id(self.core.state) + self.core.special, id(0))
        for guard in plan.guards:
            self.guard(guard)
        wanted = [self.place(source) for source in plan.wanted]
        self.op("done")
        self.ending(wanted)

    def entry(self) -> NativeEntry:
        block = (ctypes.c_int64 * (len(HEAD) + len(self.words)))(
            max(self.count, 1), _signed(self.object(self.plan.miss)), 0,
            *(_signed(w) for w in self.words),
        )  # fmt: skip
        call = make(machine(), "replay", first=(ctypes.addressof(block),), kept=(block, *self.kept))
        return NativeEntry(call, lambda: block[2])

    # -- instructions --------------------------------------------------------------------------

    def op(self, name: str, *operands: int) -> None:
        self.words += [CODE[name], *operands, *[0] * (WIDTH - 1 - len(operands))]

    def object(self, thing: Any) -> int:
        """The address of an object, kept alive."""
        self.kept.append(thing)
        return id(thing)

    def block(self, numbers: Sequence[int]) -> int:
        """The address of numbers in memory."""
        made = (ctypes.c_int64 * max(len(numbers), 1))(*map(_signed, numbers))
        self.kept.append(made)
        return ctypes.addressof(made)

    def fresh(self) -> int:
        self.count += 1
        return self.count - 1

    # -- sources -------------------------------------------------------------------------------

    def place(self, source: Any) -> int:
        """The register with the object at a source, read at its first use."""
        found = self.registers.get(id(source))
        if found is None:
            write = _SOURCES.get(type(source))
            if write is None:
                raise Unsuited(f"a source of kind {type(source).__name__}")
            found = write(self, source)
            self.registers[id(source)] = found
        return found

    def argument(self, source: g.Argument) -> int:
        count, names = self.form
        key = source.key
        at = key if isinstance(key, int) else count + names.index(key)
        r = self.fresh()
        self.op("argument", r, at)
        return r

    form: tuple[int, tuple[str, ...]] = (0, ())

    def root(self, source: g.Root) -> int:
        r = self.fresh()
        if source.ref.weak:
            self.op("weak", r, self.object(source.ref.weak_reference))
        else:
            self.op("constant", r, self.object(source.ref.get()))
        return r

    def item(self, source: g.DictItem) -> int:
        r = self.item_or_null(source)
        self.op("present", r)
        return r

    def item_or_null(self, source: g.DictItem) -> int:
        holder, r = self.place(source.holder), self.fresh()
        self.op("item", r, holder, self.object(_interned(source.key)))
        return r

    def element(self, source: g.Element) -> int:
        if source.index < 0:
            raise Unsuited("an index from the end")
        holder, r = self.place(source.holder), self.fresh()
        self.op("element", r, holder, source.index)
        return r

    def instance_dict(self, source: g.InstanceDict) -> int:
        holder, r = self.place(source.holder), self.fresh()
        self.op("instance_dict", r, holder)
        return r

    def slot(self, source: g.Slot) -> int:
        holder, r = self.place(source.holder), self.fresh()
        self.op("attribute", r, holder, self.object(sys.intern(source.name)))
        return r

    def cell(self, source: g.CellContents) -> int:
        holder, r = self.place(source.holder), self.fresh()
        self.op("cell", r, holder)
        return r

    def class_attribute(self, source: g.ClassAttribute) -> int:
        """What the class has now; that it still does is what the class's version says."""
        self.unchanged(source.cls)
        found = core.find(source, self.plan.args, self.plan.kwargs)
        r = self.fresh()
        self.op("constant", r, self.object(found))
        return r

    def unchanged(self, cls: type) -> None:
        """That nothing in a class or its bases has changed since now."""
        flags = c.word(id(cls) + c.TYPE_FLAGS)
        if id(cls) in self.classes or not flags & _HEAP_TYPE or flags & _IMMUTABLE:
            return
        try:
            type.__getattribute__(cls, "_no_class_has_this")  # a look-up gives it a version
        except AttributeError:
            pass
        version = version_of(cls)
        if not version:
            raise Unsuited("a class without a version")
        self.classes[id(cls)] = version
        self.op("version", self.object(cls), version)

    # -- conditions ----------------------------------------------------------------------------

    def guard(self, guard: g.Guard) -> None:
        source, condition = guard.source, guard.condition
        if isinstance(source, g.AllArguments):
            self.arguments(condition)
        elif isinstance(source, g.GlobalState):
            self.state(source.name, condition)
        elif isinstance(source, g.ClassAttribute):
            self.unchanged(source.cls)
            found = core.find(source, self.plan.args, self.plan.kwargs)
            if not core.holds(condition, found, self.plan.args, self.plan.kwargs):
                raise Unsuited("a class that changed meanwhile")
            if not isinstance(condition, (g.IsMissing, g.IsObject, g.Equals)):
                self.condition(condition, source)  # the class may have it, and it may be another
        elif isinstance(condition, g.IsMissing):
            self.missing(source)
        else:
            self.condition(condition, source)

    def condition(self, condition: Any, source: Any) -> None:
        write = _CONDITIONS.get(type(condition))
        if write is None:
            raise Unsuited(f"a condition of kind {type(condition).__name__}")
        write(self, self.place(source), condition, source)

    def arguments(self, c_: Any) -> None:
        self.form = (c_.count, c_.names)
        names = tuple(map(sys.intern, c_.names))
        self.op("form", c_.count, self.object(names) if names else 0)

    def state(self, name: str, condition: Any) -> None:
        """Framework state; that no thread departs from the default is checked already."""
        value = getattr(condition, "value", None)
        found = core.find(g.GlobalState(name), (), {})
        if name == "dispatch modes":
            if not self.plain:
                r = self.fresh()
                self.op("constant", r, id(None))
                self.ask_constant(r, value, core.in_modes)
            return
        if name == "hash seed" or (name == "autocast" and value == ()):
            return  # one for the process; no thread is in a mode
        if name == "default dtype":
            holder, offset = self.core.default_dtype
            self.op("word", id(holder) + offset, self.object(value))
        elif name == "default device" and not self.core.default_devices and found is value:
            self.op("word", id(self.core.default_devices) + c.LIST_SIZE, 0)
        else:
            raise Unsuited(name)

    def missing(self, source: Any) -> None:
        if isinstance(source, g.DictItem):
            self.op("absent", self.item_or_null(source))
        elif not isinstance(source, g.Argument):
            raise Unsuited(f"{source} is missing")

    def is_object(self, r: int, c_: g.IsObject, _: Any) -> None:
        if c_.ref.weak:  # at its address another object may lie by now, which the reference tells
            self.op("word", self.object(c_.ref.weak_reference) + c.WEAK_OBJECT, c_.ref.number)
            self.op("is", r, c_.ref.number)
        else:
            self.op("is", r, self.object(c_.ref.get()))

    def equals(self, r: int, c_: g.Equals, _: Any) -> None:
        value = c_.value
        kind = type(value)
        if value is None or kind is bool or value is ... or isinstance(value, _INTERNED):
            self.op("is", r, self.object(value))
        elif kind is int and -(1 << 63) <= value < 1 << 63:
            self.op("int", r, value)
        elif kind is float:
            self.op("float", r, struct.unpack("<q", struct.pack("<d", value))[0])
        elif kind is str:
            self.op("text", r, self.object(_interned(value)))
        else:
            self.ask_constant(r, value, core.same_value)

    def has_type(self, r: int, c_: g.HasType, source: Any) -> None:
        self.types[id(source)] = c_.cls
        self.op("type", r, self.object(c_.cls))

    def has_length(self, r: int, c_: g.HasLength, source: Any) -> None:
        kind = self.types.get(id(source), object)
        if getattr(kind, "__len__", None) not in _LENGTHS:
            raise Unsuited("the length of what is no list, tuple or dict")
        self.unchanged(kind)
        self.op("length", r, c_.length)

    def has_keys(self, r: int, c_: g.HasKeys, source: Any) -> None:
        found = core.find(source, self.plan.args, self.plan.kwargs)
        if type(found) is dict:
            self.op("keys", r, self.object(tuple(found)))
            return
        keys = self.fresh()
        self.op("constant", keys, self.object(c_.keys))
        self.op("ask", r, keys, self.object(core.same_keys))

    def holds(self, r: int, c_: g.Holds, _: Any) -> None:
        self.op("holds", r, self.object(c_.value), int(c_.found))

    def is_same(self, r: int, c_: g.IsSame, _: Any) -> None:
        self.op("same" if c_.same else "differs", r, self.place(c_.other))

    def apart(self, r: int, c_: g.Apart, _: Any) -> None:
        self.op("ask", r, self.place(c_.other), self.object(core.apart if c_.apart else _together))

    def tensor(self, r: int, c_: g.TensorLike, _: Any) -> None:
        plain = (
            c_.strides is not None and c_.keys & self.core.host_keys
            and not c_.keys & self.core.view_bit and c_.keys < 1 << 62
        )  # fmt: skip
        if not plain or c_.strides is None:
            self.ask_constant(r, c_, _is_like)
            return
        sizes = [n if n is not None else -1 for n in c_.shape]
        steps = [s * c_.dtype.itemsize for s in c_.strides]
        head = [self.object(c_.cls), self.object(c_.dtype), c_.keys, len(sizes)]
        self.op("tensor", r, self.block([*head, *sizes, *steps]))

    def ask_constant(self, r: int, constant: Any, function: Callable[..., Any]) -> None:
        self.op("ask_constant", r, self.object(constant), self.object(function))

    # -- the end -------------------------------------------------------------------------------

    def ending(self, wanted: list[int]) -> None:
        direct = self.plan.direct
        if direct is not None and not (direct.plain or is_runner(direct.run)):
            direct = None
        block = self.block(wanted)
        if direct is None:
            self.op("finish", self.object(self.plan.finish), block, len(wanted))
            return
        operands: list[int] = []
        for place, constant in direct.operands:
            if place is None:
                r = self.fresh()
                self.op("constant", r, self.object(constant))
            else:
                r = wanted[place]
            operands.append(r)
        self.op("run", self.object(direct.run), self.block(operands), len(operands))
        count = len(direct.outputs)
        for k, (number, dimensions) in enumerate(direct.outputs):
            self.op("adopt", number, count - k, dimensions)
        self.op("settle", self.object(direct.settle), block, len(wanted))
        numbers = [number for number, _ in direct.outputs]
        if direct.kind == "one":
            self.op("one", numbers[0])
        else:
            self.op(direct.kind, self.block(numbers), count)


def _signed(word: int) -> int:
    word &= (1 << 64) - 1
    return word - (1 << 64) if word >> 63 else word


def _interned(key: Any) -> Any:
    return sys.intern(key) if type(key) is str else key


def _together(a: Any, b: Any) -> bool:
    return not core.apart(a, b)


def _is_like(condition: Any, tensor: Any) -> bool:
    return core.is_like(condition, tensor)


#: How lists, tuples and dicts, and what derives from them (a named tuple), tell their length.
_LENGTHS = (list.__len__, tuple.__len__, dict.__len__)

_INTERNED = (mortice.dtype, mortice.device, mortice.layout, mortice.memory_format)

_SOURCES: dict[type, Callable[[_Program, Any], int]] = {
    g.Argument: _Program.argument,
    g.Root: _Program.root,
    g.DictItem: _Program.item,
    g.Element: _Program.element,
    g.InstanceDict: _Program.instance_dict,
    g.Slot: _Program.slot,
    g.CellContents: _Program.cell,
    g.ClassAttribute: _Program.class_attribute,
}
_CONDITIONS: dict[type, Callable[[_Program, int, Any, Any], None]] = {
    g.IsObject: _Program.is_object,
    g.Equals: _Program.equals,
    g.HasType: _Program.has_type,
    g.HasLength: _Program.has_length,
    g.HasKeys: _Program.has_keys,
    g.Holds: _Program.holds,
    g.IsSame: _Program.is_same,
    g.Apart: _Program.apart,
    g.TensorLike: _Program.tensor,
}
