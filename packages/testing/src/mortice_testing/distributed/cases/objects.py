"""Collectives of Python objects."""

from __future__ import annotations

from typing import Any

import mortice.distributed as dist

from . import needs


def _object(rank: int) -> Any:
    return {"rank": rank, "text": "x" * (1000 * rank), "nested": [rank, (None, 1.5)]}


def case_all_gather(rank: int, size: int) -> None:
    found: list[Any] = [None] * size
    dist.all_gather_object(found, _object(rank))
    assert found == [_object(k) for k in range(size)]


def case_gather(rank: int, size: int) -> None:
    for root in range(size):
        found: list[Any] | None = [None] * size if rank == root else None
        dist.gather_object(_object(rank), found, dst=root)
        assert found == ([_object(k) for k in range(size)] if rank == root else None)


def case_broadcast(rank: int, size: int) -> None:
    root = size - 1
    given: list[Any] = [_object(7), None, "z"] if rank == root else [0, 0, 0]
    dist.broadcast_object_list(given, src=root)
    assert given == [_object(7), None, "z"]


def case_scatter(rank: int, size: int) -> None:
    out: list[Any] = [None]
    given = [_object(k) for k in range(size)] if rank == 0 else None
    dist.scatter_object_list(out, given, src=0)
    assert out == [_object(rank)]


@needs("messages")
def case_send(rank: int, size: int) -> None:
    if rank == 0:
        for peer in range(1, size):
            dist.send_object_list([_object(peer), "end"], peer)
    else:
        found: list[Any] = [None, None]
        assert dist.recv_object_list(found, 0) == 0
        assert found == [_object(rank), "end"]
