"""What a replay has done before it had to give up: the rest of the call must not do it again."""

from __future__ import annotations

from typing import Any

import numpy as np

from mortice._dispatch.state import call_outside
from mortice._tensor.make import storage_of


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
        #: (number of the run that writes to it, tensor, what it held before).
        self._held: list[tuple[int, Any, Any]] = []
        #: Whether the call went another way.
        self.given_up = False
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

    def saving(self, tensor: Any) -> None:
        """The next run writes to ``tensor``: keep what it holds."""
        self._held.append((len(self.runs), tensor, _copied(tensor)))

    def outputs(self, plan: Any, tensors: Any) -> Any:
        """What ``plan``, the next to run on ``tensors``, has returned already; None if it must run.

        Where the call goes another way than it went a moment ago (another thread changed what the
        function reads, or other tensors are alive), nothing of the replay holds from here on: what
        it wrote is undone, and the call computes the rest itself.
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
        self.given_up = True
        self._next_run, self._next_value = len(self.runs), len(self.values)
        for run, tensor, held in reversed(self._held):
            if run >= at:
                _restore(tensor, held)
        return None


def _copied(t: Any) -> Any:
    a = t._a
    return a.copy() if type(a) is np.ndarray else call_outside(False, t.clone, ())


def _restore(t: Any, held: Any) -> None:
    if type(held) is np.ndarray:
        t._a[...] = held
        return
    s = storage_of(t)
    version = s.version
    call_outside(False, t.copy_, (held,))
    s.version = version


def _write_again(now: Any, then: Any) -> None:
    """What was written to a tensor that the call makes anew from Python data is written to it, too."""
    if now is not then and now._a is not then._a:
        now._a[...] = then._a
