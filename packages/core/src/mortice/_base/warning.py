"""The user's line, however deep in mortice one is, and warnings that point at it."""

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


def user_line() -> str:
    """The ``file:line`` of the nearest frame that is no package of mortice's."""
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame.f_back is not None and _is_ours(frame.f_globals.get("__name__") or ""):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _is_ours(module: str) -> bool:
    return module == "mortice" or module.startswith(("mortice.", "mortice_"))
