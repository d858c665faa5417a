"""Memory plan: where in one arena the values between kernels lie.

Each has an interval of steps in which it lives. They are placed largest first at the lowest
offset that is free during their interval (greedy by size: Pisarchyk and Lee, "Efficient memory
management for deep neural net inference", 2020).
"""

from __future__ import annotations

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
    placed: list[tuple[int, Life]] = []
    offsets: dict[int, int] = {}
    total = 0
    for life in sorted(lives, key=lambda x: (-x.size, x.number)):
        size = (max(life.size, 1) + ALIGN - 1) // ALIGN * ALIGN
        at = 0
        rivals = sorted(
            (o, o + (max(x.size, 1) + ALIGN - 1) // ALIGN * ALIGN)
            for o, x in placed
            if x.first <= life.last and life.first <= x.last
        )
        for low, high in rivals:
            if at + size <= low:
                break
            at = max(at, high)
        offsets[life.number] = at
        placed.append((at, life))
        total = max(total, at + size)
    return offsets, total


def placed(made: Plan, lives: Sequence[Life]) -> Plan:
    """A plan with an arena for what lives between its kernels; sizes must be numbers."""
    offsets, arena = plan(lives)
    return made._replace(arena=arena, offsets=tuple(offsets.items()))
