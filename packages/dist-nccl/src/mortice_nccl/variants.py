"""The five names. All stand on one libnccl; what differs between them in PyTorch differs here.

============  ======================================================================================
nccl          what nccl2 is
nccl-legacy   the communicator is made by the first operation, unless a device is given
nccl2         it is made with the group
nccl-lazy     nccl2; messages between two ranks go by a communicator and a stream of these two alone
nccl4py       refuses what is not contiguous, dtypes and operations beyond NCCL's own
============  ======================================================================================
"""

from __future__ import annotations

from typing import Any

from mortice.errors import InvalidValue

from .communicator import NcclCommunicator


class Nccl2(NcclCommunicator):
    """Made with the group."""

    eager = True


class NcclLazy(Nccl2):
    """Each pair of ranks that exchange messages has a communicator of its own."""

    stream_per_peer = True

    def pair(self, peer: int) -> tuple[Any, int]:
        low, high = sorted((self.rank, peer))
        place = int(self.rank == high)
        return self._comm_of(f"pair/{low}-{high}", place, 2, low), 1 - place


class Nccl4py(NcclCommunicator):
    """Strict about tensors."""

    def accepted(self, tensor: Any) -> Any:
        if tensor.device.type != "cuda":
            raise InvalidValue(f"nccl4py takes tensors on cuda, and this one is on {tensor.device}")
        if not tensor.is_contiguous():
            raise InvalidValue("nccl4py takes contiguous tensors; call .contiguous() first")
        return tensor


VARIANTS: dict[str, type[NcclCommunicator]] = {
    "nccl": Nccl2,
    "nccl-legacy": NcclCommunicator,
    "nccl2": Nccl2,
    "nccl-lazy": NcclLazy,
    "nccl4py": Nccl4py,
}
