"""Hooks in insertion order, removable by handle."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from typing import Any

_IDS = itertools.count()


class RemovableHandle:
    """Returned by every ``register_*_hook``; ``remove()`` takes the hook away again."""

    __slots__ = ("_hooks", "id")

    def __init__(self, hooks: Any, key: int) -> None:
        try:
            self._hooks = weakref.ref(hooks)
        except TypeError:
            self._hooks = lambda: hooks
        self.id = key

    def remove(self) -> None:
        hooks = self._hooks()
        if hooks is not None:
            hooks.pop(self.id, None)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


def add_hook(hooks: dict[int, Any], hook: Callable[..., Any]) -> RemovableHandle:
    """Append a hook to a dict of hooks."""
    if not callable(hook):
        raise TypeError(f"a hook must be callable, not {type(hook).__name__}")
    key = next(_IDS)
    hooks[key] = hook
    return RemovableHandle(hooks, key)
