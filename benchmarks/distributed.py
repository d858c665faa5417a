"""all_reduce and a DDP step beside torch's gloo and bare mpi4py, on 2 and 4 processes.

    python benchmarks/distributed.py [--ranks 2 4] [--blocks N] [--largest BYTES] [--no-write]

All processes of both sides live at the same time and take turns, block by block, so that what else
the machine does hits both. A figure is the best block's median operation, the slowest rank counting:
means are those of the scheduler where other programs run. Writes benchmarks/results/distributed.md.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from harness import describe, one_thread

RESULTS = Path(__file__).parent / "results" / "distributed.md"
SIZES = (4, 1 << 16, 1 << 20, 1 << 24, 1 << 28)
# Seconds that a block of one size may take, from which its repetitions follow.
BLOCK = 0.4
PARAMETERS = 20_000_000
# What is promised: (row, ranks) -> the largest ratio, and from which size on.
PROMISED = {("gloo", 2): (1.1, 0), ("gloo", 4): (1.6, 0), ("mpi", 2): (1.1, 1 << 16), ("mpi", 4): (1.1, 1 << 16)}  # fmt: skip


# -- in the ranks -------------------------------------------------------------------------------

_made: dict[Any, Any] = {}


def _repeated(operation: Callable[[], Any], meet: Callable[[], Any], count: int) -> float:
    operation()
    meet()
    taken: list[float] = []
    for _ in range(count):
        start = time.perf_counter()
        operation()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def mortice_all_reduce(rank: int, size: int, nbytes: int, count: int) -> float:
    import mortice
    import mortice.distributed as dist

    t = _made.setdefault(("m", nbytes), mortice.zeros(nbytes // 4))
    return _repeated(lambda: dist.all_reduce(t), dist.barrier, count)


def torch_begin(rank: int, size: int, path: str) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=size)


def torch_all_reduce(rank: int, size: int, nbytes: int, count: int) -> float:
    import torch
    import torch.distributed as dist

    t = _made.setdefault(("t", nbytes), torch.zeros(nbytes // 4))
    return _repeated(lambda: dist.all_reduce(t), dist.barrier, count)


def bare_mpi_all_reduce(rank: int, size: int, nbytes: int, count: int) -> float:
    import numpy as np
    from mpi4py import MPI

    comm = _made.setdefault("comm", MPI.COMM_WORLD)
    t = _made.setdefault(("b", nbytes), np.zeros(nbytes // 4, np.float32))
    return _repeated(lambda: comm.Allreduce(MPI.IN_PLACE, t), comm.Barrier, count)


def _layers() -> list[tuple[int, int]]:
    return [(1000, 4000), (4000, 2000), (2000, 2000), (2000, 2000)]


def mortice_ddp_step(rank: int, size: int, _: int, count: int) -> float:
    import mortice
    import mortice.distributed as dist
    from mortice import nn
    from mortice.nn.parallel import DistributedDataParallel

    if "ddp" not in _made:
        net = nn.Sequential(*(m for a, b in _layers() for m in (nn.Linear(a, b), nn.ReLU())))
        model = DistributedDataParallel(net, gradient_as_bucket_view=True)
        _made["ddp"] = model, mortice.optim.SGD(model.parameters(), lr=1e-3), mortice.ones(32, 1000)
    model, optimizer, x = _made["ddp"]

    def step() -> None:
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()

    return _repeated(step, dist.barrier, count)


def torch_ddp_step(rank: int, size: int, _: int, count: int) -> float:
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    if "ddp" not in _made:
        net = nn.Sequential(*(m for a, b in _layers() for m in (nn.Linear(a, b), nn.ReLU())))
        model = DistributedDataParallel(net, gradient_as_bucket_view=True)
        _made["ddp"] = model, torch.optim.SGD(model.parameters(), lr=1e-3), torch.ones(32, 1000)
    model, optimizer, x = _made["ddp"]

    def step() -> None:
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()

    return _repeated(step, dist.barrier, count)


# -- outside ------------------------------------------------------------------------------------

Side = tuple[Any, Callable[..., float]]  # a gang, and what it runs


def compared(ours: Side, theirs: Side, nbytes: int, blocks: int) -> tuple[float, float]:
    """The best block's seconds per operation on both sides, which take turns."""
    count = 1
    best = [float("inf"), float("inf")]
    for turn in range(blocks + 1):
        for place, (gang, function) in enumerate((ours, theirs)):
            seconds = max(gang.run(function, nbytes, count))
            if turn:
                best[place] = min(best[place], seconds)
        if not turn:
            count = max(1, min(2000, int(BLOCK / max(seconds, 1e-6))))
    return best[0], best[1]


