"""Calls of functions and methods written in C: what each of the allow-list reads and changes."""

from __future__ import annotations

import abc
import builtins
import functools
import math
import operator
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from mortice._capture.guards import MISSING
from mortice._capture.identity import module_of, one_of
from mortice._capture.observer import attributes, framework, operators
from mortice._capture.observer.stand_in import native
from mortice._capture.observer.watch import CONTAINERS, Watch, is_plain

Args = Sequence[Any]
Kwargs = dict[str, Any]

#: Functions of plain values, of tensors, and of containers of those: read, then called.
_OF_VALUES = frozenset(
    (
        abs, round, divmod, pow, min, max, sum, sorted, any, all, ord, chr, bin, hex, oct, format,
        repr, ascii,
        *(f for f in vars(math).values() if type(f) is BuiltinFunctionType),
        *(f for f in vars(operator).values() if type(f) is BuiltinFunctionType),
    )
) - {operator.setitem, operator.delitem}  # fmt: skip
#: Of those, the ones that show a tensor's data or address.
_SHOW = frozenset((repr, ascii, format))
_IN_PLACE = frozenset(
    f for n, f in vars(operator).items() if n.startswith("i") and type(f) is BuiltinFunctionType
) - {operator.is_, operator.is_not, operator.index, operator.inv, operator.invert, operator.indexOf}


def call_builtin(w: Watch, f: Any, args: Args, kwargs: Kwargs) -> Any:
    """A built-in function, or a built-in method of an object."""
    handler = _HANDLERS.get(f)
    if handler is not None:
        return handler(w, args, kwargs)
    if f in _OF_VALUES:
        return _of_values(w, f, args, kwargs)
    owner = f.__self__
    if owner is None or type(owner) is ModuleType:
        return native(w, f, args, kwargs, f"calls {f.__module__ or 'built-in'}.{f.__name__}")
    return method(w, owner, f.__name__, f, args, kwargs)


def _of_values(w: Watch, f: Any, args: Args, kwargs: Kwargs) -> Any:
    values = [*args, *(v for k, v in kwargs.items() if k != "key" or v is not None)]
    show = f in _SHOW
    known = all(
        is_plain(x)
        or (framework.is_tensor(x) and not show)
        or (one_of(type(x), CONTAINERS) and not show and w.deep(x) and _only_values(x))
        for x in values
    )
    if not known or (f in _IN_PLACE and any(one_of(type(x), CONTAINERS) for x in args)):
        return native(w, f, args, kwargs, f"{f.__name__}() of {_types(args)}")
    w.sizes_read = w.sizes_read or not all(map(is_plain, values))
    result = f(*args, **kwargs)
    return w.fresh(result) if one_of(type(result), CONTAINERS) else result


def _only_values(x: Any) -> bool:
    inside = (*x, *x.values()) if one_of(type(x), (dict, OrderedDict)) else x
    return all(
        is_plain(y) or framework.is_tensor(y) or (one_of(type(y), CONTAINERS) and _only_values(y))
        for y in inside
    )


def _types(args: Args) -> str:
    return ", ".join(type(x).__name__ for x in args) or "keywords"


# -- functions with a meaning of their own -----------------------------------------------------------


def _len(w: Watch, args: Args, kwargs: Kwargs) -> Any:
    (x,) = args
    kind = type(x)
    if one_of(kind, CONTAINERS):
        w.length(x)
    elif framework.is_tensor(x):
        w.class_attribute(kind, "__len__")
        w.sizes_read = True
    elif not is_plain(x) and not (one_of(kind, operators.VIEWS) and w.is_fresh(x)):
        found = operators.method_of(w, x, "__len__")
        if found is not None:
            return w.call(found, (x,))
        w.unknown(f"len() of a {kind.__name__}")
    return len(x)


def _isinstance(w: Watch, args: Args, kwargs: Kwargs) -> Any:
    x, classes = args
    if not is_plain(x):
        attributes.typed(w, x)
        if not framework.is_tensor(x) and not issubclass(type(x), type):
            w.class_attribute(type(x), "__class__")
            own = w.class_attribute(type(x), "__getattribute__")
            if not attributes.is_generic(own) and not _is_builtin(type(x)):
                w.unknown(f"isinstance() of a {type(x).__name__} with its own __getattribute__")
    _check_classes(w, classes, "__instancecheck__")
    return isinstance(x, classes)


def _is_builtin(cls: type) -> bool:
    return module_of(cls) in ("builtins", "types", "collections")


