"""Messages between two ranks."""

from __future__ import annotations

import mortice
import mortice.distributed as dist
from mortice.errors import DistBackendError

from . import needs
from .data import DTYPES, equal, made


@needs("messages")
def case_send_and_recv(rank: int, size: int) -> None:
    for name in DTYPES:
        if rank == 0:
            for peer in range(1, size):
                dist.send(made(peer, 5, name), peer)
        else:
            t = made(9, 5, name)
            assert dist.recv(t, 0) == 0
            equal(t, made(rank, 5, name), name)


@needs("messages")
def case_both_ways_at_once(rank: int, size: int) -> None:
    """Everybody sends before receiving, much at a time: isend must not wait for the other side."""
    count = 200_000
    works = []
    inbox = {}
    for peer in range(size):
        if peer != rank:
            works.append(dist.isend(made(rank, count, "float32"), peer))
    for peer in range(size):
        if peer != rank:
            inbox[peer] = mortice.zeros(count)
            works.append(dist.irecv(inbox[peer], peer))
    for work in works:
        assert work is not None
        work.wait()
    for peer, t in inbox.items():
        equal(t, made(peer, count, "float32"), f"from {peer}")


@needs("messages")
def case_order(rank: int, size: int) -> None:
    """Messages with one tag arrive in the order in which they were sent."""
    if size == 1:
        return
    inbox = [mortice.zeros(1) for _ in range(20)]
    if rank == 0:
        works = [dist.isend(mortice.tensor([float(k)]), size - 1) for k in range(20)]
    elif rank == size - 1:
        works = [dist.irecv(t, 0) for t in inbox]
    else:
        return
    for work in works:
        assert work is not None
        work.wait()
    if rank == size - 1:
        assert [t.item() for t in inbox] == [float(k) for k in range(20)]


@needs("messages")
def case_tags(rank: int, size: int) -> None:
    """What is received is what has the tag, whatever was sent first."""
    if size == 1 or rank > 1:
        return
    if rank == 0:
        works = [dist.isend(mortice.tensor([float(tag)]), 1, tag=tag) for tag in (1, 2)]
        for work in works:
            assert work is not None
            work.wait()
    else:
        two, one = mortice.zeros(1), mortice.zeros(1)
        second = dist.irecv(two, 0, tag=2)
        first = dist.irecv(one, 0, tag=1)
        assert second is not None
        assert first is not None
        second.wait()
        first.wait()
        assert (one.item(), two.item()) == (1.0, 2.0)


@needs("messages")
def case_ring(rank: int, size: int) -> None:
    if size == 1:
        return
    out = mortice.zeros(1000)
    ops = [
        dist.P2POp(dist.isend, mortice.full((1000,), float(rank)), (rank + 1) % size),
        dist.P2POp(dist.irecv, out, (rank - 1) % size),
    ]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    assert out.tolist() == [float((rank - 1) % size)] * 1000


@needs("messages")
def case_beside_collectives(rank: int, size: int) -> None:
    """A message that waits does not hold collectives up."""
    if size == 1:
        return
    t = mortice.zeros(1)
    work = dist.irecv(t, 0) if rank == 1 else None
    dist.all_reduce(mortice.ones(3))
    if rank == 0:
        dist.send(mortice.ones(1), 1)
    if work is not None:
        work.wait()
        assert t.item() == 1.0


@needs("messages", "recv_any")
def case_from_anyone(rank: int, size: int) -> None:
    if rank == 0:
        seen = {}
        for _ in range(size - 1):
            t = mortice.zeros(1)
            source = dist.recv(t)
            seen[source] = t.item()
        assert seen == {k: float(k) for k in range(1, size)}
    else:
        dist.send(mortice.tensor([float(rank)]), 0)


@needs("messages")
def case_into_a_view(rank: int, size: int) -> None:
    if size == 1 or rank > 1:
        return
    if rank == 0:
        dist.send(mortice.arange(6, dtype=mortice.float32).reshape(2, 3).t(), 1)
    else:
        base = mortice.zeros(3, 4)
        dist.recv(base[:, 1:3], 0)
        assert base.tolist() == [[0.0, float(k), float(k + 3), 0.0] for k in range(3)]


@needs("messages")
def case_other_sizes_and_dtypes(rank: int, size: int) -> None:
    """A receiver that expects something else is told so, and its memory is left alone."""
    if size == 1:
        return
    for count, dtype in ((3, "float32"), (9, "float32"), (0, "float32"), (5, "int32")):
        group = dist.new_group([0, 1], backend=dist.get_backend())
        if rank > 1:
            continue
        if rank == 0:
            dist.send(mortice.ones(5), 1, group)
            continue
        t = mortice.zeros(count, dtype=getattr(mortice, dtype))
        try:
            dist.recv(t, 0, group)
        except DistBackendError as error:
            said = str(error)
            assert f"recv #1 of group {error_group(group)} on rank 1" in said, said
            assert "rank 0 sends 5 elements of float32 (its send #1)" in said, said
            assert f"rank 1 receives {count} of {dtype}" in said, said
        else:
            raise AssertionError(f"{count} of {dtype} were received out of 5 of float32")
        assert not t.any()


def error_group(group: object) -> str:
    """The name by which errors call a group."""
    assert isinstance(group, dist.ProcessGroup)
    return group.group_desc
