"""NcclCommunicator: collectives by NCCL, on a stream of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mortice
from mortice.distributed import Call, ReduceOp, Setup, StreamCommunicator
from mortice.errors import DistBackendError, DTypeError

from . import library

# ncclDataType_t and ncclRedOp_t, as nccl.h numbers them. bool travels as bytes, complex as pairs.
DTYPES = {
    "int8": 0, "uint8": 1, "bool": 1, "int32": 2, "uint32": 3, "int64": 4, "uint64": 5,
    "float16": 6, "float32": 7, "float64": 8, "bfloat16": 9,
    "float8_e4m3fn": 10, "float8_e5m2": 11,
}  # fmt: skip
OPS = {"SUM": 0, "PRODUCT": 1, "MAX": 2, "MIN": 3, "AVG": 4}
_ON_BOOL = {"SUM": "MAX", "MAX": "MAX", "BOR": "MAX", "PRODUCT": "MIN", "MIN": "MIN", "BAND": "MIN"}
_PAIRS = {"complex64": "float32", "complex128": "float64"}
_BYTES = 1
_IN_PROGRESS = 7
_FROM_HOST = 1  # ncclScalarHostImmediate


class NcclCommunicator(StreamCommunicator):
    """What all five names share."""

    devices = ("cuda",)
    #: Whether the communicator is made with the group (else by the first operation).
    eager = False

    def __init__(self, setup: Setup) -> None:
        self.nccl = library.load()
        super().__init__(setup)
        self._comms: dict[Any, Any] = {}
        if self.eager or setup.device is not None:
            self.comm()

    # -- NCCL's communicators --------------------------------------------------------------------

    def comm(self) -> Any:
        """The communicator of all ranks of the group."""
        return self._comm_of("all", self.rank, self.size, 0)

    def _comm_of(self, key: str, rank: int, size: int, first: int) -> Any:
        """The communicator ``key`` of ``size`` ranks, whose identity ``first`` gives the others."""
        found = self._comms.get(key)
        if found is None:
            store, name = self.setup.store, f"unique-id/{key}"
            if self.rank == first:
                store.set(name, bytes(self.nccl.get_unique_id()))
            identity = self.nccl.UniqueId.from_buffer(store.get(name))
            with mortice.accelerator.device_index(self.device.index or 0):
                found = self._comms[key] = self.nccl.comm_init_rank(size, identity, rank)
        return found

    def failure(self) -> BaseException | None:
        for comm in [*self._comms.values()]:
            code = int(self.nccl.comm_get_async_error(comm))
            if code not in (0, _IN_PROGRESS):
                return DistBackendError(
                    f"NCCL reports error {code}: {self.nccl.get_last_error(comm)}"
                )
        return None

    def abort(self) -> None:
        for comm in [*self._comms.values()]:
            self.nccl.comm_abort(comm)
        self._comms.clear()

    def close(self) -> None:
        super().close()
        for comm in [*self._comms.values()]:
            self.nccl.comm_destroy(comm)
        self._comms.clear()

    # -- operations ------------------------------------------------------------------------------

    def launch(self, call: Call, stream: Any) -> None:
        handle = int(stream.native_handle or 0)
        inputs = [self.accepted(t) for t in call.inputs]
        outputs = [self.accepted(t) for t in call.outputs]
        _LAUNCHES[call.name](self, call, inputs, outputs, handle)
        for given, used in zip(call.outputs, outputs):
            if used is not given:
                given.copy_(used)

    def accepted(self, tensor: Any) -> Any:
        """A tensor as NCCL takes it: on the communicator's device, elements without gaps."""
        if tensor.device.type != "cuda":
            raise DistBackendError(
                f"NCCL moves tensors on cuda, and this one is on {tensor.device}"
            )
        return tensor.contiguous()

    def kind(self, tensor: Any, op: ReduceOp | None = None) -> tuple[int, int]:
        """(number of elements, ncclDataType_t) of a tensor; of its bytes if it is only moved."""
        if op is None:
            return tensor.nbytes, _BYTES
        name = tensor.dtype.name
        factor = 1
        if name in _PAIRS and op.name in ("SUM", "AVG"):
            name, factor = _PAIRS[name], 2
        if name not in DTYPES:
            raise DTypeError(f"NCCL does not reduce {tensor.dtype!r} with {op!r}")
        return factor * tensor.numel(), DTYPES[name]

    def op(self, op: ReduceOp, tensor: Any, comm: Any) -> int:
        """ncclRedOp_t of a reduction."""
        name = _ON_BOOL.get(op.name, op.name) if tensor.dtype is mortice.bool else op.name
        if op.name == "PREMUL_SUM":
            factor = op.factor.item() if hasattr(op.factor, "item") else op.factor
            scalar = mortice.tensor(factor, dtype=tensor.dtype)
            return int(
                self.nccl.red_op_create_pre_mul_sum(
                    scalar.data_ptr(), DTYPES[tensor.dtype.name], _FROM_HOST, comm
                )
            )
        if name not in OPS:
            raise DTypeError(f"NCCL has no {op!r} for {tensor.dtype!r}")
        return OPS[name]

    def pair(self, peer: int) -> tuple[Any, int]:
        """The communicator for messages with a rank, and that rank's number in it."""
        return self.comm(), peer


