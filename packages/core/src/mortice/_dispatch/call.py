"""The general path of a call: what stubs do not do in line.

``call`` chooses the overload by the arguments; ``diagnose`` explains a failure after the fact, by
checking the arguments against the schema and then against the shape rule, so that the fast path
needs no checks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mortice._base.errors import (
    ArgumentError,
    DimensionError,
    DTypeError,
    InvalidValue,
    MorticeError,
    RangeError,
    ShapeError,
    nearest,
)
from mortice._dispatch import keys as K
from mortice._dispatch.bind import Misfit, bind
from mortice._dispatch.operator import Operator, get, overloads
from mortice._dispatch.state import THREAD
from mortice._types.promotion import NUMBERS, with_number


class Packet:
    """A function name with its overloads, as ``mortice.add`` or ``Tensor.add`` is called."""

    __slots__ = ("is_method", "name", "plans", "public")

    def __init__(self, name: str, is_method: bool = False) -> None:
        self.name = name
        self.is_method = is_method
        #: The public function object; ``__mortice_function__`` handlers are given it.
        self.public: Any = None
        #: Argument types -> plan, see ``_dispatch/plan.py``.
        self.plans: dict[Any, Any] = {}

    def operators(self) -> list[Operator]:
        return [get(name) for name in overloads(self.name)]

    def __repr__(self) -> str:
        return f"Tensor.{self.name}" if self.is_method else self.name


def call(packet: Packet, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Call the first overload that the arguments fit; ArgumentError lists why none does."""
    if overridden(args, kwargs):
        from mortice._dispatch import modes

        return modes.through_function_overrides(packet, args, kwargs)
    op, values = choose(packet, args, kwargs)
    try:
        return op(*values)
    except Exception as error:
        diagnose(op, error, values)
        raise


def choose(
    packet: Packet, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Operator, list[Any]]:
    """The overload for a call and its arguments in schema order."""
    first_name = "self" if packet.is_method else "input"
    if packet.is_method and args and not hasattr(args[0], "_k"):
        raise ArgumentError(
            f"Tensor.{packet.name} needs a Tensor as its first argument, not {type(args[0]).__name__}"
        )
    misfits: list[tuple[Operator, Misfit]] = []
    for op in packet.operators():
        schema = op.schema
        if "out" in schema.by_name and kwargs.get("out") is None:
            continue
        start = 1 if schema.arguments and schema.arguments[0].name == "self" else 0
        try:
            given = kwargs
            if kwargs and kwargs.get("out", 0) is None:
                given = {k: v for k, v in kwargs.items() if k != "out"}
            elif type(kwargs.get("out")) in (tuple, list) and len(schema.mutated) > 1:
                given = _spread_out(schema, kwargs)
            if schema.positional <= start:
                start = -1
            values = bind(schema, args, given, op.row.numbers, first_name, start)
            if op.row.numbers and type(values[0]) in NUMBERS:
                values[0] = _as_tensor(values)
            return op, values
        except Misfit as misfit:
            # Its traceback would make a cycle with this frame, and keep the arguments alive.
            misfits.append((op, misfit.with_traceback(None)))
    raise _no_overload(packet, args, kwargs, misfits)


