"""Random numbers of a replayed segment: reserved from the default generator as the recorded call did."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from mortice._tensor import generator as generators
from mortice._tensor.generator import Generator
from mortice._types.device import Device


class Draws:
    """What one segment draws, by position after the first of its numbers.

    Attributes:
        device: whose default generator it is.
        count: how many draws there are in all.
        inputs: the draw that each generator given to the graph stands at.
        without: the first draw of operators that have no generator argument, or None.
    """

    __slots__ = ("count", "device", "inputs", "without")

    def __init__(
        self, device: Device, count: int, inputs: tuple[int, ...], without: int | None
    ) -> None:
        self.device = device
        self.count = count
        self.inputs = inputs
        self.without = without

    def again(self, notes: list[Any] | None) -> tuple[tuple[Generator, ...], Any]:
        """(generators for the graph, a context manager for the run or None).

        ``notes`` gets the place where the default generator stood, to put it back there.
        """
        source = generators.default(self.device)
        if notes is not None:
            notes.append((source, source.position()))
        seed, first = source.take(self.count)
        given = tuple(source.standing_at(seed, first + i) for i in self.inputs)
        if self.without is None:
            return given, None
        return given, source.standing(seed, first + self.without)


def draws_of(given: Sequence[tuple[Device, int, int]], drawn: Any) -> Draws | None:
    """The draws of a recorded segment; None if it draws nothing, or not in a way that can be repeated.

    All must come from one device's default generator, one after the other.
    """
    places = list(given)
    if drawn is not None:
        source, seed, first, count = drawn
        places += [(source.device, seed, first + i) for i in range(count)]
    if len({(device, seed) for device, seed, _ in places}) != 1:
        return None
    offsets = [offset for _, _, offset in places]
    base = min(offsets)
    if sorted(offsets) != list(range(base, base + len(offsets))):
        return None
    without = None if drawn is None else drawn[2] - base
    return Draws(
        places[0][0], len(offsets), tuple(o - base for o in offsets[: len(given)]), without
    )


def run_within(context: AbstractContextManager[None] | None, run: Any, *inputs: Any) -> Any:
    """``run(*inputs)``, in a context if there is one."""
    if context is None:
        return run(*inputs)
    with context:
        return run(*inputs)
