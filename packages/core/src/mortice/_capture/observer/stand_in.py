"""Calling unknown code from frames that look like the observed ones.

What looks at its callers (logging's line, warnings' registry, ``sys._getframe``) then finds the
user's functions, files and lines, from the observed call inward.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import CodeType, FunctionType
from typing import Any

from mortice._capture.observer.numbers import settle, settled
from mortice._capture.observer.watch import Watch


def native(w: Watch, f: Any, args: Sequence[Any], kwargs: dict[str, Any], why: str) -> Any:
    """Call what is not known, from a frame that looks like the user's."""
    w.unknown(why)
    plain = {name: settle(w, x) for name, x in kwargs.items()}
    return _call(w.frames, f, settled(w, args), plain)


def _call(frames: Sequence[Any], f: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """``f(*args, **kwargs)``, below one stand-in per observed frame."""
    target: Any = f
    for frame in reversed(frames):
        target = _maker(frame)(target)
    return target(*args, **kwargs)


def _template(mortice_observed: Any) -> Any:
    return lambda *args, **kwargs: mortice_observed(*args, **kwargs)


def is_stand_in(code: CodeType) -> bool:
    """Whether a frame's code was made here."""
    return code.co_freevars == ("mortice_observed",)


def _maker(frame: Any) -> FunctionType:
    """A function that makes a caller with the frame's name, file, line and globals."""
    file, line, name = frame.place()
    inner = next(c for c in _template.__code__.co_consts if hasattr(c, "co_code"))
    names: dict[str, Any] = {"co_name": name, "co_filename": file, "co_firstlineno": max(line, 1)}
    if hasattr(inner, "co_qualname"):
        names["co_qualname"] = frame.function.__qualname__
    code = inner.replace(**names)
    consts = tuple(code if c is inner else c for c in _template.__code__.co_consts)
    return FunctionType(_template.__code__.replace(co_consts=consts), frame.function.__globals__)
