"""Guards as data: where a value was found, and what must hold of it.

A guard is a ``Source`` (how the object is reached again at a later call) with a ``Condition``. Both
are closed sets of classes that only hold what they were made of, so that ``guard_code`` can turn a list
of guards into one Python function, a backend can turn it into native code, and ``explain`` can print it.
Nobody assigns to them; frozen dataclasses would say so, and take 4 ms of a program's start to declare,
and three times as long to make.

Sources start at an argument of the call or at a root, an object that is held. Everything else is
reached from there by a path, so that no user's object is kept alive by being guarded; roots are
held weakly where Python allows.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from types import BuiltinFunctionType, CodeType, ModuleType
from typing import Any

import numpy as np

from mortice._capture.identity import one_of
from mortice._types.shapes import Size


class _Missing:
    """Stands for a name that a lookup did not find."""

    def __repr__(self) -> str:
        return "missing"


MISSING = _Missing()

#: Immutable types whose values are compared; subclasses are not among them.
SCALARS = (int, float, complex, str, bytes, bool, type(None), type(...))
#: Types that live as long as the program, more or less: held strongly.
_HELD = (type, ModuleType, BuiltinFunctionType, CodeType)


def same_value(a: Any, b: Any) -> bool:
    """Whether two plain values cannot be told apart: type, sign of zero and NaN included."""
    if a is b:
        return True
    kind = type(a)
    if kind is not type(b):
        return False
    if kind is float:
        return (a == b and (a != 0.0 or str(a) == str(b))) or (a != a and b != b)
    if kind is complex:
        return same_value(a.real, b.real) and same_value(a.imag, b.imag)
    if kind is tuple or kind is frozenset:
        return kind is tuple and len(a) == len(b) and all(same_value(x, y) for x, y in zip(a, b))
    if kind is Size or issubclass(kind, np.generic):
        return bytes_of(a) == bytes_of(b)
    if kind is slice or kind is range:
        return same_value((a.start, a.stop, a.step), (b.start, b.stop, b.step))
    return one_of(kind, SCALARS) and a == b


def bytes_of(value: Any) -> Any:
    """What tells two sizes, or two numpy scalars of one type, apart."""
    return tuple(value) if type(value) is Size else value.tobytes()


class Ref:
    """An object held by a guard: weakly where it can be, unless it is a type, module or code.

    Attributes:
        weak: whether only a weak reference is kept; ``get()`` is None once the object is gone.
        number: ``id`` of the object, where another may lie once it is gone.
    """

    __slots__ = ("_shown", "_strong", "_weak", "number", "weak")

    def __init__(
        self, value: Any, gone: Callable[[Any], None] | None = None, strong: bool = False
    ) -> None:
        self.number = id(value)
        self._shown = ""
        self._strong: Any = None
        self._weak: Any = None
        self.weak = False
        if not strong and not issubclass(type(value), _HELD):
            try:
                self._weak = weakref.ref(value, gone)
                self.weak = True
                self._shown = _show(value)  # while it is there
            except TypeError:
                pass
        if not self.weak:
            self._strong = value

    @staticmethod
    def of(weak: weakref.ref[Any]) -> Ref:
        """A weak reference as a Ref; its object may be gone."""
        value = weak()
        if value is not None:
            return Ref(value)
        found = Ref(None)
        found.number, found.weak = 0, True
        found._weak, found._shown = weak, "an object that is gone"
        return found

    def get(self) -> Any:
        return self._weak() if self.weak else self._strong

    @property
    def weak_reference(self) -> Any:
        """The weak reference itself; None where the object is held."""
        return self._weak

    def alive(self) -> bool:
        return not self.weak or self._weak() is not None

    def __repr__(self) -> str:
        return self._shown if self.weak else _show(self._strong)


def _show(value: Any) -> str:
    """A short text for an object, made without calling any of its methods."""
    kind = type(value)
    if one_of(kind, SCALARS):
        text = repr(value)
        return text if len(text) <= 60 else text[:57] + "..."
    if kind is tuple and all(one_of(type(x), SCALARS) for x in value) and len(value) <= 8:
        return repr(value)
    if kind is ModuleType:
        return f"module {value.__name__}"
    if kind is type or (type(kind) is type and issubclass(kind, type)):
        return f"class {type.__getattribute__(value, '__qualname__')}"
    name = value.__qualname__ if kind.__name__ in _NAMED else ""
    return f"{name or kind.__name__}"


_NAMED = ("function", "builtin_function_or_method", "method_descriptor", "wrapper_descriptor")


# -- sources -------------------------------------------------------------------------------------


class Argument:
    """An argument of the call: a position, or a keyword."""

    __slots__ = ("key",)

    def __init__(self, key: int | str) -> None:
        self.key = key

    def __str__(self) -> str:
        return f"args[{self.key}]" if isinstance(self.key, int) else f"kwargs[{self.key!r}]"


class AllArguments:
    """The arguments of the call together."""

    __slots__ = ()

    def __str__(self) -> str:
        return "the call"


class Root:
    """A held object from which others are reached."""

    __slots__ = ("label", "ref")

    def __init__(self, label: str, ref: Ref) -> None:
        self.label = label
        self.ref = ref

    def __str__(self) -> str:
        return self.label


class DictItem:
    """``holder[key]`` of an exact dict (or an OrderedDict); the key is a plain value."""

    __slots__ = ("holder", "key")

    def __init__(self, holder: Source, key: Any) -> None:
        self.holder = holder
        self.key = key

    def __str__(self) -> str:
        if isinstance(self.holder, InstanceDict):
            return f"{self.holder.holder}.{self.key}"
        return f"{self.holder}[{self.key!r}]"


class Element:
    """``holder[index]`` of a list or tuple."""

    __slots__ = ("holder", "index")

    def __init__(self, holder: Source, index: int) -> None:
        self.holder = holder
        self.index = index

    def __str__(self) -> str:
        return f"{self.holder}[{self.index}]"


class InstanceDict:
    """The ``__dict__`` of an instance whose class uses object's attribute lookup."""

    __slots__ = ("holder",)

    def __init__(self, holder: Source) -> None:
        self.holder = holder

    def __str__(self) -> str:
        return f"{self.holder}.__dict__"


