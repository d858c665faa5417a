"""The opening of a collective: each rank tells all others what it is about to do.

One ``all_gather`` of frames of one size, whatever the collective: a line of text, and behind it the
data of a small all_reduce, which then needs no more. Between 2 ranks over Gloo it takes 80 us, as long
as an all_reduce of 4 bytes by Gloo itself; the data go along for nothing. An all_reduce of some more
bytes would take up to a third longer: it opens only when its like is made for the first time.
"""

from __future__ import annotations

from hashlib import sha1
from typing import TYPE_CHECKING

import numpy as np

from .communicator import Call
from .comparison import RanksDisagree, fingerprint, told_apart
from .fold import Array

if TYPE_CHECKING:
    from .host import HostCommunicator

_TEXT = 96
# Bytes of data that go along; at least as many as the counts of an all_to_all need.
_DATA = 416
# From so many bytes on an all_reduce takes so long (1.5 ms between 2 ranks) that it opens every time.
_LONG = 1 << 22
# So many all_reduces are remembered; who makes more different ones opens them all.
_KNOWN = 1024


class Opening:
    """For the collectives of one communicator of ``ranks``."""

    def __init__(self, ranks: tuple[int, ...]) -> None:
        self._ranks = ranks
        self._room = max(_DATA, 8 * len(ranks))
        self._frame = np.zeros(_TEXT + self._room, np.uint8)
        self._every = np.empty((len(ranks), self._frame.size), np.uint8)
        self._flat = self._every.reshape(-1)
        self._text = b""  # that stands in the frame
        self._known: set[bytes] = set()

    def __call__(
        self, comm: HostCommunicator, call: Call, data: Array | None
    ) -> list[Array] | None:
        """Exchange frames; returns everybody's ``data`` if they went along.

        Raises RanksDisagree, on all ranks, if what ranks must agree on is not alike; for an
        all_to_all, on the rank that is to get another number of elements than it expects.
        """
        text = _line(fingerprint(call))
        if data is not None and self._room < data.nbytes < _LONG and self._is_known(text):
            return None
        frame, every = self._frame, self._every
        if text != self._text:
            frame[:_TEXT] = np.frombuffer(text, np.uint8)
            self._text = text
        carried = None if data is None or data.nbytes > self._room else data
        if call.name == "all_to_all" and call.counts is not None:
            carried = np.array(call.counts[1], np.int64)
        nbytes = 0
        if carried is not None:
            nbytes = carried.nbytes
            frame[_TEXT : _TEXT + nbytes] = carried.view(np.uint8)
        comm.all_gather(self._flat, frame)
        if every[:, :_TEXT].tobytes() != text * len(every):
            told = [row[:_TEXT].tobytes().rstrip(b"\0").decode() for row in every]
            raise RanksDisagree(f"the ranks disagree: {told_apart(told, self._ranks)}")
        if carried is None:
            return None
        parts = [row[_TEXT : _TEXT + nbytes].view(carried.dtype) for row in every]
        if data is None:
            self._check_counts(comm.rank, call, parts)
            return None
        return parts

    def _is_known(self, text: bytes) -> bool:
        """Whether an all_reduce was opened before, by all ranks, since all come to every opening."""
        if text in self._known:
            return True
        if len(self._known) < _KNOWN:
            self._known.add(text)
        return False

    def _check_counts(self, rank: int, call: Call, given: list[Array]) -> None:
        assert call.counts is not None
        for peer, (counts, expected) in enumerate(zip(given, call.counts[0])):
            if counts[rank] != expected:
                raise RanksDisagree(
                    f"rank {self._ranks[peer]} gives {counts[rank]} elements to rank "
                    f"{self._ranks[rank]}, which expects {expected}"
                )


def _line(text: str) -> bytes:
    """A text in the room that there is; a longer one is cut, and told apart by its digest."""
    line = text.encode()
    if len(line) > _TEXT:
        digest = sha1(line, usedforsecurity=False).hexdigest()[:8].encode()
        line = line[: _TEXT - 12] + b"... " + digest
    return line.ljust(_TEXT, b"\0")
