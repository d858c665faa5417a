"""Buckets: gradients of several parameters in one flat tensor, so that few messages carry them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mortice._tensor import make
from mortice._tensor.tensor import Tensor

# The first one is small, so that communication begins soon.
FIRST_BYTES = 1 << 20
MEGABYTE = 1 << 20


class Bucket:
    """A flat tensor, and its views in the parameters' shapes.

    Attributes:
        index: its place; buckets are reduced in this order on all ranks.
        places: the parameters' places in the model's list.
        parameters: those, in that order.
        flat: the elements of all gradients.
        views: ``flat`` in parts, each shaped as its parameter.
        pending: how many gradients it still waits for.
    """

    def __init__(self, index: int, places: Sequence[int], parameters: Sequence[Tensor]) -> None:
        self.index = index
        self.places = list(places)
        self.parameters = list(parameters)
        first = self.parameters[0]
        count = sum(p.numel() for p in self.parameters)
        self.flat = make.empty((count,), first.dtype, first.device)
        self.views = self._parts(self.flat)
        self.pending = len(self.parameters)
        self.work: Any = None

    def _parts(self, flat: Tensor) -> list[Tensor]:
        parts: list[Tensor] = []
        at = 0
        for p in self.parameters:
            part = flat.narrow(0, at, p.numel()).view(tuple(p.shape))
            # A view that autograd knows nothing of: writes to it are no history of flat.
            parts.append(part.detach())
            at += p.numel()
        return parts

    def parts(self, flat: Tensor) -> list[Tensor]:
        """Another flat tensor of this size in the parameters' shapes."""
        return self._parts(flat)


class GradBucket:
    """A bucket as a communication hook sees it."""

    def __init__(self, bucket: Bucket, count: int) -> None:
        self._bucket = bucket
        self._count = count
        self._buffer = bucket.flat

    def index(self) -> int:
        return self._bucket.index

    def buffer(self) -> Tensor:
        """The flat tensor: 1-d, all gradients one after the other."""
        return self._buffer

    def set_buffer(self, tensor: Tensor) -> None:
        """Put another flat tensor of the same size in its place."""
        self._buffer = tensor

    def gradients(self) -> list[Tensor]:
        """The gradients, as views of the buffer."""
        return self._bucket.parts(self._buffer)

    def parameters(self) -> list[Tensor]:
        return list(self._bucket.parameters)

    def is_last(self) -> bool:
        """Whether no bucket comes after it in this backward pass."""
        return self._bucket.index == self._count - 1


def assign(
    parameters: Sequence[Tensor], order: Sequence[int], limit: int, first: int = FIRST_BYTES
) -> list[Bucket]:
    """Buckets of at most ``limit`` bytes, of one dtype and device each, in the given order."""
    groups: list[list[int]] = []
    open_groups: dict[Any, tuple[list[int], int]] = {}
    for place in order:
        p = parameters[place]
        kind = p.dtype, p.device
        members, nbytes = open_groups.get(kind, ([], 0))
        most = (
            min(first, limit)
            if not groups or (len(groups) == 1 and members is groups[0])
            else limit
        )
        if not members or nbytes + p.nbytes > most:
            members, nbytes = [], 0
            groups.append(members)
        members.append(place)
        open_groups[kind] = members, nbytes + p.nbytes
    return [Bucket(k, places, [parameters[i] for i in places]) for k, places in enumerate(groups)]
