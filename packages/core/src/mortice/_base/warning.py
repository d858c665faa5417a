"""Warnings that point at the user's line, however deep in mortice they are given."""

from __future__ import annotations

import sys
import warnings


def warn(message: str) -> None:
    """A UserWarning at the nearest frame that is no package of mortice's."""
    level = 2
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None and _is_ours(frame.f_globals.get("__name__") or ""):
        frame = frame.f_back
        level += 1
    warnings.warn(message, UserWarning, stacklevel=level)


def _is_ours(module: str) -> bool:
    return module == "mortice" or module.startswith(("mortice.", "mortice_"))
