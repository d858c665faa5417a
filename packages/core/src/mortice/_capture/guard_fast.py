"""Guards made quicker by versions: what lies in unchanged dicts and classes is not looked up again.

A fast check is made for one call that the guards let through. It compares versions of the dicts that
belong to instances, and of classes; the objects found in them stand in it as constants. Where a
version differs, the full check decides, so a fast check never says no.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mortice._capture.guard_check import find
from mortice._capture.guard_code import Check, Unreachable, Writer
from mortice._capture.guards import (
    Apart,
    ClassAttribute,
    DictItem,
    Element,
    Equals,
    Guard,
    HasLength,
    HasType,
    InstanceDict,
    IsMissing,
    IsObject,
    IsSame,
    Root,
    SizesFit,
    Source,
    TensorLike,
)
from mortice._capture.identity import one_of
from mortice._capture.versions import can_read, dict_version, type_version
from mortice._dispatch import keys as K

#: Built-in types: the type of an object of them cannot be assigned.
_FIXED_TYPES = (dict, list, tuple, set, OrderedDict, str, int, float, bool, type(None))


def fast_check(
    guards: Sequence[Guard],
    wanted: Sequence[Source],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    full: Check,
    dropped: Callable[[], None],
) -> Check | None:
    """A quicker form of ``full``, which has just let this call through; None if there is no gain.

    ``dropped`` is called when an object dies that the check knows: it must be forgotten then.
    """
    if not can_read():
        return None
    writer = _FastWriter(args, kwargs, dropped)
    try:
        for guard in guards:
            writer.guard(guard)
        names = [writer.place(source) for source in wanted]
    except Unreachable:
        return None
    return writer.finish_fast(names, full) if writer.versions else None


class _FastWriter(Writer):
    """Writes checks for what versions do not cover."""

    def __init__(self, args: Any, kwargs: Any, dropped: Callable[[], None]) -> None:
        super().__init__()
        self.args, self.kwargs = args, kwargs
        self.dropped = dropped
        self.values: dict[int, Any] = {}
        #: id of a dict or class -> (itself, the sequence that holds its version, the version now)
        self.versions: dict[int, tuple[Any, Any, int]] = {}
        self.fixed: dict[int, bool] = {}
        self.checked: set[int] = set()
        self.watched: list[Any] = []

    # -- what is constant ------------------------------------------------------------------------

    def value(self, source: Source) -> Any:
        found = self.values.get(id(source), self)
        if found is self:
            found = self.values[id(source)] = find(source, self.args, self.kwargs)
        return found

    def is_fixed(self, source: Source) -> bool:
        """Whether the object at a source is this one as long as the versions stay."""
        known = self.fixed.get(id(source))
        if known is None:
            known = self.fixed[id(source)] = self._is_fixed(source)
        return known

    def _is_fixed(self, source: Source) -> bool:
        if isinstance(source, Root):
            return not source.ref.weak
        if isinstance(source, InstanceDict):
            return True  # ``place`` sees to it that the instance still has this dict
        if isinstance(source, DictItem):
            return self.is_fixed(source.holder) and self.belongs(source.holder)
        if isinstance(source, Element):
            return self.is_fixed(source.holder) and type(self.value(source.holder)) is tuple
        return isinstance(source, ClassAttribute)

    def belongs(self, source: Source) -> bool:
        """Whether a dict belongs to an instance; those of modules change too often."""
        while isinstance(source, DictItem):
            source = source.holder
        return isinstance(source, InstanceDict) and one_of(
            type(self.value(source)), (dict, OrderedDict)
        )

    def version(self, holder: Any, read: Callable[[Any], Any]) -> None:
        """Compare the version of a dict or a class."""
        if id(holder) in self.versions:
            return
        version = read(holder)
        if not version[0]:
            raise Unreachable("a class without a version")
        self.versions[id(holder)] = holder, version, version[0]

    def constant_at(self, source: Source) -> str:
        if isinstance(source, DictItem):
            self.place(source.holder)
            self.version(self.value(source.holder), dict_version)
        elif isinstance(source, InstanceDict):
            return self.instance_dict(source)
        elif isinstance(source, ClassAttribute):
            self.class_version(source.cls)
        elif isinstance(source, Element):
            self.place(source.holder)
        return self.constant(self.value(source))

    def instance_dict(self, source: InstanceDict) -> str:
        """The instance is still this one, and has this dict."""
        name = self.constant(self.value(source))
        if id(source) not in self.checked:
            self.checked.add(id(source))
            holder = self.place(source.holder)
            if not self.is_fixed(source.holder):
                self.anchor(source.holder, holder)
            self.fail(f"{holder}.__dict__ is not {name}")
        return name

    def anchor(self, source: Source, name: str) -> None:
        """An object whose owner is not watched: known by its number, and forgotten when it dies."""
        value = self.value(source)
        dropped = self.dropped  # the writer itself knows objects, and must not be kept
        self.watched.append(weakref.ref(value, lambda _: dropped()))
        self.fail(f"id({name}) != {id(value)}")

    def place(self, source: Source) -> str:
        if self.is_fixed(source):
            return self.constant_at(source)
        return super().place(source)

    def class_version(self, cls: type) -> None:
        type.__getattribute__(cls, "__init__")  # a lookup gives it a version
        self.version(cls, type_version)

    # -- conditions ------------------------------------------------------------------------------

    def fail(self, condition: str) -> None:
        self.lines.append(f"if {condition}: return full(args, kwargs)")

    def guard(self, guard: Guard) -> None:
        source, condition = guard.source, guard.condition
        if isinstance(source, ClassAttribute):
            self.class_version(source.cls)
            if source.after is not None:
                self.class_version(source.after)
            self.of_class(source, condition)
            return
        if isinstance(source, DictItem) and self.is_fixed(source):
            self.place(source)  # also where nothing was found
        if not self.is_fixed(source):
            super().guard(guard)
            return
        if isinstance(condition, (IsMissing, IsObject, Equals)) and not isinstance(source, Root):
            return
        value = self.value(source)
        if isinstance(condition, HasType):
            if not one_of(type(value), _FIXED_TYPES):
                super().guard(guard)
        elif isinstance(condition, TensorLike):
            self.same_tensor(value, condition)
        elif isinstance(condition, (IsSame, Apart, SizesFit)):
            super().guard(guard)
        elif isinstance(condition, HasLength) and not condition.length:
            self.fail(self.place(source))
        elif isinstance(source, Root) or not one_of(type(value), (dict, OrderedDict)):
            super().guard(guard)
        elif self.belongs(source):
            self.version(value, dict_version)  # its keys
        else:
            super().guard(guard)

    def of_class(self, source: ClassAttribute, condition: Any) -> None:
        """What can become false of an object though the class still has it."""
        if isinstance(condition, (IsMissing, IsObject, Equals)):
            return
        value = self.value(source)
        if isinstance(condition, TensorLike):
            self.same_tensor(value, condition)
        elif not (isinstance(condition, HasType) and one_of(type(value), _FIXED_TYPES)):
            getattr(self, f"on_{type(condition).__name__}")(self.place(source), condition)

    def same_tensor(self, t: Any, c: TensorLike) -> None:
        """The tensor has the handle and the keys that it had."""
        name, handle = self.constant(t), self.constant(t._a)
        if c.keys & K.VIEW:
            self.fail(f"{name}.requires_grad is not {c.requires_grad}")
        self.fail(f"{name}._a is not {handle} or {name}._k != {c.keys}")

    def finish_fast(self, results: Sequence[str], full: Check) -> Check:
        tests: list[str] = []
        for holder, version, now in self.versions.values():
            self.constant(holder)  # its address is read: it must stay
            tests.append(f"{self.constant(version)}[0] != {now}")
        lines = [
            f"if {' or '.join(tests[i : i + 8])}: return full(args, kwargs)"
            for i in range(0, len(tests), 8)
        ]
        self.lines = [*lines, *self.lines]
        self.namespace["full"] = full
        self.namespace["watched"] = self.watched
        return self.finish(results, "return full(args, kwargs)")
