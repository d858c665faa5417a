"""When ranks tell each other what they are about to do, counted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mortice
from mortice.distributed.communicator import Call
from mortice.distributed.comparison import RanksDisagree
from mortice.distributed.opening import Opening
from mortice.distributed.reduce_op import ReduceOp


class Peers:
    """Stands for a communicator of two ranks: the other says the same, or ``other``."""

    rank = 0

    def __init__(self) -> None:
        self.exchanges = 0
        self.other: bytes | None = None

    def all_gather(self, out: Any, data: Any) -> None:
        self.exchanges += 1
        theirs = data.copy()
        if self.other is not None:
            theirs[:96] = np.frombuffer(self.other.ljust(96, b"\0"), np.uint8)
        out[...] = np.concatenate([data, theirs])


def call(numel: int) -> tuple[Call, Any]:
    tensor = mortice.ones(numel)
    return Call("all_reduce", 1, 10.0, (), (tensor,), ReduceOp.SUM), tensor.numpy()


@pytest.mark.parametrize(
    ("numel", "expected"), [(1, 3), (104, 3), (105, 1), (1 << 19, 1), (1 << 20, 3)]
)
def test_middling_sums_open_once(numel: int, expected: int) -> None:
    opening, peers = Opening((0, 1)), Peers()
    for _ in range(3):
        every = opening(peers, *call(numel))  # type: ignore[arg-type]
        assert (every is not None) == (numel <= 104)
        if every is not None:
            assert [part.tolist() for part in every] == [[1.0] * numel] * 2
    assert peers.exchanges == expected
    opening(peers, *call(200))  # type: ignore[arg-type]
    assert peers.exchanges == expected + 1


@pytest.mark.parametrize("numel", [1, 1000, 1 << 20])
def test_another_one_is_told_apart(numel: int) -> None:
    opening, peers = Opening((4, 7)), Peers()
    peers.other = b"all_reduce SUM float32 12"
    with pytest.raises(RanksDisagree, match=f"rank 7: all_reduce SUM float32 12; .*{numel}"):
        opening(peers, *call(numel))  # type: ignore[arg-type]


def test_who_makes_too_many_different_ones_opens_them_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mortice.distributed.opening._KNOWN", 2)
    opening, peers = Opening((0, 1)), Peers()
    for numel in (200, 300, 400, 400, 200):
        opening(peers, *call(numel))  # type: ignore[arg-type]
    assert peers.exchanges == 4
