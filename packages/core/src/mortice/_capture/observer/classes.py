"""Calling classes: built-in constructors, and ``__new__`` with ``__init__`` for a user's."""

from __future__ import annotations

import enum
import functools
from abc import ABCMeta
from collections import OrderedDict
from collections.abc import Sequence
from types import BuiltinFunctionType, FunctionType
from typing import Any

from mortice._capture.guards import MISSING, DictItem, class_lookup
from mortice._capture.identity import module_of, one_of
from mortice._capture.observer import attributes, framework, operators
from mortice._capture.observer.stand_in import native
from mortice._capture.observer.watch import CONTAINERS, Watch, is_plain

Args = Sequence[Any]
Kwargs = dict[str, Any]

#: Classes whose call reads plain arguments and tensors only, and gives a plain value.
_VALUES = frozenset((int, float, complex, str, bytes, bool, slice, range))
#: Classes that read one iterable (and keywords), and give an object of this call.
_CONTAINERS = frozenset((list, tuple, dict, set, frozenset, OrderedDict, zip, enumerate, reversed))
_TENSOR_METHODS = {int: "__int__", float: "__float__", bool: "__bool__", complex: "__complex__"}


def instantiate(w: Watch, cls: Any, args: Args, kwargs: Kwargs) -> Any:
    """``cls(*args, **kwargs)``."""
    if one_of(cls, _VALUES):
        return _value(w, cls, args, kwargs)
    if one_of(cls, _CONTAINERS):
        return _container(w, cls, args, kwargs)
    if cls is type and len(args) == 1 and not kwargs:
        attributes.typed(w, args[0])
        return type(args[0])
    if cls is super:
        return cls(*args)
    if cls is object and not args and not kwargs:
        return w.fresh(cls())
    if cls is functools.partial:
        return w.fresh(functools.partial(*args, **kwargs))
    if framework.is_context(cls):
        return _context(w, cls, args, kwargs)
    if framework.is_ours(module_of(cls)) or issubclass(cls, framework.Tensor):
        return _of_the_framework(w, cls, args, kwargs)
    if issubclass(type(cls), enum.EnumMeta) and len(args) == 1 and is_plain(args[0]):
        return _member(w, cls, args[0])
    if not _is_plain_class(w, cls):
        method = attributes.special(w, cls, "__call__")
        if method is not None:
            return w.call(method, args, kwargs)
        return native(w, cls, args, kwargs, f"calls class {cls.__name__}")
    return _instance(w, cls, args, kwargs)


def _member(w: Watch, cls: Any, value: Any) -> Any:
    """The member of an Enum with a value."""
    values = type.__getattribute__(cls, "__dict__").get("_value2member_map_", {})
    if value not in values:
        return native(w, cls, (value,), {}, f"{cls.__name__}() of what is no member's value")
    members = w.root(values, f"{cls.__name__}._value2member_map_", strong=True)
    return w.read(w.intern(DictItem, members, value), values[value])


def _of_the_framework(w: Watch, cls: type, args: Args, kwargs: Kwargs) -> Any:
    if one_of(cls, framework.VALUE_TYPES) and all(map(is_plain, args)):
        return cls(*args, **kwargs)
    if issubclass(cls, BaseException) and all(map(is_plain, (*args, *kwargs.values()))):
        return w.fresh(cls(*args, **kwargs))
    return native(w, cls, args, kwargs, f"makes a {cls.__name__}")


def _value(w: Watch, cls: type, args: Args, kwargs: Kwargs) -> Any:
    if len(args) == 1 and not kwargs:
        x = args[0]
        if framework.is_tensor(x) and one_of(cls, _TENSOR_METHODS):
            w.class_attribute(type(x), _TENSOR_METHODS[cls])
            value = cls(x)
            w.converted(cls.__name__, value)
            return value
        if cls is bool:
            return operators.truth(w, x)
        method = operators.method_of(w, x, f"__{cls.__name__}__")
        if method is not None and one_of(cls, (int, float, str)):
            return w.call(method, (x,))
    if cls is str and len(args) == 1 and shows_plainly(w, args[0]):
        return str(args[0])
    if not all(is_plain(x) or framework.is_tensor(x) for x in (*args, *kwargs.values())):
        w.unknown(f"{cls.__name__}() of a {type(args[0]).__name__ if args else 'keyword'}")
    elif one_of(cls, (str, bytes)) and any(map(framework.is_tensor, args)):
        w.unknown(f"{cls.__name__}() of a Tensor")
    return cls(*args, **kwargs)


def shows_plainly(w: Watch, x: Any) -> bool:
    """Whether ``str(x)`` of an exception of this call reads plain arguments only."""
    kind = type(x)
    return (
        issubclass(kind, BaseException)
        and w.is_fresh(x)
        and all(map(is_plain, x.args))
        and type(class_lookup(kind, "__str__")) is type(object.__init__)
        and type(class_lookup(kind, "__repr__")) is type(object.__init__)
    )


