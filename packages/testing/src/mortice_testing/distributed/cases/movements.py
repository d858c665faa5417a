"""Collectives that move elements and do not compute."""

from __future__ import annotations

import mortice
import mortice.distributed as dist

from .data import DTYPES, equal, made


def case_broadcast(rank: int, size: int) -> None:
    for name in DTYPES:
        for root in range(size):
            t = made(rank, 5, name)
            dist.broadcast(t, src=root)
            equal(t, made(root, 5, name), f"{name} from {root}")


def case_broadcast_large(rank: int, size: int) -> None:
    t = made(rank, 300_000, "float32")
    dist.broadcast(t, group_src=size - 1)
    equal(t, made(size - 1, 300_000, "float32"))


def case_all_gather(rank: int, size: int) -> None:
    for name in DTYPES:
        outputs = [made(9, 4, name) for _ in range(size)]
        dist.all_gather(outputs, made(rank, 4, name))
        for k, one in enumerate(outputs):
            equal(one, made(k, 4, name), f"{name} of {k}")


def case_all_gather_into_tensor(rank: int, size: int) -> None:
    for name in DTYPES:
        out = made(9, 4 * size, name).reshape(size, 2, 2)
        dist.all_gather_into_tensor(out, made(rank, 4, name).reshape(2, 2))
        for k in range(size):
            equal(out[k], made(k, 4, name).reshape(2, 2), f"{name} of {k}")


def case_all_gather_uneven(rank: int, size: int) -> None:
    outputs = [made(9, k + 1, "int32") for k in range(size)]
    dist.all_gather(outputs, made(rank, rank + 1, "int32"))
    for k, one in enumerate(outputs):
        equal(one, made(k, k + 1, "int32"), f"of {k}")


def case_gather(rank: int, size: int) -> None:
    for name in DTYPES:
        for root in range(size):
            outputs = [made(9, 3, name) for _ in range(size)] if rank == root else None
            dist.gather(made(rank, 3, name), outputs, dst=root)
            for k, one in enumerate(outputs or []):
                equal(one, made(k, 3, name), f"{name} of {k} at {root}")


def case_scatter(rank: int, size: int) -> None:
    for name in DTYPES:
        for root in range(size):
            out = made(9, 3, name)
            inputs = [made(10 + k, 3, name) for k in range(size)] if rank == root else None
            dist.scatter(out, inputs, src=root)
            equal(out, made(10 + rank, 3, name), f"{name} from {root}")


def case_all_to_all(rank: int, size: int) -> None:
    for name in DTYPES:
        inputs = [made(10 * rank + k, 3, name) for k in range(size)]
        outputs = [made(9, 3, name) for _ in range(size)]
        dist.all_to_all(outputs, inputs)
        for k, one in enumerate(outputs):
            equal(one, made(10 * k + rank, 3, name), f"{name} from {k}")


def case_all_to_all_uneven(rank: int, size: int) -> None:
    # Rank r sends r + k elements to rank k, so that some pairs exchange nothing.
    inputs = [made(10 * rank + k, rank + k, "float64") for k in range(size)]
    outputs = [made(9, k + rank, "float64") for k in range(size)]
    dist.all_to_all(outputs, inputs)
    for k, one in enumerate(outputs):
        equal(one, made(10 * k + rank, k + rank, "float64"), f"from {k}")


def case_all_to_all_single(rank: int, size: int) -> None:
    out = mortice.zeros(size, 3)
    dist.all_to_all_single(out, mortice.full((size, 3), float(rank)))
    equal(out, mortice.arange(size, dtype=mortice.float32).reshape(size, 1).expand(size, 3).clone())


def case_all_to_all_single_uneven(rank: int, size: int) -> None:
    into = [rank + 1] * size
    gives = [k + 1 for k in range(size)]
    given = mortice.full((sum(gives), 2), float(rank))
    out = mortice.zeros(sum(into), 2)
    dist.all_to_all_single(out, given, into, gives)
    wanted = [float(k) for k in range(size) for _ in range(2 * (rank + 1))]
    assert out.reshape(-1).tolist() == wanted


def case_empty(rank: int, size: int) -> None:
    """No elements at all: every collective returns, and the next one works."""
    nothing = mortice.zeros(0)
    dist.all_reduce(nothing)
    dist.broadcast(nothing, src=0)
    dist.all_gather([mortice.zeros(0) for _ in range(size)], nothing)
    dist.all_gather_into_tensor(mortice.zeros(0), nothing)
    dist.reduce_scatter_tensor(mortice.zeros(0), mortice.zeros(0))
    dist.all_to_all_single(mortice.zeros(0, 2), mortice.zeros(0, 2))
    t = mortice.ones(1)
    dist.all_reduce(t)
    assert t.item() == size


def case_zero_dimensional(rank: int, size: int) -> None:
    t = mortice.tensor(float(rank))
    dist.all_reduce(t)
    assert t.shape == ()
    assert t.item() == sum(range(size))
    out = mortice.zeros(size)
    dist.all_gather_into_tensor(out, mortice.tensor(float(rank)))
    assert out.tolist() == [float(k) for k in range(size)]


def case_not_contiguous(rank: int, size: int) -> None:
    """Views are read and written through, and what lies between them stays."""
    base = mortice.zeros(4, 6)
    base += rank
    view = base[:, ::2].t()
    dist.all_reduce(view)
    total = float(sum(range(size)))
    assert base[:, 0].tolist() == [total] * 4
    assert base[:, 1].tolist() == [float(rank)] * 4
    dist.broadcast(base.t()[1:3], src=size - 1)
    assert base[:, 1].tolist() == [float(size - 1)] * 4
    assert base[:, 3].tolist() == [float(rank)] * 4
    outputs = [mortice.zeros(3, 2).t() for _ in range(size)]
    dist.all_gather(outputs, mortice.full((3, 2), float(rank)).t())
    for k, one in enumerate(outputs):
        assert one.tolist() == [[float(k)] * 3] * 2


def case_barrier(rank: int, size: int) -> None:
    import time

    dist.barrier()
    started = time.monotonic()
    if rank == size - 1:
        time.sleep(0.2)
    dist.barrier()
    assert time.monotonic() - started > 0.15


def case_monitored_barrier(rank: int, size: int) -> None:
    dist.monitored_barrier(timeout=5)
    dist.monitored_barrier(timeout=5, wait_all_ranks=True)
