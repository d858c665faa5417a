"""Observing a call: running it instruction by instruction to learn what it reads and changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mortice._capture.observer.watch import Reason, Watch

__all__ = ["Reason", "Watch", "observe"]


def observe(
    fn: Any, args: Sequence[Any], kwargs: dict[str, Any], stage: Callable[[], int] = int
) -> tuple[Any, Watch]:
    """Call ``fn(*args, **kwargs)`` once, as Python does, and say what it read and changed."""
    from mortice._capture.observer.arguments import know_arguments, traced_arguments
    from mortice._capture.observer.calls import call
    from mortice._capture.observer.numbers import settle

    watch = Watch(call, stage)
    know_arguments(watch, fn, args, kwargs)
    positional, named = traced_arguments(watch, args, kwargs)
    return settle(watch, call(watch, fn, positional, named)), watch
