"""The backend ``fake``: any number of ranks in one process, none of them but this one real.

For trying code without others. Every operation ends at once, as if all ranks gave what this one
gives: sums are multiplied, gathered lists are full of this rank's tensor, messages are lost.
"""

from __future__ import annotations

from typing import Any

import pluggy

from .composed import parts_of
from .fold import Array, fold
from .host import HostCommunicator


class FakeCommunicator(HostCommunicator):
    """Answers without asking anybody."""

    def send(self, data: Array, peer: int, tag: int) -> None:
        pass

    def recv(self, data: Array, peer: int, tag: int) -> int:
        return max(peer, 0)

    def broadcast(self, data: Array, root: int) -> None:
        pass

    def gather(self, out: Array | None, data: Array, root: int) -> None:
        if out is not None:
            self.all_gather(out, data)

    def scatter(self, data: Array, source: Array | None, root: int) -> None:
        if source is not None:
            data[...] = parts_of(source, self.size)[self.rank]

    def all_gather(self, out: Array, data: Array) -> None:
        for part in parts_of(out, self.size):
            part[...] = data

    def all_to_all(self, out: Array, data: Array, out_counts: Any, in_counts: Any) -> None:
        out[: data.size] = data[: out.size]

    def all_reduce(self, data: Array, op: str) -> None:
        fold([data] * self.size, op, data)

    def reduce(self, data: Array, op: str, root: int) -> None:
        fold([data] * self.size, op, data)

    def reduce_scatter(self, out: Array, data: Array, op: str) -> None:
        fold([parts_of(data, self.size)[self.rank]] * self.size, op, out)

    def barrier(self) -> None:
        pass


@pluggy.HookimplMarker("mortice")
def mortice_distributed_backend(name: str) -> type[FakeCommunicator]:
    """The class of the backend."""
    return FakeCommunicator
