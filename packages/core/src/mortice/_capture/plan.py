"""Replay plans: what a recorded call did, as data from which a later call can be answered.

A plan is a sequence of stretches. A stretch checks guards, runs segments, and ends with a value
that Python read, or with the result. As guards, these are plain classes that nobody assigns to, since
each dataclass would take 0.2 ms of the first compiled call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any

from mortice._capture.guard_check import apart
from mortice._capture.guards import Apart, Guard, Source
from mortice._capture.observer.watch import Watch
from mortice._capture.outline import (
    Container,
    Found,
    Outline,
    TensorOf,
    tensors_of,
)
from mortice._capture.redraws import Draws, draws_of
from mortice._capture.refusals import Accepted
from mortice._capture.trace import CallTrace, SegmentRun
from mortice._dispatch.state import THREAD


class NotReplayable(Exception):
    """The recorded call cannot be answered without running the function; the text says why."""


class FromRun:
    """A tensor that a segment made: number of the run, and of the tensor among what it made."""

    __slots__ = ("number", "run")

    def __init__(self, run: int, number: int) -> None:
        self.run = run
        self.number = number


class Fixed:
    """A tensor made from Python data: a copy of its memory as it was made.

    A call that is replayed has one new tensor for it, since somebody may write to it or keep it.
    """

    __slots__ = ("memory", "tensor")

    def __init__(self, tensor: Any, memory: Any) -> None:
        self.tensor = tensor
        self.memory = memory


#: Where a segment's input, a read tensor or a returned one comes from.
Operand = Found | FromRun | Fixed


class Run:
    """One segment: its inputs, and how often it writes to which leaf.

    Attributes:
        plan: how the recorded path ran it (``segment.Plan``).
        leaves: where its tensors come from.
        numbers: its Python numbers; a Given or Computed where a call brings them.
        writes: (leaf, number of in-place operators on its memory).
        draws: the random numbers that it draws, if any.
        made: numbers of the tensors that were alive after it.
        any_sizes: it may run on other sizes than it was recorded with (``sizes``).
    """

    __slots__ = ("any_sizes", "draws", "leaves", "made", "numbers", "plan", "writes")

    def __init__(
        self,
        plan: Any,
        leaves: tuple[Operand, ...],
        numbers: tuple[Any, ...],
        writes: tuple[tuple[int, int], ...],
        draws: Draws | None,
        made: tuple[int, ...],
        any_sizes: bool = False,
    ) -> None:
        self.plan = plan
        self.leaves = leaves
        self.numbers = numbers
        self.writes = writes
        self.draws = draws
        self.made = made
        self.any_sizes = any_sizes

    def of_any_sizes(self) -> Run:
        """The same, on sizes that it was not recorded with."""
        return Run(
            self.plan, self.leaves, self.numbers, self.writes, self.draws, self.made, any_sizes=True
        )


class Read:
    """A value that Python read: ``kind`` is "item", or the class it was converted to."""

    __slots__ = ("kind", "operand", "value")

    def __init__(self, operand: Operand, kind: str, value: Any) -> None:
        self.operand = operand
        self.kind = kind
        self.value = value


class Stretch:
    """What happens between two values read.

    Attributes:
        given: the guards, or what makes them once they are asked for.
        plain: the call was in no mode (grad on, no autocast), and the guards say so.
    """

    def __init__(
        self,
        given: tuple[Guard, ...] | Callable[[], tuple[Guard, ...]],
        plain: bool,
        first_run: int,
        runs: tuple[Run, ...],
        read: Read | None,
        result: Outline | None,
    ) -> None:
        self.given = given
        self.plain = plain
        self.first_run = first_run
        self.runs = runs
        self.read = read
        self.result = result

    @cached_property
    def guards(self) -> tuple[Guard, ...]:
        """What must hold of a call."""
        return self.given if isinstance(self.given, tuple) else self.given()

    def guarded(self, guards: tuple[Guard, ...], runs: tuple[Run, ...]) -> Stretch:
        """The same with other guards, and runs."""
        return Stretch(guards, self.plain, self.first_run, runs, self.read, self.result)


class ReplayPlan:
    """All of one recorded call."""

    __slots__ = ("stretches",)

    def __init__(self, stretches: tuple[Stretch, ...]) -> None:
        self.stretches = stretches

    @property
    def guards(self) -> list[Guard]:
        return [g for s in self.stretches for g in s.guards]


#: Readers of values that a replay can repeat.
_READERS = frozenset(("_local_scalar_dense",))


def make_plan(watch: Watch, trace: CallTrace, result: Outline) -> ReplayPlan:
    """The plan of a call that was observed and recorded. Raises NotReplayable."""
    _check_trace(trace)
    builder = _Builder(watch, trace)
    runs = [builder.run(r) for r in trace.runs]
    reads = [
        Read(builder.operand(v.tensor, "reads a value of"), *watch.reader_of(i, v.value))
        for i, v in enumerate(trace.values)
    ]
    outline = builder.outline(result)
    guards = [*watch.guards, *builder.alias_guards(runs)]
    return ReplayPlan(tuple(_stretches(trace, guards, runs, reads, outline)))


def _stretches(
    trace: CallTrace,
    guards: Sequence[Guard],
    runs: Sequence[Run],
    reads: Sequence[Read],
    outline: Outline,
) -> Iterable[Stretch]:
    at = 0
    plain = THREAD.masks == (0, -1)
    for stage in range(len(reads) + 1):
        last = stage == len(reads)
        end = len(runs) if last else trace.values[stage].after
        yield Stretch(
            tuple(g for g in guards if g.stage == stage),
            plain,
            at,
            tuple(runs[at:end]),
            None if last else reads[stage],
            outline if last else None,
        )
        at = end


def _check_trace(trace: CallTrace) -> None:
    for read in trace.values:
        if read.kind not in _READERS:
            raise NotReplayable(f"reads the memory of a tensor ({read.kind})")
    for _, name in trace.immediate:
        if name not in _READERS:
            raise NotReplayable(f"{name} runs by itself: what it gives is known only when it ran")
    for run in trace.runs:
        if run.plan.rebased:
            raise NotReplayable("writes in place to a tensor from outside, with history")
        if _gives_views_a_history(run.plan):
            raise NotReplayable("writes with history to what a view that it returns shows")
        if (run.generators or run.drawn) and draws_of(run.generators, run.drawn) is None:
            raise NotReplayable("draws from several generators in turn")


def _gives_views_a_history(plan: Any) -> bool:
    """Whether a write gives tensors a history that they were made without: views that are kept."""
    if not (plan.outside or any(seen for _, _, seen in plan.fills)):
        return False
    return any(s.call.grad and s.call.form == "inplace" for s in plan.steps)


def _may_refuse(plan: Any) -> bool:
    """Whether there are values of its numbers that the recording would refuse."""
    return any(isinstance(want, Accepted) for step in plan.steps for want in step.wants)


class _Builder:
    def __init__(self, watch: Watch, trace: CallTrace) -> None:
        self.watch = watch
        self.reads = bool(trace.values)
        self.made: dict[int, FromRun] = {}
        self.fixed = {id(t): Fixed(t, memory) for t, memory in watch.constants}
        self.count = 0

    def operand(self, tensor: Any, what: str) -> Operand:
        """Where a tensor comes from. Raises NotReplayable."""
        found = self.made.get(id(tensor)) or self.fixed.get(id(tensor))
        if found is not None:
            return found
        source = self.watch.source_if_known(tensor)
        if source is None:
            raise NotReplayable(f"{what} a tensor of unknown origin")
        return Found(source)

    def run(self, recorded: SegmentRun) -> Run:
        leaves = tuple(self.operand(t, "computes with") for t in recorded.leaves)
        if recorded.plan.number_check is not None or _may_refuse(recorded.plan):
            self.watch.settle_numbers(self.count)
        numbers = tuple(
            self.watch.number_source(self.count, i, n) for i, n in enumerate(recorded.numbers)
        )
        alive = [i for i, t in enumerate(recorded.made) if t is not None]
        for i in alive:
            self.made[id(recorded.made[i])] = FromRun(self.count, i)
        self.count += 1
        writes = tuple(recorded.plan.written)
        random = recorded.generators or recorded.drawn
        draws = draws_of(recorded.generators, recorded.drawn) if random else None
        return Run(recorded.plan, leaves, numbers, writes, draws, tuple(alive))

    def outline(self, outline: Any) -> Any:
        if isinstance(outline, TensorOf):
            operand = self.operand(outline.tensor, "returns")
            return operand if isinstance(operand, Found) else TensorOf(operand)
        if isinstance(outline, Container):
            items = tuple(map(self.outline, outline.items))
            return Container(outline.number, outline.make, items, outline.kind)
        return outline

    def alias_guards(self, runs: Sequence[Run]) -> Iterable[Guard]:
        """Where memory from outside is written to, which inputs share it, and which do not."""
        given: dict[int, tuple[Source, int]] = {}
        written: dict[int, Source] = {}
        for run in runs:
            targets = {i for i, _ in run.writes}
            for i, operand in enumerate(run.leaves):
                source = _memory(operand, runs)
                if source is not None:
                    given.setdefault(id(source), (source, self.stage_of(source)))
                    if i in targets:
                        written[id(source)] = source
        if not written and not (self.reads and any(run.writes for run in runs)):
            return
        tensors = {id(s): t for t, s in self.watch.known_tensors()}
        # A replay that gives up after a write must find the same inputs apart when it goes on.
        first = list(given.values()) if self.reads else [given[id(w)] for w in written.values()]
        for n, (one, stage) in enumerate(first):
            others = list(given.values())[n + 1 :] if self.reads else given.values()
            for other, since in others:
                if other is not one:
                    separate = apart(tensors[id(other)], tensors[id(one)])
                    yield Guard(other, Apart(one, separate), max(stage, since))

    def stage_of(self, source: Source) -> int:
        """The stage at which a source was first guarded."""
        return next((g.stage for g in self.watch.guards if g.source is source), 0)


def _memory(operand: Operand, runs: Sequence[Run]) -> Source | None:
    """The source of the tensor from outside whose memory an operand sees; None if it is the call's."""
    while isinstance(operand, FromRun):
        run = runs[operand.run]
        base = next((o.cell for o in run.plan.outside if o.number == operand.number), None)
        if base is None:
            return None
        operand = run.leaves[base.number]
    return operand.source if isinstance(operand, Found) else None


__all__ = [
    "Fixed", "Found", "FromRun", "NotReplayable", "Operand", "Read", "ReplayPlan", "Run", "Stretch",
    "make_plan", "tensors_of",
]  # fmt: skip
