"""The device ``mitre``: ordinary memory, and no kernels but generated ones."""

from __future__ import annotations

from mortice.backend import DeviceRuntime, hookimpl


class Mitre(DeviceRuntime):
    """Buffers are bytearrays."""

    def count(self) -> int:
        return 1

    def allocate(self, nbytes: int, index: int) -> bytearray:
        return bytearray(nbytes)

    def copy_in(self, buffer: bytearray, offset: int, data: memoryview) -> None:
        buffer[offset : offset + data.nbytes] = data.cast("B")

    def copy_out(self, buffer: bytearray, offset: int, data: memoryview) -> None:
        data.cast("B")[:] = buffer[offset : offset + data.nbytes]

    def register_inductor(self) -> None:
        """Called by inductor when it first sees a tensor or an option of this device."""
        from mortice_inductor import register_backend_for_device

        from .codegen import compile_kernel
        from .config import config

        register_backend_for_device("mitre", compile_kernel, device_custom_config=config)


@hookimpl
def mortice_device(name: str) -> type[Mitre]:
    return Mitre
