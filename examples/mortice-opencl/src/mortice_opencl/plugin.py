"""The runtime: contexts, buffers, queues and events of OpenCL, and who has which kernel."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pyopencl as cl

import mortice
from mortice.backend import DeviceRuntime, Features, Unavailable, hookimpl
from mortice_opencl import convolution, matrix, pocl, pointwise, reduction, softmax
from mortice_opencl.source import TYPES

_PROFILED = cl.command_queue_properties.PROFILING_ENABLE


class Queue(cl.CommandQueue):
    """A queue in order, with the event of what it was given last."""

    last: Any = None


class OpenCLFeatures(Features):
    """Kernels see any strides and Python numbers, and take the queue they are put in."""

    strided = True
    numbers = True
    streams = True
    dtypes = tuple(TYPES)
    fork = "error"
    autocast_dtypes = (mortice.float16, mortice.bfloat16)  # by fallback


class OpenCL(DeviceRuntime):
    """All devices with double precision of all drivers, each with a context of its own."""

    features = OpenCLFeatures

    def __init__(self) -> None:
        try:
            found = [d for p in cl.get_platforms() for d in p.get_devices()]
        except cl.Error as error:
            raise Unavailable(
                f"no OpenCL driver is installed ({error})", "pip install 'mortice-opencl[pocl]'"
            ) from None
        self.devices = [device for device in found if device.double_fp_config]
        if not self.devices:
            raise Unavailable(
                "no OpenCL device with double precision is here",
                "pip install 'mortice-opencl[pocl]' brings one that runs on the processor",
            )
        for device in self.devices:
            pocl.name_processor(device)
        self.contexts = [cl.Context([device]) for device in self.devices]
        self.queues = [self._queue(i) for i in range(len(self.devices))]
        self.others: list[weakref.WeakSet[Any]] = [weakref.WeakSet() for _ in self.devices]
        self.programs: dict[tuple[int, str], Any] = {}
        self.lock = threading.RLock()

    def _queue(self, index: int) -> Any:
        return Queue(self.contexts[index], properties=_PROFILED)

    # -- memory ------------------------------------------------------------------------------------

    def count(self) -> int:
        return len(self.devices)

    def allocate(self, nbytes: int, index: int) -> Any:
        try:
            return cl.Buffer(self.contexts[index], cl.mem_flags.READ_WRITE, max(nbytes, 1))
        except cl.MemoryError as error:
            raise MemoryError(
                f"opencl:{index} has no room for {nbytes:,} bytes ({error})"
            ) from None

    def free(self, buffer: Any) -> None:
        """OpenCL counts who uses a buffer, commands in queues included."""
        buffer.release()

    def copy_in(self, buffer: Any, offset: int, data: memoryview) -> None:
        source = np.frombuffer(data, np.uint8)
        cl.enqueue_copy(self._queue_of(buffer), buffer, source, dst_offset=offset, is_blocking=True)

    def copy_out(self, buffer: Any, offset: int, data: memoryview) -> None:
        target = np.frombuffer(data, np.uint8)
        cl.enqueue_copy(self._queue_of(buffer), target, buffer, src_offset=offset, is_blocking=True)

    def copy_device(
        self, target: Any, target_offset: int, source: Any, source_offset: int, nbytes: int
    ) -> None:
        to, of = self._index_of(target), self._index_of(source)
        if not nbytes:
            return
        self.synchronize(of)
        if to != of or target is source:  # OpenCL refuses copies that overlap
            super().copy_device(target, target_offset, source, source_offset, nbytes)
            return
        cl.enqueue_copy(
            self.queues[to], target, source,
            src_offset=source_offset, dst_offset=target_offset, byte_count=nbytes,
        ).wait()  # fmt: skip

    def _index_of(self, buffer: Any) -> int:
        return self.contexts.index(buffer.context)

    def _queue_of(self, buffer: Any) -> Any:
        return self.queues[self._index_of(buffer)]

    def memory(self, index: int) -> tuple[int, int] | None:
        """OpenCL says how much there is, not how much of it is free: what core has taken is not."""
        total = self.devices[index].global_mem_size
        return total - mortice.get_device_module("opencl").memory_allocated(index), total

    def name(self, index: int) -> str:
        return f"{self.devices[index].name.strip()} ({self.devices[index].platform.name.strip()})"

    def native_pointer(self, buffer: Any) -> int:
        return buffer.int_ptr

    # -- streams and events --------------------------------------------------------------------------

    def synchronize(self, index: int) -> None:
        for queue in (self.queues[index], *self.others[index]):
            queue.finish()

    def stream(self, index: int, priority: int | None) -> Any:
        if priority is None:
            return self.queues[index]
        queue = self._queue(index)
        self.others[index].add(queue)
        return queue

    def stream_done(self, stream: Any, index: int) -> bool:
        return stream.last is None or self.mark_done(stream.last)

    def stream_synchronize(self, stream: Any, index: int) -> None:
        stream.finish()

    def record(self, stream: Any, index: int) -> Any:
        mark = cl.enqueue_marker(stream)
        stream.flush()
        return mark

    def mark_done(self, mark: Any) -> bool:
        return mark.command_execution_status == cl.command_execution_status.COMPLETE

    def mark_synchronize(self, mark: Any) -> None:
        mark.wait()

    def stream_wait(self, stream: Any, mark: Any) -> None:
        stream.last = cl.enqueue_barrier(stream, wait_for=[mark])

    def elapsed(self, start: Any, end: Any) -> float:
        return (end.profile.end - start.profile.end) / 1e6

    # -- kernels -----------------------------------------------------------------------------------

    def kernel(self, op: str, dtypes: tuple[Any, ...]) -> Callable[..., None] | None:
        for family in (pointwise, reduction, softmax, matrix, convolution):
            found = family.kernel(self, op, dtypes)
            if found is not None:
                return found
        return None

    def launch(
        self, source: str, queue: Any, size: tuple[int, ...], arguments: list[Any],
        group: tuple[int, ...] | None = None,
    ) -> None:  # fmt: skip
        """Run the kernel ``run`` of a program, built when it is first asked for."""
        if 0 in size:
            return
        key = (self.contexts.index(queue.context), source)
        with self.lock:  # a kernel object holds its arguments
            program = self.programs.get(key)
            if program is None:
                built = cl.Program(queue.context, source).build(["-w"])  # v != v is meant
                program = self.programs[key] = cl.Kernel(built, "run")
            program.set_args(*arguments)
            queue.last = cl.enqueue_nd_range_kernel(queue, program, size, group)
            queue.flush()


@hookimpl
def mortice_device(name: str) -> type[OpenCL]:
    return OpenCL
