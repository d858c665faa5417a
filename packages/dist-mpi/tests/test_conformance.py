"""MPI does what every backend does, on 1 to 4 processes started by mpiexec."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from mortice_testing.distributed.conformance import DistributedConformance
from mortice_testing.distributed.gang import Gang


def mpiexec() -> str:
    """The launcher of the environment's own MPI, else the system's."""
    own = Path(sys.executable).parent / "mpiexec"
    found = str(own) if own.exists() else shutil.which("mpiexec")
    if found is None:
        pytest.skip("there is no mpiexec: pip install mpich")
    return found


class TestMpi(DistributedConformance):
    backend = "mpi"

    def gang_of(self, size: int) -> Gang:
        command = [mpiexec(), "-disable-auto-cleanup", "-n", str(size)]
        return Gang(size, self.backend, launcher=command, init_method="")