def _issubclass(w: Watch, args: Args, kwargs: Kwargs) -> Any:
    cls, classes = args
    _check_classes(w, classes, "__subclasscheck__")
    return issubclass(cls, classes)


def _check_classes(w: Watch, classes: Any, hook: str) -> None:
    if type(classes) is tuple:
        w.entries(classes)
        for c in classes:
            _check_classes(w, c, hook)
        return
    found = w.entry(type(classes), hook)
    if found is type.__dict__[hook]:
        return
    if issubclass(type(classes), abc.ABCMeta) and found is abc.ABCMeta.__dict__[hook]:
        w.state("abstract base classes")
        return
    w.unknown(f"{hook} of {type(classes).__name__}")


def _getattr(w: Watch, args: Args, kwargs: Kwargs) -> Any:
    if not 2 <= len(args) <= 3 or type(args[1]) is not str:
        return native(w, getattr, args, kwargs, f"getattr() of {_types(args)}")
    try:
        return attributes.load(w, args[0], args[1])
    except AttributeError:
        if len(args) == 3:
            return args[2]
        raise


def _hasattr(w: Watch, args: Args, kwargs: Kwargs) -> Any:
    if len(args) != 2 or type(args[1]) is not str:
        return native(w, hasattr, args, kwargs, f"hasattr() of {_types(args)}")
    try:
        attributes.load(w, args[0], args[1])
    except AttributeError:
        return False
    return True


def _setattr(w: Watch, args: Args, kwargs: Kwargs) -> Any:
    if len(args) != 3 or type(args[1]) is not str:
        return native(w, setattr, args, kwargs, f"setattr() of {_types(args)}")
    return attributes.store(w, args[0], args[1], args[2])


def _delattr(w: Watch, args: Args, kwargs: Kwargs) -> Any:
    if len(args) != 2 or type(args[1]) is not str:
        return native(w, delattr, args, kwargs, f"delattr() of {_types(args)}")
    return attributes.delete(w, args[0], args[1])


def _callable(w: Watch, args: Args, kwargs: Kwargs) -> Any:
    (x,) = args
    attributes.typed(w, x) if not is_plain(x) else None
    if not one_of(type(x), (FunctionType, BuiltinFunctionType)) and not issubclass(type(x), type):
        w.class_attribute(type(x), "__call__")
    return callable(x)


def _iter(w: Watch, args: Args, kwargs: Kwargs) -> Any:
    if len(args) != 1:
        return native(w, iter, args, kwargs, "iter() with a sentinel")
    return operators.iterate(w, args[0])


def _next(w: Watch, args: Args, kwargs: Kwargs) -> Any:
    try:
        return operators.advance(w, args[0])
    except StopIteration:
        if len(args) == 2:
            return args[1]
        raise


def _hash(w: Watch, args: Args, kwargs: Kwargs) -> Any:
    if not is_plain(args[0]):
        w.unknown(f"hash() of a {type(args[0]).__name__}")
    w.state("hash seed")
    return hash(args[0])


def _globals(w: Watch, args: Args, kwargs: Kwargs) -> Any:
    w.unknown("calls globals()")
    return w.frames[-1].function.__globals__


def _locals(w: Watch, args: Args, kwargs: Kwargs) -> Any:
    w.unknown("calls locals()")
    return w.frames[-1].local_values()


def _vars(w: Watch, args: Args, kwargs: Kwargs) -> Any:
    w.unknown("calls vars()")
    return vars(*args) if args else w.frames[-1].local_values()


def _dir(w: Watch, args: Args, kwargs: Kwargs) -> Any:
    w.unknown("calls dir()")
    return dir(*args) if args else sorted(w.frames[-1].local_values())


def _eval(run: Any) -> Callable[[Watch, Args, Kwargs], Any]:
    def handler(w: Watch, args: Args, kwargs: Kwargs) -> Any:
        w.unknown(f"calls {run.__name__}()")
        if len(args) == 1:
            frame = w.frames[-1]
            return run(args[0], frame.function.__globals__, frame.local_values())
        return run(*args)

    return handler


def _new_object(w: Watch, args: Args, kwargs: Kwargs) -> Any:
    cls = args[0]
    if w.class_attribute(cls, "__del__") is not MISSING:
        w.unknown(f"{cls.__name__} has a __del__")
    return w.fresh(object.__new__(*args, **kwargs))


