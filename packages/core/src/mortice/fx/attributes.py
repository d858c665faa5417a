"""Attributes at dotted names, as graph modules hold them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from mortice._base.errors import UnknownName, nearest


class Scope:
    """What stands at the inner names of dotted attributes, where it is no module."""

    def __repr__(self) -> str:
        return f"Scope({', '.join(self.__dict__)})"


def fetch(root: Any, target: str) -> Any:
    """The value at a dotted name; UnknownName says how far it goes."""
    value = root
    for i, part in enumerate(target.split(".")):
        try:
            value = getattr(value, part)
        except AttributeError:
            so_far = ".".join(target.split(".")[:i]) or type(root).__name__
            raise UnknownName(
                f"{target!r}: {so_far} has no attribute {part!r}.{nearest(part, _names(value))}"
            ) from None
    return value


def _names(value: Any) -> list[str]:
    tables = ("_parameters", "_buffers", "_modules")
    found = [n for n in vars(value) if not n.startswith("_")] if hasattr(value, "__dict__") else []
    return [*found, *(n for t in tables for n in getattr(value, t, None) or ())]


def assign(root: Any, target: str, value: Any, make_scope: Callable[[], Any]) -> None:
    """Put a value at a dotted name; ``make_scope()`` makes what is missing on the way."""
    *scopes, name = target.split(".")
    holder = root
    for part in scopes:
        if not hasattr(holder, part):
            setattr(holder, part, make_scope())
        holder = getattr(holder, part)
    register = getattr(holder, "register_buffer", None)
    if register is not None and hasattr(value, "_k") and not is_parameter(value):
        if hasattr(holder, name):
            delattr(holder, name)
        register(name, value)
    else:
        setattr(holder, name, value)


def is_parameter(value: Any) -> bool:
    """Whether a tensor is of a class called Parameter (which core does not know)."""
    return any(c.__name__ == "Parameter" for c in type(value).__mro__)


def tensors(scope: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted name, tensor) of the tensors in a scope and those within."""
    for name, value in vars(scope).items():
        if hasattr(value, "_k"):
            yield f"{prefix}{name}", value
        elif isinstance(value, Scope):
            yield from tensors(value, f"{prefix}{name}.")


def module_class(root: Any) -> type | None:
    """The Module class that ``root``, or a value of it if it is a dict, is an instance of."""
    values = list(root.values()) if isinstance(root, dict) else [root]
    for value in values:
        for cls in reversed(type(value).__mro__):
            if hasattr(cls, "register_buffer") and hasattr(cls, "named_parameters"):
                return cls if not issubclass(cls, tuple) else None
    return None