# -- one function for each operation ------------------------------------------------------------

Tensors = list[Any]


def _all_reduce(c: NcclCommunicator, call: Call, i: Tensors, o: Tensors, stream: int) -> None:
    assert call.op is not None
    comm, at = c.comm(), o[0].data_ptr()
    c.nccl.all_reduce(at, at, *c.kind(o[0], call.op), c.op(call.op, o[0], comm), comm, stream)


def _reduce(c: NcclCommunicator, call: Call, i: Tensors, o: Tensors, stream: int) -> None:
    assert call.op is not None
    comm, at = c.comm(), o[0].data_ptr()
    count, kind = c.kind(o[0], call.op)
    c.nccl.reduce(at, at, count, kind, c.op(call.op, o[0], comm), call.root, comm, stream)


def _broadcast(c: NcclCommunicator, call: Call, i: Tensors, o: Tensors, stream: int) -> None:
    at = o[0].data_ptr()
    c.nccl.broadcast(at, at, *c.kind(o[0]), call.root, c.comm(), stream)


def _reduce_scatter(c: NcclCommunicator, call: Call, i: Tensors, o: Tensors, stream: int) -> None:
    assert call.op is not None
    comm = c.comm()
    given = i[0] if len(i) == 1 else mortice.cat([t.reshape(-1) for t in i])
    count, kind = c.kind(o[0], call.op)
    operation = c.op(call.op, o[0], comm)
    c.nccl.reduce_scatter(given.data_ptr(), o[0].data_ptr(), count, kind, operation, comm, stream)


def _all_gather(c: NcclCommunicator, call: Call, i: Tensors, o: Tensors, stream: int) -> None:
    comm = c.comm()
    if len(o) == 1:
        c.nccl.all_gather(i[0].data_ptr(), o[0].data_ptr(), *c.kind(i[0]), comm, stream)
        return
    with _grouped(c):
        for rank, target in enumerate(o):
            source = i[0] if rank == c.rank else target
            at = source.data_ptr(), target.data_ptr()
            c.nccl.broadcast(*at, *c.kind(target), rank, comm, stream)


class _grouped:
    """NCCL's group: the calls inside are one operation."""

    def __init__(self, c: NcclCommunicator) -> None:
        self._nccl = c.nccl

    def __enter__(self) -> None:
        self._nccl.group_start()

    def __exit__(self, *_: object) -> None:
        self._nccl.group_end()


def _exchange(
    c: NcclCommunicator, gives: list[tuple[int, Any]], takes: list[tuple[int, Any]], stream: int
) -> None:
    """Send and receive several tensors as one operation; those without elements are left out."""
    comm = c.comm()
    with _grouped(c):
        for peer, t in gives:
            if t.numel():
                c.nccl.send(t.data_ptr(), *c.kind(t), peer, comm, stream)
        for peer, t in takes:
            if t.numel():
                c.nccl.recv(t.data_ptr(), *c.kind(t), peer, comm, stream)


def _gather(c: NcclCommunicator, call: Call, i: Tensors, o: Tensors, stream: int) -> None:
    _exchange(c, [(call.root, i[0])], list(enumerate(o)), stream)


def _scatter(c: NcclCommunicator, call: Call, i: Tensors, o: Tensors, stream: int) -> None:
    _exchange(c, list(enumerate(i)), [(call.root, o[0])], stream)


def _all_to_all(c: NcclCommunicator, call: Call, i: Tensors, o: Tensors, stream: int) -> None:
    assert call.counts is not None
    takes, gives = (
        list(t) if len(t) > 1 else list(t[0].reshape(-1).split(list(counts)))
        for t, counts in ((o, call.counts[0]), (i, call.counts[1]))
    )
    _exchange(c, list(enumerate(gives)), list(enumerate(takes)), stream)


def _send(c: NcclCommunicator, call: Call, i: Tensors, o: Tensors, stream: int) -> None:
    comm, peer = c.pair(call.root)
    c.nccl.send(i[0].data_ptr(), *c.kind(i[0]), peer, comm, stream)


def _recv(c: NcclCommunicator, call: Call, i: Tensors, o: Tensors, stream: int) -> None:
    if call.root < 0:
        raise DistBackendError("NCCL receives from a named rank only: give recv a src")
    comm, peer = c.pair(call.root)
    c.nccl.recv(o[0].data_ptr(), *c.kind(o[0]), peer, comm, stream)


def _barrier(c: NcclCommunicator, call: Call, i: Tensors, o: Tensors, stream: int) -> None:
    token = mortice.zeros(1, device=c.device)
    at, comm = token.data_ptr(), c.comm()
    c.nccl.all_reduce(at, at, 1, DTYPES["float32"], OPS["SUM"], comm, stream)


Launch = Callable[[Any, Call, Tensors, Tensors, int], None]

_LAUNCHES: dict[str, Launch] = {
    "all_reduce": _all_reduce,
    "reduce": _reduce,
    "broadcast": _broadcast,
    "reduce_scatter": _reduce_scatter,
    "all_gather": _all_gather,
    "gather": _gather,
    "scatter": _scatter,
    "all_to_all": _all_to_all,
    "send": _send,
    "recv": _recv,
    "barrier": _barrier,
}
