"""Several threads: what they use of each other's recordings, and one function compiled for all."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

import mortice
from mortice._capture import recorder as module
from mortice._capture.recorder import this_thread
from mortice._dispatch.state import THREAD


def test_another_thread_reads_a_pending_tensor(compile: Any) -> None:
    seen: list[Any] = []

    def f(x: Any) -> Any:
        y = x * 2
        x.add_(1)
        for job in (lambda: seen.append((y + 1).tolist()), lambda: seen.append((x + 1).tolist())):
            worker = threading.Thread(target=job)
            worker.start()
            worker.join()
        return y

    compiled = compile(f)
    for _ in range(2):
        compiled(mortice.ones(2))
    assert seen == [[3, 3], [3, 3]] * 2


def test_another_thread_waits_for_a_step_that_is_half_done(compile: Any) -> None:
    found: list[float] = []

    def f(x: Any) -> Any:
        y = x + 1
        recorder = THREAD.recorder
        worker = threading.Thread(target=lambda: found.append(y.sum().item()))
        recorder.busy = True
        worker.start()
        while not recorder.asked:
            time.sleep(0.001)
        early = list(found)
        recorder.busy = False
        worker.join()
        assert not early
        return y * 2

    assert compile(f)(mortice.ones(3)).tolist() == [4, 4, 4]
    assert found == [6]


def test_another_thread_records_an_operand_while_its_step_is_made(
    compile: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two calls share a weight; the second takes it between the first one's look and its step."""
    weight = mortice.ones(3)
    taken, ended = threading.Event(), threading.Event()
    found: list[Any] = []

    def g(x: Any) -> Any:
        y = x - weight
        taken.set()
        ended.wait()
        return y

    worker = threading.Thread(target=lambda: found.append(compile(g)(mortice.ones(3)).tolist()))

    def slow(recorder: Any, call: Any, args: Any, *rest: Any) -> Any:
        if any(a is weight for a in args) and not worker.ident:
            worker.start()
            taken.wait()
        return made(recorder, call, args, *rest)

    made = module.make_step
    monkeypatch.setattr(module, "make_step", slow)
    got = compile(lambda x: x * weight + 1)(mortice.ones(3)).tolist()
    ended.set()
    worker.join()
    assert got == [2, 2, 2]
    assert found == [[0, 0, 0]]


def test_another_thread_writes_what_was_recorded_as_read(compile: Any) -> None:
    def f(x: Any) -> Any:
        y = x * 2
        worker = threading.Thread(target=lambda: x.fill_(100))
        worker.start()
        worker.join()
        return y, x + 1

    compiled = compile(f)
    for _ in range(2):
        y, z = compiled(mortice.ones(2))
        assert y.tolist() == [2, 2]
        assert z.tolist() == [101, 101]


def test_a_recorder_goes_from_thread_to_thread(compile: Any) -> None:
    """Also to one that has the number of a thread that has ended."""
    found: list[Any] = []

    def f(x: Any) -> Any:
        y = x * 2
        found.append((THREAD.recorder.owner, y.sum().item()))  # a value read by the owner
        return y + 1

    compiled = compile(f)
    for turn in range(4):
        x = mortice.full((2,), float(turn))
        own = compiled(x).tolist()
        worker = threading.Thread(target=lambda x=x: found.append(compiled(x).tolist()))
        worker.start()
        worker.join()
        (here, mine), (there, theirs), result = found
        assert here == this_thread() != there
        assert mine == theirs == 4 * turn
        assert own == result == [2 * turn + 1] * 2
        assert THREAD.recorder is None
        found.clear()


def test_two_threads_run_one_compiled_function(compile: Any) -> None:
    def f(x: Any) -> Any:
        y = x * 2
        if y.sum() > 0:
            y = y + 1
        return y.cumsum(0)

    compiled = compile(f)
    wrong: list[Any] = []

    def work(sign: float) -> None:
        x = mortice.full((3,), sign)
        want = f(x).tolist()
        for _ in range(100):
            got = compiled(x).tolist()
            if got != want:
                wrong.append((got, want))

    workers = [threading.Thread(target=work, args=(s,)) for s in (1.0, -1.0, 2.0, -2.0)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert wrong == []
    assert len(compiled.segments) == 3


def test_operators_of_other_threads_run_as_ever(compile: Any) -> None:
    started, done = threading.Event(), threading.Event()
    seen: list[Any] = []

    def other() -> None:
        started.wait()
        seen.append((mortice.ones(3) @ mortice.ones(3)).item())
        x = mortice.ones(2, requires_grad=True)
        (x * 3).sum().backward()
        seen.append(x.grad.tolist())
        done.set()

    worker = threading.Thread(target=other)
    worker.start()

    def f(x: Any) -> Any:
        y = x + 1
        started.set()
        done.wait()
        return y

    assert compile(f)(mortice.ones(1)).tolist() == [2]
    worker.join()
    assert seen == [3.0, [3.0, 3.0]]


def test_state_changed_by_another_thread_during_a_call(compile: Any) -> None:
    factor = [2.0]
    ready, changed = threading.Event(), threading.Event()

    def change() -> None:
        ready.wait()
        factor[0] = 10.0
        changed.set()

    def f(x: Any) -> Any:
        y = x * factor[0]
        ready.set()
        changed.wait()
        return y * factor[0]

    worker = threading.Thread(target=change)
    worker.start()
    assert compile(f)(mortice.ones(1)).tolist() == [20]
    worker.join()
