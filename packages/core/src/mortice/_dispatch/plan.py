"""Remembering how calls of overloaded functions are bound.

Which overload a call means, and where its arguments go, mostly depends on the arguments' types
alone. ``call_by_plan`` keeps one plan per combination of types: a compiled function that gives the
key set and the arguments in schema order (0.4 us against 4 for choosing and binding afresh). Calls
whose types do not decide, such as 0-d tensors given as integers, are never remembered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mortice._dispatch import keys as K
from mortice._dispatch.bind import bind, default_of
from mortice._dispatch.call import Packet, as_ints, call, choose, failed
from mortice._dispatch.operator import Operator
from mortice._dispatch.schema import Argument
from mortice._dispatch.state import GLOBAL, adjust
from mortice._types.device import Device
from mortice._types.dtypes import DType
from mortice._types.promotion import NUMBERS

#: Schema types whose values need no conversion when they have one of these Python types.
_EXACT: dict[str, frozenset[type]] = {
    "int": frozenset((int,)),
    "SymInt": frozenset((int,)),
    "float": frozenset((float,)),
    "bool": frozenset((bool,)),
    "str": frozenset((str,)),
    "Scalar": NUMBERS,
    "ScalarType": frozenset((DType,)),
    "Device": frozenset((Device,)),
}


class Plan:
    """How a call with certain argument types is made.

    ``prepare(args, kwargs)`` gives (key set, values in schema order).
    """

    __slots__ = ("name", "prepare", "table")

    def __init__(self, op: Operator, prepare: Any) -> None:
        self.name = op.name
        self.table = op.table
        self.prepare = prepare


def call_by_plan(packet: Packet, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """What the stub of an overloaded function calls."""
    types: Any = tuple(map(type, args))
    if kwargs:
        types = (types, tuple(kwargs), tuple(map(type, kwargs.values())))
    plan = packet.plans.get(types)
    if plan is None:
        return _first_call(packet, types, args, kwargs)
    try:
        keys, values = plan.prepare(args, kwargs)
    except (TypeError, AttributeError):
        keys = K.OVERRIDE
        values = ()
    if GLOBAL.special:
        if GLOBAL.quick and GLOBAL.watch and (r := GLOBAL.quick(plan.table, *values)) is not None:
            return r
        keys = adjust(keys)
    kernel = plan.table.get(keys)
    if kernel is None:
        return call(packet, args, kwargs)
    try:
        return kernel(*values)
    except Exception as error:
        failed(plan.name, error, values)
        raise


def call_overload(
    op: Operator, plans: dict[Any, Plan], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    """A call of one overload, as ``mortice.ops`` makes it; ``plans`` are the overload's own."""
    types: Any = tuple(map(type, args))
    if kwargs:
        types = (types, tuple(kwargs), tuple(map(type, kwargs.values())))
    plan = plans.get(types)
    kernel = None
    values: Any = ()
    if plan is not None:
        try:
            keys, values = plan.prepare(args, kwargs)
            kernel = plan.table.get(adjust(keys) if GLOBAL.special else keys)
        except (TypeError, AttributeError):
            kernel = None
    if kernel is None:
        values = bind(op.schema, args, kwargs, op.row.numbers, "self")
        kernel = op.lookup(op.keys_of(values))
        if plan is None and len(plans) < 64:
            prepare = _compile(op, "self", args, kwargs)
            if prepare is not None:
                plans[types] = Plan(op, prepare)
    try:
        return kernel(*values)
    except Exception as error:
        failed(op.name, error, values)
        raise


def _first_call(packet: Packet, types: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    result = call(packet, args, kwargs)
    if len(packet.plans) < 64 and "out" not in kwargs:
        try:
            op, _ = choose(packet, args, kwargs)
        except Exception:
            return result
        prepare = _compile(op, "self" if packet.is_method else "input", args, kwargs)
        if prepare is not None:
            packet.plans[types] = Plan(op, prepare)
    return result


def _compile(op: Operator, first_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The compiled ``prepare``, or None where the types alone do not decide."""
    schema = op.schema
    names: dict[str, Any] = {"as_ints": as_ints}
    values: list[str] = []
    tensors: list[str] = []
    taken: set[str] = set()
    for i, a in enumerate(schema.arguments):
        if i < len(args) and not a.kwarg_only:
            text, value = f"args[{i}]", args[i]
            if i == schema.positional - 1 and len(args) > schema.positional:
                text, value = f"tuple(args[{i}:])", tuple(args[i:])
            elif (
                a.type.is_list
                and a.type.length is None
                and i == len(args) - 1
                and type(value) is int
            ):
                text, value = f"(args[{i}],)", (value,)
        else:
            key = a.name if a.name in kwargs else first_name if a.name == "self" else ""
            if key not in kwargs:
                names[f"d{i}"] = default_of(a)
                values.append(f"d{i}")
                continue
            taken.add(key)
            text, value = f"kwargs[{key!r}]", kwargs[key]
        converted = _conversion(a, text, value, op.row.numbers)
        if converted is None:
            return None
        values.append(converted)
        if hasattr(value, "_k"):
            tensors.append(f"{text}._k")
    if taken != set(kwargs) or not tensors:
        return None
    source = f"lambda args, kwargs: ({' | '.join(tensors)}, ({', '.join(values)},))"
    return eval(source, names)  # noqa: S307  made of schema names and positions only


def _conversion(a: Argument, text: str, value: Any, numbers: bool) -> str | None:
    """Expression for one argument, or None if its type is not known to fit without a look."""
    kind = a.type
    if value is None and kind.is_optional:
        return text
    if kind.is_tensor and not kind.is_list:
        return text if hasattr(value, "_k") or (numbers and type(value) in NUMBERS) else None
    if not kind.is_list:
        return text if type(value) in _EXACT.get(kind.base, ()) else None
    if kind.base in ("int", "SymInt") and (isinstance(value, (tuple, list)) or type(value) is int):
        return f"as_ints({text}, {kind.length}, False)"
    return None
