"""Counts the Python functions that run in a call."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any


def frames(f: Callable[[], Any]) -> list[str]:
    """Names of the Python functions that run in ``f()``, without ``f``."""
    names: list[str] = []

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call":
            names.append(frame.f_code.co_name)

    gc.collect()
    gc.disable()  # a collection would call what others have hung on it
    sys.setprofile(note)
    try:
        f()
    finally:
        sys.setprofile(None)
        gc.enable()
    return names[1:]