def _new_tuple(w: Watch, args: Args, kwargs: Kwargs) -> Any:
    if len(args) > 1 and not w.entries(args[1]):
        w.unknown("a tuple from an iterator")
    return w.fresh(tuple.__new__(*args))


def _reduce(w: Watch, args: Args, kwargs: Kwargs) -> Any:
    function, items = args[0], operators.iterate(w, args[1])
    result = args[2] if len(args) > 2 else MISSING
    while True:
        try:
            item = operators.advance(w, items)
        except StopIteration:
            if result is MISSING:
                raise TypeError("reduce() of empty iterable with no initial value") from None
            return result
        result = item if result is MISSING else w.call(function, (result, item))


_HANDLERS: Mapping[Any, Callable[[Watch, Args, Kwargs], Any]] = {
    len: _len,
    isinstance: _isinstance,
    issubclass: _issubclass,
    getattr: _getattr,
    hasattr: _hasattr,
    setattr: _setattr,
    delattr: _delattr,
    callable: _callable,
    iter: _iter,
    next: _next,
    hash: _hash,
    globals: _globals,
    locals: _locals,
    vars: _vars,
    dir: _dir,
    eval: _eval(builtins.eval),
    exec: _eval(builtins.exec),
    object.__new__: _new_object,
    tuple.__new__: _new_tuple,
    functools.reduce: _reduce,
}

# -- methods of built-in types -------------------------------------------------------------------------

_CHANGE: dict[type, tuple[str, ...]] = {
    list: ("append", "extend", "insert", "pop", "clear", "remove", "sort", "reverse"),
    dict: ("pop", "popitem", "clear", "update", "setdefault"),
    set: (
        "add", "discard", "remove", "pop", "clear", "update", "difference_update",
        "intersection_update", "symmetric_difference_update",
    ),
}  # fmt: skip
_CHANGE[OrderedDict] = (*_CHANGE[dict], "move_to_end")
#: Methods that compare or hash what they are given.
_COMPARING = frozenset(("remove", "index", "count", "sort", "add", "discard", "setdefault", "get"))


def method(w: Watch, owner: Any, name: str, f: Any, args: Args, kwargs: Kwargs) -> Any:
    """``owner.name(*args, **kwargs)`` for a method written in C."""
    kind = type(owner)
    if is_plain(owner) and not issubclass(kind, type):
        if all(_is_plain_through(w, x) for x in (*args, *kwargs.values())):
            result = f(*args, **kwargs)
            return w.fresh(result) if one_of(type(result), CONTAINERS) else result
    elif one_of(kind, _CHANGE):
        return _of_container(w, owner, name, f, args, kwargs)
    elif one_of(kind, operators.ITERATORS) and name == "__next__":
        return operators.advance(w, owner)
    elif one_of(owner, _PLAIN_CLASSES) and all(map(is_plain, args)):
        return w.fresh(f(*args, **kwargs))
    elif kind is tuple and name in ("index", "count") and _only_values(owner):
        return f(*args, **kwargs)
    return native(w, f, args, kwargs, f"calls {kind.__name__}.{name}")


_PLAIN_CLASSES: tuple[Any, ...] = (dict, int, float, bytes, str)


def _is_plain_through(w: Watch, x: Any) -> bool:
    """A plain value, or a container of plain values and such containers."""
    if is_plain(x):
        return True
    if not one_of(type(x), CONTAINERS) or not w.entries(x):
        return False
    inside = (*x, *x.values()) if one_of(type(x), (dict, OrderedDict)) else x
    return all(_is_plain_through(w, y) for y in inside)


def _of_container(w: Watch, owner: Any, name: str, f: Any, args: Args, kwargs: Kwargs) -> Any:
    kind = type(owner)
    outer = w.is_outer(owner)
    if name in _CHANGE[kind]:
        if outer:
            w.effect(f"calls {name}() of a {kind.__name__} made outside")
        return _changed(w, owner, name, f, args, kwargs)
    if one_of(kind, (dict, OrderedDict)) and name in ("get", "__getitem__", "__contains__"):
        return _looked_up(w, owner, name, f, args, kwargs)
    if name in ("keys", "__iter__"):
        known = one_of(kind, (list, set)) or w.keys(owner)
    elif name == "__len__":
        w.length(owner)
        known = True
    else:
        known = name in ("values", "items", "copy", "__reversed__", "index", "count", "__getitem__")
        known = known and w.entries(owner)
        if name in ("index", "count"):
            known = known and _only_values(owner) and all(map(is_plain, args))
    if kind is set and not outer and name in _SET_READS:
        known = all(w.entries(x) for x in args)
    if not known:
        w.unknown(f"{kind.__name__}.{name}")
    result = f(*args, **kwargs)
    return result if is_plain(result) else w.fresh(result)


