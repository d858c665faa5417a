"""A rank that dies when it has begun to give: its data are to be copied out of memory that is gone.

MPICH says of a collective in which that failed that it went well.
"""

from __future__ import annotations

import os
import signal
from types import SimpleNamespace
from typing import Any

import pytest

from mortice.backend import Unavailable
from mortice_mpi import library
from mortice_testing.distributed import faults
from mortice_testing.distributed.words import PATIENCE, Words

_DEAD = "the-victim-is-dead"


def _die(*_: Any, **__: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def collect(rank: int, size: int, name: str, elements: int) -> faults.Seen | str:
    """One collective, which the victim begins and does not live to end; the others begin it then."""
    import mortice
    import mortice.distributed as dist
    from mortice.distributed.group import default_group

    mine = mortice.full((elements,), rank + 1, dtype=mortice.uint8)
    room = [mortice.zeros(elements, dtype=mortice.uint8) for _ in range(size)]
    if rank == faults.VICTIM:
        communicator: Any = default_group().communicator("cpu")
        communicator._wait = _die  # the request is begun, and would be waited for
    else:
        Words().hear(_DEAD)
    wanted = [k + 1 for k in range(size)]
    try:
        if name == "gather":
            dist.gather(mine, room if rank == 0 else None, dst=0)
        elif name == "all_gather":
            dist.all_gather(room, mine)
        else:
            dist.reduce(mine, dst=0)
            room, wanted = [mine], [size * (size + 1) // 2]
    except dist.DistError as error:
        return faults._seen(rank, error)
    if name == "all_gather" or rank == 0:
        for part, value in zip(room, wanted):
            assert (part.numpy() == value).all(), f"{name}: {part[:4]} for {value}, and no error"
    return "as given"


# Below, at, and above the size from which MPICH copies.
@pytest.mark.parametrize("elements", [1 << 10, library._COPY_FROM, 1 << 20])
@pytest.mark.parametrize("name", ["gather", "reduce", "all_gather"])
def test_no_result_lacks_what_a_dead_rank_gave(name: str, elements: int) -> None:
    survivors = [0, 2]
    with faults.mpi_gang()(3, environment={}) as gang:
        gang.run(faults.warm)
        gang.begin(collect, name, elements)
        # Its end of the pipe closes after its memory is gone.
        gang.end(ranks=[faults.VICTIM], patience=PATIENCE)
        gang.words.tell(_DEAD)
        results = gang.end(ranks=survivors, patience=PATIENCE)
        for pipe in gang.pipes:  # the survivors end
            pipe.close()
        gang.processes[0].wait(PATIENCE)
    for result in results:
        if isinstance(result, BaseException):
            raise result
        if elements >= library._COPY_FROM:
            assert isinstance(result, faults.Seen), result
            assert result.gone == (faults.VICTIM,)


class _Forbidden:
    """The communicator of two ranks, neither of which may read the other's memory."""

    def Get_rank(self) -> int:
        return 0

    def Get_size(self) -> int:
        return 2

    def Sendrecv(self, given: bytes, *_: Any) -> None:
        assert len(given) == 1 << 14
        raise OSError("process_vm_readv failed (errno 38)")


def test_memory_that_may_not_be_read_is_noticed_at_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MPIR_CVAR_CH4_IPC_CMA_P2P_THRESHOLD", str(1 << 14))
    monkeypatch.setattr(
        library, "_module", SimpleNamespace(get_vendor=lambda: ("MPICH", (5, 0, 2)))
    )
    with pytest.raises(Unavailable, match="process_vm_readv failed"):
        library._try_to_copy(SimpleNamespace(Exception=OSError), _Forbidden())
