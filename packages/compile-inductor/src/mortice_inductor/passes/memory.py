"""Memory plan: where in one arena the values between kernels lie, and which results lie in inputs' memory.

Each value has an interval of steps in which it lives. They are placed largest first at the lowest
offset that is free during their interval (greedy by size: Pisarchyk and Lee, "Efficient memory
management for deep neural net inference", 2020).

What a forward pass keeps for the backward pass is donated to it: memory that nobody needs once its
last reader has run. Gradients are computed there where they nearly fill a block, all of which they keep
alive. A training step of a small transformer has its 6 MiB of them in the 12 MiB that were kept.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from typing import NamedTuple

from ..plan import Plan

ALIGN = 64
#: Bytes from which on memory is worth donating, and a result worth placing there.
LEAST_DONOR, LEAST_GUEST = 64 << 10, 16 << 10
#: Quarters of a donated block that results must fill to lie there.
FILLED = 3


class Life(NamedTuple):
    """A buffer's size in bytes and the first and last step that use it."""

    number: int
    size: int
    first: int
    last: int


class Lives(NamedTuple):
    """What needs memory, and what gives some.

    Attributes:
        temps: values between kernels. outputs: results, where anything is donated.
        donors: inputs that may be written to; ``number`` is the input's position.
    """

    temps: tuple[Life, ...]
    outputs: tuple[Life, ...] = ()
    donors: tuple[Life, ...] = ()


def plan(lives: Sequence[Life]) -> tuple[dict[int, int], int]:
    """Offsets by buffer number, and the size of the arena, in bytes."""
    #: (from, to, first step, last step) of those that have a place, by place.
    placed: list[tuple[int, int, int, int]] = []
    offsets: dict[int, int] = {}
    total = 0
    for number, bytes_, first, last in sorted(lives, key=_by_size):
        size = _aligned(bytes_)
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


def lend(
    outputs: Sequence[Life], donors: Sequence[Life]
) -> tuple[list[Life], list[tuple[int, int, int]]]:
    """The donors whose memory is used, and (buffer, which of those, offset) of the results in it."""
    blocks: list[Life] = []
    lent: list[tuple[int, int, int]] = []
    waiting = sorted((o for o in outputs if o.size >= LEAST_GUEST), key=_by_size)
    for donor in sorted((d for d in donors if d.size >= LEAST_DONOR), key=_by_size):
        at = 0
        guests: list[tuple[Life, int]] = []
        for life in waiting:
            if life.first > donor.last and at + life.size <= donor.size:
                guests.append((life, at))
                at += _aligned(life.size)
        if 4 * sum(life.size for life, _ in guests) >= FILLED * donor.size:
            lent += [(life.number, len(blocks), offset) for life, offset in guests]
            blocks.append(donor)
            taken = {life.number for life, _ in guests}
            waiting = [life for life in waiting if life.number not in taken]
    return blocks, lent


def placed(made: Plan, lives: Lives) -> Plan:
    """A plan with its memory; sizes must be numbers."""
    offsets, arena = plan(lives.temps)
    blocks, lent = lend(lives.outputs, lives.donors)
    return made._replace(
        arena=arena,
        offsets=tuple(offsets.items()),
        blocks=tuple((donor.number, donor.size) for donor in blocks),
        lent=tuple(lent),
    )


def _aligned(size: int) -> int:
    return (max(size, 1) + ALIGN - 1) // ALIGN * ALIGN


def _by_size(life: Life) -> tuple[int, int, int]:
    """Of two as large, the one that lives longer comes first: it has fewer places."""
    return -life.size, life.first - life.last, life.number
