"""Seeing every operator: ``MorticeDispatchMode`` and what its subclasses need."""

from __future__ import annotations

from typing import Any

from mortice._dispatch.modes import DispatchMode
from mortice._dispatch.state import THREAD
from mortice._tensor.subclass import is_traceable_wrapper as is_traceable_wrapper_subclass


class MorticeDispatchMode(DispatchMode):
    """Inside ``with mode:``, ``__mortice_dispatch__(func, types, args, kwargs)`` gets every call.

    ``func`` is an overload from ``mortice.ops``; calling it goes on to the next mode outwards.
    """


def get_current_dispatch_mode() -> Any:
    """The innermost mode, or None."""
    return THREAD.dispatch_modes[-1] if THREAD.dispatch_modes else None


def is_in_mortice_dispatch_mode() -> bool:
    return bool(THREAD.dispatch_modes)


def return_and_correct_aliasing(func: Any, args: Any, kwargs: Any, out: Any) -> Any:
    """What a wrapper returns where the schema says that an output is an input: that input."""
    schema = func._schema
    for r in schema.returns:
        if r.type.is_mutable:
            for position in schema.mutated:
                if schema.arguments[position].type.alias == r.type.alias:
                    name = schema.arguments[position].name
                    return args[position] if position < len(args) else kwargs[name]
    return out


__all__ = [
    "MorticeDispatchMode",
    "get_current_dispatch_mode",
    "is_in_mortice_dispatch_mode",
    "is_traceable_wrapper_subclass",
    "return_and_correct_aliasing",
]
