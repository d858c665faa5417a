"""What happens when a rank dies, falls silent, or does something else: real processes, real kills.

Each fault is a row of FAULTS: what the ranks are doing, and what is then done to one of them.
``happen`` lets it happen to a gang and says what every survivor saw, after how long. The suite
asserts on it (conformance.py); fault_table.py writes it down.

No assertion looks at a clock. A death must be noticed by itself: the group's time limit is longer
than anybody waits, so who waits for it has not noticed. Only who is alive and silent is found out
by a limit, that of the call.
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

from .gang import Gang
from .words import PATIENCE, Words

#: The group's time limit in these runs, in seconds: more than PATIENCE, so it never comes to it.
LIMIT = 5 * PATIENCE
#: The time limit of a call that waits for a silent rank, in seconds.
SHORT = 3.0
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


def _at_it(rank: int) -> str:
    """The word that a rank is where the fault is to find it."""
    return f"at-it-{rank}"


_DONE = "the-fault-is-done"


def _wait_to_be_killed() -> None:
    time.sleep(LIMIT)


def warm(rank: int, size: int) -> None:
    """One collective that works, so that what fails later is not the first."""
    import mortice
    import mortice.distributed as dist

    dist.all_reduce(mortice.ones(8))
    dist.barrier()


def reduce(rank: int, size: int, elements: int = 8, timeout: float | None = None) -> Seen | None:
    """An all_reduce, and what came of it."""
    import mortice
    import mortice.distributed as dist

    data = mortice.ones(elements)
    try:
        dist.all_reduce(data, timeout=timeout)
    except Exception as error:
        return _seen(rank, error)
    assert (data.numpy() == size).all(), "a sum lacks what a rank was to give to it"
    return None


def reduce_after(rank: int, size: int) -> Seen | None:
    """The victim waits; the others reduce."""
    Words().tell(_at_it(rank))
    if rank == VICTIM:
        _wait_to_be_killed()
    return reduce(rank, size)


def reduce_for_a_while(rank: int, size: int) -> Seen | None:
    """The victim waits; the others reduce, once it is stopped, with a limit of their own."""
    Words().tell(_at_it(rank))
    if rank == VICTIM:
        _wait_to_be_killed()
    Words().hear(_DONE)
    return reduce(rank, size, timeout=SHORT)


def reduce_much(rank: int, size: int) -> Seen | None:
    """Reduce until something happens: the death comes amid moving data."""
    while (seen := reduce(rank, size, 1 << 18)) is None:
        Words().tell(_at_it(rank))
    return seen


def finished_results_stay(rank: int, size: int) -> Seen | None:
    """Two results of before the death; then what comes after it."""
    import mortice
    import mortice.distributed as dist

    t = mortice.ones(8)
    work = dist.all_reduce(t, async_op=True)
    assert work is not None
    work.wait()
    Words().tell(_at_it(rank))
    if rank == VICTIM:
        _wait_to_be_killed()
    Words().hear(_DONE)
    assert work.wait()
    assert t[0].item() == size
    return reduce(rank, size)


def gather_from_the_dead(rank: int, size: int) -> Seen | None:
    """The victim gives, and is killed; then the others gather: all that it gave, or an error."""
    import mortice
    import mortice.distributed as dist

    mine = mortice.full((1 << 18,), rank + 1.0)
    parts = [mortice.zeros(1 << 18) for _ in range(size)] if rank == 0 else None
    work = dist.gather(mine, parts, dst=0, async_op=True) if rank == VICTIM else None
    Words().tell(_at_it(rank))
    if work is not None:
        _wait_to_be_killed()
    Words().hear(_DONE)
    try:
        dist.gather(mine, parts, dst=0)
    except Exception as error:
        return _seen(rank, error)
    for k, part in enumerate(parts or ()):
        assert (part.numpy() == k + 1).all(), f"what rank {k} gave is not there, and no error"
    return reduce(rank, size)


def message(rank: int, size: int) -> Seen | None:
    """Rank 0 waits for a message of the victim's; the others for one of rank 0's."""
    import mortice
    import mortice.distributed as dist

    Words().tell(_at_it(rank))
    if rank == VICTIM:
        _wait_to_be_killed()
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
    """What the group says to the next call, which must come without an attempt."""
    return reduce(rank, size)


# -- outside ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fault:
    """A row: what ranks do, what is done to the victim while they do, what must be seen.

    ``signal`` 0 does nothing. ``before`` kills ahead of all doing. ``debug`` compares what ranks
    are about to do. ``victim`` 0 is the rank that serves the store. ``ends`` says whether the
    victim's process ends. ``needs`` are capabilities, as in DistributedConformance.
    """

    name: str
    doing: Callable[[int, int], Any]
    signal: int = signal.SIGKILL
    before: bool = False
    victim: int = VICTIM
    debug: bool = False
    ends: bool = True
    needs: tuple[str, ...] = ()


FAULTS = (
    Fault("killed before", reduce, before=True),
    Fault("killed while others wait for it", reduce_after),
    Fault("killed amid moving data", reduce_much),
    Fault("killed after", finished_results_stay),
    Fault("killed when it has given", gather_from_the_dead, needs=("broken_connections",)),
    Fault("killed before it sends", message, needs=("messages",)),
    Fault("silent (stopped)", reduce_for_a_while, signal=signal.SIGSTOP, ends=False),
    Fault("store host killed", reduce_much, victim=0),
    Fault("its program raises", raises, signal=0),
    Fault("other shape, compared", other_shape, signal=0, debug=True, ends=False),
    Fault("other dtype, compared", other_dtype, signal=0, debug=True, ends=False),
    Fault("other order, compared", other_order, signal=0, debug=True, ends=False),
)

#: Makes a gang of ``(size, environment)``, and with ``timeout`` if given.
MakeGang = Callable[..., Gang]
# Seconds in which ranks that say that they are at it come to be so. They need not have: whatever
# they are at when it happens, the outcome is the same.
_A_MOMENT = 0.3


@dataclass(frozen=True)
class Outcome:
    """What survivors saw, after how many seconds the last of them knew, and what they saw next."""

    seen: tuple[Seen, ...]
    seconds: float
    later: tuple[Seen, ...]


def happen(fault: Fault, make: MakeGang, size: int = 3) -> Outcome:
    """Let a fault happen to a new gang; raises RankError where a survivor does not come back."""
    environment = {"MORTICE_DISTRIBUTED_DEBUG": "1"} if fault.debug else {}
    with make(size, environment=environment) as gang:
        gang.run(warm)
        survivors = [rank for rank in range(size) if rank != fault.victim]
        watched = survivors if fault.signal or fault.ends else list(range(size))
        started = time.time()
        if fault.before:
            gang.kill(fault.victim, fault.signal)
            gang.begin(fault.doing, ranks=survivors)
        else:
            gang.begin(fault.doing)
            if fault.signal:
                gang.words.hear(*(_at_it(rank) for rank in range(size)))
                time.sleep(_A_MOMENT)
                started = time.time()
                gang.kill(fault.victim, fault.signal)
                gang.words.tell(_DONE)
        seen = _all_seen(gang, watched)
        gang.begin(again, ranks=survivors)
        later = _all_seen(gang, survivors)
        if fault.signal and not fault.ends:
            gang.kill(fault.victim)  # it would not end by itself
    return Outcome(seen, max(one.at for one in seen) - started, later)


def _all_seen(gang: Gang, ranks: list[int]) -> tuple[Seen, ...]:
    """What ranks saw; each must come back before the group's time limit, and with an error."""
    found = gang.end(ranks=ranks, patience=PATIENCE)
    for result in found:
        if isinstance(result, BaseException):
            raise result
        assert result is not None, f"one of ranks {ranks} noticed nothing: {found}"
    return tuple(found)


# -- gangs --------------------------------------------------------------------------------------


def tcp_gang(backend: str) -> MakeGang:
    """Gangs whose rank 0 serves a TCPStore."""

    def make(size: int, environment: dict[str, str], timeout: float = LIMIT) -> Gang:
        return Gang(size, backend, timeout=timeout, environment=environment, init_method="tcp")

    return make


def mpi_gang() -> MakeGang:
    """Gangs started by mpiexec, which leaves survivors alone."""
    command = mpiexec()

    def make(size: int, environment: dict[str, str], timeout: float = LIMIT) -> Gang:
        launcher = [*command, "-n", str(size), *SHIELD]
        return Gang(
            size, "mpi", timeout=timeout, environment=environment, launcher=launcher, init_method=""
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


def gangs_of(backend: str) -> MakeGang:
    """How gangs of a backend are made."""
    return mpi_gang() if backend == "mpi" else tcp_gang(backend)
