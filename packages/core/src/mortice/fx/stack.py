"""The user's line: the innermost frame outside mortice's own packages.

While a graph is run to be traced again, it is the line of the node at hand (``origin``).
"""

from __future__ import annotations

import linecache
import sys
from _thread import _local
from types import FrameType

#: Import packages whose frames are never the user's.
_OURS = ("mortice", "mortice_nn", "mortice_cpu", "mortice_testing")


#: Module's name -> whether it is ours.
_KNOWN: dict[str, bool] = {}


class _Origin(_local):
    line: str | None = None


_ORIGIN = _Origin()


class origin:
    """Within, ``user_line()`` is ``line``, unless that is None."""

    __slots__ = ("_line", "_previous")

    def __init__(self, line: str | None) -> None:
        self._line = line

    def __enter__(self) -> None:
        self._previous = _ORIGIN.line
        if self._line is not None:
            _ORIGIN.line = self._line

    def __exit__(self, *exc: object) -> None:
        _ORIGIN.line = self._previous


def user_frame(depth: int = 1) -> FrameType | None:
    """The innermost frame whose module is not mortice's, from ``depth`` frames up."""
    frame: FrameType | None = sys._getframe(depth)
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        ours = _KNOWN.get(module)
        if ours is None:
            ours = _KNOWN[module] = module.partition(".")[0] in _OURS
        if not ours and not frame.f_code.co_filename.startswith("<mortice"):
            return frame
        frame = frame.f_back
    return None


def user_line() -> str:
    """``file:line, in function: source line`` of the user's frame, or an empty string."""
    if _ORIGIN.line is not None:
        return _ORIGIN.line
    frame = user_frame(2)
    return describe(frame) if frame is not None else ""


def describe(frame: FrameType) -> str:
    code = frame.f_code
    text = linecache.getline(code.co_filename, frame.f_lineno).strip()
    place = f"{code.co_filename}:{frame.f_lineno}, in {code.co_name}"
    return f"{place}: {text}" if text else place
