"""For authors of plug-ins: the marker for hooks, and what a plug-in raises and subclasses."""

from __future__ import annotations

import pluggy

from mortice._plugins.groups import HOOK_API_VERSION
from mortice._tensor.array import DeviceArray
from mortice._tensor.make import empty, view_of, wrap
from mortice._tensor.runtime import DeviceRuntime, Features
from mortice._types.promotion import NUMBERS, promote, result_type, with_number
from mortice.errors import Unavailable

__all__ = [
    "HOOK_API_VERSION",
    "NUMBERS",
    "DeviceArray",
    "DeviceRuntime",
    "Features",
    "Unavailable",
    "empty",
    "hookimpl",
    "promote",
    "result_type",
    "view_of",
    "with_number",
    "wrap",
]

hookimpl = pluggy.HookimplMarker("mortice")
