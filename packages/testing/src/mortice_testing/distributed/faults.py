"""What happens when a rank dies, falls silent, or does something else: real processes, real kills.

Each fault is a row of FAULTS: what the ranks are doing, and what is then done to one of them.
``happen`` lets it happen to a gang and says what every survivor saw, after how long. Tests assert
on it; fault_table.py writes it down.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .gang import PATIENCE, Gang

#: The group's time limit in these runs, in seconds; what takes longer than it and a little hangs.
LIMIT = 3.0
VICTIM = 1


@dataclass(frozen=True)
class Seen:
    """What a rank saw: the error's class and text, what it names, and when (``time.time()``)."""

    rank: int
    error: str
    text: str
    operation: str
    sequence: int
    gone: tuple[int, ...]
    at: float


# -- in the ranks -------------------------------------------------------------------------------


def _seen(rank: int, error: BaseException) -> Seen:
    return Seen(
        rank,
        type(error).__name__,
        str(error),
        getattr(error, "operation", ""),
        getattr(error, "sequence", 0),
        getattr(error, "gone", ()),
        time.time(),
    )


def warm(rank: int, size: int) -> None:
    """One collective that works, so that what fails later is not the first."""
    import mortice
    import mortice.distributed as dist

    dist.all_reduce(mortice.ones(8))
    dist.barrier()


def reduce(rank: int, size: int, elements: int = 8) -> Seen | None:
    """An all_reduce, and what came of it."""
    import mortice
    import mortice.distributed as dist

    try:
        dist.all_reduce(mortice.ones(elements))
    except Exception as error:
        return _seen(rank, error)
    return None


def reduce_after(rank: int, size: int) -> Seen | None:
    """The victim waits; the others reduce."""
    if rank == VICTIM:
        time.sleep(PATIENCE)
    return reduce(rank, size)


def reduce_much(rank: int, size: int) -> Seen | None:
    """Reduce until something happens: the death comes amid moving data."""
    while (seen := reduce(rank, size, 1 << 18)) is None:
        pass
    return seen


def finished_results_stay(rank: int, size: int) -> Seen | None:
    """Two results of before the death; then what comes after it."""
    import mortice
    import mortice.distributed as dist

    t = mortice.ones(8)
    work = dist.all_reduce(t, async_op=True)
    assert work is not None
    work.wait()
    if rank == VICTIM:
        time.sleep(PATIENCE)
    time.sleep(1.0)  # the victim is killed meanwhile
    assert work.wait()
    assert t[0].item() == size
    return reduce(rank, size)


def message(rank: int, size: int) -> Seen | None:
    """Rank 0 waits for a message of the victim's; the others for one of rank 0's."""
    import mortice
    import mortice.distributed as dist

    if rank == VICTIM:
        time.sleep(PATIENCE)
    try:
        dist.recv(mortice.zeros(8), VICTIM if rank == 0 else 0)
    except Exception as error:
        return _seen(rank, error)
    return None


def raises(rank: int, size: int) -> Seen | None:
    """The victim's own program fails, and its process ends as programs do."""
    if rank == VICTIM:
        os._exit(1)
    return reduce(rank, size)


def other_shape(rank: int, size: int) -> Seen | None:
    return reduce(rank, size, 8 if rank != VICTIM else 12)


def other_dtype(rank: int, size: int) -> Seen | None:
    import mortice
    import mortice.distributed as dist

    dtype = mortice.float32 if rank != VICTIM else mortice.float64
    try:
        dist.all_reduce(mortice.ones(8, dtype=dtype))
    except Exception as error:
        return _seen(rank, error)
    return None


def other_order(rank: int, size: int) -> Seen | None:
    import mortice
    import mortice.distributed as dist

    try:
        if rank == VICTIM:
            dist.broadcast(mortice.ones(8), src=0)
        dist.all_reduce(mortice.ones(8))
        dist.broadcast(mortice.ones(8), src=0)
    except Exception as error:
        return _seen(rank, error)
    return None


def again(rank: int, size: int) -> Seen | None:
    """What the group says to the next call, which must come at once."""
    return reduce(rank, size)


# -- outside ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fault:
    """A row: what ranks do, what is done to the victim after ``delay`` seconds, what must be seen.

    ``signal`` 0 does nothing. ``debug`` compares what ranks are about to do. ``victim`` 0 is the
    rank that serves the store. ``names`` says whether the error must name the victim.
    """

    name: str
    doing: Callable[[int, int], Any]
    signal: int = signal.SIGKILL
    delay: float = 0.5
    victim: int = VICTIM
    debug: bool = False
    ends: bool = True

    @property
    def limit(self) -> float:
        """Seconds within which all must know."""
        return LIMIT + 1.5


