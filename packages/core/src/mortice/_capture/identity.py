"""Membership by identity: ``in`` would call ``==`` and ``hash``, which may be a user's."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def one_of(x: Any, things: Iterable[Any]) -> bool:
    """Whether ``x`` is one of these very objects."""
    for y in things:  # noqa: SIM110  a generator costs twice as much
        if x is y:
            return True
    return False


def module_of(cls: type) -> str:
    """The name of a class's module, without asking its metaclass; empty where it has none: it was made
    where globals had no ``__name__``.
    """
    try:
        found = type.__getattribute__(cls, "__module__")
    except AttributeError:
        return ""
    return found if type(found) is str else ""


def name_of(cls: type) -> str:
    return type.__getattribute__(cls, "__name__")
