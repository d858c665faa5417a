"""all_reduce and a DDP step beside torch's gloo and bare mpi4py, on 2 and 4 processes.

    python benchmarks/distributed.py [--quick] [--ranks 2 4] [--blocks N] [--largest BYTES] [--no-write]

The processes of both sides live at the same time and take turns, block by block, so that what else
the machine does hits both. A block's figure is its median operation on the rank whose median is the
largest; a row's figure is the best block's, since what disturbs a block only makes it slower. The
ratios of the blocks stand beside. Writes benchmarks/results/distributed.md; ``--quick`` measures 2
ranks up to 1 MiB in 2 blocks, and writes nothing.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent))

from harness import describe, one_thread
from harness.report import duration

RESULTS = Path(__file__).parent / "results" / "distributed.md"
SIZES = (4, 1 << 16, 1 << 20, 1 << 24, 1 << 28)
# Seconds that a block of one size may take, from which its repetitions follow.
BLOCK = 0.4
# The largest ratio that is promised, by row and ranks, and from how many bytes on.
PROMISED = {
    ("gloo", 2): (1.1, 0),
    ("gloo", 4): (1.6, 0),
    ("mpi", 2): (1.1, 1 << 16),
    ("mpi", 4): (1.1, 1 << 16),
    ("DDP step", 2): (1.1, 0),
    ("DDP step", 4): (1.1, 0),
}


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


def means(rank: int, size: int) -> tuple[str, str, str]:
    """The transport, mortice's algorithm, and that of the other side."""
    from mortice.distributed.group import default_group

    communicator: Any = default_group().communicator("cpu")
    if communicator.setup.backend == "gloo":
        ring = f"each to all to 512 KiB together, else Gloo's {communicator.algorithm.lower()}"
        return f"TCP, {communicator.address}", ring, "Gloo's ring"
    from mpi4py import MPI

    library = " ".join(MPI.Get_library_version().splitlines()[0].split())
    named = library.replace(" Version:", "")
    return f"{named}, shared memory", "MPI_Iallreduce, polled", "MPI_Allreduce"


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


class Row(NamedTuple):
    """A comparison; seconds per operation, block by block."""

    what: str
    ranks: int
    nbytes: int
    beside: str
    means: tuple[str, str, str]
    ours: list[float]
    theirs: list[float]

    def cells(self) -> list[str]:
        ratio = min(self.ours) / min(self.theirs)
        by_block = [a / b for a, b in zip(self.ours, self.theirs, strict=True)]
        limit, start = PROMISED[self.what, self.ranks]
        promised = self.nbytes >= start
        verdict = ("yes" if ratio <= limit else "no") if promised else ""
        data = named(self.nbytes) if self.nbytes else "20 M parameters"
        return [
            self.what, str(self.ranks), data, duration(min(self.ours)), self.beside,
            duration(min(self.theirs)), f"{ratio:.2f}", f"{min(by_block):.2f} to {max(by_block):.2f}",
            f"{limit:g}" if promised else "", verdict, *self.means,
        ]  # fmt: skip


def compared(ours: Side, theirs: Side, nbytes: int, blocks: int) -> tuple[list[float], list[float]]:
    """Seconds per operation on both sides, which take turns; one entry per block."""
    count = 1
    taken: tuple[list[float], list[float]] = ([], [])
    for turn in range(blocks + 1):
        slower = 0.0
        for place, (gang, function) in enumerate((ours, theirs)):
            seconds = max(gang.run(function, nbytes, count, patience=300.0))
            slower = max(slower, seconds)
            if turn:
                taken[place].append(seconds)
        if not turn:
            count = max(1, min(2000, int(BLOCK / max(slower, 1e-6))))
    return taken


def named(nbytes: int) -> str:
    for unit, factor in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if nbytes >= factor:
            return f"{nbytes // factor} {unit}"
    return f"{nbytes} B"


