"""Memory plan: where in one arena the values between kernels lie.

Each has an interval of steps in which it lives. They are placed largest first at the lowest
offset that is free during their interval (greedy by size: Pisarchyk and Lee, "Efficient memory
management for deep neural net inference", 2020).
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from typing import NamedTuple

from ..plan import Plan

ALIGN = 64


class Life(NamedTuple):
    """A buffer's size in bytes and the first and last step that use it."""

    number: int
    size: int
    first: int
    last: int


def plan(lives: Sequence[Life]) -> tuple[dict[int, int], int]:
    """Offsets by buffer number, and the size of the arena, in bytes."""
    #: (from, to, first step, last step) of those that have a place, by place.
    placed: list[tuple[int, int, int, int]] = []
    offsets: dict[int, int] = {}
    total = 0
    for number, bytes_, first, last in sorted(lives, key=_by_size):
        size = (max(bytes_, 1) + ALIGN - 1) // ALIGN * ALIGN
        at = 0
        for low, high, begins, ends in placed:
            if begins <= last and first <= ends:
                if at + size <= low:
                    break
                at = max(at, high)
        offsets[number] = at
        insort(placed, (at, at + size, first, last))
        total = max(total, at + size)
    return offsets, total


def _by_size(life: Life) -> tuple[int, int]:
    return -life.size, life.number


def placed(made: Plan, lives: Sequence[Life]) -> Plan:
    """A plan with an arena for what lives between its kernels; sizes must be numbers."""
    offsets, arena = plan(lives)
    return made._replace(arena=arena, offsets=tuple(offsets.items()))
