"""How a request is waited for: polled at once, then with the core offered to others in between, then
with ever longer pauses."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mortice_mpi import communicator, library
from mortice_mpi.communicator import MpiCommunicator


class Request:
    """One that has ended at its ``polls``-th poll."""

    def __init__(self, polls: int) -> None:
        self.left = polls

    def Test(self, status: Any = None) -> bool:
        self.left -= 1
        return self.left <= 0


def waited(monkeypatch: pytest.MonkeyPatch, polls: int, *, spins: int, nbytes: int) -> Counter[str]:
    """What is done between the polls, on a clock that stands still."""
    seen: Counter[str] = Counter()
    clock = SimpleNamespace(monotonic=lambda: 0.0, sleep=lambda s: seen.update([f"sleep {s:g}"]))
    monkeypatch.setattr(communicator, "time", clock)
    monkeypatch.setattr(communicator, "_offer_core", lambda: seen.update(["offer"]))
    comm = object.__new__(MpiCommunicator)
    comm._spins = range(spins)
    comm._wait(Request(polls), np.zeros(nbytes, np.uint8))
    return seen


def test_small_data_are_polled_for_without_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not waited(monkeypatch, 100, spins=100, nbytes=4)


def test_more_data_are_polled_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    assert waited(monkeypatch, 5000, spins=100, nbytes=1 << 20) == {"offer": 49}
    assert waited(monkeypatch, 150, spins=100, nbytes=4) == {"offer": 6}


def test_where_ranks_share_cores_they_offer_them_and_then_leave_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert waited(monkeypatch, 1001, spins=0, nbytes=4) == {"offer": 50, "sleep 0": 75}
    assert waited(monkeypatch, 801, spins=0, nbytes=1 << 20) == {"offer": 100}


def test_late_ranks_are_awaited_with_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(communicator, "_EAGER", -1.0)
    assert waited(monkeypatch, 81, spins=0, nbytes=0) == {"sleep 0.0002": 10}


def test_what_a_failed_wait_used_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """MPI may still write to it."""
    monkeypatch.setattr(library, "abandoned", [])
    monkeypatch.setattr(library, "_failed", False)

    class Failing:
        def Test(self, status: Any = None) -> bool:
            raise ZeroDivisionError

    data, failing = np.zeros(4), Failing()
    comm = object.__new__(MpiCommunicator)
    comm._spins = range(1)
    with pytest.raises(ZeroDivisionError):
        comm._wait(failing, data)
    assert library.abandoned[0] is failing
    assert library.abandoned[1][0] is data
    assert library._failed
