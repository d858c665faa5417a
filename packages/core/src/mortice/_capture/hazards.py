"""Where a segment must end before an operator, so that its graph can be one of values.

A segment has one current value per memory, and one history. Reading memory that was written through
another leaf, or following history past a write that has none, needs what was recorded to run first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mortice._capture.tree import Leaf, Output, Step
from mortice._dispatch import keys as K
from mortice._tensor.array import PendingArray

#: What ``Hazards.check`` says.
FINE, FLUSH, RUN_NOW = 0, 1, 2


def cell_of(want: Any) -> Any:
    """The memory that an operand of a step sees: the first Leaf over it, or the Output that made it."""
    if isinstance(want, PendingArray):
        return want.output.cell
    return want.cell if isinstance(want, Leaf) else None


class Hazards:
    """What the path under way has done to its memory.

    Attributes:
        written: memory that was written to.
        shared: leaves' memory that is seen through more than one leaf.
        tracked: memory whose current value has a history that the segment makes.
        untracked: memory that was written to without history.
        writers: memory -> the steps that wrote to it, in order.
    """

    __slots__ = ("at", "shared", "tracked", "untracked", "writers", "written")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.written: set[Any] = set()
        self.shared: set[Any] = set()
        self.tracked: set[Any] = set()
        self.untracked: set[Any] = set()
        self.writers: dict[Any, list[Step]] = {}
        self.at: Step | None = None

    def follow(self, at: Step) -> None:
        """Note the steps from the last one noted to ``at``."""
        steps: list[Step] = []
        step: Step | None = at
        while step is not None and step is not self.at and step.parent is not None:
            steps.append(step)
            step = step.parent
        if step is not self.at and self.at is not None:
            self.clear()
        for s in reversed(steps):
            self._note(s)
        self.at = at

    def _note(self, step: Step) -> None:
        for leaf in step.new_leaves:
            if leaf.first is not None:
                self.shared.add(leaf.first)
        for out in step.outputs:
            if out is not None and out.base is None and out.key & K.AUTOGRAD:
                self.tracked.add(out)
        for i in step.call.op.schema.mutated:
            cell = cell_of(step.wants[i])
            if cell is not None:
                self.written.add(cell)
                self.writers.setdefault(cell, []).append(step)
                (self.tracked if step.call.grad else self.untracked).add(cell)

    def check(self, recorder: Any, call: Any, args: tuple[Any, ...]) -> int:
        """FINE, FLUSH before the operator, or RUN_NOW instead of recording it."""
        self.follow(recorder.at)
        mutated = call.op.schema.mutated
        if not (mutated or self.written):
            return FINE
        operands = [(i, t, *recorder.memory_of(t)) for i, t in _operands(args)]
        for _, t, cell, known in operands:
            if cell in self.written and not known:
                return FLUSH
            if call.grad and t._k & K.AUTOGRAD and cell in self.untracked:
                return FLUSH
        for i, t, cell, known in operands:
            if i not in mutated:
                continue
            memory = _memory(t)
            for _, other, _, _ in operands:
                if other is not t and not _is_pending(other) and _memory(other) is memory:
                    return RUN_NOW
            if _is_beyond_values(t, call.grad):
                return RUN_NOW
            if cell is None:
                continue
            if cell in self.shared or not known:
                return FLUSH
            if not call.grad and cell in self.tracked:
                return FLUSH
        return FINE


def _operands(args: tuple[Any, ...]) -> Any:
    for i, x in enumerate(args):
        if hasattr(x, "_k"):
            yield i, x
        elif isinstance(x, (list, tuple)):
            for y in x:  # pyright: ignore[reportUnknownVariableType]
                if hasattr(y, "_k"):
                    yield i, y


def _is_pending(t: Any) -> bool:
    return type(t._a) is PendingArray


def _memory(t: Any) -> Any:
    s = t._s
    return t if s is None else (s.owner or s)


def _is_beyond_values(t: Any, grad: bool) -> bool:
    """Whether a write through a view is not one new value of what it is a view of.

    Through a detached alias, a write with history gives one to the alias alone; where a view on the
    way shows an element twice, a write changes both.
    """
    a = t._a
    out: Any = a.output if type(a) is PendingArray else None
    while isinstance(out, Output) and out.base is not None:
        if grad and out.step.call.op.name == "detach":
            return True
        if _may_repeat(out.handle.shape, out.handle.strides):
            return True
        out = out.base
    return False


def _may_repeat(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether an element may be seen twice: a dim's step does not go past all inner ones."""
    reach = 0
    for step, n in sorted(zip(strides, shape)):
        if n > 1:
            if step <= reach:
                return True
            reach += (n - 1) * step
    return False
