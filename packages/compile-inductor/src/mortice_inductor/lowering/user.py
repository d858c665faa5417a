"""What users add: lowerings of their own, and operators to be left alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .registry import Lowering

USER: dict[str, Lowering] = {}
FALLBACKS: set[str] = set()


def _keys(op: Any) -> list[str]:
    """Names of an overload, or of all overloads of a packet."""
    overloads = getattr(op, "op_overloads", None)
    found = overloads() if overloads is not None else [op]
    return [str(o).removeprefix("aten.") for o in found]


def register_lowering(op: Any) -> Callable[[Lowering], Lowering]:
    """A decorator that lowers an operator overload, a packet or a list of them by a function.

    It is called with the ``Trace`` that makes values and every schema argument in order, tensors
    as ``Value``; it gives a value, or a tuple of them. Raising ``Fallback`` leaves the call to the
    dispatcher. What is registered last holds. Graphs with such operators are not kept on disk.
    """
    ops: Sequence[Any] = op if isinstance(op, (list, tuple)) else [op]

    def register(fn: Lowering) -> Lowering:
        for o in ops:
            for key in _keys(o):
                USER[key] = fn
                FALLBACKS.discard(key)
        return fn

    return register


def make_fallback(op: Any) -> None:
    """Leaves an operator (all overloads of a packet) to the dispatcher."""
    for key in _keys(op):
        FALLBACKS.add(key)
        USER.pop(key, None)
