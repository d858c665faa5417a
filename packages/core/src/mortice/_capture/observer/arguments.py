"""The guards on what a call is given: its structure, and each tensor's metadata."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from types import MethodType
from typing import Any

from mortice._capture.guards import Argument, DictItem, Element, HasKeys, HasLength, Source
from mortice._capture.observer.watch import Watch, is_plain


def know_arguments(w: Watch, fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Make every argument known, with its guards; a second path to one object is noted as such."""
    w.state("grad, inference and dispatch modes")
    w.state("autocast")
    owner = fn.__self__ if type(fn) is MethodType else fn
    w.root(owner, "self" if owner is not fn else "the compiled callable")
    for index, value in enumerate(args):
        _argument(w, w.intern(Argument, index), value)
    for name, value in kwargs.items():
        _argument(w, w.intern(Argument, name), value)


def _argument(w: Watch, source: Source, value: Any) -> None:
    w.read(source, value)
    if is_plain(value):
        return
    kind = type(value)
    if kind in (list, tuple):
        if kind is list and w.once("length", id(source)):
            w.guard(source, HasLength(len(value)))
        for index, item in enumerate(value):
            _argument(w, w.intern(Element, source, index), item)
    elif kind in (dict, OrderedDict) and all(map(is_plain, value)):
        if value and w.once("keys", id(source)):
            w.guard(source, HasKeys(tuple(value)))
        for key, item in value.items():
            _argument(w, w.intern(DictItem, source, key), item)
