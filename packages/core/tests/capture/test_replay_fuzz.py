"""A few of the random programs, and those that once found a defect of replay."""

from __future__ import annotations

from collections import Counter

import pytest
from packages.core.tests.capture import replay_fuzz

from mortice._capture.observer import decode

#: 15: inputs that became one tensor between a replay and its going on; 590: the same, after a write.
#: 31324: the same, after a write to memory that the call made.
#: 20276: a write without history through a view of what has one.
FOUND_DEFECTS = [(15, False), (590, False), (20276, True), (31324, False)]


@pytest.mark.parametrize(("seed", "grad"), FOUND_DEFECTS)
def test_programs_that_found_defects(seed: int, grad: bool) -> None:
    found = replay_fuzz.difference(seed, grad, Counter(), modes=("replayed",))
    assert found is None, found


def test_random_programs() -> None:
    counts: Counter[str] = Counter()
    for seed in range(30, 60):
        for grad in (False, True):
            found = replay_fuzz.difference(seed, grad, counts)
            assert found is None, found
    if decode.support() is None:
        assert counts["replays"] > 40, counts
        assert counts["resumed"] > 10, counts
