"""Watch: which ranks have ended, and what others said of a failure; and errors that tell.

Each rank leaves a will in the store when it joins: its number is appended to ``gone`` when its
connection ends before it leaves. A rank whose operation fails appends a line to ``failed``. So
the ranks that find each other missing can say which one it is, whatever their library tells.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable

from mortice.errors import DistBackendError, DistError, OperationTimeout, StoreTimeout

from .communicator import Call
from .comparison import RanksDisagree
from .store.base import Store

# How long after a failure the others' reports are awaited. A peer whose connection broke has most
# likely ended, and its will is on the way, on a busy machine for a while; who let the time pass
# would have been missed long ago.
_GRACE = 3.0
_GRACE_LATE = 0.6
# How often polled waits may ask.
_PERIOD = 0.2


class Watch:
    """What a rank knows of the others; one for the whole, used by all groups."""

    def __init__(self, store: Store, rank: int) -> None:
        self._store = store
        self.rank = rank
        self._gone: frozenset[int] = frozenset()
        self._asked = float("-inf")
        self._lock = threading.Lock()
        store.leave_will("gone", f"{rank},")

    def leave(self) -> None:
        """This rank ends as it should."""
        try:
            self._store.revoke_will("gone")
        except DistError:
            pass  # the store has gone before us, and with it who would read the will

    def say_left(self, groups: Iterable[str]) -> None:
        """Tell that this rank has destroyed groups, to those who may still wait for it there."""
        try:
            self._store.append("left", "".join(f"{self.rank}:{group}\n" for group in groups))
        except DistError:
            pass  # the store has gone before us, and with it who would read it

    def left(self, group: str) -> list[int]:
        """The ranks that have destroyed a group."""
        words = [word.partition(":") for word in self._words("left", "\n")]
        return [int(rank) for rank, _, name in words if name == group]

    def gone(self) -> frozenset[int]:
        """Ranks of the whole that have ended; asks the store at most every 0.2 s.

        Raises DistStoreError where the store does not answer.
        """
        with self._lock:
            if time.monotonic() - self._asked >= _PERIOD:
                self._gone = frozenset(int(n) for n in self._words("gone", ","))
                self._asked = time.monotonic()
            return self._gone

    def report(self, group: str, text: str) -> None:
        """Tell the others of a failure."""
        self._store.append(f"failed/{group}", f"{self.rank}:{' '.join(text.split())}\n")

    def reports(self, group: str) -> dict[int, str]:
        """The first failure that each rank told of."""
        told: dict[int, str] = {}
        for line in self._words(f"failed/{group}", "\n"):
            rank, _, text = line.partition(":")
            told.setdefault(int(rank), text)
        return told

    def _words(self, key: str, separator: str) -> list[str]:
        if not self._store.check([key]):
            return []
        try:
            return [word for word in self._store.get(key).decode().split(separator) if word]
        except StoreTimeout:  # deleted in between
            return []


class Explainer:
    """Makes the error that users see: which operation, where, and who is missing."""

    def __init__(
        self, watch: Watch, group: str, ranks: tuple[int, ...], backend: str, shown: str
    ) -> None:
        self._watch = watch
        self._name = group
        self._group = f"{group}/{backend}"
        self._ranks = ranks
        self._backend = backend
        self._shown = shown
        self._first: DistBackendError | None = None
        self._lock = threading.Lock()

    def __call__(self, call: Call, error: BaseException) -> BaseException:
        """The error for an operation that raised ``error``, or came after one that did."""
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            return error
        with self._lock:
            if self._first is not None:
                return self._later(call, self._first)
            self._first = self._explained(call, error)
            return self._first

    def gone(self) -> tuple[int, ...]:
        """Members of the group that have ended."""
        gone = self._watch.gone()
        return tuple(rank for rank in self._ranks if rank in gone)

    def _later(self, call: Call, first: DistBackendError) -> DistBackendError:
        made = DistBackendError(
            f"{call} {self._where()} cannot run: the group ended with {first.operation} "
            f"#{first.sequence}. Make a new group, of ranks that are alive: {first}",
            operation=call.name,
            sequence=call.sequence,
            rank=self._watch.rank,
            gone=first.gone,
        )
        made.__cause__ = first
        return made

    def _explained(self, call: Call, error: BaseException) -> DistBackendError:
        late = isinstance(error, TimeoutError) or "timed out" in str(error).lower()
        # What a library says of its connections tells the others nothing; this does.
        why = f" ({error})" if isinstance(error, RanksDisagree) else ""
        gone, missing = self._blame(call, f"{call}{why}", late=late)
        cause = " ".join(str(error).split()) or type(error).__name__
        kind = OperationTimeout if late and not gone else DistBackendError
        made = kind(
            f"{call} {self._where()} failed: {missing}{cause}",
            operation=call.name,
            sequence=call.sequence,
            rank=self._watch.rank,
            gone=gone,
        )
        made.__cause__ = error
        return made

    def _where(self) -> str:
        return (
            f"of group {self._shown} on rank {self._watch.rank} "
            f"(backend {self._backend}, {len(self._ranks)} ranks)"
        )

    def _blame(self, call: Call, report: str, *, late: bool) -> tuple[tuple[int, ...], str]:
        """Who is gone, and a text about who is gone, failed or silent."""
        try:
            self._watch.report(self._group, report)
            return self._gathered(report, late=late)
        except DistError as error:
            return (), f"the store that says who is alive does not answer either ({error}); "

    def _gathered(self, report: str, *, late: bool) -> tuple[tuple[int, ...], str]:
        """Wait a little for the news of what happened to arrive."""
        end = time.monotonic() + (_GRACE_LATE if late else _GRACE)
        while True:
            gone = self.gone()
            told = self._watch.reports(self._group)
            others = [rank for rank in self._ranks if rank not in (self._watch.rank, *gone)]
            left = [rank for rank in self._watch.left(self._name) if rank in others]
            silent = [rank for rank in others if rank not in told and rank not in left]
            if gone or (not silent and not late) or time.monotonic() >= end:
                break
            time.sleep(0.05)
        texts: list[str] = []
        if gone:
            texts.append(f"{named(gone)} ended")
        if left:
            texts.append(f"{named(left)} destroyed the group")
        texts += [
            f"rank {rank} failed in {told[rank]}"
            for rank in others
            if rank in told and told[rank] != report
        ]
        if late and silent:
            texts.append(f"{named(silent)} did not come to it in time")
        elif silent and not gone:
            texts.append(f"{named(silent)} told nothing")
        return gone, "".join(f"{text}; " for text in texts)


def named(ranks: tuple[int, ...] | list[int]) -> str:
    """``rank 1`` or ``ranks 1, 2``."""
    listed = ", ".join(map(str, ranks))
    return f"rank {listed}" if len(ranks) == 1 else f"ranks {listed}"
