"""What came of loading entries in this process: one record per entry, made when it is first tried."""

from __future__ import annotations

import os
import threading
from typing import Any

from .entry import Entry, Status
from .groups import Group


class Attempt:
    """The one load of an entry in this process."""

    __slots__ = ("cause", "instance", "lock", "result", "running_in", "seconds", "status")

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.running_in: set[int] = set()  # threads
        self.status: Status | None = None
        self.result: Any = None
        self.instance: Any = None
        self.cause: BaseException | None = None
        self.seconds = 0.0


guard = threading.Lock()
_attempts: dict[tuple[str, str, str], Attempt] = {}
ready: dict[tuple[str, str], Any] = {}


def of(entry: Entry) -> Attempt:
    """The entry's record."""
    with guard:
        return _attempts.setdefault(entry.key, Attempt())


def outcome(entry: Entry) -> Status | None:
    """The state that loading the entry in this process led to, or None."""
    record = _attempts.get(entry.key)
    return record.status if record else None


def cause(entry: Entry) -> BaseException | None:
    """What its load in this process raised, if it failed."""
    record = _attempts.get(entry.key)
    return record.cause if record else None


def is_ready(entry: Entry) -> bool:
    found = outcome(entry)
    return found is not None and found.usable


def seconds(entry: Entry) -> float | None:
    """How long its load took in this process."""
    record = _attempts.get(entry.key)
    return record.seconds if record and record.status else None


def forget(group: Group, name: str) -> None:
    """Drop what is known of a name, when it is registered anew or taken back."""
    with guard:
        ready.pop((group.name, name), None)
        for key in [key for key in _attempts if key[:2] == (group.name, name)]:
            del _attempts[key]


def retry(group: Group, name: str) -> bool:
    """Forget that using a name failed; whether there was anything to forget."""
    with guard:
        failed = [
            key
            for key, record in _attempts.items()
            if key[:2] == (group.name, name) and record.status and not record.status.usable
        ]
        for key in failed:
            del _attempts[key]
    return bool(failed)


def _after_fork() -> None:
    """In a child process: loads that other threads of the parent had under way never end."""
    global guard
    guard = threading.Lock()
    for key in [key for key, record in _attempts.items() if record.status is None]:
        del _attempts[key]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
