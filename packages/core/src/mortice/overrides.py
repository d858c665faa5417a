"""``__mortice_function__``: classes and modes that see every public function that is called."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mortice._dispatch.modes import (
    FunctionMode,
    call_overridden,
    disabled_function,
    no_function_modes,
    no_function_subclasses,
    overrides_functions,
)
from mortice._dispatch.state import THREAD

DisableMorticeFunction = no_function_modes
DisableMorticeFunctionSubclass = no_function_subclasses
#: Set as ``__mortice_function__`` of a subclass whose results are plain tensors.
disabled_mortice_function = disabled_function


class MorticeFunctionMode(FunctionMode):
    """Inside ``with mode:``, ``__mortice_function__(func, types, args, kwargs)`` gets every call."""


def has_mortice_function(relevant_args: Iterable[Any]) -> bool:
    """Whether one of the arguments, or a mode, wants to see the call."""
    args = tuple(relevant_args)
    if THREAD.functions_disabled or not args:
        return False
    if THREAD.function_modes:
        return True
    return not THREAD.subclasses_disabled and any(overrides_functions(type(a)) for a in args)


def has_mortice_function_unary(arg: Any) -> bool:
    return has_mortice_function((arg,))


def has_mortice_function_variadic(*args: Any) -> bool:
    return has_mortice_function(args)


def handle_mortice_function(
    public_api: Any, relevant_args: Iterable[Any], *args: Any, **kwargs: Any
) -> Any:
    """Offer a call of ``public_api`` to the modes and to the overriding arguments."""
    name = f"{public_api.__module__}.{getattr(public_api, '__qualname__', public_api)}"
    return call_overridden(public_api, list(relevant_args), args, kwargs, name)


def is_tensor_like(value: Any) -> bool:
    """A Tensor, or an object whose class has ``__mortice_function__``."""
    return hasattr(type(value), "__mortice_function__")


def wrap_mortice_function(dispatcher: Any) -> Any:
    """Decorator that makes a function overridable; ``dispatcher`` names the relevant arguments."""
    import functools

    def decorate(function: Any) -> Any:
        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            relevant = dispatcher(*args, **kwargs)
            if has_mortice_function(relevant):
                return handle_mortice_function(wrapped, relevant, *args, **kwargs)
            return function(*args, **kwargs)

        return wrapped

    return decorate


def resolve_name(function: Any) -> str | None:
    """``"Tensor.add"`` for a method, ``"mortice.add"`` for a function, None for others."""
    from mortice import _generated

    for family in _generated.every_family():
        for table, prefix in ((family.METHODS, "Tensor"), (family.FUNCTIONS, "mortice")):
            for name, found in table.items():
                if found is function:
                    return f"{prefix}.{name}"
    return None


def get_overridable_functions() -> dict[Any, list[Any]]:
    """Namespace -> the functions in it that can be overridden."""
    import mortice
    from mortice import Tensor, _generated

    functions = [f for family in _generated.every_family() for f in family.FUNCTIONS.values()]
    methods = [f for family in _generated.every_family() for f in family.METHODS.values()]
    return {mortice: functions, Tensor: methods}


__all__ = [
    "DisableMorticeFunction",
    "DisableMorticeFunctionSubclass",
    "MorticeFunctionMode",
    "disabled_mortice_function",
    "get_overridable_functions",
    "handle_mortice_function",
    "has_mortice_function",
    "has_mortice_function_unary",
    "has_mortice_function_variadic",
    "is_tensor_like",
    "resolve_name",
    "wrap_mortice_function",
]
