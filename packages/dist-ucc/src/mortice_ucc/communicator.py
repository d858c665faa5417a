"""UccCommunicator: collectives by UCC, whose requests are polled."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from mortice.distributed import HostCommunicator, Setup
from mortice.errors import DistBackendError, InvalidValue

from . import library
from . import structures as ucc
from .exchange import Exchange

Array = np.ndarray[Any, Any]

# UCC keeps some of the 2**15 for itself.
_TAGS = 32000

# UCC moves data only while it is called: polls follow each other without a pause for as long as the
# data could explain, at this many bytes per second, and this many seconds at least.
_SLOWEST = 2e8
_EAGER = 0.005
_SPINS = 200
_PAUSE = 0.0002
_ASK_EVERY = 0.25
# Seconds that the end of a group may take, which all ranks come to together.
_PARTING = 5.0


class UccCommunicator(HostCommunicator):
    """Everything is UCC's, but for dtypes that UCC does not add, and narrow floats."""

    interruptible = True

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._ucc, self._lib = library.start()
        self._aborted = False
        # Collectives and messages come from several threads.
        self._lock = threading.Lock()
        self._ended_collectives = 0
        self._outside = Exchange(setup, "ucc")
        self._context = self._made_context()
        self._team = self._made_team()

    def _check(self, name: str, code: int) -> int:
        error = self._outside.error
        if code < 0 and error is not None:
            self._outside.error = None
            raise error
        return library.check(name, code)

    def _made_context(self) -> ctypes.c_void_p:
        parameters = ucc.ContextParams(mask=ucc.CONTEXT_OOB, oob=self._outside.oob)
        config, context = ctypes.c_void_p(), ctypes.c_void_p()
        code = self._ucc.ucc_context_config_read(self._lib, None, config)
        self._check("ucc_context_config_read", code)
        code = self._ucc.ucc_context_create(self._lib, parameters, config, context)
        self._ucc.ucc_context_config_release(config)
        self._check("ucc_context_create", code)
        return context

    def _made_team(self) -> ctypes.c_void_p:
        parameters = ucc.TeamParams(
            mask=ucc.TEAM_OOB | ucc.TEAM_EP | ucc.TEAM_EP_RANGE,
            oob=self._outside.oob,
            ep=self.rank,
        )
        team = ctypes.c_void_p()
        code = self._ucc.ucc_team_create_post(self._context, 1, parameters, team)
        self._check("ucc_team_create_post", code)
        end = time.monotonic() + self.setup.timeout
        while self._check("ucc_team_create", self._ucc.ucc_team_create_test(team)):
            self._check("ucc_context_progress", self._ucc.ucc_context_progress(self._context))
            time.sleep(0.0)
            if time.monotonic() > end:
                raise DistBackendError(
                    f"UCC made no team of the {self.size} ranks in {self.setup.timeout:g} s"
                )
        return team

    # -- calling UCC -----------------------------------------------------------------------------

    def _call(self, kind: int, *held: Array, **members: Any) -> None:
        """Do an operation to its end; ``held`` is the memory that it uses.

        Raises OperationTimeout when the operation's time is over, DistBackendError when a rank has
        ended or the group was given up.
        """
        arguments = ucc.Arguments(coll_type=kind, **members)
        request = ctypes.POINTER(ctypes.c_int)()
        with self._lock:
            code = self._ucc.ucc_collective_init(arguments, request, self._team)
            self._check("ucc_collective_init", code)
            self._check("ucc_collective_post", self._ucc.ucc_collective_post(request))
        try:
            self._poll(request, sum(a.nbytes for a in held))
        except BaseException:
            if request.contents.value == ucc.IN_PROGRESS:
                library.abandoned.extend((request, held))
            raise
        # The first status is the one to read. Up to 1.10 it says that a reduction whose peer has ended
        # went well: stopping what computed overwrites it. The second one, UCC's own, has the truth.
        code = min(request[0], request[1])
        with self._lock:
            self._ucc.ucc_collective_finalize(request)
        self._check("UCC's operation", code)

    def _collective(self, kind: int, *held: Array, **members: Any) -> None:
        """An operation of all ranks, and their word that they have come to its end.

        UCC (to 1.10) drops the error of a message, as when a rank is killed whose memory was to be read:
        the operation ends, as if well, without the data, and may hand on what was never there. So
        each rank then gives everybody the operation's number. Who can was alive when its data were
        read; and what is not that number was not received.
        """
        self._call(kind, *held, **members)
        self._confirm()

    def _confirm(self) -> None:
        self._ended_collectives += 1
        mine = np.array([self._ended_collectives], np.int64)
        every = np.zeros(self.size, np.int64)
        self._call(ucc.ALLGATHER, mine, every, src=_even(mine), dst=_even(every))
        if (every != self._ended_collectives).any():
            raise DistBackendError("UCC did not receive what a rank was to give")

    def _poll(self, request: Any, nbytes: int) -> None:
        if self._ended(request, _SPINS):
            return
        started = time.monotonic()
        eager = started + max(_EAGER, nbytes / _SLOWEST)
        ask = started + _ASK_EVERY
        while not self._ended(request, 1):
            now = time.monotonic()
            # Other ranks may need this core to come here at all.
            time.sleep(0.0 if now < eager else _PAUSE)
            if now >= ask:
                self._look_around()
                ask = now + _ASK_EVERY

    def _ended(self, request: Any, looks: int) -> bool:
        """Whether an operation has ended; UCC moves data meanwhile."""
        progress, context = self._ucc.ucc_context_progress, self._context
        for _ in range(looks):
            with self._lock:
                code = progress(context)
            # An error here is that of any operation of the context; ours is in its request.
            if request.contents.value != ucc.IN_PROGRESS:
                return True
            self._check("ucc_context_progress", code)
        return False

    def _look_around(self) -> None:
        if self._aborted:
            raise DistBackendError("the group was given up")
        self.remaining()
        if loss := self.setup.loss():
            raise loss

    # -- messages --------------------------------------------------------------------------------

    def _message(self, data: Array, source: int, target: int, tag: int) -> None:
        """A broadcast from one rank to another. After the data comes a one: see ``_collective``."""
        if not 0 <= tag < _TAGS:
            raise InvalidValue(f"UCC has tags from 0 to {_TAGS - 1}, found {tag}")
        if not data.size:  # UCC would not tell the receiver
            data = np.zeros(1, np.uint8)
        self._call(
            ucc.BCAST,
            data,
            mask=ucc.ARGS_ACTIVE_SET | ucc.ARGS_TAG,
            tag=tag,
            src=_even(data),
            root=source,
            active_set=ucc.ActiveSet(source, target - source, 2),
        )

    def send(self, data: Array, peer: int, tag: int) -> None:
        self._message(data, self.rank, peer, tag)
        self._message(np.ones(1, np.uint8), self.rank, peer, tag)

    def recv(self, data: Array, peer: int, tag: int) -> int:
        if peer < 0:
            raise NotImplementedError("UCC receives from a named rank only: give recv a src")
        self._message(data, peer, self.rank, tag)
        come = np.zeros(1, np.uint8)
        self._message(come, peer, self.rank, tag)
        if not come[0]:
            raise DistBackendError(f"UCC did not receive what rank {peer} was to send")
        return peer

    # -- movements, of bytes ---------------------------------------------------------------------

    def broadcast(self, data: Array, root: int) -> None:
        self._collective(ucc.BCAST, data, src=_even(data), root=root)

    def all_gather(self, out: Array, data: Array) -> None:
        self._collective(ucc.ALLGATHER, data, out, src=_even(data), dst=_even(out))

    def gather(self, out: Array | None, data: Array, root: int) -> None:
        into = {} if out is None else {"dst": _even(out)}
        held = (data,) if out is None else (data, out)
        self._collective(ucc.GATHER, *held, src=_even(data), root=root, **into)

    def scatter(self, data: Array, source: Array | None, root: int) -> None:
        if self.size == 1:  # UCC has none within one rank
            super().scatter(data, source, root)
            return
        # UCC has none of equal parts on the host.
        how: dict[str, Any] = {"dst": _even(data)}
        held: tuple[Array, ...] = (data,)
        if source is not None:
            how["src"], parts = _uneven(source, [data.size] * self.size)
            held = (data, source, *parts)
        how |= {"mask": ucc.ARGS_FLAGS, "flags": ucc.COUNT_64 | ucc.DISPLACEMENT_64}
        self._collective(ucc.SCATTERV, *held, root=root, **how)

    def all_to_all(
        self, out: Array, data: Array, out_counts: Sequence[int], in_counts: Sequence[int]
    ) -> None:
        source, given = _uneven(data, in_counts)
        target, taken = _uneven(out, out_counts)
        self._collective(
            ucc.ALLTOALLV,
            *(data, out, *given, *taken),
            mask=ucc.ARGS_FLAGS,
            flags=ucc.COUNT_64 | ucc.DISPLACEMENT_64,
            src=source,
            dst=target,
        )

    def barrier(self) -> None:
        self._confirm()

    # -- reductions ------------------------------------------------------------------------------

    def all_reduce(self, data: Array, op: str) -> None:
        if data.dtype.name not in ucc.DTYPES:
            super().all_reduce(data, op)
            return
        self._collective(
            ucc.ALLREDUCE,
            data,
            mask=ucc.ARGS_FLAGS,
            flags=ucc.IN_PLACE,
            dst=_even(data),
            op=ucc.OPS[op],
        )

    def reduce(self, data: Array, op: str, root: int) -> None:
        if data.dtype.name not in ucc.DTYPES:
            super().reduce(data, op, root)
            return
        if self.rank == root:
            how: dict[str, Any] = {"mask": ucc.ARGS_FLAGS, "flags": ucc.IN_PLACE}
            how["dst"] = _even(data)
        else:
            how = {"src": _even(data)}
        self._collective(ucc.REDUCE, data, op=ucc.OPS[op], root=root, **how)

    def reduce_scatter(self, out: Array, data: Array, op: str) -> None:
        if data.dtype.name not in ucc.DTYPES:
            super().reduce_scatter(out, data, op)
            return
        self._collective(
            ucc.REDUCE_SCATTER, data, out, src=_even(data), dst=_even(out), op=ucc.OPS[op]
        )

    # -- the end ---------------------------------------------------------------------------------

    def abort(self) -> None:
        self._aborted = True

    def close(self) -> None:
        super().close()
        if self._aborted:  # an end would wait for the others, like everything
            return
        self._outside.allow(_PARTING)
        end = time.monotonic() + _PARTING
        while (code := self._ucc.ucc_team_destroy(self._team)) == ucc.IN_PROGRESS:
            self._ucc.ucc_context_progress(self._context)
            time.sleep(0.0)
            if time.monotonic() > end:
                return
        self._check("ucc_team_destroy", code)
        self._ucc.ucc_context_destroy(self._context)


def _even(data: Array) -> ucc.Buffer:
    """UCC's words for an array; UCC's host memory is memory type 0."""
    kind = ucc.DTYPES.get(data.dtype.name, ucc.BYTE)
    return ucc.Buffer(even=ucc.Even(data.ctypes.data, data.size, kind, 0))


def _uneven(data: Array, counts: Sequence[int]) -> tuple[ucc.Buffer, tuple[Array, Array]]:
    """UCC's words for an array of bytes in parts; and what they point to."""
    sizes = np.array(counts, np.uint64)
    places = np.concatenate([np.zeros(1, np.uint64), np.cumsum(sizes)[:-1]]).astype(np.uint64)
    at = data.ctypes.data, sizes.ctypes.data, places.ctypes.data
    return ucc.Buffer(uneven=ucc.Uneven(*at, ucc.BYTE, 0)), (sizes, places)