def shown(seconds: float) -> str:
    return f"{seconds * 1e6:.0f} us" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"


def named(nbytes: int) -> str:
    for unit, factor in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if nbytes >= factor:
            return f"{nbytes // factor} {unit}"
    return f"{nbytes} B"


def rows_of(ranks: int, blocks: int, largest: int) -> list[list[str]]:
    from mortice_testing.distributed.faults import SHIELD, mpiexec
    from mortice_testing.distributed.gang import Gang

    rows: list[list[str]] = []

    def row(what: str, label: str, ours: Side, theirs: Side, nbytes: int, versus: str) -> None:
        a, b = compared(ours, theirs, nbytes, blocks)
        limit, start = PROMISED.get((what, ranks), (1.1, 0))
        judged = "" if nbytes < start else f" ({'within' if a / b <= limit else 'MISSES'} {limit})"
        rows.append([what, str(ranks), label, shown(a), versus, shown(b), f"{a / b:.2f}{judged}"])
        print(" | ".join(rows[-1]), flush=True)

    with Gang(ranks, "gloo", timeout=300) as ours, Gang(ranks) as theirs:
        theirs.run(torch_begin, theirs.store)
        for nbytes in SIZES:
            if nbytes <= largest:
                row("gloo", named(nbytes), (ours, mortice_all_reduce), (theirs, torch_all_reduce), nbytes, "torch gloo")  # fmt: skip
        row("DDP step", "20 M parameters", (ours, mortice_ddp_step), (theirs, torch_ddp_step), 0, "torch DDP")  # fmt: skip
    launcher = [*mpiexec(), "-n", str(ranks), *SHIELD]
    with Gang(ranks, "mpi", timeout=300, launcher=launcher, init_method="") as both:
        for nbytes in SIZES:
            if nbytes <= largest:
                row("mpi", named(nbytes), (both, mortice_all_reduce), (both, bare_mpi_all_reduce), nbytes, "mpi4py")  # fmt: skip
    return rows


HEAD = """# Distributed

`python benchmarks/distributed.py`: all_reduce of float32, and a DDP step of a 20 M parameter model
(batch 32), on processes of one machine. gloo: TCP over the loopback, Gloo's ring algorithm on both
sides; no shared memory. mpi: MPICH over shared memory on both sides. The median operation of the
best of {blocks} blocks of each, which take turns.

| | ranks | data | mortice | beside | theirs | ratio |
|---|---|---|---|---|---|---|
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--blocks", type=int, default=5)
    parser.add_argument("--largest", type=int, default=SIZES[-1], help="bytes")
    parser.add_argument("--no-write", action="store_true")
    options = parser.parse_args()
    one_thread()
    rows = [r for n in options.ranks for r in rows_of(n, options.blocks, options.largest)]
    if not options.no_write:
        text = HEAD.format(blocks=options.blocks)
        text += "".join(f"| {' | '.join(row)} |\n" for row in rows) + "\n"
        versions = describe("mortice", "torch", "xoscar", "mpi4py", "mpich", "numpy")
        RESULTS.write_text(text + "\n".join(f"- {line}" for line in versions) + "\n")


if __name__ == "__main__":
    main()
