"""Operators, comparisons, subscripts, truth and iteration, by what the operands are.

Plain values, tensors and containers of this call are left to Python; a user's class is looked into
where its method is a Python function; everything else is run and reported as unknown.
"""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import Callable, Mapping
from types import FunctionType, GenericAlias
from typing import Any

from mortice._capture.guards import MISSING, class_lookup
from mortice._capture.identity import one_of
from mortice._capture.observer.attributes import special, typed
from mortice._capture.observer.framework import VALUE_TYPES, is_tensor
from mortice._capture.observer.watch import CONTAINERS, Watch, is_plain
from mortice._types.shapes import Size

Function = Callable[..., Any]

#: symbol -> (operator, in-place operator, method name without underscores)
BINARY: Mapping[str, tuple[Function, Function, str]] = {
    "+": (operator.add, operator.iadd, "add"),
    "-": (operator.sub, operator.isub, "sub"),
    "*": (operator.mul, operator.imul, "mul"),
    "/": (operator.truediv, operator.itruediv, "truediv"),
    "//": (operator.floordiv, operator.ifloordiv, "floordiv"),
    "%": (operator.mod, operator.imod, "mod"),
    "**": (operator.pow, operator.ipow, "pow"),
    "@": (operator.matmul, operator.imatmul, "matmul"),
    "&": (operator.and_, operator.iand, "and"),
    "|": (operator.or_, operator.ior, "or"),
    "^": (operator.xor, operator.ixor, "xor"),
    "<<": (operator.lshift, operator.ilshift, "lshift"),
    ">>": (operator.rshift, operator.irshift, "rshift"),
}
#: symbol -> (operator, its method, the method of the other operand)
COMPARE: Mapping[str, tuple[Function, str, str]] = {
    "<": (operator.lt, "__lt__", "__gt__"),
    "<=": (operator.le, "__le__", "__ge__"),
    "==": (operator.eq, "__eq__", "__eq__"),
    "!=": (operator.ne, "__ne__", "__ne__"),
    ">": (operator.gt, "__gt__", "__lt__"),
    ">=": (operator.ge, "__ge__", "__le__"),
}
UNARY: Mapping[str, tuple[Function, str]] = {
    "-": (operator.neg, "__neg__"),
    "+": (operator.pos, "__pos__"),
    "~": (operator.invert, "__invert__"),
}
_OD: Any = OrderedDict()
_DICTS: tuple[Any, Any] = ({}, _OD)
VIEWS = tuple(type(v) for d in _DICTS for v in (d.keys(), d.values(), d.items()))
#: Iterators of built-in types: reading one ahead is an effect if it comes from outside.
ITERATORS = (
    *(type(iter(x)) for x in ([], (), {}, "", b"", set(), range(0))),
    *(type(iter(v)) for v in ({}.values(), {}.items(), _OD.keys(), _OD.values(), _OD.items())),
    zip, enumerate, reversed, type(reversed([])), type(reversed({})), type(iter(range(1 << 70))),
    type(reversed(range(0))),
)  # fmt: skip


def _simple(x: Any) -> bool:
    return is_plain(x) or is_tensor(x)


def _name(x: Any) -> str:
    return type(x).__name__


def method_of(w: Watch, x: Any, name: str) -> Any:
    """A special method of an object's class if it is a Python function, else None."""
    if is_tensor(x) or type(w.entry(type(x), name)) is not FunctionType:
        return None
    typed(w, x)
    return w.class_attribute(type(x), name)


# -- binary ----------------------------------------------------------------------------------------