class Slot:
    """An attribute that a built-in descriptor reads: a slot, a function's ``__code__``."""

    __slots__ = ("holder", "name")

    def __init__(self, holder: Source, name: str) -> None:
        self.holder = holder
        self.name = name

    def __str__(self) -> str:
        return f"{self.holder}.{self.name}"


class CellContents:
    """What a closure's cell holds."""

    __slots__ = ("holder", "name")

    def __init__(self, holder: Source, name: str) -> None:
        self.holder = holder
        self.name = name

    def __str__(self) -> str:
        return f"{self.holder}.{self.name} (closure)"


class ClassAttribute:
    """What a lookup of ``name`` through the MRO of ``cls`` finds, as the descriptor itself.

    ``after``: begin behind that class (``super``).
    """

    __slots__ = ("after", "cls", "name")

    def __init__(self, cls: type, name: str, after: type | None = None) -> None:
        self.cls = cls
        self.name = name
        self.after = after

    def __str__(self) -> str:
        cls = type.__getattribute__(self.cls, "__qualname__")
        if self.after is not None:
            return f"super({type.__getattribute__(self.after, '__qualname__')}, {cls}).{self.name}"
        return f"class {cls}.{self.name}"


class GlobalState:
    """State of the framework: see ``STATE``."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __str__(self) -> str:
        return self.name


Source = (
    Argument
    | AllArguments
    | Root
    | DictItem
    | Element
    | InstanceDict
    | Slot
    | CellContents
    | ClassAttribute
    | GlobalState
)


# -- conditions ----------------------------------------------------------------------------------


class HasForm:
    """How many arguments are given by position, and which by name, in order."""

    __slots__ = ("count", "names")

    def __init__(self, count: int, names: tuple[str, ...]) -> None:
        self.count = count
        self.names = names

    def __str__(self) -> str:
        named = f" and {', '.join(self.names)} by name" if self.names else ""
        return f"has {self.count} arguments by position{named}"


class IsMissing:
    """The lookup finds nothing."""

    __slots__ = ()

    def __str__(self) -> str:
        return "is missing"


class IsObject:
    """It is that very object."""

    __slots__ = ("ref",)

    def __init__(self, ref: Ref) -> None:
        self.ref = ref

    def __str__(self) -> str:
        return f"is {self.ref}"


class Equals:
    """It is a plain value that cannot be told from this one (see ``same_value``)."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __str__(self) -> str:
        return f"== {_show(self.value)}"


class HasType:
    """Its exact type."""

    __slots__ = ("cls",)

    def __init__(self, cls: type) -> None:
        self.cls = cls

    def __str__(self) -> str:
        return f"has type {type.__getattribute__(self.cls, '__qualname__')}"


