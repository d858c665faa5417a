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
        threads = config.num_threads
        if threads:  # otherwise each library's own default, and neither is imported for it here
            import mortice_llvm
            from mortice_llvm import blas

            mortice_llvm.set_num_threads(threads)
            blas.set_num_threads(threads)

    def count(self) -> int:
        return 1


@hookimpl
def mortice_device(name: str) -> type[CpuRuntime]:
    return CpuRuntime