FAULTS = (
    Fault("killed before", reduce, delay=-1.0),
    Fault("killed while others wait for it", reduce_after),
    Fault("killed amid moving data", reduce_much),
    Fault("killed after", finished_results_stay),
    Fault("killed before it sends", message),
    Fault("silent (stopped)", reduce_after, signal=signal.SIGSTOP, ends=False),
    Fault("store host killed", reduce_much, victim=0),
    Fault("its program raises", raises, signal=0),
    Fault("other shape, compared", other_shape, signal=0, debug=True, ends=False),
    Fault("other dtype, compared", other_dtype, signal=0, debug=True, ends=False),
    Fault("other order, compared", other_order, signal=0, debug=True, ends=False),
)

MakeGang = Callable[..., Gang]


@dataclass(frozen=True)
class Outcome:
    """What the survivors saw, and how long after the fault the last of them knew."""

    seen: tuple[Seen, ...]
    seconds: float


def happen(fault: Fault, make: MakeGang, size: int = 3) -> Outcome:
    """Let a fault happen to a new gang; raises RankError where a survivor does not come back."""
    environment = {"MORTICE_DISTRIBUTED_DEBUG": "1"} if fault.debug else {}
    with make(size, environment=environment) as gang:
        gang.run(warm)
        survivors = [rank for rank in range(size) if rank != fault.victim]
        watched = survivors if fault.signal or fault.ends else list(range(size))
        started = time.time()
        if fault.delay < 0:
            gang.kill(fault.victim, fault.signal)
            gang.begin(fault.doing, ranks=survivors)
        else:
            gang.begin(fault.doing)
            if fault.signal:
                time.sleep(fault.delay)
                started = time.time()
                gang.kill(fault.victim, fault.signal)
        found = gang.end(ranks=watched, patience=fault.limit + 10)
        for result in found:
            if isinstance(result, BaseException):
                raise result
        assert all(result is not None for result in found), f"nobody noticed: {fault.name}"
        late = gang_again(gang, survivors)
        assert late < 1.0, f"the call after the failure took {late:.2f} s"
    return Outcome(tuple(found), max(one.at for one in found) - started)


def gang_again(gang: Gang, survivors: list[int]) -> float:
    """How long a call takes that comes after the failure; it must fail at once."""
    started = time.monotonic()
    gang.begin(again, ranks=survivors)
    for result in gang.end(ranks=survivors, patience=10):
        if isinstance(result, BaseException):
            raise result
        assert result is not None
    return time.monotonic() - started


# -- gangs --------------------------------------------------------------------------------------


def tcp_gang(backend: str) -> MakeGang:
    """Gangs whose rank 0 serves a TCPStore."""

    def make(size: int, environment: dict[str, str]) -> Gang:
        method = f"tcp://127.0.0.1:{free_port()}"
        return Gang(size, backend, timeout=LIMIT, environment=environment, init_method=method)

    return make


def mpi_gang() -> MakeGang:
    """Gangs started by mpiexec, which leaves survivors alone."""
    command = mpiexec()

    def make(size: int, environment: dict[str, str]) -> Gang:
        launcher = [*command, "-n", str(size), *SHIELD]
        return Gang(
            size, "mpi", timeout=LIMIT, environment=environment, launcher=launcher, init_method=""
        )

    return make


#: hydra kills all ranks when one of its children dies of a signal, whatever it was told; so its
#: children are shells, which turn a signal into a status. It also sends SIGUSR1 to the others.
SHIELD = ("sh", "-c", 'trap "" USR1; "$@"', "sh")


def mpiexec() -> list[str]:
    """The environment's own hydra, else the system's, told to leave survivors alone."""
    own = Path(sys.executable).parent / "mpiexec"
    program = str(own) if own.exists() else shutil.which("mpiexec")
    if program is None:
        raise FileNotFoundError("there is no mpiexec: pip install mpich")
    return [program, "-disable-auto-cleanup"]


def free_port() -> int:
    """A port that nobody listens on."""
    import socket

    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def gangs_of(backend: str) -> MakeGang:
    """How gangs of a backend are made."""
    return mpi_gang() if backend == "mpi" else tcp_gang(backend)
