"""MpiCommunicator: collectives by MPI, whose requests are polled."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mortice.distributed import HostCommunicator, Setup, Store, TCPStore
from mortice.errors import DistBackendError, InvalidValue

from . import library

Array = np.ndarray[Any, Any]

_OPS = {
    "SUM": "SUM",
    "PRODUCT": "PROD",
    "MIN": "MIN",
    "MAX": "MAX",
    "BAND": "BAND",
    "BOR": "BOR",
    "BXOR": "BXOR",
}
# float16 is not every MPI's; narrower ones are none's; bool's operations come as those of bytes.
_REDUCED = frozenset(
    np.dtype(name)
    for name in "int8 uint8 int16 uint16 int32 uint32 int64 uint64 float32 float64 complex64 "
    "complex128".split()
)
# Messages of collectives; users' begin behind it.
_COLLECTIVE_TAG = 0
_FIRST_TAG = 1

# MPI moves data only while it is called. Where each rank has a core, polls (0.2 us) follow each
# other at once for twice the time that the data usually take: at first so many, and as many again for
# so many bytes, at most so many; the latter with the core offered to others once in a hundred (16 MiB
# between 2 ranks on busy cores: 15 ms instead of 36 ms).
_SPINS = 100
_PER_SPINS = 2e4
_MOST_SPINS = 1_000_000
# Then other ranks may need this core to come here at all. It is offered to them so many times, and
# once more for so many bytes; then left to them for a moment (a sleep of no time lasts 50 us on
# Linux), for as long as slow ranks, at so many bytes per second, could explain; then for longer.
# 4 ranks on 2 busy cores, 64 KiB: 1 ms instead of 3 to 12 ms with offers alone. Between two offers
# are some polls, since each takes no more than one piece of a message out of shared memory: 1.2 ms with 8
# of them there and 2.2 ms with one, and 105 us instead of 150 us where nobody else wants the cores.
_BURST = range(8)
_OFFERS = 50
_PER_OFFER = 1e4
_SLOWEST = 2e8
_EAGER = 0.005
_PAUSE = 0.0002
_ASK_EVERY = 0.25
_offer_core: Callable[[], None] = getattr(os, "sched_yield", lambda: time.sleep(0.0))


class MpiCommunicator(HostCommunicator):
    """Everything is MPI's, but for dtypes that MPI does not know, and narrow floats."""

    interruptible = True

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._mpi = library.start()
        world = self._mpi.COMM_WORLD
        if world.Get_rank() != setup.ranks[setup.rank] or max(setup.ranks) >= world.Get_size():
            raise InvalidValue(
                f"MPI says that this process is rank {world.Get_rank()} of {world.Get_size()}, and "
                f"the group that it is {setup.ranks[setup.rank]}. With the backend mpi, rank and "
                "world_size are MPI's: start with `mortice run --engine mpi`, or mpiexec, and leave both out"
            )
        self._ops = {name: getattr(self._mpi, theirs) for name, theirs in _OPS.items()}
        self._aborted = False
        self._spins = range(0 if library.crowded() else _SPINS)
        self._copies_from = library.copies_from()
        members = world.Get_group().Incl(list(setup.ranks))
        self._comm: Any = world.Create_group(members, _group_tag(setup.name))
        self._comm.Set_errhandler(self._mpi.ERRORS_RETURN)

    @classmethod
    def meet(cls, timeout: float) -> tuple[Store, int, int]:
        """A store served by rank 0, whose address the others get by MPI."""
        mpi = library.start()
        world = mpi.COMM_WORLD
        rank, size = world.Get_rank(), world.Get_size()
        if rank == 0:
            store = TCPStore("127.0.0.1", 0, is_master=True, timeout=timeout)
            world.bcast((mpi.Get_processor_name(), store.port), root=0)
            return store, rank, size
        host, port = world.bcast(None, root=0)
        here = host == mpi.Get_processor_name()
        return TCPStore("127.0.0.1" if here else host, port, timeout=timeout), rank, size

    # -- waiting ---------------------------------------------------------------------------------

    def _wait(self, request: Any, *held: Array, status: Any = None) -> None:
        """Poll a request to its end; ``held`` is the memory that it uses.

        Raises OperationTimeout when the operation's time is over, DistBackendError when a rank has
        ended or the group was given up.
        """
        test = request.Test
        try:
            for _ in self._spins:
                if test(status):
                    return
            self._poll(test, status, sum(a.nbytes for a in held))
        except BaseException:
            library.give_up(request, held)
            raise

    def _end(self, request: Any, nbytes: int, *held: Array) -> None:
        """Wait for a collective's end, on all ranks; ``nbytes`` is the most that a message of it has.

        MPICH's collectives (4.2 to 5.0) drop the errors of their messages. Where a rank is killed whose
        data are to be copied out of its memory, they end, without an error and without the data, and may
        hand on what was never there. So the ranks then tell each other that they have come to the end:
        one that has was alive when its data were read, and one that has not is missed.
        """
        self._wait(request, *held)
        if nbytes >= self._copies_from:
            self._wait(self._comm.Ibarrier())

    def _poll(self, test: Callable[[Any], bool], status: Any, nbytes: int) -> None:
        """Poll to the end, and look around meanwhile."""
        for spin in range(min(_MOST_SPINS, int(len(self._spins) * nbytes / _PER_SPINS))):
            if test(status):
                return
            if spin % _SPINS == 0:
                _offer_core()
        offers = _OFFERS + int(nbytes / _PER_OFFER)
        started = time.monotonic()
        eager = started + max(_EAGER, nbytes / _SLOWEST)
        ask = started + _ASK_EVERY
        while True:
            for _ in _BURST:
                if test(status):
                    return
            now = time.monotonic()
            if now >= eager:
                time.sleep(_PAUSE)
            elif offers > 0:
                offers -= 1
                _offer_core()
            else:
                time.sleep(0.0)
            if now >= ask:
                self._look_around()
                ask = now + _ASK_EVERY

    def _look_around(self) -> None:
        if self._aborted:
            raise DistBackendError("the group was given up")
        self.remaining()
        if loss := self.setup.loss():
            raise loss

    # -- messages --------------------------------------------------------------------------------

    def send(self, data: Array, peer: int, tag: int) -> None:
        self._wait(self._comm.Isend(data, peer, _FIRST_TAG + tag), data)

    def recv(self, data: Array, peer: int, tag: int) -> int:
        status = self._mpi.Status()
        source = self._mpi.ANY_SOURCE if peer < 0 else peer
        self._wait(self._comm.Irecv(data, source, _FIRST_TAG + tag), data, status=status)
        return int(status.Get_source())

    # -- movements, of bytes ---------------------------------------------------------------------

    def broadcast(self, data: Array, root: int) -> None:
        self._end(self._comm.Ibcast(data, root), data.nbytes, data)

    def all_gather(self, out: Array, data: Array) -> None:
        self._end(self._comm.Iallgather(data, out), out.nbytes, data, out)

    def gather(self, out: Array | None, data: Array, root: int) -> None:
        held = (data,) if out is None else (data, out)
        self._end(self._comm.Igather(data, out, root), self.size * data.nbytes, *held)

    def scatter(self, data: Array, source: Array | None, root: int) -> None:
        held = (data,) if source is None else (data, source)
        self._end(self._comm.Iscatter(source, data, root), self.size * data.nbytes, *held)

    def all_to_all(
        self, out: Array, data: Array, out_counts: Sequence[int], in_counts: Sequence[int]
    ) -> None:
        request = self._comm.Ialltoallv([data, list(in_counts)], [out, list(out_counts)])
        # How much others send each other is not known here, and all must do the same.
        self._end(request, self._copies_from, data, out)

    def barrier(self) -> None:
        self._wait(self._comm.Ibarrier())

    # -- reductions ------------------------------------------------------------------------------

    def all_reduce(self, data: Array, op: str) -> None:
        if data.dtype not in _REDUCED:
            super().all_reduce(data, op)
            return
        request = self._comm.Iallreduce(self._mpi.IN_PLACE, data, self._ops[op])
        self._end(request, data.nbytes, data)

    def reduce(self, data: Array, op: str, root: int) -> None:
        if data.dtype not in _REDUCED:
            super().reduce(data, op, root)
            return
        given, into = (self._mpi.IN_PLACE, data) if self.rank == root else (data, None)
        request = self._comm.Ireduce(given, into, self._ops[op], root)
        self._end(request, data.nbytes, data)

    def reduce_scatter(self, out: Array, data: Array, op: str) -> None:
        if data.dtype not in _REDUCED:
            super().reduce_scatter(out, data, op)
            return
        request = self._comm.Ireduce_scatter_block(data, out, self._ops[op])
        self._end(request, data.nbytes, data, out)

    # -- the end ---------------------------------------------------------------------------------

    def abort(self) -> None:
        self._aborted = True

    def close(self) -> None:
        super().close()
        comm, self._comm = self._comm, None
        if comm is not None and not self._aborted:
            comm.Free()


def _group_tag(name: str) -> int:
    """A tag on which the members of a group agree while they make it."""
    return sum(ord(c) * 31**k for k, c in enumerate(name)) % 32767
