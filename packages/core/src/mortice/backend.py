"""For authors of plug-ins: the marker for hooks, and what a plug-in raises and subclasses."""

from __future__ import annotations

import pluggy

from mortice._plugins.groups import HOOK_API_VERSION
from mortice.errors import Unavailable

__all__ = ["HOOK_API_VERSION", "Unavailable", "hookimpl"]

hookimpl = pluggy.HookimplMarker("mortice")
