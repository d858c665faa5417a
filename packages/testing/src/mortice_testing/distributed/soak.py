"""Rounds of random collectives in random groups, in each of which a random rank is killed.

``python -m mortice_testing.distributed.soak [--rounds N] [--backend NAME] [--seed N]``

A round passes if every result before the death was right, and every survivor that was in the middle
of something with the dead one got an error, or in a group of survivors alone, of which one had got an
error before, the word that it did not come. Prints one line per round.
"""

from __future__ import annotations

import argparse
import random
import time
from typing import Any

from .faults import SHORT, MakeGang, gangs_of
from .words import PATIENCE, Words

_DTYPES = ("float32", "float64", "bfloat16", "int32", "int64", "uint8", "complex64")
# The whole's time limit, in seconds. It only counts where a machine's standstill made a rank give up.
_LIMIT = PATIENCE / 2
_OPERATIONS = ("all_reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all", "barrier")


def work(rank: int, size: int, seed: int) -> tuple[int, str, str]:
    """Random collectives, the same on all ranks, until an error: (how many, error, its text)."""
    import mortice
    import mortice.distributed as dist

    choose = random.Random(seed)
    count = 0
    try:
        groups: list[Any] = [None]
        for _ in range(2):
            members = sorted(choose.sample(range(size), choose.randint(2, size)))
            groups.append(dist.new_group(members, timeout=SHORT))
        dist.barrier()
        Words().tell(f"ready-{rank}")
        while True:
            group = choose.choice(groups)
            name = choose.choice(_OPERATIONS)
            dtype = getattr(mortice, choose.choice(_DTYPES))
            elements = choose.choice((1, 7, 1000, 60_000))
            if group is not dist.GroupMember.NON_GROUP_MEMBER:
                _one(name, group, dtype, elements)
                count += 1
    except dist.DistError as error:
        return count, type(error).__name__, str(error)


def _one(name: str, group: Any, dtype: Any, n: int) -> None:
    """One collective, and whether its result is right; elements are small whole numbers."""
    import mortice
    import mortice.distributed as dist

    rank, size = dist.get_rank(group), dist.get_world_size(group)
    mine = mortice.full((n,), rank + 1, dtype=dtype)
    total = size * (size + 1) // 2
    if name == "all_reduce":
        dist.all_reduce(mine, group=group)
        _expect(mine, total)
    elif name == "broadcast":
        dist.broadcast(mine, group=group, group_src=size - 1)
        _expect(mine, size)
    elif name == "all_gather":
        out = mortice.zeros(size * n, dtype=dtype)
        dist.all_gather_into_tensor(out, mine, group)
        for k in range(size):
            _expect(out[k * n : (k + 1) * n], k + 1)
    elif name == "reduce_scatter":
        out = mortice.zeros(n, dtype=dtype)
        given = mortice.full((size * n,), rank + 1, dtype=dtype)
        dist.reduce_scatter_tensor(out, given, group=group)
        _expect(out, total)
    elif name == "all_to_all":
        out = mortice.zeros(size * n, dtype=dtype)
        dist.all_to_all_single(out, mortice.full((size * n,), rank + 1, dtype=dtype), group=group)
        for k in range(size):
            _expect(out[k * n : (k + 1) * n], k + 1)
    else:
        dist.barrier(group)


def _expect(t: Any, value: int) -> None:
    array = t.numpy() if t.dtype.name != "bfloat16" else t.float().numpy()
    assert (array == value).all(), f"{t.dtype}: found {array[:4]}, expected {value}"


def play(make: MakeGang, seed: int) -> str:
    """One round; returns what happened, in words."""
    choose = random.Random(seed)
    size = choose.randint(2, 4)
    victim = choose.randrange(size)
    with make(size, environment={}, timeout=_LIMIT) as gang:
        gang.run(f"{__package__}.faults:warm")
        gang.begin(f"{__package__}.soak:work", seed)
        gang.words.hear(*(f"ready-{rank}" for rank in range(size)))
        time.sleep(choose.uniform(0.0, 1.2))
        gang.kill(victim)
        killed = time.monotonic()
        survivors = [rank for rank in range(size) if rank != victim]
        results = gang.end(ranks=survivors, patience=PATIENCE)
        took = time.monotonic() - killed
    for result in results:
        if isinstance(result, BaseException):
            raise result
    done = sum(count for count, _, _ in results)
    kinds = ", ".join(sorted({kind for _, kind, _ in results}))
    return f"{size} ranks, {victim} killed, {done} collectives before, {kinds} after {took:.2f} s"


def main() -> None:
    """Run the rounds; stops at the first that fails."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--backend", default="gloo")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    make = gangs_of(options.backend)
    for number in range(options.rounds):
        told = play(make, options.seed + number)
        print(f"round {number + 1}: {told}", flush=True)  # noqa: T201 - a command's output


if __name__ == "__main__":
    main()
