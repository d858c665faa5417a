"""Instructions that make and fill containers, and text."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from mortice._capture.identity import one_of
from mortice._capture.observer import operators
from mortice._capture.observer.classes import shows_plainly
from mortice._capture.observer.frame import Frame
from mortice._capture.observer.framework import is_tensor
from mortice._capture.observer.watch import CONTAINERS, is_plain


def build_tuple(f: Frame, count: int) -> None:
    f.stack.append(f.watch.fresh(tuple(f.pop_many(count))))


def build_list(f: Frame, count: int) -> None:
    f.stack.append(f.watch.fresh(f.pop_many(count)))


def build_set(f: Frame, count: int) -> None:
    values = f.pop_many(count)
    _keys(f, values)
    f.stack.append(f.watch.fresh(set(values)))


def build_map(f: Frame, count: int) -> None:
    pairs = f.pop_many(2 * count)
    _keys(f, pairs[::2])
    f.stack.append(f.watch.fresh(dict(zip(pairs[::2], pairs[1::2]))))


def build_const_key_map(f: Frame, count: int) -> None:
    keys = f.stack.pop()
    f.stack.append(f.watch.fresh(dict(zip(keys, f.pop_many(count)))))


def _keys(f: Frame, keys: Any) -> None:
    for key in keys:
        if not is_plain(key) and not operators.compares_identity(f.watch, key):
            f.watch.unknown(f"a {type(key).__name__} as key")


def build_slice(f: Frame, count: int) -> None:
    f.stack.append(slice(*f.pop_many(count)))


def list_to_tuple(f: Frame, _: Any) -> None:
    f.stack.append(f.watch.fresh(tuple(f.stack.pop())))


def list_append(f: Frame, depth: int) -> None:
    value = f.stack.pop()
    f.stack[-depth].append(value)


def set_add(f: Frame, depth: int) -> None:
    value = f.stack.pop()
    _keys(f, (value,))
    f.stack[-depth].add(value)


def map_add(f: Frame, depth: int) -> None:
    key, value = f.pop_many(2)
    _keys(f, (key,))
    f.stack[-depth][key] = value


def list_extend(f: Frame, depth: int) -> None:
    value = f.stack.pop()
    f.stack[-depth].extend(_items(f, value))


def set_update(f: Frame, depth: int) -> None:
    value = f.stack.pop()
    items = list(_items(f, value))
    _keys(f, items)
    # Of a list of its entries the order may be another than of the set.
    f.stack[-depth].update(value if one_of(type(value), CONTAINERS) else items)


def _items(f: Frame, value: Any) -> Any:
    """The items of an iterable, one after the other."""
    if is_plain(value):
        return value
    iterator = operators.iterate(f.watch, value)
    if one_of(type(iterator), operators.ITERATORS):
        return operators.marked(f.watch, iterator)
    items: list[Any] = []
    while True:
        try:
            items.append(operators.advance(f.watch, iterator))
        except StopIteration:
            return items


def dict_update(f: Frame, depth: int) -> None:
    value = f.stack.pop()
    f.stack[-depth].update(_mapping(f, value))


def dict_merge(f: Frame, depth: int) -> None:
    """``**value`` in a call: no key may come twice."""
    value = _mapping(f, f.stack.pop())
    target = f.stack[-depth]
    for key in value:
        if key in target:
            raise TypeError(f"got multiple values for keyword argument '{key}'")
    target.update(value)


def _mapping(f: Frame, value: Any) -> Any:
    if one_of(type(value), (dict, OrderedDict)):
        if not f.watch.entries(value):
            f.watch.unknown("a dict whose keys are not plain")
    else:
        f.watch.unknown(f"**{type(value).__name__}")
    return value


# -- unpacking ---------------------------------------------------------------------------------------


def unpack_sequence(f: Frame, count: int) -> None:
    values = _unpacked(f, f.stack.pop())
    if len(values) > count:
        raise ValueError(f"too many values to unpack (expected {count})")
    if len(values) < count:
        raise ValueError(f"not enough values to unpack (expected {count}, got {len(values)})")
    f.stack += values[::-1]


def unpack_ex(f: Frame, counts: int) -> None:
    before, after = counts & 255, counts >> 8
    values = _unpacked(f, f.stack.pop())
    if len(values) < before + after:
        raise ValueError(
            f"not enough values to unpack (expected at least {before + after}, got {len(values)})"
        )
    end = len(values) - after
    middle = f.watch.fresh(values[before:end])
    f.stack += [*values[:before], middle, *values[end:]][::-1]


def _unpacked(f: Frame, value: Any) -> list[Any]:
    if not (one_of(type(value), CONTAINERS) or is_tensor(value) or is_plain(value)):
        if not hasattr(type(value), "__iter__"):
            raise TypeError(f"cannot unpack non-iterable {type(value).__name__} object")
    elif value is None or one_of(type(value), (int, float, bool, complex)):
        raise TypeError(f"cannot unpack non-iterable {type(value).__name__} object")
    return list(_items(f, value))


# -- text --------------------------------------------------------------------------------------------

_CONVERT = {1: str, 2: repr, 3: ascii}


def build_string(f: Frame, count: int) -> None:
    f.stack.append("".join(f.pop_many(count)))


def format_value(f: Frame, flags: int) -> None:
    """3.11 and 3.12: conversion and format specification in one."""
    spec = f.stack.pop() if flags & 4 else ""
    _format(f, f.stack.pop(), flags & 3, spec)


def convert_value(f: Frame, kind: int) -> None:
    value = f.stack.pop()
    _show(f, value)
    f.stack.append(_CONVERT[kind](value))


def format_simple(f: Frame, _: Any) -> None:
    _format(f, f.stack.pop(), 0, "")


def format_with_spec(f: Frame, _: Any) -> None:
    value, spec = f.pop_many(2)
    _format(f, value, 0, spec)


def _format(f: Frame, value: Any, conversion: int, spec: str) -> None:
    _show(f, value)
    if conversion:
        value = _CONVERT[conversion](value)
    f.stack.append(format(value, spec))


def _show(f: Frame, value: Any) -> None:
    if not is_plain(value) and not shows_plainly(f.watch, value):
        f.watch.unknown(f"formats a {type(value).__name__}")


ALL = (
    build_tuple, build_list, build_set, build_map, build_const_key_map, build_slice,
    list_to_tuple, list_append, set_add, map_add, list_extend, set_update, dict_update,
    dict_merge, unpack_sequence, unpack_ex, build_string, format_value, convert_value,
    format_simple, format_with_spec,
)  # fmt: skip