def binary(w: Watch, symbol: str, a: Any, b: Any, in_place: bool = False) -> Any:
    """``a symbol b`` or ``a symbol= b``."""
    function, in_place_function, name = BINARY[symbol]
    native = in_place_function if in_place else function
    if _simple(a) and _simple(b):
        _guard_tensor_method(w, a, b, name, in_place)
        if is_tensor(a) or is_tensor(b):
            return w.whole(native, a, b)
        return native(a, b)
    if one_of(type(a), CONTAINERS) or one_of(type(b), CONTAINERS):
        return _on_containers(w, symbol, native, a, b, in_place)
    names = [f"__i{name}__", f"__{name}__"] if in_place else [f"__{name}__"]
    return _by_methods(w, native, a, b, names, f"__r{name}__", symbol)


def _guard_tensor_method(w: Watch, a: Any, b: Any, name: str, in_place: bool) -> None:
    if is_tensor(a):
        w.class_attribute(type(a), f"__{'i' if in_place else ''}{name}__")
    elif is_tensor(b):
        w.class_attribute(type(b), f"__r{name}__")


def _on_containers(w: Watch, symbol: str, native: Function, a: Any, b: Any, in_place: bool) -> Any:
    kinds = (*CONTAINERS, *VIEWS, int, str)
    if symbol == "%" and type(a) in (str, bytes):
        w.unknown(f"formats a {_name(b)}")  # what is in it is asked for its text
    elif (
        not one_of(type(a), kinds)
        or not one_of(type(b), kinds)
        or not (_may_read(w, a) and _may_read(w, b))
    ):
        w.unknown(f"{symbol} on {_name(a)} and {_name(b)}")
    elif in_place and one_of(type(a), (list, dict, OrderedDict, set)) and w.is_outer(a):
        w.effect(f"{symbol}= on a {_name(a)} made outside")
    result = native(a, b)
    return result if result is a else w.fresh(result)


def _may_read(w: Watch, x: Any) -> bool:
    return not one_of(type(x), CONTAINERS) or w.entries(x)


def _by_methods(
    w: Watch, native: Function, a: Any, b: Any, names: list[str], reflected: str, symbol: str
) -> Any:
    """Python's protocol, for operands whose methods are Python functions."""
    subclass = type(b) is not type(a) and type(a) in _mro(type(b))
    if not is_plain(b):
        w.entry(type(b), reflected)  # guards its bases, too
    if not subclass:
        for name in names:
            method = method_of(w, a, name)
            if method is not None:
                result = w.call(method, (a, b))
                if result is not NotImplemented:
                    return result
            elif w.entry(type(a), name) is not MISSING and not is_plain(a):
                break
        else:
            method = method_of(w, b, reflected)
            if method is not None and (is_plain(a) or _has_only_python(w, a, names)):
                result = w.call(method, (b, a))
                if result is not NotImplemented:
                    return result
                raise TypeError(
                    f"unsupported operand type(s) for {symbol}: '{_name(a)}' and '{_name(b)}'"
                )
    w.unknown(f"{symbol} on {_name(a)} and {_name(b)}")
    return native(a, b)


def _has_only_python(w: Watch, a: Any, names: list[str]) -> bool:
    found = [w.entry(type(a), n) for n in names]
    return all(f is MISSING or type(f) is FunctionType for f in found)


def unary(w: Watch, symbol: str, a: Any) -> Any:
    function, name = UNARY[symbol]
    if is_tensor(a):
        w.class_attribute(type(a), name)
        return w.whole(function, a)
    if not is_plain(a):
        method = method_of(w, a, name)
        if method is not None:
            return w.call(method, (a,))
        w.unknown(f"unary {symbol} on {_name(a)}")
    return function(a)


# -- comparisons -----------------------------------------------------------------------------------


