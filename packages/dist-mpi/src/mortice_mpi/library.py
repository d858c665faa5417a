"""MPI in this process: loaded, started once, ended as it should be or not at all."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import threading
import time
from typing import Any

from mortice.backend import Unavailable

_FIX = "Install an MPI library, as in pip install mpich; or the system's: apt install libmpich12"
_SHARED = "/dev/shm/"  # noqa: S108 - MPI puts it there
# From how many bytes on MPICH lets a rank copy a message out of another's memory, by a system call, and
# not through memory that they share. By itself it does from 8 KiB on: there, 64 KiB are summed by 2 ranks
# in 26 us, and in 16 us through shared memory.
_COPY_VARIABLE = "MPIR_CVAR_CH4_IPC_CMA_P2P_THRESHOLD"
_COPY_FROM = 1 << 17
_MPICH_COPIES_FROM = 1 << 13
# What other libraries do is not known: they may from here on.
_OTHERS_COPY_FROM = 1 << 12
_module: Any = None
_failed = False
# The processes of this machine's ranks.
_neighbours: list[int] = []
_END_PAUSE = 0.001
# What a request that was given up may still write to or read from.
abandoned: list[Any] = []


def load() -> Any:
    """mpi4py's MPI module, not started yet. Raises Unavailable where MPI cannot be loaded."""
    global _module
    if _module is None:
        try:
            import mpi4py
        except ImportError as error:
            raise Unavailable(
                "the distribution mpi4py is not installed", "pip install mpi4py"
            ) from (error)
        # MPI is started by the first group, not by the import; and ended by us.
        mpi4py.rc.initialize = False
        mpi4py.rc.finalize = False
        try:
            from mpi4py import MPI
        except (ImportError, RuntimeError) as error:
            raise Unavailable(f"mpi4py finds no MPI library: {error}", _FIX) from error
        _module = MPI
    return _module


def start() -> Any:
    """The MPI module, started so that several threads may call it."""
    module = load()
    if not module.Is_initialized():
        before = _shared_memory()
        os.environ.setdefault(_COPY_VARIABLE, str(_COPY_FROM))
        module.Init_thread(module.THREAD_MULTIPLE)
        _survive_hydra()
        atexit.register(_end)
        _unname(module, _shared_memory() - before)
        near = module.COMM_WORLD.Split_type(module.COMM_TYPE_SHARED)
        _neighbours.extend(near.allgather(os.getpid()))
        _try_to_copy(module, near)
        near.Free()
    if module.Query_thread() < module.THREAD_MULTIPLE:
        raise Unavailable(
            "MPI was started without THREAD_MULTIPLE, and groups have threads of their own",
            'Start it with mpi4py.rc.thread_level = "multiple", or let mortice start it',
        )
    module.COMM_WORLD.Set_errhandler(module.ERRORS_RETURN)
    return module


def copies_from() -> int:
    """From how many bytes on a message may be copied straight out of the sender's memory.

    MPICH's variable holds where it was set before MPI was started, by us if not by the program.
    """
    if _module.get_vendor()[0] != "MPICH":
        return _OTHERS_COPY_FROM
    given = os.environ.get(_COPY_VARIABLE, "")
    return int(given) if given.isdecimal() else _MPICH_COPIES_FROM


def _survive_hydra() -> None:
    """Ignore SIGUSR1, hydra's word that a rank has ended.

    A process dies of it, or MPICH takes it and ends the process in its next call; and we know of
    the death from the store. A handler that the program has set stays.
    """
    number = getattr(signal, "SIGUSR1", None)
    if (
        number is not None
        and threading.current_thread() is threading.main_thread()
        and signal.getsignal(number) is signal.SIG_DFL
    ):
        signal.signal(number, signal.SIG_IGN)


def _shared_memory() -> set[str]:
    """Files of shared memory that this process has mapped; where the system tells."""
    try:
        with open("/proc/self/maps", encoding="utf-8") as file:
            paths = [line.split(maxsplit=5)[5].strip() for line in file if _SHARED in line]
    except OSError:
        return set()
    return {path for path in paths if path.startswith(_SHARED) and os.path.exists(path)}


def _unname(module: Any, paths: set[str]) -> None:
    """Take away the names of MPI's shared memory, which it removes only at an end as it should be.

    All ranks have it mapped by now, and keep it; so nothing is left of ranks that are killed.
    """
    module.COMM_WORLD.Barrier()
    for path in paths:
        with contextlib.suppress(FileNotFoundError):  # another rank was quicker
            os.unlink(path)


def _try_to_copy(module: Any, near: Any) -> None:
    """Send a neighbour as much as is copied out of memory; Unavailable where the system forbids that.

    Of a message MPICH says so; its collectives would go on without the data.
    """
    rank, size = near.Get_rank(), near.Get_size()
    given, room = bytes([1]) * copies_from(), bytearray(copies_from())
    try:
        near.Sendrecv(given, (rank + 1) % size, 0, room, (rank - 1) % size, 0)
    except module.Exception as error:
        reason = f"MPI cannot read the memory of another rank: {' '.join(str(error).split())}"
        raise Unavailable(reason, "export MPIR_CVAR_CH4_CMA_ENABLE=0") from error


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def crowded() -> bool:
    """Whether this machine has more ranks than this process has cores to run on."""
    return len(_neighbours) > _cores()


def give_up(*held: Any) -> None:
    """Remember that an operation was left unfinished: MPI's own end would wait for it forever."""
    global _failed
    _failed = True
    abandoned.extend(held)


def _end() -> None:
    if not _failed and not _module.Is_finalized() and _all_come():
        _module.Finalize()


def _all_come() -> bool:
    """Wait for all ranks, as MPI's own end does; False if one of this machine has ended without.

    MPI would wait forever for a rank that died when nobody waited for it.
    """
    come = _module.COMM_WORLD.Ibarrier()
    while not come.Test():
        # One that has ended well has come before; and that is known as soon as that it has ended.
        lost = not all(map(_is_there, _neighbours))
        if lost and not come.Test():
            abandoned.append(come)
            return False
        time.sleep(_END_PAUSE)
    return True


def _is_there(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
