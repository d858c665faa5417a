"""What one compiled call did: its segments with their inputs and outputs, and the values Python read.

A replay plan is made from it: everything is listed in the order in which it happened.
"""

from __future__ import annotations

from typing import Any


class SegmentRun:
    """One segment that ran.

    Attributes:
        segment: what ran (``segment.Segment``).
        leaves: the tensors found in memory, in the order of the graph's placeholders.
        numbers: the Python numbers that came next.
        generators: (device, seed, offset) of the frozen generators that came last.
        plan: how outputs were handed out (``segment.Plan``).
        made: the tensors that the segment's operators made, in order; None where nobody held one.
        outputs: what the compiled segment returned.
        drawn: what it drew from a default generator without being given one (``DefaultDraws.found``).
    """

    __slots__ = ("drawn", "generators", "leaves", "made", "numbers", "outputs", "plan", "segment")

    def __init__(
        self,
        segment: Any,
        leaves: list[Any],
        numbers: list[Any],
        generators: list[Any],
        plan: Any,
        made: list[Any],
        outputs: Any,
        drawn: Any = None,
    ) -> None:
        self.segment = segment
        self.leaves = leaves
        self.numbers = numbers
        self.generators = generators
        self.plan = plan
        self.made = made
        self.outputs = outputs
        self.drawn = drawn


class ValueRead:
    """Python got to know a value.

    Attributes:
        after: how many segments had run.
        tensor: the tensor (or storage) that was read.
        kind: the reader: ``_local_scalar_dense`` (``item``, ``bool``, ``int``), ``equal``, ``numpy``,
            ``tolist``, ``repr``, ...
        value: the number that Python got; None where it got memory.
    """

    __slots__ = ("after", "kind", "tensor", "value")

    def __init__(self, after: int, tensor: Any, kind: str, value: Any) -> None:
        self.after = after
        self.tensor = tensor
        self.kind = kind
        self.value = value


class CallTrace:
    """The record of one call; complete, and not changed any more, when the call has returned.

    Attributes:
        immediate: operators that ran by themselves between segments: (segments that had run, operator's name).
        breaks: where graphs ended before the function did (``breaks.Break``).
    """

    __slots__ = ("breaks", "immediate", "runs", "values")

    def __init__(self) -> None:
        self.runs: list[SegmentRun] = []
        self.values: list[ValueRead] = []
        self.immediate: list[tuple[int, str]] = []
        self.breaks: list[Any] = []
