"""Real kills: nobody hangs, and everybody is told who is missing."""

from __future__ import annotations

import os

import pytest

from mortice_testing.distributed import faults, soak


@pytest.mark.parametrize("fault", faults.FAULTS, ids=lambda fault: fault.name)
def test_fault(fault: faults.Fault) -> None:
    shared = set(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else set()
    outcome = faults.happen(fault, faults.gangs_of("gloo"))
    assert outcome.seconds < fault.limit, outcome
    for one in outcome.seen:
        assert one.operation, one
        assert one.sequence > 0, one
        assert f"on rank {one.rank}" in one.text, one
        if fault.ends and fault.victim:
            assert one.gone == (fault.victim,), one
            assert f"rank {fault.victim} ended" in one.text
        elif fault.victim:
            assert f"rank {fault.victim}" in one.text or one.rank == fault.victim
    if os.path.isdir("/dev/shm"):
        assert set(os.listdir("/dev/shm")) <= shared


@pytest.mark.parametrize("seed", [1000, 1001])
def test_a_round_of_the_soak(seed: int) -> None:
    soak.play("gloo", seed)
