"""XcclCommunicator: collectives by oneCCL, on host memory."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from mortice.distributed import HostCommunicator, Setup
from mortice.errors import DistBackendError

from . import library

Array = np.ndarray[Any, Any]

# onecclDataType_t and onecclRedOp_t.
_DTYPES = {
    "int8": 0, "uint8": 1, "int32": 2, "uint32": 3, "int64": 4, "uint64": 5,
    "float16": 6, "float32": 7, "float64": 8,
}  # fmt: skip
_OPS = {"SUM": 0, "PRODUCT": 1, "MAX": 2, "MIN": 3}
# Narrow floats are added here, in float32.
_REDUCED = frozenset(_DTYPES) - {"float16"}


class XcclCommunicator(HostCommunicator):
    """What oneCCL's plug-in for CPUs has is oneCCL's; the rest is made of it."""

    may_hang = True

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._ccl = library.load()
        identity = library.UniqueId()
        if self.rank == 0:
            # More room than it needs, should another version write more.
            room = (ctypes.c_uint8 * 4096)()
            self._check("onecclGetUniqueId", self._ccl.onecclGetUniqueId(ctypes.addressof(room)))
            setup.store.set("unique-id", bytes(room)[: library.IDENTITY])
        ctypes.memmove(ctypes.addressof(identity), setup.store.get("unique-id"), library.IDENTITY)
        self._comm = ctypes.c_void_p()
        at = ctypes.addressof(self._comm)
        code = self._ccl.onecclCommInitRank(at, self.size, identity, self.rank)
        self._check("onecclCommInitRank", code)

    def _check(self, name: str, code: int) -> None:
        if code:
            text = self._ccl.onecclGetErrorString(code).decode(errors="replace")
            raise DistBackendError(f"{name} returned {code}: {text}")

    def _call(self, name: str, source: Array, target: Array, count: int, *rest: int) -> None:
        kind = _DTYPES[source.dtype.name]
        at = source.ctypes.data, target.ctypes.data
        self._check(name, getattr(self._ccl, name)(*at, count, kind, *rest, self._comm, None))

    # -- messages --------------------------------------------------------------------------------

    def send(self, data: Array, peer: int, tag: int) -> None:
        raise NotImplementedError(
            "oneCCL's plug-in for CPUs has no messages; use collectives, or the backend gloo or mpi"
        )

    def recv(self, data: Array, peer: int, tag: int) -> int:
        self.send(data, peer, tag)
        return peer

    # -- movements, of bytes ---------------------------------------------------------------------

    def broadcast(self, data: Array, root: int) -> None:
        if data.size:
            self._call("onecclBroadcast", data, data, data.size, root)

    def all_gather(self, out: Array, data: Array) -> None:
        if data.size:
            self._call("onecclAllGather", data, out, data.size)

    def gather(self, out: Array | None, data: Array, root: int) -> None:
        self.all_gather(np.empty(self.size * data.size, data.dtype) if out is None else out, data)

    def scatter(self, data: Array, source: Array | None, root: int) -> None:
        whole = np.empty(self.size * data.size, data.dtype) if source is None else source.copy()
        self.broadcast(whole, root)
        data[...] = whole[self.rank * data.size : (self.rank + 1) * data.size]

    def all_to_all(
        self, out: Array, data: Array, out_counts: Sequence[int], in_counts: Sequence[int]
    ) -> None:
        """Parts are filled up to the largest of all ranks', for oneCCL's are equal."""
        largest = np.array([max((*out_counts, *in_counts), default=0)], np.int64)
        self._call("onecclAllReduce", largest, largest, 1, _OPS["MAX"])
        width = int(largest[0])
        if not width:
            return
        padded = np.zeros((self.size, width), data.dtype)
        received = np.empty_like(padded)
        at = 0
        for rank, count in enumerate(in_counts):
            padded[rank, :count] = data[at : at + count]
            at += count
        self._call("onecclAllToAll", padded, received, width)
        at = 0
        for rank, count in enumerate(out_counts):
            out[at : at + count] = received[rank, :count]
            at += count

    def barrier(self) -> None:
        token = np.zeros(1, np.int32)
        self._call("onecclAllReduce", token, token, 1, _OPS["SUM"])

    # -- reductions ------------------------------------------------------------------------------

    def _reduces(self, data: Array, op: str) -> bool:
        return op in _OPS and data.dtype.name in _REDUCED and data.size > 0

    def all_reduce(self, data: Array, op: str) -> None:
        if self._reduces(data, op):
            self._call("onecclAllReduce", data, data, data.size, _OPS[op])
        else:
            super().all_reduce(data, op)

    def reduce(self, data: Array, op: str, root: int) -> None:
        if self._reduces(data, op):
            out = data if self.rank == root else np.empty_like(data)
            self._call("onecclReduce", data, out, data.size, _OPS[op], root)
        else:
            super().reduce(data, op, root)

    def reduce_scatter(self, out: Array, data: Array, op: str) -> None:
        if self._reduces(data, op):
            self._call("onecclReduceScatter", data, out, out.size, _OPS[op])
        else:
            super().reduce_scatter(out, data, op)

    # -- the end ---------------------------------------------------------------------------------

    def close(self) -> None:
        broken = self._broken is not None
        super().close()
        if not broken:  # a destroy would wait for the others, like everything
            self._ccl.onecclCommDestroy(self._comm)
