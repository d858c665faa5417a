"""What users add: lowerings of their own, and operators to be left alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mortice
from mortice.errors import ArgumentError, CompileError, RegistrationError
from mortice.ops import OpOverload, OpOverloadPacket

from ..ir.values import Value
from ..specs import loop_name
from .registry import Lowering

USER: dict[str, Lowering] = {}
FALLBACKS: set[str] = set()


class LoweringFailed(CompileError):
    """A user's lowering raised, or gave what is no result of its operator."""


def raised(name: str, fn: Lowering, error: Exception) -> LoweringFailed:
    """What is said of a lowering that raised; it is the error's cause."""
    return LoweringFailed(
        f"the lowering of {name}, {_described(fn)}, raised {type(error).__name__}: {error}"
    )


def checked(name: str, fn: Lowering, made: Any, val: Any, numbers: Callable[[Any], Any]) -> None:
    """LoweringFailed for what is no value, or one of another shape or dtype than the operator
    gives (``val``, where that is known).
    """
    vals = list(val) if isinstance(val, (list, tuple)) else [val]
    given = list(made) if isinstance(made, (list, tuple)) else [made]
    if val is None:
        vals = [None] * len(given)
    wanted = ", ".join(_told(v, numbers) for v in vals)
    fits = len(given) == len(vals) and all(map(_is_result, given, vals, [numbers] * len(vals)))
    if not fits:
        found = ", ".join(_found(x) for x in given)
        raise LoweringFailed(
            f"the lowering of {name}, {_described(fn)}, gave {found}; expected {wanted}."
        )


def _is_result(x: Any, val: Any, numbers: Callable[[Any], Any]) -> bool:
    if not isinstance(x, Value):
        return False
    if not isinstance(val, mortice.Tensor):
        return True
    return _found(x) == _told(val, numbers)


def _found(x: Any) -> str:
    return f"{x.dtype}{list(x.shape)}" if isinstance(x, Value) else type(x).__name__


def _told(val: Any, numbers: Callable[[Any], Any]) -> str:
    """A result as the operator gives it: dtype by the loop IR's name, and sizes."""
    if not isinstance(val, mortice.Tensor):
        return "a value of the trace (t.fn, t.cast, t.reduce, ...)"
    return f"{loop_name(val.dtype)}{[int(numbers(n)) for n in val.shape]}"


def _described(fn: Any) -> str:
    code = getattr(fn, "__code__", None)
    name = getattr(fn, "__qualname__", None) or repr(fn)
    return name if code is None else f"{name} ({code.co_filename}:{code.co_firstlineno})"


def _keys(op: Any) -> list[str]:
    """Names of an overload, or of all overloads of a packet; refuses what no graph has."""
    if isinstance(op, OpOverload):
        reason = _never(op)
        others = [o for o in op.overloadpacket.op_overloads() if not _never(o)]
        found = [op]
    elif isinstance(op, OpOverloadPacket):
        found, others = op.op_overloads(), []
        reasons = [_never(o) for o in found]
        reason = reasons[0] if all(reasons) else ""
    else:
        raise ArgumentError(
            "expected an operator such as mortice.ops.aten.exp (all overloads) or "
            f"mortice.ops.aten.exp.default, not {type(op).__name__} {op!r}."
        )
    if reason:
        hint = f" There is also {', '.join(map(str, others))}." if others else ""
        raise RegistrationError(f"{op} is in no graph that is compiled: {reason}{hint}")
    return [str(o).removeprefix("aten.") for o in found]


def _never(op: OpOverload) -> str:
    """Why graphs never hold an operator by the time that they are lowered; empty if they may."""
    row = op.operator.row
    if op._schema.mutated:
        if row.functional:
            return f"it writes to an argument, and its functional form, {row.functional}, stands in its place."
        return "it writes to an argument, and is run on copies by the dispatcher."
    if row.kind == "composite":
        return (
            "it is a composite, and the operators that it calls stand in its place. Register for "
            "those, or declare it with a shape rule and kernels or a decomposition instead."
        )
    return ""


def register_lowering(op: Any) -> Callable[[Lowering], Lowering]:
    """A decorator that lowers an operator overload, a packet or a list of them by a function.

    It is called with the ``Trace`` that makes values and every schema argument in order, tensors
    as ``Value``; it gives a value, or a tuple of them. Raising ``Fallback`` leaves the call to the
    dispatcher. What is registered last holds. Graphs with such operators are not kept on disk.

    Raises:
        ArgumentError: ``op`` is no operator.
        RegistrationError: No graph holds it: a composite operator, or one that writes to arguments.
    """
    ops: Sequence[Any] = op if isinstance(op, (list, tuple)) else [op]
    keys = [key for o in ops for key in _keys(o)]

    def register(fn: Lowering) -> Lowering:
        for key in keys:
            USER[key] = fn
            FALLBACKS.discard(key)
        return fn

    return register


def make_fallback(op: Any) -> None:
    """Leaves an operator (all overloads of a packet) to the dispatcher; refuses what
    ``register_lowering`` refuses.
    """
    for key in _keys(op):
        FALLBACKS.add(key)
        USER.pop(key, None)
