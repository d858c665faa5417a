"""MPI does what every backend does, on 1 to 4 processes started by mpiexec, and where one of them is
killed."""

from __future__ import annotations

from mortice_testing.distributed.conformance import DistributedConformance, DistributedFaults
from mortice_testing.distributed.faults import mpiexec
from mortice_testing.distributed.gang import Gang


class TestMpi(DistributedConformance):
    backend = "mpi"

    def gang_of(self, size: int) -> Gang:
        command = [*mpiexec(), "-n", str(size)]
        return Gang(size, self.backend, launcher=command, init_method="")


class TestFaults(DistributedFaults):
    backend = "mpi"
