"""Ends of a path that a native recorder can run by itself: what there is to know of them, as data.

Such an end writes to nothing, looks at nothing through views, and each of its tensors that are alive
is one output of the graph, in host memory.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from mortice._dispatch import keys as K
from mortice._types.device import CPU

if TYPE_CHECKING:
    from mortice._capture.segment import Plan


class Finale:
    """How a path usually ends.

    Attributes:
        plan: how Python runs it. run: what runs, ``run(*leaves, *numbers) -> tuple``.
        alive: for each tensor that the path makes, a byte: 1 if somebody holds it.
        outputs: 64-bit numbers: for each that is alive its number, that of its output of the graph,
            how many dimensions it has, their sizes, their strides in bytes.
        before, after: key sets of those tensors, pending and not. histories: a byte for each: 1 if it
            takes the output's gradient history.
        tracked: whether gradient history is recorded, and outputs keep the storages they come with.
        count: how often native code has run it.
        quiet: whether gradients must be off, since inputs require them and no history is wanted.
    """

    __slots__ = (
        "after", "alive", "before", "count", "histories", "outputs", "plan", "quiet", "run",
        "tracked",
    )  # fmt: skip

    def __init__(self, plan: Plan, mask: tuple[bool, ...]) -> None:
        self.plan = plan
        self.run = plan.segment.run
        self.count = 0
        plan.segment.native.append(lambda: self.count)
        self.alive = bytes(mask)
        self.tracked = plan.tracked
        self.quiet = not plan.tracked and plan.tracked_inputs
        made = [(number, whole[0]) for number, whole, _ in plan.fills]
        words: list[int] = []
        for number, o in made:
            shape = o.handle.shape
            words += [o.number, number, len(shape), *shape, *o.steps]
        self.outputs = struct.pack(f"<{len(words)}q", *words)
        self.before = tuple([o.key for _, o in made])
        self.after = tuple([o.key & ~K.RECORD for _, o in made])
        self.histories = bytes(bool(o.key & K.AUTOGRAD) for _, o in made)


def fill(finale: Finale, outs: Any, *held: Any) -> None:
    """Hand the graph's outputs to the tensors that are alive, the first of those ``held``."""
    plan = finale.plan
    living: list[Any] = [None] * len(finale.alive)
    for (_, whole, _), t in zip(plan.fills, held):
        living[whole[0].number] = t
    plan.fill(living, outs, held[len(plan.fills) :])


def finale_of(plan: Plan, mask: tuple[bool, ...]) -> Finale | None:
    """The end as data; None where it is not of the kind."""
    suits = (
        not (plan.written or plan.outside or plan.number_check)
        and all(len(whole) == 1 and not seen for _, whole, seen in plan.fills)
        and all(whole[0].handle.device is CPU for _, whole, _ in plan.fills)
    )
    return Finale(plan, mask) if suits else None