def _spread_out(schema: Any, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """``out=(values, indices)`` as the keywords that the schema has for them."""
    names = [schema.arguments[i].name for i in schema.mutated]
    given = {k: v for k, v in kwargs.items() if k != "out"}
    if len(names) != len(kwargs["out"]):
        raise Misfit(f"argument 'out' must be a tuple of {len(names)} tensors")
    given.update(zip(names, kwargs["out"]))
    return given


def _as_tensor(values: Sequence[Any]) -> Any:
    """The number that stands first, as a 0-d tensor beside the first tensor among the others.

    It has the dtype in which the two meet, so that it raises no more than a number does.
    """
    for other in values[1:]:
        if hasattr(other, "_k"):
            dtype = with_number(other._t, values[0])
            return get("full")((), values[0], dtype, None, other.device, None)
    return get("full")((), values[0], None, None, None, None)


def _no_overload(
    packet: Packet,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    misfits: list[tuple[Operator, Misfit]],
) -> ArgumentError:
    name = packet.name
    if len(misfits) > 1 and all(m.unknown_name for _, m in misfits):
        return _unknown_keyword(packet, kwargs, [op for op, _ in misfits])
    if len(misfits) == 1:
        op, misfit = misfits[0]
        return ArgumentError(f"{name}(): {misfit}.\nIts schema is {op.schema}")
    if not misfits:
        return ArgumentError(f"{name}(): no overload takes an 'out' argument.")
    given = ", ".join(
        [type(a).__name__ for a in args] + [f"{k}={type(v).__name__}" for k, v in kwargs.items()]
    )
    reasons = "\n".join(f"  {op.schema}\n    {misfit}" for op, misfit in misfits)
    return ArgumentError(f"{name}() received ({given}), which fits none of its forms:\n{reasons}")


def _unknown_keyword(
    packet: Packet, kwargs: Mapping[str, Any], operators: Sequence[Operator]
) -> ArgumentError:
    """No form has a keyword: it is misspelt, and the nearest may be in any form."""
    first = "self" if packet.is_method else "input"
    known: dict[str, None] = {}
    for op in operators:
        known.update((first if n == "self" else n, None) for n in op.schema.by_name)
    wrong = next((name for name in kwargs if name not in known), next(iter(kwargs)))
    return ArgumentError(
        f"{packet.name}(): unexpected keyword argument {wrong!r}.{nearest(wrong, known)} Its forms "
        f"take: {', '.join(known)}"
    )


def overridden(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a mode or an argument's class wants to see the call first."""
    thread = THREAD
    if thread.functions_disabled:
        return False
    if thread.function_modes:
        return True
    return not thread.subclasses_disabled and _has_override(args, kwargs)


def seen_as_itself(method: Any) -> Any:
    """A method that hands overriding classes itself, not the function that it calls."""

    def checked(self: Any, *args: Any, **kwargs: Any) -> Any:
        given = (self, *args)
        if overridden(given, kwargs):
            from mortice._dispatch.modes import call_overridden, flat

            name = f"Tensor.{method.__name__}"
            return call_overridden(checked, flat(given, kwargs), given, kwargs, name)
        return method(self, *args, **kwargs)

    checked.__name__ = checked.__qualname__ = method.__name__.strip("_")
    checked.__doc__ = method.__doc__
    checked.__wrapped__ = method  # type: ignore[attr-defined]
    return checked


def _has_override(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    for value in (*args, *kwargs.values()):
        found = getattr(value, "_k", None)
        if found is not None:
            if found & K.OVERRIDE:
                return True
        elif isinstance(value, (list, tuple)):
            for item in value:  # pyright: ignore[reportUnknownVariableType]
                if getattr(item, "_k", 0) & K.OVERRIDE or _is_duck(item):
                    return True
        elif _is_duck(value):
            return True
    return False


def _is_duck(value: Any) -> bool:
    """An object that is no Tensor but overrides functions (``__mortice_function__``)."""
    return hasattr(type(value), "__mortice_function__") and not hasattr(value, "_k")


def diagnose(op: Operator | str, error: BaseException, values: Sequence[Any]) -> None:
    """Raise the precise error behind ``error``, or return if the arguments were fine.

    An error of mortice's own is already precise. Otherwise the arguments are fitted to the schema
    again and the shape rule is run on them.
    """
    if isinstance(error, MorticeError):
        _name(op, error)
        return
    if isinstance(op, str):
        op = get(op)
    try:
        checked = bind(op.schema, *_as_call(op, values), numbers=op.row.numbers)
    except Misfit as misfit:
        raise ArgumentError(f"{op.schema.name}(): {misfit}.\nIts schema is {op.schema}") from None
    rule = op.shape_rule()
    if rule is not None:
        if op.row.kind == "out":  # the rule is the functional operator's
            checked = checked[: len(get(op.row.functional).schema.arguments)]
        try:
            rule(*checked)
        except MorticeError as precise:
            _name(op, precise)
            raise precise from None


#: Operators that the user did not write: a subscript, a conversion.
_UNNAMED = frozenset(
    ("select", "slice", "index", "index_put_", "_to_copy", "_local_scalar_dense", "copy_", "fill_")
)
_NAMED_KINDS = (ShapeError, DTypeError, DimensionError, InvalidValue, RangeError)


def _name(op: Operator | str, error: MorticeError) -> None:
    """Put the operator's name before a message that does not have it; the innermost wins."""
    if not isinstance(error, _NAMED_KINDS) or getattr(error, "operator", None) is not None:
        return
    if isinstance(op, str):
        op = get(op)
    name = op.schema.name
    error.operator = op.qualified  # pyright: ignore[reportAttributeAccessIssue]
    text = str(error)
    if name in _UNNAMED or name.strip("_") in text or "()" in text[:40]:
        return
    error.args = (f"{name.lstrip('_')}(): {text}", *error.args[1:])


def _as_call(op: Operator, values: Sequence[Any]) -> tuple[Sequence[Any], dict[str, Any]]:
    n = op.schema.positional
    return values[:n], {a.name: v for a, v in zip(op.schema.arguments[n:], values[n:])}


def failed(op: str, error: BaseException, values: Sequence[Any]) -> None:
    """What a generated stub calls in its ``except``; it re-raises if this returns."""
    diagnose(op, error, values)


def slow(
    packet: Packet,
    positional: Sequence[Any],
    defaults: Sequence[Any],
    keywords: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> Any:
    """From a stub's parameters back to the call as the user wrote it, then ``call``.

    ``defaults`` belong to the last of ``positional``; ``keywords`` are (name, value, default).
    Arguments that are their default are left out.
    """
    n = len(positional)
    first_default = n - len(defaults)
    while n > first_default and positional[n - 1] is defaults[n - 1 - first_default]:
        n -= 1
    given = {name: value for name, value, default in keywords if value is not default}
    given.update(kwargs)
    return call(packet, positional[:n], given)


def call_operator(
    packet: Packet,
    positional: Sequence[Any],
    defaults: Sequence[Any],
    keywords: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> Any:
    """As ``slow``, for Python operators: NotImplemented where the operand is not ours."""
    other = positional[-1]
    if len(positional) > 1 and not is_operand(other):
        if packet.name not in _COMPARISONS or type(other).__name__ != "ndarray":
            return NotImplemented
        # Neither side would compare elements, and Python would compare identities.
        from importlib import import_module

        other = import_module("mortice._tensor.construct").from_numpy(other)
        positional = (*positional[:-1], other)
    try:
        return slow(packet, positional, defaults, keywords, kwargs)
    except TypeError as error:
        if type(error).__name__ == "NoImplementation":  # the other operand may know better
            return NotImplemented
        raise


_COMPARISONS = frozenset(("eq", "ne", "lt", "le", "gt", "ge"))


def is_operand(value: Any) -> bool:
    """Whether a Python operator takes ``value``: a tensor, number, numpy value or duck type."""
    from mortice._dispatch.bind import is_int
    from mortice._types.promotion import NUMBERS

    if hasattr(value, "_k") or type(value) in NUMBERS:
        return True
    if type(value).__module__ == "numpy":
        return not value.ndim  # arrays answer themselves: tensor + array is numpy's to do
    if _is_duck(value) or is_int(value) or getattr(value, "_is_symbolic", False):
        return True
    return isinstance(value, (int, float, complex))


def as_ints(value: Any, length: int | None, optional: bool) -> Any:
    """A list or a single integer as the tuple that kernels get; TypeError if it is neither."""
    if type(value) is int:
        return (value,) * (length or 1) if length is not None else _refuse(value)
    if type(value) is list or isinstance(value, tuple):
        for item in value:  # pyright: ignore[reportUnknownVariableType]
            if type(item) is not int:
                return _refuse(value)
        return tuple(value)  # pyright: ignore[reportUnknownArgumentType]
    if value is None and optional:
        return None
    return _refuse(value)


def _refuse(value: Any) -> Any:
    raise TypeError(type(value).__name__)
