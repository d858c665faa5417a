"""The compiled objects of this process, for ``reset`` and for reports."""

from __future__ import annotations

import weakref
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

_alive: weakref.WeakSet[Any] = weakref.WeakSet()
_kept: list[Any] | None = None


def remember(compiled: Any) -> None:
    """Note a compiled object when it is made."""
    _alive.add(compiled)
    if _kept is not None:
        compiled.keep_traces = 1  # what the last call read is part of a report
        _kept.append(compiled)


def alive() -> list[Any]:
    """Those that somebody still has."""
    return list(_alive)


@contextmanager
def keeping() -> Generator[list[Any], None, None]:
    """Within, those made are listed in order, and live as long as the list does."""
    global _kept
    before, _kept = _kept, []
    try:
        yield _kept
    finally:
        _kept = before