class HasLength:
    """Number of entries of a list, dict, tuple or set."""

    __slots__ = ("length",)

    def __init__(self, length: int) -> None:
        self.length = length

    def __str__(self) -> str:
        return f"has {self.length} entries"


class HasKeys:
    """The keys of a dict, plain values, in order."""

    __slots__ = ("keys",)

    def __init__(self, keys: tuple[Any, ...]) -> None:
        self.keys = keys

    def __str__(self) -> str:
        return f"has keys {_show(self.keys)}"


class Holds:
    """Whether a set or dict holds a plain value."""

    __slots__ = ("found", "value")

    def __init__(self, value: Any, found: bool) -> None:
        self.value = value
        self.found = found

    def __str__(self) -> str:
        return f"{'holds' if self.found else 'does not hold'} {_show(self.value)}"


class IsSame:
    """It is the object at another source, or (``same=False``) is not."""

    __slots__ = ("other", "same")

    def __init__(self, other: Source, same: bool = True) -> None:
        self.other = other
        self.same = same

    def __str__(self) -> str:
        return f"{'is' if self.same else 'is not'} {self.other}"


class TensorLike:
    """Metadata of a tensor.

    ``keys`` is its key set (device, requires_grad, subclass and mode bits), ``shape`` may hold None
    for a size that any value fits, then ``strides`` is the contiguous order. Where in its memory
    the tensor begins is no part of it.
    """

    __slots__ = ("cls", "device", "dtype", "keys", "requires_grad", "shape", "strides")

    def __init__(
        self,
        cls: type,
        keys: int,
        dtype: Any,
        shape: tuple[int | None, ...],
        strides: tuple[int, ...] | None,
        requires_grad: bool,
        device: Any,
    ) -> None:
        self.cls = cls
        self.keys = keys
        self.dtype = dtype
        self.shape = shape
        self.strides = strides
        self.requires_grad = requires_grad
        self.device = device

    def __str__(self) -> str:
        sizes = ", ".join("any" if n is None else str(n) for n in self.shape)
        grad = ", requires grad" if self.requires_grad else ""
        return f"is a {self.dtype!r} tensor of shape ({sizes}) on {self.device}{grad}"


class SizesFit:
    """The sizes of these tensors together are some that a graph was made for."""

    __slots__ = ("fits", "sources")

    def __init__(self, sources: tuple[Source, ...], fits: Callable[[Sequence[Any]], bool]) -> None:
        self.sources = sources
        self.fits = fits

    def __str__(self) -> str:
        return f"and {len(self.sources) - 1} more have sizes that the graph is for"


class Apart:
    """Shares no memory with the tensor at another source (matters where one is written)."""

    __slots__ = ("apart", "other")

    def __init__(self, other: Source, apart: bool = True) -> None:
        self.other = other
        self.apart = apart

    def __str__(self) -> str:
        return f"{'shares no' if self.apart else 'shares its'} storage with {self.other}"


Condition = (
    HasForm
    | IsMissing
    | IsObject
    | Equals
    | HasType
    | HasLength
    | HasKeys
    | Holds
    | IsSame
    | TensorLike
    | Apart
    | SizesFit
)


class Guard:
    """``condition`` must hold of what is found at ``source``.

    ``stage`` counts the tensor values that Python had read before: a guard is checked no earlier.
    """

    __slots__ = ("condition", "source", "stage")

    def __init__(self, source: Source, condition: Condition, stage: int = 0) -> None:
        self.source = source
        self.condition = condition
        self.stage = stage

    def __str__(self) -> str:
        return f"{self.source} {self.condition}"


def holders(source: Source) -> Iterator[Source]:
    """The sources that ``source`` is reached through, itself last."""
    if isinstance(source, (DictItem, Element, InstanceDict, Slot, CellContents)):
        yield from holders(source.holder)
    yield source


# -- looking up without running anybody's code -----------------------------------------------------


def class_lookup(cls: type, name: str, after: type | None = None) -> Any:
    """The entry for ``name`` in the first class of the MRO that has one, else MISSING."""
    mro: tuple[type, ...] = type.__dict__["__mro__"].__get__(cls)
    if after is not None:
        mro = mro[mro.index(after) + 1 :]
    for entry in mro:
        found = type.__dict__["__dict__"].__get__(entry)
        if name in found:
            return found[name]
    return MISSING
