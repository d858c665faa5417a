"""Guards evaluated one by one: what ``explain`` and the reason of a recompile are made from.

``guard_code`` makes the fast form; the two say the same, which a test holds them to.
"""

from __future__ import annotations

from abc import get_cache_token
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import CellType
from typing import Any

from mortice._capture.guards import (
    MISSING,
    AllArguments,
    Apart,
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
    Root,
    SizesFit,
    Slot,
    Source,
    TensorLike,
    class_lookup,
    same_value,
)
from mortice._capture.identity import one_of
from mortice._dispatch import keys as K
from mortice._dispatch.state import THREAD
from mortice._tensor.storage import Storage
from mortice._types.device import CPU, current_default, default_devices
from mortice._types.dtypes import default as default_dtype

_instance_dict = object.__getattribute__


def autocast_state() -> tuple[Any, ...]:
    """Device types whose autocast is on, with their dtypes."""
    return tuple((n, s.dtype) for n, s in THREAD.autocast.items() if s.enabled)


#: Stands for how this process hashes: strings, and what is hashed by its address.
HASH_SEED = hash("mortice")

#: Framework state that decides what operators record: name -> how to read it.
STATE: Mapping[str, Callable[[], Any]] = {
    "dispatch modes": lambda: THREAD.masks,  # grad mode and autocast's being on among them
    "autocast": autocast_state,
    "default dtype": lambda: default_dtype.dtype,
    "abstract base classes": get_cache_token,
    "hash seed": lambda: HASH_SEED,
    "default device": lambda: current_default() if default_devices else CPU,
}