def compare(w: Watch, symbol: str, a: Any, b: Any) -> Any:
    """``a symbol b`` for the six comparisons."""
    native, name, other = COMPARE[symbol]
    if _simple(a) and _simple(b):
        if is_tensor(a):
            w.class_attribute(type(a), name)
        if is_tensor(a) or is_tensor(b):
            return w.whole(native, a, b)
        return native(a, b)
    if one_of(type(a), (*CONTAINERS, *VIEWS)) or one_of(type(b), (*CONTAINERS, *VIEWS)):
        if not (_comparable(w, a) and _comparable(w, b)):
            w.unknown(f"{symbol} on {_name(a)} and {_name(b)}")
        return native(a, b)
    if symbol in ("==", "!=") and compares_identity(w, a) and compares_identity(w, b):
        is_same(w, a, b)
        return native(a, b)
    first, second = (a, name), (b, other)
    if not _simple(b):
        w.entry(type(b), other)  # guards its bases, too
    if type(b) is not type(a) and type(a) in _mro(type(b)):
        first, second = second, first
    return _compared(w, symbol, first, second)


_mro = type.__dict__["__mro__"].__get__


def _compared(w: Watch, symbol: str, *tries: tuple[Any, str]) -> Any:
    """Python's protocol: the one, then the other, then identity."""
    known = [_comparison(w, x, name) for x, name in tries]
    (a, _), (b, _) = tries
    if None in known:
        w.unknown(f"{symbol} on {_name(a)} and {_name(b)}")
        return COMPARE[symbol][0](a, b)
    for found, (x, _), (y, _) in zip(known, tries, reversed(tries)):
        result = found(x, y)
        if result is not NotImplemented:
            return result
    if symbol in ("==", "!="):
        return is_same(w, a, b) == (symbol == "==")
    raise TypeError(f"'{symbol}' not supported between instances of '{_name(a)}' and '{_name(b)}'")


def _comparison(w: Watch, x: Any, name: str) -> Any:
    """How an object's class compares: ``f(x, y)``, perhaps NotImplemented; None if not known."""
    method = method_of(w, x, name)
    if method is not None:
        return lambda x, y: w.call(method, (x, y))
    found = class_lookup(type(x), name)
    if name == "__ne__" and found is object.__ne__:
        w.class_attribute(type(x), name)
        equal = _comparison(w, x, "__eq__")
        return None if equal is None else lambda x, y: _negated(w, equal(x, y))
    if found is MISSING or getattr(found, "__objclass__", None) is object:
        w.class_attribute(type(x), name)
        return lambda x, y: NotImplemented
    if is_plain(x):
        return lambda x, y: NotImplemented  # plain values know each other only
    return None


def _negated(w: Watch, result: Any) -> Any:
    return result if result is NotImplemented else not truth(w, result)


def _comparable(w: Watch, x: Any) -> bool:
    """Whether comparing a container compares plain values and tensors only."""
    if one_of(type(x), VIEWS):
        return w.is_fresh(x)
    return _deep_simple(w, x)


def _deep_simple(w: Watch, x: Any) -> bool:
    if _simple(x) or x is None:
        return True
    if not one_of(type(x), CONTAINERS) or not w.entries(x):
        return False
    inside = (*x, *x.values()) if one_of(type(x), (dict, OrderedDict)) else x
    return all(_deep_simple(w, y) for y in inside)


def compares_identity(w: Watch, x: Any) -> bool:
    """Whether ``==`` on the object is ``is`` (object's own ``__eq__``), or it is plain."""
    if is_plain(x):
        return True
    if one_of(type(x), CONTAINERS) or is_tensor(x):
        return False
    cls = type(x)
    if issubclass(cls, type):
        return w.entry(cls, "__eq__") is object.__eq__
    same = w.class_attribute(cls, "__eq__") is object.__eq__
    return same and w.class_attribute(cls, "__ne__") is object.__ne__


def is_same(w: Watch, a: Any, b: Any) -> bool:
    """``a is b``; an identity that could change becomes a guard."""
    for x, y in ((a, b), (b, a)):
        if x is None or x is True or x is False or x is ... or x is NotImplemented:
            if not (is_plain(y) or w.is_fresh(y)):
                typed(w, y)
            return a is b
    if is_plain(a) and is_plain(b):
        if type(a) is type(b) and not (one_of(type(a), _INTERNED) or _is_small(a)):
            w.unknown(f"asks whether two {_name(a)} values are one object")
    elif not (w.is_fresh(a) or w.is_fresh(b)):
        w.identity(a, b)
    return a is b


