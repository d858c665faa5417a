"""Tracebacks of observed code: the lines of the user's functions, without the observer's frames."""

from __future__ import annotations

from types import FunctionType, TracebackType
from typing import Any

from mortice._capture.observer.stand_in import is_stand_in

_OURS = "mortice._capture.observer"


def mend(error: BaseException, frame: Any) -> None:
    """Give ``error`` the entry that CPython would have made for the frame."""
    inner = _without_ours(error.__traceback__)
    error.__traceback__ = _entry(frame, inner)


def drop_ours(error: BaseException) -> None:
    """Take the observer's own frames out of a traceback."""
    error.__traceback__ = _without_ours(error.__traceback__)


def _without_ours(tb: TracebackType | None) -> TracebackType | None:
    kept: list[TracebackType] = []
    while tb is not None:
        name = tb.tb_frame.f_globals.get("__name__", "")
        ours = type(name) is str and name.startswith(_OURS)
        if not (ours or is_stand_in(tb.tb_frame.f_code)):
            kept.append(tb)
        tb = tb.tb_next
    inner: TracebackType | None = None
    for entry in reversed(kept):
        inner = TracebackType(inner, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return inner


def _entry(frame: Any, inner: TracebackType | None) -> TracebackType | None:
    file, line, _ = frame.place()
    stand_in = _stand_in(frame.function, file, line)
    try:
        stand_in()
    except ZeroDivisionError as error:
        tb = error.__traceback__
        assert tb is not None
        assert tb.tb_next is not None
        made = tb.tb_next
        return TracebackType(inner, made.tb_frame, made.tb_lasti, line or made.tb_lineno)
    return inner


def _template() -> None:
    _ = 1 / 0


def _stand_in(function: FunctionType, file: str, line: int) -> FunctionType:
    """A function that fails with the name and place of the observed one."""
    names: dict[str, Any] = {"co_name": function.__name__}
    if hasattr(function.__code__, "co_qualname"):
        names["co_qualname"] = function.__qualname__
    code = _template.__code__.replace(co_filename=file, co_firstlineno=max(line - 1, 1), **names)
    return FunctionType(code, function.__globals__)