def find(source: Source, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """What is at ``source`` in this call, or MISSING."""
    look = _WITHIN.get(type(source))
    if look is not None:
        holder = find(source.holder, args, kwargs)  # type: ignore[union-attr]
        return MISSING if holder is MISSING else look(source, holder)
    if isinstance(source, Argument):
        return argument(source.key, args, kwargs)
    if isinstance(source, AllArguments):
        return args, kwargs
    if isinstance(source, Root):
        held = source.ref.get()
        return MISSING if held is None and source.ref.weak else held
    if isinstance(source, ClassAttribute):
        return class_lookup(source.cls, source.name, source.after)
    assert isinstance(source, GlobalState)
    return STATE[source.name]()


def argument(key: int | str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The argument at a position, or with a name; MISSING where there is none."""
    if isinstance(key, int):
        return args[key] if key < len(args) else MISSING
    return kwargs.get(key, MISSING)


# What is at a source that is reached through an object, ``holder``.


def item(holder: Any, key: Any) -> Any:
    """What DictItem finds."""
    return holder.get(key, MISSING) if one_of(type(holder), DICTS) else MISSING


def element(holder: Any, index: int) -> Any:
    """What Element finds."""
    fits = issubclass(type(holder), (list, tuple)) and index < len(holder)
    return holder[index] if fits else MISSING


def contents(holder: Any) -> Any:
    """What CellContents finds."""
    if type(holder) is not CellType:
        return MISSING
    try:
        return holder.cell_contents
    except ValueError:
        return MISSING


def attribute(holder: Any, name: str) -> Any:
    """What Slot finds; under ``__dict__``, what InstanceDict does."""
    try:
        return _instance_dict(holder, name)
    except AttributeError:
        return MISSING


_WITHIN: Mapping[type, Callable[[Any, Any], Any]] = {
    DictItem: lambda s, holder: item(holder, s.key),
    Element: lambda s, holder: element(holder, s.index),
    InstanceDict: lambda s, holder: attribute(holder, "__dict__"),
    Slot: lambda s, holder: attribute(holder, s.name),
    CellContents: lambda s, holder: contents(holder),
}


DICTS = (dict, OrderedDict)


def holds(condition: Condition, value: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether ``condition`` is true of ``value``; False for MISSING, but for IsMissing."""
    if value is MISSING:
        return isinstance(condition, IsMissing)
    check = _CHECKS.get(type(condition))
    if check is not None:
        return check(condition, value)
    if isinstance(condition, IsSame):
        return (find(condition.other, args, kwargs) is value) == condition.same
    if isinstance(condition, SizesFit):
        return condition.fits([find(s, args, kwargs) for s in condition.sources])
    assert isinstance(condition, Apart)
    return apart(value, find(condition.other, args, kwargs)) == condition.apart


def _has_length(c: HasLength, value: Any) -> bool:
    # A named tuple has the guard that it is one before this.
    sized = one_of(type(value), SIZED) or issubclass(type(value), tuple)
    return sized and len(value) == c.length


def _has_keys(c: HasKeys, value: Any) -> bool:
    return one_of(type(value), DICTS) and same_keys(value, c.keys)


def _holds(c: Holds, value: Any) -> bool:
    return one_of(type(value), SIZED) and (c.value in value) == c.found


_CHECKS: Mapping[type, Callable[[Any, Any], bool]] = {
    IsMissing: lambda c, v: False,
    HasForm: lambda c, v: len(v[0]) == c.count and tuple(v[1]) == c.names,
    IsObject: lambda c, v: c.ref.get() is v and c.ref.alive(),
    Equals: lambda c, v: same_value(v, c.value),
    HasType: lambda c, v: type(v) is c.cls,
    HasLength: _has_length,
    HasKeys: _has_keys,
    Holds: _holds,
    TensorLike: lambda c, v: is_like(c, v),
}

SIZED = (list, dict, OrderedDict, tuple, set, frozenset)


def same_keys(found: Mapping[Any, Any], keys: tuple[Any, ...]) -> bool:
    """Whether a dict has exactly these plain keys, in this order."""
    return len(found) == len(keys) and all(map(same_value, found, keys))


def apart(a: Any, b: Any) -> bool:
    """Whether two tensors share no memory, and nobody outside can write to it."""
    if a is b:
        return False
    first, second = memory_of(a), memory_of(b)
    return first is not second and not (_exported(first) and _exported(second))


def _exported(memory: Any) -> bool:
    return type(memory) is Storage and bool(memory.exported)


def memory_of(t: Any) -> Any:
    """What stands for the memory of a tensor; the tensor itself while nothing shares it."""
    s = t._s
    return t if s is None else (s.owner or s)


def is_like(c: TensorLike, t: Any) -> bool:
    """Whether a value is a tensor with this metadata."""
    if type(t) is not c.cls or t._t is not c.dtype:
        return False
    if (
        c.keys & K.VIEW and t.requires_grad != c.requires_grad
    ):  # asked first: it sets the keys right
        return False
    if t._k != c.keys or t.device != c.device:
        return False
    if c.strides is None:
        if not t.is_contiguous() or len(t._a.shape) != len(c.shape):
            return False
        return all(want is None or n == want for n, want in zip(t._a.shape, c.shape))
    return tuple(t._a.shape) == c.shape and t.stride() == c.strides


def is_inline(c: TensorLike) -> bool:
    """Whether a check of the metadata can be spelt out, with the strides that numpy has."""
    return c.strides is not None and bool(c.keys & K.CPU) and 0 not in c.shape


def first_failure(
    guards: Iterable[Guard], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> str | None:
    """The first guard that does not hold in this call, with what was found; None if all hold."""
    for guard in guards:
        found = find(guard.source, args, kwargs)
        if not holds(guard.condition, found, args, kwargs):
            return f"{guard}: found {_found(guard.condition, found)}"
    return None


def _found(condition: Condition, value: Any) -> str:
    from mortice._capture.guards import _show  # pyright: ignore[reportPrivateUsage]

    if value is MISSING:
        return "nothing"
    if isinstance(condition, HasType):
        return f"type {type(value).__name__}"
    if isinstance(condition, HasLength) and one_of(type(value), SIZED):
        return f"{len(value)}"
    if isinstance(condition, TensorLike) and hasattr(type(value), "_k"):
        return f"{value._t!r} of shape {tuple(value._a.shape)}"
    return _show(value)
