"""Shared memory that nobody holds any more: what a killed process may leave in /dev/shm."""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager

from .words import PATIENCE

_FOLDER = "/dev/shm"  # noqa: S108 - it is looked at, not used
_AGAIN = 0.1


@contextmanager
def nothing_left() -> Generator[None, None, None]:
    """A block after which there is no more in /dev/shm than before; nothing where there is none.

    Other tests run beside it and have shared memory of their own, so what a living process holds
    does not count.
    """
    before = _entries()
    yield
    end = time.monotonic() + PATIENCE
    while left := _entries() - before - _held():
        # What is being made, or unmapped, this very moment is held by nobody yet, or any more.
        assert time.monotonic() < end, f"left in {_FOLDER}: {sorted(left)}"
        time.sleep(_AGAIN)


def _entries() -> set[str]:
    return set(os.listdir(_FOLDER)) if os.path.isdir(_FOLDER) else set()


def _held() -> set[str]:
    """The entries that some process has mapped or open, as far as we may see."""
    return {
        path.removeprefix(f"{_FOLDER}/").removesuffix(" (deleted)")
        for process in os.listdir("/proc")
        if process.isdigit()
        for path in _files_of(process)
        if path.startswith(f"{_FOLDER}/")
    }


def _files_of(process: str) -> Iterator[str]:
    try:
        with open(f"/proc/{process}/maps", encoding="utf-8", errors="replace") as file:
            for line in file:
                yield line[line.find("/") :].rstrip("\n")
        for number in os.listdir(f"/proc/{process}/fd"):
            yield os.readlink(f"/proc/{process}/fd/{number}")
    except OSError:  # it has ended meanwhile, or is another user's
        return
