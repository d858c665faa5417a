"""The guards on what a call is given: its structure, and each tensor's metadata."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from types import MethodType
from typing import Any

from mortice._capture.guards import (
    AllArguments,
    Argument,
    DictItem,
    Element,
    HasForm,
    HasKeys,
    HasLength,
    Source,
)
from mortice._capture.identity import one_of
from mortice._capture.observer import numbers
from mortice._capture.observer.watch import Watch, is_plain
from mortice._dispatch.keys import AUTOCAST
from mortice._dispatch.state import THREAD


def know_arguments(w: Watch, fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Make every argument known, with its guards; a second path to one object is noted as such."""
    w.state("dispatch modes")
    w.state("default dtype")
    w.state("default device")
    if THREAD.masks[0] & AUTOCAST:
        w.state("autocast")
    w.guard(w.intern(AllArguments), HasForm(len(args), tuple(kwargs)))
    owner = fn.__self__ if type(fn) is MethodType else fn
    w.root(owner, "self" if owner is not fn else "the compiled callable")
    for index, value in enumerate(args):
        _argument(w, w.intern(Argument, index), value, top=True)
    for name, value in kwargs.items():
        if type(name) is not str:  # neither text nor a lookup finds such a name again
            w.unknown(f"an argument is given by a name that is a {type(name).__name__}")
        _argument(w, w.intern(Argument, name), value, top=True)


def traced_arguments(
    w: Watch, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """The arguments with their numbers traced, as the observed function gets them."""

    def traced(key: int | str, value: Any) -> Any:
        if not numbers.is_traceable(value):
            return value
        return numbers.traced(w.intern(Argument, key), value)

    return (
        [traced(i, x) for i, x in enumerate(args)],
        {name: traced(name, x) for name, x in kwargs.items()},
    )


def _argument(w: Watch, source: Source, value: Any, top: bool = False) -> None:
    if top and numbers.is_traceable(value):
        w.read_later(source, value)
        return
    w.read(source, value)
    if is_plain(value):
        return
    kind = type(value)
    if one_of(kind, (list, tuple)):
        if kind is list and w.once("length", id(source)):
            w.guard(source, HasLength(len(value)))
        for index, item in enumerate(value):
            _argument(w, w.intern(Element, source, index), item)
    elif one_of(kind, (dict, OrderedDict)) and all(map(is_plain, value)):
        if value and w.once("keys", id(source)):
            w.guard(source, HasKeys(tuple(value)))
        for key, item in value.items():
            _argument(w, w.intern(DictItem, source, key), item)
