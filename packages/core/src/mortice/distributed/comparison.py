"""Comparing what ranks are about to do, where ``config.distributed_debug`` asks for it."""

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
    """What all ranks must agree on: ``all_reduce SUM float32[3, 4]``."""
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
    return " ".join(words)


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
            raise DistBackendError(f"the ranks disagree: {self._told_apart(told)}")

    def _told_apart(self, told: list[str]) -> str:
        usual, _ = Counter(told).most_common(1)[0]
        odd = [f"rank {self._ranks[k]}: {text}" for k, text in enumerate(told) if text != usual]
        others = [str(self._ranks[k]) for k, text in enumerate(told) if text == usual]
        rest = f"{'rank' if len(others) == 1 else 'ranks'} {', '.join(others)}"
        return f"{'; '.join(odd)}; {rest}: {usual}"
