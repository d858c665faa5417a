"""What ranks must agree on when they begin an operation, and telling those apart that do not.

``Comparison`` asks through the store, where ``config.distributed_debug`` wants it; ``Opening``
(opening.py) through the backend.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from mortice.errors import DistBackendError, OperationTimeout, StoreTimeout

from .communicator import Call
from .store.base import Store

# Which tensors are the same on all ranks, by operation; in the others ranks may differ.
_ALIKE = {
    "all_reduce": "outputs",
    "reduce": "outputs",
    "broadcast": "outputs",
    "reduce_scatter": "outputs",
    "scatter": "outputs",
    "gather": "inputs",
    "all_gather": "inputs",
}


def fingerprint(call: Call) -> str:
    """What all ranks must agree on: ``all_reduce SUM float32 12``."""
    words = [call.name]
    if call.op is not None:
        words.append(call.op.name)
    if call.root >= 0:
        words.append(f"root {call.root}")
    tensors: tuple[Any, ...] = call.inputs or call.outputs
    if tensors:
        words.append(tensors[0].dtype.name)
    if call.name in _ALIKE and call.counts is None:
        alike = getattr(call, _ALIKE[call.name])
        words.append(str(alike[0].numel()))
    elif call.name == "all_gather" and call.counts is not None:
        words.append(", ".join(map(str, call.counts[0])))
    return " ".join(words)


class RanksDisagree(DistBackendError):
    """Ranks do different things. Others are told the reason when they find this rank missing."""


def told_apart(told: list[str], ranks: tuple[int, ...]) -> str:
    """What each of ``ranks`` said, those that said something else first."""
    usual, _ = Counter(told).most_common(1)[0]
    odd = [f"rank {ranks[k]}: {text}" for k, text in enumerate(told) if text != usual]
    others = [str(ranks[k]) for k, text in enumerate(told) if text == usual]
    rest = f"{'rank' if len(others) == 1 else 'ranks'} {', '.join(others)}"
    return f"{'; '.join(odd)}; {rest}: {usual}"


class Comparison:
    """Lets the ranks of a group compare, through its store; one per communicator."""

    def __init__(self, store: Store, rank: int, ranks: tuple[int, ...]) -> None:
        self._store = store
        self._rank = rank
        self._ranks = ranks
        self._last = 0

    def __call__(self, call: Call) -> None:
        """Wait until all ranks have told; raises DistBackendError if they differ."""
        if call.name in ("send", "recv"):
            return
        place = f"doing/{call.sequence}"
        self._store.set(f"{place}/{self._rank}", fingerprint(call))
        keys = [f"{place}/{rank}" for rank in range(len(self._ranks))]
        try:
            self._store.wait(keys, call.timeout)
        except StoreTimeout as error:
            absent = [self._ranks[int(key.rpartition("/")[2])] for key in error.keys]
            raise OperationTimeout(
                f"after {call.timeout:g} s, these ranks have not come to it: "
                f"{', '.join(map(str, absent))}"
            ) from error
        told = [value.decode() for value in self._store.multi_get(keys)]
        # All have been at the one before, so its words are not needed any more.
        self._store.delete_key(f"doing/{self._last}/{self._rank}")
        self._last = call.sequence
        if len(set(told)) > 1:
            raise RanksDisagree(f"the ranks disagree: {told_apart(told, self._ranks)}")
