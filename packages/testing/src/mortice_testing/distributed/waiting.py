"""Waiting for what happens in other processes, and for their end."""

from __future__ import annotations

import time
from collections.abc import Callable

#: Seconds after which it will not happen any more. They end a hang and measure nothing.
PATIENCE = 300.0
_AGAIN = 0.05


def until(happened: Callable[[], object], what: str) -> None:
    """Wait for it; AssertionError, which says what, if it never happens."""
    end = time.monotonic() + PATIENCE
    while not happened():
        if time.monotonic() > end:
            raise AssertionError(f"never happened: {what}")
        time.sleep(_AGAIN)


def alive(pid: int) -> bool:
    """Whether a process is there that has not ended; one that nobody has waited for has. On Linux."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
