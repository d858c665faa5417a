"""Several groups over the same ranks."""

from __future__ import annotations

import pytest

import mortice
import mortice.distributed as dist


def _total(group: object, rank: int) -> float:
    t = mortice.tensor([float(rank + 1)])
    dist.all_reduce(t, group=group)
    return t.item()


def case_subgroups(rank: int, size: int) -> None:
    even = dist.new_group(range(0, size, 2))
    odd = dist.new_group(range(1, size, 2)) if size > 1 else None
    mine, members = (even, range(0, size, 2)) if rank % 2 == 0 else (odd, range(1, size, 2))
    assert _total(mine, rank) == sum(k + 1 for k in members)
    assert dist.get_process_group_ranks(mine) == list(members)
    assert dist.get_rank(mine) == list(members).index(rank)
    other = odd if rank % 2 == 0 else even
    if size > 1:
        assert other is dist.GroupMember.NON_GROUP_MEMBER
        assert dist.all_reduce(mortice.ones(1), group=other) is None
    for one in (even, odd):
        if one is not None:
            dist.destroy_process_group(one)


def case_roots_are_ranks_of_the_whole(rank: int, size: int) -> None:
    if size < 3:
        return
    group = dist.new_group([1, size - 1])
    if rank in (1, size - 1):
        t = mortice.tensor([float(rank)])
        dist.broadcast(t, src=size - 1, group=group)
        assert t.item() == size - 1
        dist.broadcast(t, group_src=0, group=group)
        assert t.item() == size - 1
        with pytest.raises(ValueError, match="not in group"):
            dist.broadcast(t, src=0, group=group)
        dist.destroy_process_group(group)


def case_many_groups_at_once(rank: int, size: int) -> None:
    groups = [dist.new_group() for _ in range(3)]
    tensors = [mortice.full((1000,), float(k + rank)) for k in range(3)]
    works = [dist.all_reduce(t, group=g, async_op=True) for t, g in zip(tensors, groups)]
    # Waiting in another order than beginning: the groups do not stand in each other's way.
    for work in reversed(works):
        assert work is not None
        work.wait()
    for k, t in enumerate(tensors):
        assert t[0].item() == sum(k + r for r in range(size))
    for group in groups:
        dist.destroy_process_group(group)


def case_members_alone_make_a_group(rank: int, size: int) -> None:
    if rank < size - 1 or size == 1:
        members = list(range(max(1, size - 1)))
        group = dist.new_group(members, use_local_synchronization=True)
        assert _total(group, rank) == sum(k + 1 for k in members)
        dist.destroy_process_group(group)


def case_neighbours(rank: int, size: int) -> None:
    if size % 2:
        return
    mine, every = dist.new_subgroups(2)
    assert len(every) == size // 2
    first = rank - rank % 2
    assert _total(mine, rank) == 2 * first + 3
    dist.destroy_process_group(mine)


def case_made_again_and_again(rank: int, size: int) -> None:
    for _ in range(3):
        group = dist.new_group()
        assert _total(group, rank) == size * (size + 1) / 2
        dist.destroy_process_group(group)
