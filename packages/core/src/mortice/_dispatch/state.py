"""Thread-local dispatch state, and the one global that says whether anybody has changed it.

``GLOBAL.special`` counts threads' departures from the default; stubs read thread-local state only
while it is not zero (9 ns against 40 for a thread-local read).
"""

from __future__ import annotations

import time

# From the C module: importing threading itself takes 0.5 of the 12 ms that importing mortice takes.
from _thread import _local, allocate_lock
from collections.abc import Callable, Sequence
from typing import Any

from mortice._dispatch.keys import (
    AUTOCAST,
    AUTOGRAD,
    BELOW_AUTOGRAD,
    FAKE,
    FUNCTIONALITY_MASK,
    MODE,
    OVERRIDE,
    RECORD,
)


class _Global:
    __slots__ = (
        "current", "epoch", "quick", "recorders", "recording", "settle", "special", "views_may_be_stale",
        "watch",
    )  # fmt: skip

    def __init__(self) -> None:
        self.special = 0
        #: Compiled calls under way in all threads; while there are any, ``watch`` adds the Record
        #: key to every operator of every thread, and memory is read only after ``settle``.
        self.recorders = 0
        self.watch = 0
        #: The recorder that began or went on last, in whatever thread; for native code, which asks it
        #: whether it is ``on`` in its own (``_capture/recorder.py``).
        self.current: Any = None
        #: How often dispatch tables were cleared: what they said under another number may be wrong.
        self.epoch = 0
        #: ``quick(table, *operands)``: what a native recorder gives for an operator that is expected
        #: next with these operands, or None; None where there is no such recorder.
        self.quick: Callable[..., Any] | None = None
        #: ``settle(tensor or storage, reader)``: bring memory up to date; ``reader`` names who asks.
        self.settle: Callable[[Any, str], None] = lambda what, reader: None
        #: Threads in anomaly mode or with saved-tensor hooks: recorders look only while it is not 0.
        self.recording = 0
        #: Set for good by the first in-place operator that gives a viewed tensor a new history.
        self.views_may_be_stale = False


#: When the process began, for all that matters, in ns: a file that is newer may not be what was imported.
STARTED = time.time_ns()
GLOBAL = _Global()
_LOCK = allocate_lock()


class _Thread(_local):
    """Defaults of a thread. ``masks`` is (keys to add, keys to keep), read as one attribute."""

    def __init__(self) -> None:
        self.masks: tuple[int, int] = (0, -1)
        self.grad_enabled = True
        self.inference = False
        self.included = 0
        self.excluded = 0
        self.function_modes: list[Any] = []
        self.dispatch_modes: list[Any] = []
        self.fake_modes: list[Any] = []
        self.subclasses_disabled = False
        self.functions_disabled = False
        self.saved_hooks: list[Any] = []
        self.anomaly = False
        self.autocast: dict[str, Any] = {}
        self.is_special = False
        self.is_recording = False
        #: The recorder of the compiled call that runs in this thread, or None.
        self.recorder: Any = None


THREAD = _Thread()


def refresh() -> None:
    """Recompute the masks after a change of any field of THREAD."""
    t = THREAD
    included, excluded = t.included, t.excluded
    if not t.grad_enabled:
        excluded |= AUTOGRAD
    if t.excluded & AUTOGRAD:
        included |= BELOW_AUTOGRAD
    if t.dispatch_modes:
        included |= MODE
    if t.fake_modes:
        included |= FAKE
    if any(state.enabled for state in t.autocast.values()):
        included |= AUTOCAST
    if t.subclasses_disabled or t.functions_disabled:
        excluded |= OVERRIDE
    if t.function_modes and not t.functions_disabled:
        included |= OVERRIDE
        excluded &= ~OVERRIDE
    included &= ~t.excluded
    t.masks = (included, ~excluded)
    special = bool(included or excluded)
    if special != t.is_special:
        t.is_special = special
        with _LOCK:
            GLOBAL.special += 1 if special else -1
    recording = bool(t.anomaly or t.saved_hooks)
    if recording != t.is_recording:
        t.is_recording = recording
        with _LOCK:
            GLOBAL.recording += 1 if recording else -1


