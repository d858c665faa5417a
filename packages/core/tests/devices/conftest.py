"""Devices made up for a test, registered without a distribution."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import mortice
from mortice.backend import DeviceRuntime

_numbers = itertools.count()


class Toy(DeviceRuntime):
    """Two devices of ordinary memory without kernels; ``calls`` has what core asked of it."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def count(self) -> int:
        return 2

    def allocate(self, nbytes: int, index: int) -> bytearray:
        return bytearray(nbytes)

    def free(self, buffer: bytearray) -> None:
        self.calls.append(("free", len(buffer)))

    def copy_in(self, buffer: bytearray, offset: int, data: memoryview) -> None:
        self.calls.append("copy_in")
        buffer[offset : offset + data.nbytes] = data.cast("B")

    def copy_out(self, buffer: bytearray, offset: int, data: memoryview) -> None:
        self.calls.append("copy_out")
        data.cast("B")[:] = buffer[offset : offset + data.nbytes]

    def copy_device(self, target: Any, to: int, source: Any, of: int, nbytes: int) -> None:
        self.calls.append(("copy_device", nbytes))
        target[to : to + nbytes] = source[of : of + nbytes]


@pytest.fixture
def device() -> Iterator[Callable[..., str]]:
    """A function that registers a runtime class (Toy) under a fresh name, and returns the name."""
    made: list[str] = []

    def register(cls: type[DeviceRuntime] = Toy, name: str = "") -> str:
        name = name or f"toy{next(_numbers)}"
        mortice.plugins.register("device", name, cls, tags=["debug"])
        made.append(name)
        return name

    yield register
    for name in made:
        mortice.plugins.unregister("device", name)
