"""The compiled objects of this process, for ``reset`` and for reports."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from mortice._capture.reasons import log_outdated
from mortice._dispatch import operator

_alive: weakref.WeakSet[Any] = weakref.WeakSet()
_kept: list[Any] | None = None
#: A set that grows cannot be listed.
_lock = threading.RLock()


def remember(compiled: Any) -> None:
    """Note a compiled object when it is made."""
    with _lock:
        _alive.add(compiled)
    if _kept is not None:
        compiled.keep_traces = 1  # what the last call read is part of a report
        _kept.append(compiled)


def alive() -> list[Any]:
    """Those that somebody still has."""
    with _lock:
        return list(_alive)


def outdate(which: str) -> None:
    """Let all forget what they made while other kernels stood in the place of those of ``which``."""
    known = [compiled for compiled in alive() if not compiled.is_new]
    for compiled in known:
        log_outdated(compiled, which)
        compiled.forget()
    if known:
        operator.clear_tables()  # how an in-place operator is recorded depends on its functional form's


@contextmanager
def keeping() -> Generator[list[Any], None, None]:
    """Within, those made are listed in order, and live as long as the list does."""
    global _kept
    before, _kept = _kept, []
    try:
        yield _kept
    finally:
        _kept = before


operator.kernels_changed = outdate