def rows_of(ranks: int, blocks: int, sizes: list[int]) -> list[Row]:
    from mortice_testing.distributed.faults import SHIELD, mpiexec
    from mortice_testing.distributed.gang import Gang

    rows: list[Row] = []

    def row(what: str, ours: Side, theirs: Side, nbytes: int, beside: str) -> None:
        how = ours[0].run(means)[0]
        rows.append(Row(what, ranks, nbytes, beside, how, *compared(ours, theirs, nbytes, blocks)))
        print(" | ".join(rows[-1].cells()), flush=True)

    with Gang(ranks, "gloo", timeout=300) as ours, Gang(ranks) as theirs:
        theirs.run(torch_begin, theirs.store)
        for nbytes in sizes:
            row("gloo", (ours, mortice_all_reduce), (theirs, torch_all_reduce), nbytes, "torch gloo")  # fmt: skip
        row("DDP step", (ours, mortice_ddp_step), (theirs, torch_ddp_step), 0, "torch DDP")
    launcher = [*mpiexec(), "-n", str(ranks), *SHIELD]
    with (
        Gang(ranks, "mpi", timeout=300, launcher=launcher, init_method="") as ours,
        Gang(ranks, launcher=launcher) as theirs,  # MPI as it is where mortice has not started it
    ):
        for nbytes in sizes:
            row("mpi", (ours, mortice_all_reduce), (theirs, bare_mpi_all_reduce), nbytes, "mpi4py")
    return rows


COLUMNS = (
    "", "ranks", "data", "mortice", "beside", "theirs", "ratio", "by block", "at most", "met",
    "transport", "mortice's algorithm", "theirs",
)  # fmt: skip
NOTE = """`python benchmarks/distributed.py`: all_reduce of float32 in place, and a step of
DistributedDataParallel (batch 32, SGD, gradients as views of buckets), on processes of one machine
with one thread each for computing; both sides take turns. Figures are the best of {blocks} blocks'
medians, on the rank whose median is the largest; "by block" are the ratios of the single blocks, and
say how far to trust the ratio. 4 ranks share this machine's cores.

gloo and the DDP step: TCP on both sides; mortice's gloo has no path through shared memory, so there
is no column for one. mpi: MPI's shared memory on both sides; beside it MPI is started by mpi4py, with
MPICH's own settings."""


def report(rows: list[Row], machine: list[str], blocks: int, seconds: float) -> str:
    cells = [[*COLUMNS], *(row.cells() for row in rows)]
    widths = [max(len(line[k]) for line in cells) for k in range(len(COLUMNS))]
    lines = [
        "| " + " | ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)) + " |"
        for line in cells
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    end = f"Load average at the end: {os.getloadavg()[0]:.1f}; the run took {seconds:.0f} s."
    parts = [
        "# Distributed",
        "\n".join([*machine, end]),
        NOTE.format(blocks=blocks),
        "\n".join(lines),
    ]
    return "\n\n".join(parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", choices=(2, 4), default=[2, 4])
    parser.add_argument("--blocks", type=int, default=4)
    parser.add_argument("--largest", type=int, default=SIZES[-1], help="bytes")
    parser.add_argument(
        "--quick", action="store_true", help="2 ranks, to 1 MiB; nothing is written"
    )
    parser.add_argument("--no-write", action="store_true")
    options = parser.parse_args()
    one_thread()
    if options.quick:
        options.ranks, options.blocks, options.largest = [2], 2, 1 << 20
    started = time.monotonic()
    machine = describe("mortice", "torch", "xoscar", "mpi4py", "mpich", "numpy")
    sizes = [nbytes for nbytes in SIZES if nbytes <= options.largest]
    rows = [row for n in options.ranks for row in rows_of(n, options.blocks, sizes)]
    text = report(rows, machine, options.blocks, time.monotonic() - started)
    if not (options.no_write or options.quick):
        RESULTS.write_text(text)
    print(f"\n{text}")


if __name__ == "__main__":
    main()