def _container(w: Watch, cls: Any, args: Args, kwargs: Kwargs) -> Any:
    if one_of(cls, (dict, OrderedDict)) and args and one_of(type(args[0]), (dict, OrderedDict)):
        if not w.entries(args[0]):
            w.unknown(f"copies a {type(args[0]).__name__}")
        return w.fresh(cls(*args, **kwargs))
    if cls is reversed:
        return _reversed(w, args, kwargs)
    if one_of(cls, (dict, OrderedDict)) and args and hasattr(type(args[0]), "keys"):
        return native(w, cls, args, kwargs, f"{cls.__name__}() of a {type(args[0]).__name__}")
    if one_of(cls, (set, frozenset)) and args and one_of(type(args[0]), CONTAINERS):
        if not w.entries(args[0]) or not all(map(is_plain, args[0])):
            w.unknown(f"a {cls.__name__} of other than plain values")
        return w.fresh(cls(*args, **kwargs))  # of a list of its entries their order may be another
    sources = [operators.iterate(w, x) if not is_plain(x) else x for x in args]
    sources = [_drained(w, s) for s in sources]
    keyed = one_of(cls, (set, frozenset, dict, OrderedDict))
    if keyed and not all(is_plain(x) for x in args):
        items = list(sources[0]) if sources else []
        if one_of(cls, (set, frozenset)) and not all(map(is_plain, items)):
            w.unknown(f"a {cls.__name__} of other than plain values")
        sources = [items]
    return w.fresh(cls(*sources, **kwargs))


def _reversed(w: Watch, args: Args, kwargs: Kwargs) -> Any:
    if len(args) != 1 or kwargs:
        return native(w, reversed, args, kwargs, "reversed() with other than one argument")
    (x,) = args
    if is_plain(x) or (one_of(type(x), (list, tuple, dict, OrderedDict)) and w.entries(x)):
        return w.fresh(reversed(x))
    if framework.is_tensor(x):
        w.class_attribute(type(x), "__reversed__")
        return reversed(x)
    method = operators.method_of(w, x, "__reversed__")
    if method is not None:
        return w.call(method, (x,))
    return native(w, reversed, args, kwargs, f"reversed() of a {type(x).__name__}")


def _drained(w: Watch, iterator: Any) -> Any:
    """The items of an iterator that is Python code, as a list's iterator."""
    if is_plain(iterator):
        return iterator
    if one_of(type(iterator), operators.ITERATORS):
        return operators.marked(w, iterator)
    items: list[Any] = []
    while True:
        try:
            items.append(operators.advance(w, iterator))
        except StopIteration:
            return iter(items)


def _context(w: Watch, cls: Any, args: Args, kwargs: Kwargs) -> Any:
    for x in (*args, *kwargs.values()):
        if not (is_plain(x) or type(x) is FunctionType):
            w.unknown(f"{cls.__name__} of a {type(x).__name__}")
    return w.fresh(cls(*args, **kwargs))


def _instance(w: Watch, cls: Any, args: Args, kwargs: Kwargs) -> Any:
    if w.class_attribute(cls, "__del__") is not MISSING:
        return native(w, cls, args, kwargs, f"{cls.__name__} has a __del__")
    made = _new(w, cls, args, kwargs)
    if not one_of(cls, type.__dict__["__mro__"].__get__(type(made))):
        return made
    init = w.class_attribute(type(made), "__init__")
    if type(init) is FunctionType:
        result = w.call(init, (made, *args), kwargs)
        if result is not None:
            raise TypeError(f"__init__() should return None, not '{type(result).__name__}'")
    elif not one_of(init, (object.__init__, tuple.__init__)):
        exception = issubclass(cls, BaseException) and type(init) is type(object.__init__)
        if not (exception or one_of(init, _SAFE_INITS)) or not all(
            w.deep(x) for x in (*args, *kwargs.values())
        ):
            w.unknown(f"{cls.__name__}.__init__ is not Python code")
        init(made, *args, **kwargs)
    return made


_SAFE_INITS = (
    list.__init__, dict.__init__, set.__init__, BaseException.__init__, Exception.__init__,
    OrderedDict.__init__,
)  # fmt: skip


def _new(w: Watch, cls: Any, args: Args, kwargs: Kwargs) -> Any:
    entry = w.class_attribute(cls, "__new__")
    if type(entry) is staticmethod:
        entry = entry.__func__
    if type(entry) is FunctionType:
        return w.call(entry, (cls, *args), kwargs)
    if entry is object.__new__:
        if class_lookup(cls, "__init__") is object.__init__:
            return w.fresh(cls.__new__(cls, *args, **kwargs))
        return w.fresh(object.__new__(cls))
    safe = type(entry) is BuiltinFunctionType and (
        issubclass(cls, BaseException) or one_of(entry, (tuple.__new__, list.__new__, dict.__new__))
    )
    if not safe or not all(w.deep(x) for x in (*args, *kwargs.values())):
        w.unknown(f"{cls.__name__}.__new__ is not Python code")
    return w.fresh(entry(cls, *args, **kwargs))


def _is_plain_class(w: Watch, cls: type) -> bool:
    """Whether calling the class means ``__new__`` and ``__init__``."""
    return one_of(type(cls), (type, ABCMeta)) or (
        w.entry(type(cls), "__call__") is type.__dict__["__call__"]
    )
