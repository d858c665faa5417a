"""What mpiexec and srun start in place of a rank: tells the rank who it is, and tells of its end.

``python -m mortice.distributed.launch.adopt COMMAND...`` takes rank and local rank from the
variables of the launcher that started it, gives them to the command under torchrun's names, passes
signals on, and reports the command's end to the job's store, so that the supervisor, whom those
launchers tell nothing, knows which rank failed and how.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from types import FrameType

from mortice.errors import DistError

from ..store import TCPStore
from .processes import described, status, tethered

# (rank, rank on its node), by launcher.
_NUMBERS = (
    ("PMI_RANK", "MPI_LOCALRANKID"),  # hydra: MPICH, Intel MPI
    ("PMI_RANK", "PMI_LOCAL_RANK"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("SLURM_PROCID", "SLURM_LOCALID"),
)


def numbers() -> tuple[int, int]:
    """Rank and local rank, as the launcher says."""
    for rank, local in _NUMBERS:
        if rank in os.environ and local in os.environ:
            return int(os.environ[rank]), int(os.environ[local])
    known = ", ".join(rank for rank, _ in _NUMBERS)
    sys.exit(f"mortice run: the launcher sets none of {known}; this rank does not know who it is.")


def variables(rank: int, local: int) -> dict[str, str]:
    """What the rank is told of itself; the shared variables came through the launcher."""
    per_node = int(os.environ["LOCAL_WORLD_SIZE"])
    return {
        "RANK": str(rank),
        "ROLE_RANK": str(rank),
        "LOCAL_RANK": str(local),
        "GROUP_RANK": str(rank // per_node),
    }


def report(rank: int, code: int) -> None:
    """Tell the supervisor of an end that is none as it should be."""
    store = TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), timeout=10)
    run, attempt = (os.environ[f"TORCHELASTIC_{n}"] for n in ("RUN_ID", "RESTART_COUNT"))
    text = f"{status(code)} rank {rank} ended with {described(code)}; the others are ended"
    store.compare_set(f"launch/{run}/{attempt}/failed", "", text)
    store.close()


def main() -> int:
    """Run the command; returns its exit status."""
    rank, local = numbers()
    # hydra's word to MPI that a rank has ended, of which a process dies that knows no better.
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    child = subprocess.Popen(
        tethered(sys.argv[1:]),
        env={**os.environ, **variables(rank, local)},
        close_fds=False,  # MPI finds its launcher through an inherited descriptor
    )

    def forward(number: int, frame: FrameType | None) -> None:
        child.send_signal(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, forward)
    code = child.wait()
    if code:
        try:
            report(rank, code)
        except DistError as error:  # the supervisor has gone first
            print(f"mortice run: rank {rank}: {error}", file=sys.stderr)
    return status(code)


if __name__ == "__main__":
    raise SystemExit(main())
