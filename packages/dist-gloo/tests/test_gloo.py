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
from mortice_testing.distributed.gang import Gang


def sums(rank: int, size: int) -> list[float]:
    import mortice

    t = mortice.arange(5, dtype=mortice.float32) + rank
    dist.all_reduce(t)
    dist.barrier()
    return t.tolist()


def overlap(rank: int, size: int) -> int:
    """How often another thread ran while rank 1 waited for rank 0's message."""
    import mortice

    ticks, stop = 0, threading.Event()

    def tick() -> None:
        nonlocal ticks
        while not stop.wait(0.005):
            ticks += 1

    thread = threading.Thread(target=tick)
    thread.start()
    before = ticks
    if rank == 0:
        time.sleep(0.5)
        dist.send(mortice.ones(3), 1)
        dist.all_reduce(mortice.ones(3))
    else:
        dist.recv(mortice.zeros(3), 0)
        work = dist.all_reduce(mortice.ones(3), async_op=True)
        assert work is not None
        work.wait()
    after = ticks
    stop.set()
    thread.join()
    return after - before


def loaded_alone(rank: int, size: int) -> list[str]:
    return [name for name in sys.modules if name.split(".")[0] in ("xoscar", "pandas", "scipy")]


def test_two_processes() -> None:
    with Gang(2, "gloo") as gang:
        assert gang.run(sums) == [[1.0, 3.0, 5.0, 7.0, 9.0]] * 2
        assert gang.run(loaded_alone) == [[], []]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere Gloo's binding holds the GIL")
def test_other_threads_run_meanwhile() -> None:
    with Gang(2, "gloo") as gang:
        assert min(gang.run(overlap)) > 20


def test_by_tcp_and_env() -> None:
    from mortice.distributed.store.server import listen

    with listen("", 0, 0) as free:
        port = free.getsockname()[1]
    environment = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
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
        time.sleep(3)
        return ""
    try:
        dist.all_reduce(mortice.ones(3))
    except KeyboardInterrupt:
        return "interrupted"
    return "not interrupted"


def test_interrupting_a_wait() -> None:
    with Gang(2, "gloo", timeout=20) as gang:
        gang.run(sums)
        gang.begin(waits_until_interrupted)
        time.sleep(1.0)
        started = time.monotonic()
        gang.kill(0, signal.SIGINT)
        (found,) = gang.end(ranks=[0], patience=10)
        assert found == "interrupted"
        assert time.monotonic() - started < 2
        gang.end(ranks=[1])
