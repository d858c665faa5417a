"""Events broadcast to listeners: the plug-ins that ``config.listeners`` names."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from mortice._base import config
from mortice._base.errors import PluginError

from . import catalog
from .groups import KINDS

# A listener's own load may load a plug-in, which is an event again.
_lock = threading.RLock()
_loaded: set[str] = set()
_warned: set[str] = set()


def wanted() -> set[str]:
    """Names of the listeners."""
    return {*config.listeners, *catalog.registered(KINDS["listener"])}


def ready(load: Callable[[str, str], Any]) -> bool:
    """Whether anybody listens; the listeners that are not loaded yet are, by ``load``."""
    listening = wanted()
    if listening - _loaded:
        with _lock:
            for name in sorted(listening - _loaded):
                _loaded.add(name)
                try:
                    load("mortice.listeners", name)
                except PluginError as error:
                    _warn_once(name, str(error))
    return bool(listening)


def tell(implementations: Iterable[Any], facts: Mapping[str, Any]) -> None:
    """Call every implementation of an event's hook. A listener that raises is reported once, and
    hurts nothing else.
    """
    for implementation in implementations:
        arguments = [facts[name] for name in implementation.argnames]
        try:
            implementation.function(*arguments)
        except Exception as error:
            _warn_once(implementation.plugin.entry.described(), repr(error))


def _warn_once(listener: str, what: str) -> None:
    if listener not in _warned:
        _warned.add(listener)
        print(f"mortice: listener {listener}: {what}", file=sys.stderr)