#: Types with one object per value.
_INTERNED = tuple(t for t in VALUE_TYPES if t is not Size)


def _is_small(x: Any) -> bool:
    """Whether Python has one object for all ints of this value."""
    return type(x) is int and -5 <= x <= 256


def contains(w: Watch, container: Any, x: Any) -> bool:
    """``x in container``."""
    kind = type(container)
    if one_of(kind, (dict, OrderedDict, set, frozenset)):
        if not is_plain(x):
            if w.is_outer(container) or not compares_identity(w, x):
                w.unknown(f"a {_name(x)} as key of a {kind.__name__}")
            return x in container
        found = x in container
        w.membership(container, x, found)
        return found
    if one_of(kind, (list, tuple)):
        if not (_simple(x) and _deep_simple(w, container)):
            w.unknown(f"a {_name(x)} in a {kind.__name__}")
        return x in container
    if one_of(kind, VIEWS) or kind is range or is_plain(container):
        if not is_plain(x):
            w.unknown(f"a {_name(x)} in a {kind.__name__}")
        return x in container
    if is_tensor(container):
        w.sizes_read = True
        if not _simple(x):
            w.unknown(f"a {_name(x)} in a Tensor")
        return x in container
    method = method_of(w, container, "__contains__")
    if method is not None:
        return truth(w, w.call(method, (container, x)))
    w.unknown(f"'in' on a {kind.__name__}")
    return x in container


# -- truth -------------------------------------------------------------------------------------------


def truth(w: Watch, x: Any) -> bool:
    """``bool(x)``."""
    kind = type(x)
    if kind is bool:
        return x
    if is_plain(x):
        return bool(x)
    if is_tensor(x):
        w.class_attribute(kind, "__bool__")
        value = bool(x)
        w.converted("bool", value)
        return value
    if one_of(kind, CONTAINERS) or w.is_tuple(x):
        w.length(x)
        return bool(x)
    for name in ("__bool__", "__len__"):
        found = class_lookup(kind, name)
        if found is MISSING:
            if not one_of(kind, ITERATORS):
                w.entry(kind, name)
            continue
        method = method_of(w, x, name)
        if method is not None:
            return truth(w, w.call(method, (x,)))
        if not one_of(kind, VIEWS):
            w.unknown(f"truth of a {kind.__name__}")
        return bool(x)
    typed(w, x)
    return True


# -- subscripts --------------------------------------------------------------------------------------


def subscript(w: Watch, o: Any, key: Any) -> Any:
    """``o[key]``."""
    kind = type(o)
    if is_tensor(o):
        w.class_attribute(kind, "__getitem__")
        if not w.deep(key):
            w.unknown(f"a Tensor indexed by a {_name(key)}")
        return w.whole(operator.getitem, o, key)
    if one_of(kind, (dict, OrderedDict)):
        if is_plain(key):
            w.item(o, key)
        elif w.is_outer(o) or not compares_identity(w, key):
            w.unknown(f"a {_name(key)} as key of a dict")
        return o[key]
    if one_of(kind, (list, tuple)) or w.is_tuple(o):
        return _of_sequence(w, o, key)
    if is_plain(o) and is_plain(key):
        return o[key]
    if issubclass(kind, type):
        return _of_class(w, o, key)
    method = method_of(w, o, "__getitem__")
    if method is not None:
        return w.call(method, (o, key))
    w.unknown(f"subscript of a {kind.__name__}")
    return o[key]


def _of_sequence(w: Watch, o: Any, key: Any) -> Any:
    if is_tensor(key):
        w.unknown("a list indexed by a tensor")
    elif one_of(type(key), (int, bool)):
        if not -len(o) <= key < len(o):
            w.length(o)
        value = o[key]
        w.element(o, key if key >= 0 else len(o) + key)
        return value
    elif not is_plain(key):
        w.unknown(f"a list indexed by a {_name(key)}")
    else:
        w.entries(o)
    result = o[key]
    return w.fresh(result) if type(key) is slice else result


