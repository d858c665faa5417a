"""Entry point of the device ``cpu``."""

from __future__ import annotations

from mortice import config
from mortice.backend import hookimpl


class CpuRuntime:
    """Kernels for tensors in host memory, which is core's own.

    ``kernel_package`` names the modules that hold them: one per operator family, each with a dict
    ``KERNELS`` from operator name to function. A family is imported when its first kernel is asked
    for.
    """

    kernel_package = "mortice_cpu.kernels"

    def __init__(self) -> None:
        if config.num_threads:  # otherwise each library's own default, and neither is imported here
            self.set_num_threads(config.num_threads)

    def set_num_threads(self, n: int) -> None:
        """Threads of the fused kernels and of BLAS."""
        import mortice_llvm
        from mortice_llvm import blas

        mortice_llvm.set_num_threads(n)
        blas.set_num_threads(n)

    def get_num_threads(self) -> int:
        """Threads that a large operator uses."""
        import mortice_llvm

        return mortice_llvm.get_num_threads()

    def count(self) -> int:
        return 1


@hookimpl
def mortice_device(name: str) -> type[CpuRuntime]:
    return CpuRuntime
