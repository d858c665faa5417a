"""Arguments to parameters, as a call of a Python function binds them."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import CO_VARARGS, CO_VARKEYWORDS
from types import FunctionType
from typing import Any

from mortice._capture.guards import MISSING, DictItem, Slot
from mortice._capture.observer.numbers import settle, settled
from mortice._capture.observer.watch import Watch


def bind_arguments(
    w: Watch, f: FunctionType, args: Sequence[Any], kwargs: dict[str, Any]
) -> dict[str, Any] | None:
    """Local variables at the start of the call; None if the arguments do not fit."""
    code = f.__code__
    names = code.co_varnames
    count = code.co_argcount
    rest = dict(kwargs)
    values = dict(zip(names[:count], args))
    for index in range(len(args), count):
        name = names[index]
        if name in rest and index >= code.co_posonlyargcount:
            values[name] = rest.pop(name)
        else:
            values[name] = _default(w, f, index)
            if values[name] is MISSING:
                return None
    taken = set(names[code.co_posonlyargcount : min(len(args), count)])
    if taken & rest.keys():
        return None
    end = count + code.co_kwonlyargcount
    for name in names[count:end]:
        values[name] = rest.pop(name) if name in rest else _keyword_default(w, f, name)
        if values[name] is MISSING:
            return None
    if code.co_flags & CO_VARARGS:
        values[names[end]] = w.fresh(tuple(settled(w, args[count:])))
        end += 1
    elif len(args) > count:
        return None
    if code.co_flags & CO_VARKEYWORDS:
        values[names[end]] = w.fresh({name: settle(w, x) for name, x in rest.items()})
    elif rest:
        return None
    return values


def _default(w: Watch, f: FunctionType, index: int) -> Any:
    defaults = f.__defaults__ or ()
    at = index - f.__code__.co_argcount + len(defaults)
    if at < 0:
        return MISSING
    if w.is_outer(f):
        w.element(defaults, at)
    return defaults[at]


def _keyword_default(w: Watch, f: FunctionType, name: str) -> Any:
    defaults = f.__kwdefaults__
    if not defaults or name not in defaults:
        return MISSING
    value = defaults[name]
    if w.is_outer(f):
        table = w.intern(Slot, w.source(f), "__kwdefaults__")
        w.know(defaults, table)
        w.read(w.intern(DictItem, w.source(defaults), name), value)
    return value
