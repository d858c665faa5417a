"""Interleaved timing.

Candidates of one case run batch by batch in turn, in an order drawn anew each round, so that a busy
neighbour or a changing clock frequency meets them all. Rounds come in phases with pauses between
them: what disturbs one phase does not disturb all. Reported are medians over all batches.

The measure is CPU time of the process, all its threads counted: on one thread it is wall time less
what other processes took. Wall time is measured beside.
"""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

BATCH_SECONDS = 0.004


class Candidate(NamedTuple):
    label: str
    run: Callable[[], object]


class Case(NamedTuple):
    """Something done by several candidates; ``target`` is the largest ratio ours / theirs."""

    name: str
    candidates: list[Candidate]
    target: float | None = None


class Measured(NamedTuple):
    """Seconds per call by candidate's label, one list entry per batch, in order."""

    case: Case
    cpu: dict[str, list[float]]
    wall: dict[str, list[float]]
    phases: int

    def median(self, label: str) -> float:
        return statistics.median(self.cpu[label])

    def ratio(self, ours: str, theirs: str) -> float:
        return self.median(ours) / self.median(theirs)

    def wall_ratio(self, ours: str, theirs: str) -> float:
        return statistics.median(self.wall[ours]) / statistics.median(self.wall[theirs])

    def ratios_by_phase(self, ours: str, theirs: str) -> list[float]:
        """The same ratio from each phase alone: their spread says how far to trust it."""
        size = len(self.cpu[ours]) // self.phases
        parts = [slice(i * size, (i + 1) * size) for i in range(self.phases)]
        return [
            statistics.median(self.cpu[ours][part]) / statistics.median(self.cpu[theirs][part])
            for part in parts
        ]


def calls_per_batch(run: Callable[[], object]) -> int:
    """As many calls as fill a batch, after a warm-up that also compiles and fills caches.

    Measured in CPU time: on a busy machine wall time would make batches of too few calls, and the
    clock's own cost would count.
    """
    for _ in range(3):
        run()
    count = 1
    while True:
        start = time.process_time()
        for _ in range(count):
            run()
        took = time.process_time() - start
        if took > BATCH_SECONDS / 2 or count > 1_000_000:
            return max(1, int(count * BATCH_SECONDS / max(took, 1e-9)))
        count *= 4


def batch(run: Callable[[], object], count: int) -> tuple[float, float]:
    """(CPU, wall) seconds per call."""
    loop = range(count)
    wall, cpu = time.perf_counter_ns(), time.process_time_ns()
    for _ in loop:
        run()
    cpu, wall = time.process_time_ns() - cpu, time.perf_counter_ns() - wall
    return cpu / count / 1e9, wall / count / 1e9


def measure(
    cases: list[Case], *, phases: int = 4, rounds: int = 8, pause: float = 0.3
) -> list[Measured]:
    """Times all candidates of all cases, ``phases * rounds`` batches each."""
    counts = {
        (case.name, c.label): calls_per_batch(c.run) for case in cases for c in case.candidates
    }
    results = [
        Measured(case, {c.label: [] for c in case.candidates}, {c.label: [] for c in case.candidates},
                 phases)
        for case in cases
    ]  # fmt: skip
    order = random.Random(0)
    for phase in range(phases):
        if phase:
            time.sleep(pause)
        gc.collect()
        for _ in range(rounds):
            for result in results:
                for c in order.sample(result.case.candidates, len(result.case.candidates)):
                    cpu, wall = batch(c.run, counts[result.case.name, c.label])
                    result.cpu[c.label].append(cpu)
                    result.wall[c.label].append(wall)
    return results
