"""Who does an operation: the caller who waits for it, or a thread of the communicator."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import mortice
import mortice.distributed as dist
from mortice.distributed import host, interrupts

PATIENCE = 60.0


class Alone(dist.HostCommunicator):
    """One rank, which keeps account of the threads that reduce, and waits where it is told to."""

    def __init__(self) -> None:
        super().__init__(dist.Setup(dist.HashStore(), 0, 1, (0,), PATIENCE, "g"))
        self.threads: list[int] = []
        self.done: list[str] = []
        self.open = threading.Event()
        self.open.set()

    def send(self, data: Any, peer: int, tag: int) -> None:
        raise NotImplementedError

    def recv(self, data: Any, peer: int, tag: int) -> int:
        raise NotImplementedError

    def all_reduce(self, data: Any, op: str) -> None:
        assert self.open.wait(PATIENCE)
        self.threads.append(threading.get_ident())
        self.done.append(op)


def call(op: str = "SUM") -> dist.Call:
    made = dist.ReduceOp(op)
    return dist.Call("all_reduce", 1, PATIENCE, outputs=(mortice.ones(2),), op=made)


@pytest.fixture(autouse=True)
def default_handler() -> Iterator[None]:
    """Ctrl-C is Python's: it is not in processes that a shell has started in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    interrupts._opened = float("-inf")
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def alone() -> Iterator[Alone]:
    made = Alone()
    yield made
    made.open.set()
    made.close()


def test_what_is_waited_for_is_done_by_the_caller(
    alone: Alone, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No thread is started for it, and no Work made."""
    works: list[str] = []
    monkeypatch.setattr(host, "Work", lambda *_: works.append("work"))
    assert interrupts.Abortable.possible()  # starts the thread that listens for Ctrl-C
    before = {*threading.enumerate()}  # those of other tests may end meanwhile
    for _ in range(3):
        one = call()
        assert alone.take_turn(one)
        alone.run_now(one)
    assert alone.threads == [threading.get_ident()] * 3
    assert {*threading.enumerate()} <= before
    assert works == []


def test_what_is_begun_is_done_beside_the_caller(alone: Alone) -> None:
    alone.open.clear()
    works = [alone.submit(call()) for _ in range(3)]
    assert not any(work.is_completed() for work in works)  # and here the caller computes
    alone.open.set()
    for work in works:
        work.wait(PATIENCE)
    (thread,) = set(alone.threads)  # the three share one
    assert thread != threading.get_ident()


def test_the_caller_does_not_overtake_what_it_began(alone: Alone) -> None:
    alone.open.clear()
    begun = alone.submit(call("MAX"))
    assert not alone.take_turn(call("MIN"))
    second = alone.submit(call("MIN"))
    alone.open.set()
    second.wait(PATIENCE)
    begun.wait(PATIENCE)
    assert alone.done == ["MAX", "MIN"]


def test_a_failure_in_the_callers_thread_gives_the_turn_back(
    alone: Alone, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Alone, data: Any, op: str) -> None:
        raise ZeroDivisionError("no")

    monkeypatch.setattr(Alone, "all_reduce", fail)
    for _ in range(2):  # the second finds the group ended, and says the same
        one = call()
        assert alone.take_turn(one)
        with pytest.raises(ZeroDivisionError):
            alone.run_now(one)


# -- Ctrl-C -------------------------------------------------------------------------------------


def test_a_programs_own_wakeup_descriptor_stays() -> None:
    own, other = socket.socketpair()
    with own, other:
        own.setblocking(False)
        before = signal.set_wakeup_fd(own.fileno())
        try:
            for _ in range(2):
                assert not interrupts.Abortable.possible()
        finally:
            assert signal.set_wakeup_fd(before) == own.fileno()
    assert interrupts.Abortable.possible()


def test_the_way_of_signals_is_opened_once_in_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls, now = signal.set_wakeup_fd, list[int](), 1000.0

    def counted(number: int, **options: Any) -> int:
        calls.append(number)
        return real(number, **options)

    monkeypatch.setattr(signal, "set_wakeup_fd", counted)
    monkeypatch.setattr(interrupts, "time", SimpleNamespace(monotonic=lambda: now))
    for _ in range(5):
        assert interrupts.Abortable.possible()
        with interrupts.Abortable(lambda: None):
            pass
    assert len(calls) == 1
    now += 2 * interrupts._PERIOD
    assert interrupts.Abortable.possible()
    assert len(calls) == 2


def test_a_programs_own_handler_is_seen_at_once() -> None:
    assert interrupts.Abortable.possible()
    signal.signal(signal.SIGINT, lambda *_: None)
    assert not interrupts.Abortable.possible()


FORKED = """
import os, signal
from mortice.distributed import interrupts
signal.signal(signal.SIGINT, signal.default_int_handler)
assert interrupts.Abortable.possible()
if os.fork() == 0:
    os._exit(0 if signal.set_wakeup_fd(-1) == -1 and interrupts._sockets is None else 1)
assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
assert signal.set_wakeup_fd(-1) != -1
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_childs_signals_do_not_reach_the_parent() -> None:
    subprocess.run([sys.executable, "-c", FORKED], check=True, timeout=PATIENCE)
