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
