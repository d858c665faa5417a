"""Where a graph ends before the function does, and why: logged, kept for reports, or refused."""

from __future__ import annotations

import linecache
from typing import Any, NamedTuple

from mortice._base.errors import GraphBreak
from mortice._base.logging import active
from mortice.fx.stack import user_frame

_INFO = 20  # logging.INFO, without importing logging

#: What reads a value -> in words.
_READERS = {
    "_local_scalar_dense": "Python reads the value of a tensor (if, while, bool, int, float, item)",
    "equal": "equal() compares values",
    "is_nonzero": "Python reads the value of a tensor",
    "numpy": "numpy() gives its memory away",
    "tolist": "tolist() reads values",
    "repr": "a tensor is printed",
    "data_ptr": "data_ptr() gives its memory away",
}


class Break(NamedTuple):
    """One end of a graph: why, the user's line, and whether ``fullgraph=True`` allows it."""

    why: str
    line: str
    allowed: bool = False

    def __str__(self) -> str:
        return f"{self.why}, at {self.line}" if self.line else self.why


def reading(reader: str) -> str:
    """Why a reader of a value ends a graph."""
    return _READERS.get(reader, f"{reader} needs values" if reader else "memory is read")


def running(operator: str) -> str:
    """Why an operator that is not recorded ends a graph."""
    text = f"{operator} is not recorded: what it gives depends on values, or nothing infers it"
    return _READERS.get(operator, text)


def note(recorder: Any, why: str, *, allowed: bool = False) -> None:
    """Note that a graph ends here. GraphBreak if that was asked for, unless it is ``allowed``."""
    compiled = recorder.compiled
    refused = not allowed and getattr(compiled.settings, "fullgraph", False)
    logger = active("graph_breaks")
    if logger is not None and not logger.isEnabledFor(_INFO):
        logger = None
    if not refused and logger is None and recorder.trace is None:
        return
    found = Break(why, _line(recorder), allowed)
    name = getattr(compiled, "__qualname__", None) or repr(compiled.fn)
    if recorder.trace is not None:
        recorder.trace.breaks.append(found)
    if logger is not None:
        logger.info("%s: %s", name, found)
    if refused:
        raise GraphBreak(
            f"{name} was compiled with fullgraph=True, and its graph ends before it does: {found}. "
            "Choose by mortice.where(), keep numbers in tensors, move the reading behind the "
            "function, or compile without fullgraph."
        )


def _line(recorder: Any) -> str:
    place = recorder.place() if recorder.place is not None else None
    if place is None:
        frame = user_frame(3)
        if frame is None:
            return ""
        place = (frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
    file, line, function = place
    text = linecache.getline(file, line).strip()
    return f"{file}:{line}, in {function}" + (f": {text}" if text else "")
