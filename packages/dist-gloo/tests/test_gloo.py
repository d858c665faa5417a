"""Gloo's library: found, loaded alone, and without the GIL."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import mortice.distributed as dist
from mortice.errors import Unavailable
from mortice_gloo import native
from mortice_testing.distributed.gang import Gang, held_port
from mortice_testing.distributed.words import Words


def sums(rank: int, size: int) -> list[float]:
    import mortice

    t = mortice.arange(5, dtype=mortice.float32) + rank
    dist.all_reduce(t)
    dist.barrier()
    return t.tolist()


def overlap(rank: int, size: int) -> int:
    """How often another thread ran while rank 1 waited for rank 0's message, which comes after."""
    import mortice

    words, stop, ticks = Words(), threading.Event(), 0

    def tick() -> None:
        nonlocal ticks
        while not stop.wait(0.005):
            ticks += 1
            if ticks > 20:
                words.tell("ticked")

    thread = threading.Thread(target=tick)
    if rank == 0:
        words.hear("ticked")
        dist.send(mortice.ones(3), 1)
        dist.all_reduce(mortice.ones(3))
        return 0
    thread.start()
    dist.recv(mortice.zeros(3), 0)
    work = dist.all_reduce(mortice.ones(3), async_op=True)
    assert work is not None
    work.wait()
    stop.set()
    thread.join()
    return ticks


def loaded_alone(rank: int, size: int) -> list[str]:
    return [name for name in sys.modules if name.split(".")[0] in ("xoscar", "pandas", "scipy")]


def test_two_processes() -> None:
    with Gang(2, "gloo") as gang:
        assert gang.run(sums) == [[1.0, 3.0, 5.0, 7.0, 9.0]] * 2
        assert gang.run(loaded_alone) == [[], []]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere Gloo's binding holds the GIL")
def test_other_threads_run_meanwhile() -> None:
    with Gang(2, "gloo") as gang:
        assert gang.run(overlap)[1] > 20


def test_by_tcp_and_env() -> None:
    with held_port() as held:
        environment = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(held.getsockname()[1])}
        with Gang(2, "gloo", init_method="env://", environment=environment) as gang:
            assert gang.run(sums) == [[1.0, 3.0, 5.0, 7.0, 9.0]] * 2


def test_the_machine_code_is_current() -> None:
    pytest.importorskip("llvmlite", reason="the code is made by LLVM")
    tool = Path(__file__).resolve().parent.parent / "tools" / "thunk.py"
    assert subprocess.run([sys.executable, str(tool), "--check"], check=False).returncode == 0


def test_without_xoscar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(Unavailable, match="pip install xoscar"):
        native.library_path()


def waits_until_interrupted(rank: int, size: int) -> str:
    """Rank 0 waits for rank 1, which does not come; Ctrl-C ends that."""
    import mortice

    if rank == 1:
        Words().hear("interrupted")
        return ""
    # Whoever was started in the background ignores Ctrl-C, and this test's children with it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        Words().tell("waiting")
        dist.all_reduce(mortice.ones(3))
    except KeyboardInterrupt:
        return "interrupted"
    return "not interrupted"


def test_interrupting_a_wait() -> None:
    with Gang(2, "gloo", timeout=300) as gang:
        gang.run(sums)
        gang.begin(waits_until_interrupted)
        gang.words.hear("waiting")
        time.sleep(0.3)  # it most likely waits by now, and is interrupted wherever it is
        gang.kill(0, signal.SIGINT)
        assert gang.end(ranks=[0]) == ["interrupted"]
        gang.words.tell("interrupted")
        gang.end(ranks=[1])