_SET_READS = (
    "copy", "union", "intersection", "difference", "symmetric_difference", "issubset",
    "issuperset", "isdisjoint",
)  # fmt: skip


def _changed(w: Watch, owner: Any, name: str, f: Any, args: Args, kwargs: Kwargs) -> Any:
    values = (*args, *kwargs.values())
    if name in _COMPARING and not all(is_plain(x) for x in values[:1]):
        w.unknown(f"{name}() of a {_types(args)}")
    if name == "pop" and type(owner) is set:
        w.order(owner)
    if name == "sort" and (kwargs.get("key") is not None or not _only_values(owner)):
        w.unknown("sort() that calls or compares objects")
    if name in ("extend", "update") or name.endswith("_update"):
        for x in args:
            if one_of(type(x), CONTAINERS):
                if not w.entries(x):
                    w.unknown(f"{name}() by a {type(x).__name__}")
            elif not (
                one_of(type(x), operators.ITERATORS)
                or one_of(type(x), operators.VIEWS)
                or is_plain(x)
            ):
                w.unknown(f"{name}() by a {type(x).__name__}")
            elif not is_plain(x) and w.is_outer(x):
                w.effect(f"advances a {type(x).__name__} made outside")
    return f(*args, **kwargs)


def _looked_up(w: Watch, owner: Any, name: str, f: Any, args: Args, kwargs: Kwargs) -> Any:
    key = args[0] if args else MISSING
    if key is MISSING or not is_plain(key):
        if w.is_outer(owner) or not operators.compares_identity(w, key):
            w.unknown(f"a {type(key).__name__} as key of a dict")
    elif name == "__contains__":
        w.membership(owner, key, key in owner)
    else:
        w.item(owner, key)
    return f(*args, **kwargs)


# -- methods taken from the class ------------------------------------------------------------------------


def call_unbound(w: Watch, f: Any, args: Args, kwargs: Kwargs) -> Any:
    """``list.append``, ``object.__setattr__`` and the like, called with their object first."""
    name = f.__name__
    if type(f) is _METHOD_WRAPPER:
        owner, rest = f.__self__, args
    elif not args:
        return f(*args, **kwargs)
    else:
        owner, rest = args[0], args[1:]
    kind = type(owner)
    if name == "__init__" and f in (object.__init__, _bound(object.__init__, owner, f)):
        return f(*args, **kwargs)
    if name == "__setattr__" and _is_objects(f, "__setattr__") and w.is_fresh(owner):
        entry = w.class_attribute(kind, rest[0]) if type(rest[0]) is str else None
        if entry is MISSING or not attributes.is_data_descriptor(w, entry):
            return f(*args, **kwargs)
    if name == "__getattribute__" and _is_objects(f, "__getattribute__"):
        return attributes.load(w, owner, rest[0])
    if one_of(kind, (list, dict, set, tuple, str, bytes, int, float, OrderedDict)):
        bound = getattr(owner, name)
        if type(bound) is BuiltinFunctionType:
            return method(w, owner, name, bound, rest, kwargs)
        found = _SPECIAL.get(name)
        if found is not None:
            return found(w, owner, *rest)
    effect = kind.__name__ if w.is_outer(owner) and not is_plain(owner) else ""
    return native(w, f, args, kwargs, f"calls {name} of {effect or 'a built-in class'}")


_METHOD_WRAPPER = type(object().__init__)
_SPECIAL: Mapping[str, Callable[..., Any]] = {
    "__getitem__": operators.subscript,
    "__setitem__": operators.store_subscript,
    "__delitem__": operators.delete_subscript,
    "__contains__": operators.contains,
    "__len__": lambda w, o: _len(w, (o,), {}),
    "__iter__": operators.iterate,
}


def _bound(f: Any, owner: Any, candidate: Any) -> Any:
    """``candidate`` if it is ``f`` bound to an object, else ``f``."""
    return (
        candidate
        if type(candidate) is _METHOD_WRAPPER and _is_objects(candidate, f.__name__)
        else f
    )


def _is_objects(f: Any, name: str) -> bool:
    return getattr(f, "__objclass__", None) is object and f.__name__ == name