def _of_class(w: Watch, o: Any, key: Any) -> Any:
    if one_of(o, (list, dict, tuple, set, frozenset, type)) or type(o) is GenericAlias:
        return o[key]
    method = special(w, o, "__getitem__")
    if method is not None:
        return w.call(method, (key,))
    w.unknown(f"subscript of class {o.__name__}")
    return o[key]


def store_subscript(w: Watch, o: Any, key: Any, value: Any) -> None:
    """``o[key] = value``."""
    kind = type(o)
    if is_tensor(o):
        w.class_attribute(kind, "__setitem__")
        if not (w.deep(key) and _simple(value)):
            w.unknown(f"a Tensor's items set to a {_name(value)}")
        w.sizes_read = True
    elif one_of(kind, (list, dict, OrderedDict)):
        if w.is_outer(o):
            w.effect(f"sets an item of a {kind.__name__} made outside")
        elif not is_plain(key) and not compares_identity(w, key):
            w.unknown(f"a {_name(key)} as key of a {kind.__name__}")
    else:
        method = method_of(w, o, "__setitem__")
        if method is not None:
            w.call(method, (o, key, value))
            return
        w.unknown(f"sets an item of a {kind.__name__}")
    o[key] = value


def delete_subscript(w: Watch, o: Any, key: Any) -> None:
    """``del o[key]``."""
    if one_of(type(o), (list, dict, OrderedDict)) and is_plain(key):
        if w.is_outer(o):
            w.effect(f"deletes an item of a {_name(o)} made outside")
    else:
        method = method_of(w, o, "__delitem__")
        if method is not None:
            w.call(method, (o, key))
            return
        w.unknown(f"deletes an item of a {_name(o)}")
    del o[key]


# -- iteration -----------------------------------------------------------------------------------------


def iterate(w: Watch, x: Any) -> Any:
    """``iter(x)``: an iterator of this call."""
    kind = type(x)
    if one_of(kind, CONTAINERS) or w.is_tuple(x):
        if not w.entries(x):
            w.unknown(f"iterates over a {kind.__name__}")
    elif one_of(kind, VIEWS) or one_of(kind, ITERATORS):
        if w.is_outer(x):
            w.effect(f"advances a {kind.__name__} made outside")
        return w.fresh(iter(x)) if one_of(kind, VIEWS) else x
    elif is_tensor(x):
        w.class_attribute(kind, "__iter__")
        w.sizes_read = True
        return w.fresh(x.__iter__())
    elif not is_plain(x):
        method = method_of(w, x, "__iter__")
        if method is not None:
            return w.call(method, (x,))
        w.unknown(f"iterates over a {kind.__name__}")
    return w.fresh(iter(x))


def advance(w: Watch, iterator: Any) -> Any:
    """``next(iterator)``; raises StopIteration."""
    kind = type(iterator)
    if not one_of(kind, ITERATORS):
        method = method_of(w, iterator, "__next__")
        if method is not None:
            return w.call(method, (iterator,))
        w.unknown(f"advances a {kind.__name__}")
    elif w.is_outer(iterator):
        w.effect(f"advances a {kind.__name__} made outside")
    value = next(iterator)
    if one_of(kind, _MAKE_TUPLES) and type(value) is tuple:
        w.fresh(value)
    return value


def marked(w: Watch, iterator: Any) -> Any:
    """A built-in iterator as C code may read it: the tuples that it makes are objects of this call."""
    return map(w.fresh, iterator) if one_of(type(iterator), _MAKE_TUPLES) else iterator


_MAKE_TUPLES = (zip, enumerate, type(iter({}.items())), type(iter(_OD.items())))