def adjust(keys: int) -> int:
    """``keys`` with this thread's inclusions and exclusions applied."""
    if GLOBAL.special == GLOBAL.recorders:  # compiled calls, and nothing else in any thread
        return keys | GLOBAL.watch
    add, keep = THREAD.masks
    return (keys | add | GLOBAL.watch) & keep


def watch_memory(count: int) -> None:
    """Count compiled calls that begin (1) or end (-1)."""
    shared = GLOBAL
    with _LOCK:
        shared.special += count
        shared.recorders = recorders = shared.recorders + count
        shared.watch = RECORD if recorders else 0


class Guard:
    """Context manager that includes and excludes key bits in this thread."""

    __slots__ = ("_exclude", "_include", "_saved")

    def __init__(self, include: int = 0, exclude: int = 0) -> None:
        self._include = include & FUNCTIONALITY_MASK
        self._exclude = exclude & FUNCTIONALITY_MASK

    def __enter__(self) -> Guard:
        t = THREAD
        self._saved = (t.included, t.excluded)
        t.included |= self._include
        t.excluded |= self._exclude
        refresh()
        return self

    def __exit__(self, *exc: object) -> None:
        THREAD.included, THREAD.excluded = self._saved
        refresh()


def below_autograd() -> Guard:
    """Operators called inside record no gradient history; autograd kernels are skipped."""
    return Guard(exclude=AUTOGRAD)


class unrecorded:
    """``with unrecorded():`` run what this thread recorded, then run operators as they come.

    ``flush=False`` leaves what was recorded for later. ``why`` is told where a graph ends by it.
    """

    __slots__ = ("_flush", "_recorder", "_why")

    def __init__(self, why: str = "memory is read", *, flush: bool = True) -> None:
        self._flush = flush
        self._why = why

    def __enter__(self) -> unrecorded:
        recorder = self._recorder = THREAD.recorder
        if recorder is not None:
            if self._flush:
                recorder.flush(self._why)
            THREAD.recorder = None
            recorder.on = False
        return self

    def __exit__(self, *exc: object) -> None:
        THREAD.recorder = GLOBAL.current = recorder = self._recorder
        if recorder is not None:
            recorder.on = True


def call_outside(grad: bool, function: Callable[..., Any], args: Sequence[Any]) -> Any:
    """``function(*args)`` with no mode of this thread in force, and nothing recorded.

    For what a compiled call runs in the middle of the user's function. ``grad``: whether operators
    record gradient history.
    """
    fields = THREAD.__dict__
    saved = None if not fields["is_special"] else fields.copy()
    recorder = fields["recorder"]
    if recorder is not None:
        recorder.on = False
    fields.update(_INSIDE[grad])
    if saved is None:
        with _LOCK:
            GLOBAL.special += 1
    else:
        fields.update(_without_modes(saved))
    try:
        return function(*args)
    finally:
        if saved is None:
            fields.update(_OUTSIDE)
            with _LOCK:
                GLOBAL.special -= 1
        else:
            fields.update(saved)
        fields["recorder"] = GLOBAL.current = recorder
        if recorder is not None:
            recorder.on = True


def _without_modes(fields: dict[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = {
        name: [] for name in ("dispatch_modes", "function_modes", "fake_modes") if fields[name]
    }
    plain["included"] = 0
    if fields["autocast"]:
        plain["autocast"] = {}
    return plain


#: Fields of a thread that is not special while it runs what was recorded, and after.
_INSIDE: dict[bool, dict[str, Any]] = {
    grad: {
        "recorder": None,
        "excluded": RECORD,
        "masks": (0, ~RECORD if grad else ~(RECORD | AUTOGRAD)),
        "grad_enabled": grad,
        "is_special": True,
    }
    for grad in (False, True)
}
_OUTSIDE: dict[str, Any] = {
    "excluded": 0, "masks": (0, -1), "grad_enabled": True, "is_special": False,
}  # fmt: skip
