"""Events broadcast to listeners: the plug-ins that ``config.listeners`` names."""

from __future__ import annotations

import sys
import threading
from typing import Any

from mortice._base import config

from .entry import Entry

_lock = threading.Lock()
_loaded: set[str] = set()
_warned: set[str] = set()


def emit(event: str, **facts: Any) -> None:
    """Call ``mortice_<event>`` of every listener. A listener that raises is reported once, and
    hurts nothing else.
    """
    from . import catalog, manager
    from .groups import KINDS

    wanted = {*config.listeners, *catalog.registered(KINDS["listener"])}
    if not wanted:
        return
    _load(wanted - _loaded)
    for implementation in manager.hook_implementations(f"mortice_{event}"):
        arguments = [facts[name] for name in implementation.argnames]
        try:
            implementation.function(*arguments)
        except Exception as error:
            _warn_once(implementation.plugin.entry.described(), repr(error))


def plugin_loaded(entry: Entry, seconds: float) -> None:
    """Tell the listeners that an entry was loaded; a listener's own load is no event."""
    if entry.group.kind != "listener":
        emit(
            "plugin_loaded",
            kind=entry.group.kind,
            name=entry.name,
            distribution=entry.distribution.name,
            version=entry.distribution.version,
            seconds=seconds,
        )


def _load(names: set[str]) -> None:
    from mortice._base.errors import PluginError

    from . import manager

    with _lock:
        for name in sorted(names - _loaded):
            _loaded.add(name)
            try:
                manager.load("mortice.listeners", name)
            except PluginError as error:
                _warn_once(name, str(error))


def _warn_once(listener: str, what: str) -> None:
    if listener not in _warned:
        _warned.add(listener)
        print(f"mortice: listener {listener}: {what}", file=sys.stderr)
