"""Every collective, made of messages between two ranks; and reductions, made of movements.

What a backend over host memory starts from: it replaces the methods for which its library has a
better way, and calls ``super()`` for what the library lacks (a dtype, an operation). All data are
one-dimensional contiguous numpy arrays; movements may be given any dtype.

``send`` may wait until the receiver is there, so the two of an exchange never both send first.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

import numpy as np

from .fold import Array, fold

# Below this many bytes one round with everybody's whole data is quicker than two with parts.
SMALL = 32768


class Composed(ABC):
    """The algorithms; ``rank`` and ``size`` are those of the group."""

    rank: int
    size: int

    @abstractmethod
    def send(self, data: Array, peer: int, tag: int) -> None:
        """Send to ``peer``; returns when ``data`` may be written to again."""

    @abstractmethod
    def recv(self, data: Array, peer: int, tag: int) -> int:
        """Receive into ``data`` from ``peer`` (-1: from anyone); returns who sent."""

    # -- movements -------------------------------------------------------------------------------

    def broadcast(self, data: Array, root: int) -> None:
        """Give everybody the root's data, along a binomial tree."""
        me = (self.rank - root) % self.size
        step = 1
        while step < self.size:
            if me < step and me + step < self.size:
                self.send(data, (me + step + root) % self.size, _TAG)
            elif step <= me < 2 * step:
                self.recv(data, (me - step + root) % self.size, _TAG)
            step *= 2

    def gather(self, out: Array | None, data: Array, root: int) -> None:
        """Put everybody's data into the root's ``out``, in the ranks' order."""
        if self.rank != root:
            self.send(data, root, _TAG)
            return
        assert out is not None
        for rank, part in enumerate(parts_of(out, self.size)):
            if rank == root:
                part[...] = data
            else:
                self.recv(part, rank, _TAG)

    def scatter(self, data: Array, source: Array | None, root: int) -> None:
        """Give each rank its part of the root's ``source``."""
        if self.rank != root:
            self.recv(data, root, _TAG)
            return
        assert source is not None
        for rank, part in enumerate(parts_of(source, self.size)):
            if rank == root:
                data[...] = part
            else:
                self.send(part, rank, _TAG)

    def all_gather(self, out: Array, data: Array) -> None:
        """Put everybody's data into everybody's ``out``."""
        parts = parts_of(out, self.size)
        parts[self.rank][...] = data
        for peer in self._peers():
            self._exchange(data, parts[peer], peer)

    def all_to_all(
        self, out: Array, data: Array, out_counts: Sequence[int], in_counts: Sequence[int]
    ) -> None:
        """Give each rank its part of ``data``; counts are elements per rank."""
        targets, sources = split(out, out_counts), split(data, in_counts)
        targets[self.rank][...] = sources[self.rank]
        for peer in self._peers():
            self._exchange(sources[peer], targets[peer], peer)

    def barrier(self) -> None:
        """Return when everybody has come."""
        token = np.zeros(1, np.uint8)
        self.all_gather(np.zeros(self.size, np.uint8), token)

    # -- reductions ------------------------------------------------------------------------------

    def all_reduce(self, data: Array, op: str) -> None:
        """Reduce everybody's data into everybody's."""
        if data.nbytes <= SMALL:
            self.all_reduce_at_once(data, op)
            return
        share = -(-data.size // self.size)
        whole = np.zeros(share * self.size, data.dtype)
        whole[: data.size] = data
        mine = np.empty(share, data.dtype)
        self._reduce_shares(mine, whole, op)
        self.all_gather(_bytes(whole), _bytes(mine))
        data[...] = whole[: data.size]

    def all_reduce_at_once(self, data: Array, op: str) -> None:
        """Let everybody have everybody's whole data, and reduce them for itself."""
        every = np.empty(self.size * data.size, data.dtype)
        self.all_gather(_bytes(every), _bytes(data))
        fold(parts_of(every, self.size), op, data)

    def reduce(self, data: Array, op: str, root: int) -> None:
        """Reduce everybody's data into the root's."""
        every = np.empty(self.size * data.size, data.dtype) if self.rank == root else None
        self.gather(None if every is None else _bytes(every), _bytes(data), root)
        if every is not None:
            fold(parts_of(every, self.size), op, data)

    def reduce_scatter(self, out: Array, data: Array, op: str) -> None:
        """Reduce everybody's data; each rank gets its part, as large as ``out``."""
        self._reduce_shares(out, data, op)

    def _reduce_shares(self, out: Array, data: Array, op: str) -> None:
        received = np.empty_like(data)
        counts = [out.nbytes] * self.size
        self.all_to_all(_bytes(received), _bytes(data), counts, counts)
        fold(parts_of(received, self.size), op, out)

    # -- messages --------------------------------------------------------------------------------

    def _peers(self) -> Iterator[int]:
        """The others, in an order in which, at each step, two ranks meet each other.

        Round robin tournament; with an odd number, one rank rests in each round.
        """
        players = self.size + self.size % 2
        for turn in range(players - 1):
            peer = _opponent(self.rank, turn, players)
            if peer < self.size:
                yield peer

    def _exchange(self, data: Array, into: Array, peer: int) -> None:
        steps = [
            lambda: self.send(data, peer, _TAG) if data.size else None,
            lambda: self.recv(into, peer, _TAG) if into.size else None,
        ]
        for step in steps if self.rank < peer else reversed(steps):
            step()


# Messages of collectives do not meet those of users, whose tags are not negative.
_TAG = -1


def _opponent(rank: int, turn: int, players: int) -> int:
    """Whom ``rank`` meets in a round of the tournament (circle method; the last one stays put)."""
    last = players - 1
    if rank == last:
        # 2 x = turn (mod last), whose solution is x = turn * (last + 1) / 2.
        return turn * (players // 2) % last
    peer = (turn - rank) % last
    return last if peer == rank else peer


def parts_of(array: Array, count: int) -> list[Array]:
    """Equal parts of an array."""
    return list(array.reshape(count, -1)) if array.size else [array] * count


def split(array: Array, counts: Sequence[int]) -> list[Array]:
    """Consecutive parts of the given sizes."""
    result: list[Array] = []
    at = 0
    for count in counts:
        result.append(array[at : at + count])
        at += count
    return result


def _bytes(array: Array) -> Array:
    return array.view(np.uint8)
