"""``async_op``: begun now, ended later, in order."""

from __future__ import annotations

import threading
import time

import mortice
import mortice.distributed as dist

from ..words import Words


def case_the_caller_goes_on(rank: int, size: int) -> None:
    """The call returns while another rank has not even come: that one waits for the return."""
    if size == 1:
        return
    dist.barrier()
    words = Words()
    others = [f"returned-{other}" for other in range(size - 1)]
    if rank == size - 1:
        words.hear(*others)
    t = mortice.ones(1000)
    work = dist.all_reduce(t, async_op=True)
    assert work is not None
    if rank < size - 1:
        assert not work.is_completed()
        words.tell(others[rank])
    assert work.wait()
    assert work.is_success()
    assert t[0].item() == size


def case_python_runs_meanwhile(rank: int, size: int) -> None:
    """While a collective waits, this thread, and others, compute: the last rank waits for that."""
    if size == 1:
        return
    dist.barrier()
    words = Words()
    others = [f"computed-{other}" for other in range(size - 1)]
    if rank == size - 1:
        words.hear(*others)
        dist.all_reduce(mortice.ones(3))
        return
    ticks = 0
    stop = threading.Event()

    def tick() -> None:
        nonlocal ticks
        while not stop.wait(0.005):
            ticks += 1

    other = threading.Thread(target=tick)
    work = dist.all_reduce(mortice.ones(3), async_op=True)
    assert work is not None
    other.start()
    rounds = 0
    while not work.is_completed():
        sum(range(1000))
        rounds += 1
        if rounds > 10 and ticks > 10:
            words.tell(others[rank])
        time.sleep(0.001)
    stop.set()
    other.join()
    work.wait()
    assert rounds > 10
    assert ticks > 10


def case_many_at_once(rank: int, size: int) -> None:
    tensors = [mortice.full((100,), float(rank + k)) for k in range(30)]
    works = [dist.all_reduce(t, async_op=True) for t in tensors]
    for k, (work, t) in enumerate(zip(works, tensors)):
        assert work is not None
        work.wait()
        assert t[0].item() == sum(r + k for r in range(size))


def case_different_ones_in_order(rank: int, size: int) -> None:
    """Each uses what the one before it wrote, though nobody waits between them."""
    t = mortice.tensor([float(rank + 1)])
    works = [
        dist.all_reduce(t, async_op=True),
        dist.all_reduce(t, async_op=True),
        dist.broadcast(t, src=0, async_op=True),
    ]
    for work in works:
        assert work is not None
        work.wait()
    assert t.item() == size * size * (size + 1) / 2


def case_futures(rank: int, size: int) -> None:
    t = mortice.ones(2)
    work = dist.all_reduce(t, async_op=True)
    assert work is not None
    halved = work.get_future().then(lambda future: future.value()[0] / 2)
    assert halved.wait().tolist() == [size / 2] * 2


def case_coalescing(rank: int, size: int) -> None:
    tensors = [mortice.full((10,), float(k)) for k in range(5)]
    with dist._coalescing_manager():
        for t in tensors:
            dist.all_reduce(t)
    for k, t in enumerate(tensors):
        assert t[0].item() == k * size
    with dist._coalescing_manager(async_ops=True) as manager:
        for t in tensors:
            dist.all_reduce(t)
    manager.wait()
    assert tensors[1][0].item() == size * size


def case_from_several_threads(rank: int, size: int) -> None:
    """One group per thread, used at the same time."""
    groups = [dist.new_group() for _ in range(3)]
    results: list[float] = [0.0] * 3

    def work(k: int) -> None:
        for _ in range(10):
            t = mortice.full((50,), float(k))
            dist.all_reduce(t, group=groups[k])
            results[k] = t[0].item()

    threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [float(k * size) for k in range(3)]
    for group in groups:
        dist.destroy_process_group(group)
