"""Ranks that do different things are told so: nothing that they give each other ends a process."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import mortice.distributed as dist
from mortice_testing.distributed.gang import Gang


def all_reduce(rank: int) -> None:
    import mortice

    dist.all_reduce(mortice.ones(3 if rank else 100_000))


def all_reduce_small(rank: int) -> None:
    import mortice

    dist.all_reduce(mortice.ones(3 if rank else 4))


def all_reduce_dtype(rank: int) -> None:
    import mortice

    dist.all_reduce(mortice.ones(1000, dtype=mortice.int32 if rank else mortice.float32))


def broadcast(rank: int) -> None:
    import mortice

    dist.broadcast(mortice.ones(3 if rank else 5), 0)


def broadcast_root(rank: int) -> None:
    import mortice

    dist.broadcast(mortice.ones(3), rank)


def reduce(rank: int) -> None:
    import mortice

    dist.reduce(mortice.ones(3 + rank), 0)


def all_gather(rank: int) -> None:
    import mortice

    dist.all_gather([mortice.ones(3 + rank) for _ in range(2)], mortice.ones(3 + rank))


def all_gather_uneven(rank: int) -> None:
    import mortice

    lists = [[3, 5], [4, 5]]
    dist.all_gather([mortice.ones(n) for n in lists[rank]], mortice.ones(lists[rank][rank]))


def gather(rank: int) -> None:
    import mortice

    mine = mortice.ones(7 if rank else 3)
    dist.gather(mine, None if rank else [mortice.ones(3) for _ in range(2)], 0)


def scatter(rank: int) -> None:
    import mortice

    mine = mortice.ones(7 if rank else 3)
    dist.scatter(mine, None if rank else [mortice.ones(3) for _ in range(2)], 0)


def reduce_scatter(rank: int) -> None:
    import mortice

    dist.reduce_scatter_tensor(mortice.ones(3 + rank), mortice.ones(2 * (3 + rank)))


def all_to_all(rank: int) -> None:
    import mortice

    given = [[2, 2], [2, 2]] if rank == 0 else [[3, 2], [3, 2]]
    inputs, outputs = ([mortice.ones(n) for n in counts] for counts in given)
    dist.all_to_all(outputs, inputs)


def other_operations(rank: int) -> None:
    import mortice

    dist.barrier() if rank else dist.all_reduce(mortice.ones(3))


CASES: list[Callable[[int], None]] = [
    all_reduce, all_reduce_small, all_reduce_dtype, broadcast, broadcast_root, reduce, all_gather,
    all_gather_uneven, gather, scatter, reduce_scatter, all_to_all, other_operations,
]  # fmt: skip


def seen(rank: int, size: int, number: int) -> str:
    """What a rank is told, in a group of its own, which ends with that."""
    group = dist.new_group()
    from mortice.distributed.group import world

    whole, world.default = world.default, group
    try:
        CASES[number](rank)
    except dist.DistBackendError as error:
        return str(error)
    finally:
        world.default = whole
    return ""


@pytest.fixture(scope="module")
def pair() -> Gang:
    with Gang(2, "gloo") as gang:
        yield gang  # type: ignore[misc]


@pytest.mark.parametrize("number", range(len(CASES)), ids=[case.__name__ for case in CASES])
def test_disagreement(pair: Gang, number: int) -> None:
    told = pair.run(seen, number)
    # Of an all_to_all only the receiver knows at first; the other one learns it from that.
    for text in told:
        assert "the ranks disagree: rank 1:" in text or "elements to rank" in text, told
