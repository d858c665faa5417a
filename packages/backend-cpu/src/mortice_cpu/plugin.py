"""Entry point of the device ``cpu``."""

from __future__ import annotations

from mortice.backend import hookimpl


class CpuRuntime:
    """Kernels for tensors in host memory, which is core's own.

    ``kernel_package`` names the modules that hold them: one per operator family, each with a dict
    ``KERNELS`` from operator name to function. A family is imported when its first kernel is asked
    for.
    """

    kernel_package = "mortice_cpu.kernels"

    def count(self) -> int:
        return 1


@hookimpl
def mortice_device(name: str) -> type[CpuRuntime]:
    return CpuRuntime
