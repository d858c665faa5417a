"""What a replay has done before it had to give up: the rest of the call must not do it again."""

from __future__ import annotations

from typing import Any

from mortice._base.errors import InvalidState


class Prefix:
    """Segments that ran, with what they returned, and values that were read, in order.

    Python runs the function from its beginning; a recorder takes outputs and values from here as
    long as there are any.
    """

    def __init__(self) -> None:
        #: (plan, what it returned, the tensors that it computed with)
        self.runs: list[tuple[Any, Any, Any]] = []
        self.values: list[Any] = []
        #: (storage, version before the replay) of the memory that was written to.
        self.versions: list[tuple[Any, int]] = []
        #: (default generator, where it stood before) of random numbers that were drawn.
        self.generators: list[tuple[Any, tuple[int, int]]] = []
        self._next_run = 0
        self._next_value = 0

    @property
    def writes(self) -> bool:
        """Whether memory from outside was written to."""
        return bool(self.versions)

    def rewind(self) -> None:
        """Undo the count of writes and of draws: they count again when Python gets there."""
        for generator, (_, offset) in reversed(self.generators):
            generator.set_offset(offset)
        for storage, version in reversed(self.versions):
            storage.version = version

    def value(self, now: Any) -> Any:
        """The value that was read at this place; ``now`` where the prefix has ended."""
        at = self._next_value
        if at == len(self.values):
            return now
        self._next_value = at + 1
        return self.values[at]

    def outputs(self, plan: Any, tensors: Any) -> Any:
        """What ``plan``, the next to run on ``tensors``, has returned already; None if it must run.

        Raises InvalidState if the call goes another way than it went a moment ago.
        """
        at = self._next_run
        if at == len(self.runs):
            return None
        self._next_run = at + 1
        before, outs, computed_with = self.runs[at]
        if plan is before or plan.segment is before.segment:
            for number, _ in plan.written:
                _write_again(tensors[number], computed_with[number])
            return outs
        if not (plan.written or before.written):
            return None  # values alone: computing them again changes nothing
        raise InvalidState(
            "a compiled call went another way than its replay a moment before, in the segment that "
            f"begins at {plan.segment.line[0]}:{plan.segment.line[1]}: another thread changed what "
            "the function reads while it ran."
        )


def _write_again(now: Any, then: Any) -> None:
    """What was written to a tensor that the call makes anew from Python data is written to it, too."""
    if now is not then and now._a is not then._a:
        now._a[...] = then._a
