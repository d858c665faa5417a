"""Steering what is captured: functions that are left out, and those that are trusted."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

from mortice._base.errors import ArgumentError
from mortice._capture import instances
from mortice._dispatch.state import unrecorded


class _Exporting(threading.local):
    on = False


#: ``on`` while this thread exports a program.
EXPORTING = _Exporting()


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """A function that always runs as it is, also when a compiled function calls it.

    What was captured before it runs first, and capture goes on behind it. A decorator, with and
    without arguments.

    Args:
        fn: The function, method or Module; None makes a decorator.
        recursive: Whether what it calls is left out too. False takes the mark off compiled
            functions only: ``disable(compiled, recursive=False)`` is the function that was
            compiled, captured as part of whoever calls it.
        reason: Shown in reports.
    """
    if fn is None:
        return lambda target: disable(target, recursive, reason=reason)
    if not callable(fn):
        raise ArgumentError(f"disable() takes a function, not {type(fn).__name__}")
    inner = getattr(fn, "fn", None) if hasattr(fn, "settings") else None
    target: Callable[..., Any] = inner or fn
    if not recursive:
        return target

    why = f"{getattr(target, '__name__', repr(target))} is disabled"
    why += f" ({reason})" if reason else ""

    def disabled(*args: Any, **kwargs: Any) -> Any:
        with unrecorded(why):
            return target(*args, **kwargs)

    functools.update_wrapper(disabled, target, updated=())
    disabled.mortice_disabled = reason or "disabled"  # type: ignore[attr-defined]
    return disabled


def allow_in_graph(fn: Any) -> Any:
    """Say that a function does nothing but operators on its arguments.

    Its operators are captured in any case. Where calls are to be replayed, it is not looked into:
    what else it reads is not guarded, and effects that it has are not repeated. A decorator; also
    takes a list of functions. Returns what it is given.
    """
    if isinstance(fn, (list, tuple)):
        return [allow_in_graph(one) for one in fn]  # pyright: ignore[reportUnknownVariableType]
    if not callable(fn):
        raise ArgumentError(f"allow_in_graph() takes a function, not {type(fn).__name__}")
    from mortice._capture.observer.framework import IN_GRAPH

    IN_GRAPH.add(fn)
    return fn


def reset() -> None:
    """Make every compiled function of the process forget its graphs; the next calls begin anew."""
    for compiled in instances.alive():
        compiled.reset()
