"""What a call returned, described so that it can be made again: by identity and by structure.

An outline is made right after the call, while the objects of the call are known, and refers to
tensors as they are; ``plan`` then replaces those by where they come from.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from types import MemberDescriptorType
from typing import Any

from mortice._capture.guards import MISSING, Source, class_lookup
from mortice._capture.identity import one_of
from mortice._capture.observer.framework import is_tensor
from mortice._capture.observer.watch import Watch, is_plain


class Plain:
    """A value that is the same object every time."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class TensorOf:
    """A tensor, as the recorded call had it; later an operand of the plan."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor


class Found:
    """An object that is found at a source."""

    __slots__ = ("source",)

    def __init__(self, source: Source) -> None:
        self.source = source


class Container:
    """A container made by the call; ``number`` tells it from others and is the same for the same.

    ``make`` takes the list of the items.
    """

    __slots__ = ("items", "kind", "make", "number")

    def __init__(
        self, number: int, make: Callable[[list[Any]], Any], items: tuple[Any, ...], kind: str
    ) -> None:
        self.number = number
        self.make = make
        self.items = items
        self.kind = kind


class Keyed:
    """Makes a dict of a class: ``keys`` in order, with the items that it is called with."""

    __slots__ = ("keys", "kind")

    def __init__(self, kind: type, keys: tuple[Any, ...]) -> None:
        self.kind = kind
        self.keys = keys

    def __call__(self, items: list[Any]) -> Any:
        return self.kind(zip(self.keys, items))


class Again:
    """A container that stands elsewhere in the outline, too."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


Outline = Plain | TensorOf | Found | Container | Again


class Indescribable(Exception):
    """A result that cannot be made again; the text says which."""


class Describer:
    """Makes the outline of one result."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self.seen: dict[int, int] = {}
        self.open: set[int] = set()

    def describe(self, value: Any) -> Outline:
        """The outline of a value. Raises Indescribable."""
        w = self.watch
        if is_plain(value):
            return Plain(value)
        if is_tensor(value):
            source = w.source_if_known(value)
            return TensorOf(value) if source is None else Found(source)
        if not w.is_fresh(value):
            source = w.source_if_known(value)
            if source is not None:
                return Found(source)
            raise Indescribable(f"returns a {type(value).__name__} of unknown origin")
        number = self.seen.get(id(value))
        if number is not None:
            if number in self.open:
                raise Indescribable("returns a container that holds itself")
            return Again(number)
        number = self.seen[id(value)] = len(self.seen)
        self.open.add(number)
        made = self._container(number, value)
        self.open.discard(number)
        return made

    def _container(self, number: int, value: Any) -> Container:
        kind = type(value)
        if one_of(kind, (list, tuple)):
            return self._of(number, list if kind is list else tuple, value, kind)
        if one_of(kind, (dict, OrderedDict)):
            keys = tuple(value)
            if not all(map(is_plain, keys)):
                raise Indescribable("returns a dict whose keys are not plain values")
            return self._of(number, Keyed(kind, keys), value.values(), kind)
        if kind is set and all(map(is_plain, value)):
            items = tuple(value)
            return Container(number, lambda _: set(items), (), "set")
        if issubclass(kind, tuple) and _is_named(kind):
            return self._of(number, lambda items: tuple.__new__(kind, items), value, kind)
        return self._instance(number, value, kind)

    def _instance(self, number: int, value: Any, kind: type) -> Container:
        """An object whose state is its ``__dict__`` alone."""
        plain = (
            class_lookup(kind, "__new__") is object.__new__
            and class_lookup(kind, "__del__") is MISSING
            and type(kind) is type
            and not _slots(kind)
            and type(value) is not object
        )
        if not plain:
            raise Indescribable(f"returns a new {kind.__name__}")
        state = object.__getattribute__(value, "__dict__")
        names = tuple(state)

        def make(items: list[Any]) -> Any:
            made = object.__new__(kind)
            object.__getattribute__(made, "__dict__").update(zip(names, items))
            return made

        return self._of(number, make, state.values(), kind)

    def _of(self, number: int, make: Any, items: Any, kind: type) -> Container:
        return Container(number, make, tuple(map(self.describe, items)), kind.__name__)


def _is_named(kind: type) -> bool:
    return type(class_lookup(kind, "_fields")) is tuple and kind.__mro__[1:] == (tuple, object)


def _slots(kind: type) -> bool:
    return any(
        type(entry) is MemberDescriptorType for cls in kind.__mro__ for entry in vars(cls).values()
    )


def tensors_of(outline: Any) -> list[Any]:
    """The tensors that an outline refers to."""
    if isinstance(outline, TensorOf):
        return [outline.tensor]
    if isinstance(outline, Container):
        return [t for item in outline.items for t in tensors_of(item)]
    return []


def compile_outline(outline: Outline, operand: Callable[[Any], str], names: dict[str, Any]) -> str:
    """Python code of one expression that makes the result; ``names`` gets what it refers to.

    ``operand`` gives the code of a TensorOf's tensor, or of a Found's object.
    """
    counts: dict[int, int] = {}
    _count(outline, counts)
    return _code(outline, operand, names, counts)


def _count(outline: Any, counts: dict[int, int]) -> None:
    if isinstance(outline, Again):
        counts[outline.number] = counts.get(outline.number, 0) + 1
    elif isinstance(outline, Container):
        for item in outline.items:
            _count(item, counts)


def _code(outline: Any, operand: Any, names: dict[str, Any], counts: dict[int, int]) -> str:
    if isinstance(outline, Plain):
        name = f"p{len(names)}"
        names[name] = outline.value
        return name
    if isinstance(outline, Again):
        return f"o{outline.number}"
    if not isinstance(outline, Container):
        return operand(outline)
    items = [_code(item, operand, names, counts) for item in outline.items]
    listed = f"[{', '.join(items)}]"
    if outline.make is list:
        code = listed
    elif outline.make is tuple:
        code = f"({''.join(i + ', ' for i in items)})"
    else:
        name = f"m{len(names)}"
        names[name] = outline.make
        code = f"{name}({listed})"
    return f"(o{outline.number} := {code})" if outline.number in counts else code


__all__: Sequence[str] = (
    "Again", "Container", "Describer", "Found", "Indescribable", "Outline", "Plain", "TensorOf",
    "compile_outline", "tensors_of",
)  # fmt: skip
