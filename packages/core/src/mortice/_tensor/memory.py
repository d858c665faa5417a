"""Memory of devices other than the host: buffers, who owns them, and how much there is of it."""

from __future__ import annotations

import threading
from typing import Any

from mortice._base.errors import DeviceError
from mortice._dispatch import backends
from mortice._tensor.array import DeviceArray
from mortice._tensor.make import wrap_device
from mortice._tensor.runtime import DeviceRuntime
from mortice._types import shapes
from mortice._types.device import Device, indexed
from mortice._types.dtypes import DType
from mortice._types.shapes import Shape

# Re-entrant: a buffer may be given back by a garbage collection inside any of the lines it guards.
_lock = threading.RLock()


class Statistics:
    """Bytes and allocations of one device: held now, at most, made and given back since the start."""

    __slots__ = ("allocations", "bytes", "freed", "made", "peak_allocations", "peak_bytes")

    def __init__(self) -> None:
        self.bytes = self.allocations = 0
        self.peak_bytes = self.peak_allocations = 0
        self.made = [0, 0]
        self.freed = [0, 0]

    def take(self, nbytes: int) -> None:
        with _lock:
            self.bytes += nbytes
            self.allocations += 1
            self.made[0] += nbytes
            self.made[1] += 1
            self.peak_bytes = max(self.peak_bytes, self.bytes)
            self.peak_allocations = max(self.peak_allocations, self.allocations)

    def give(self, nbytes: int) -> None:
        with _lock:
            self.bytes -= nbytes
            self.allocations -= 1
            self.freed[0] += nbytes
            self.freed[1] += 1

    def reset_peak(self) -> None:
        with _lock:
            self.peak_bytes, self.peak_allocations = self.bytes, self.allocations

    def reset_accumulated(self) -> None:
        with _lock:
            self.made, self.freed = [0, 0], [0, 0]

    def as_dict(self) -> dict[str, int]:
        """Under PyTorch's names. Nothing is kept in reserve, so reserved is what is allocated."""
        found: dict[str, int] = {}
        for which, now, peak in (
            (0, self.bytes, self.peak_bytes),
            (1, self.allocations, self.peak_allocations),
        ):
            values = {
                "current": now, "peak": peak,
                "allocated": self.made[which], "freed": self.freed[which],
            }  # fmt: skip
            names = ("allocated_bytes", "reserved_bytes") if which == 0 else ("allocation",)
            for name in names:
                found.update((f"{name}.all.{key}", value) for key, value in values.items())
        return found


_statistics: dict[tuple[str, int], Statistics] = {}


def statistics(device: Device) -> Statistics:
    """Those of one device (its index given), from the first allocation on."""
    key = (device.type, device.index or 0)
    return _statistics.get(key) or _statistics.setdefault(key, Statistics())


class Buffer:
    """Owns one allocation and gives it back when the last tensor over it is gone.

    Attributes:
        value: what the runtime's ``allocate`` returned.
        index: the device of the runtime's type that it is on.
        users: streams other than the one of its making that ``Tensor.record_stream`` named.
    """

    __slots__ = ("__weakref__", "_statistics", "index", "nbytes", "runtime", "users", "value")

    def __init__(self, runtime: DeviceRuntime, nbytes: int, device: Device) -> None:
        self.runtime = runtime
        self.nbytes = nbytes
        self.index = device.index or 0
        self.users: list[Any] = []
        self.value = runtime.allocate(nbytes, self.index)
        self._statistics = statistics(device)
        self._statistics.take(nbytes)

    @property
    def address(self) -> int:
        return self.runtime.native_pointer(self.value)

    def reachable(self) -> DeviceRuntime:
        """Its runtime; DeviceError in a forked child that cannot reach the parent's memory."""
        if self.runtime.forked:
            raise DeviceError(
                f"this tensor is on {self.runtime.device_type}:{self.index} of the parent process, "
                "and this is a forked child. Copy it to the CPU before forking, or start the "
                "process with mortice.multiprocessing.get_context('spawn')."
            )
        return self.runtime

    def resize(self, nbytes: int) -> None:
        """Take another allocation in place of this one, with the bytes that fit into both."""
        runtime = self.reachable()
        old, kept = self.value, min(self.nbytes, nbytes)
        self.value = runtime.allocate(nbytes, self.index)
        self._statistics.take(nbytes)
        if kept:
            runtime.copy_device(self.value, 0, old, 0, kept)
        runtime.free(old)
        self._statistics.give(self.nbytes)
        self.nbytes = nbytes

    def __del__(self) -> None:
        made = getattr(self, "_statistics", None)
        if made is None or self.runtime.forked:
            return
        made.give(self.nbytes)
        for stream in self.users:
            stream.synchronize()
        self.runtime.free(self.value)


def allocate(shape: Shape, dtype: DType, device: Device, strides: Shape | None = None) -> Any:
    """An uninitialised tensor on a plug-in's device."""
    where = indexed(device)
    runtime: DeviceRuntime = backends.runtime(where.type)
    check_index(runtime, where)
    steps = shapes.contiguous_strides(shape) if strides is None else strides
    nbytes = shapes.storage_extent(shape, steps, 0) * dtype.itemsize
    buffer = Buffer(runtime, nbytes, where)
    return wrap_device(DeviceArray(buffer, shape, dtype, where, steps))


def allocate_beside(runtime: DeviceRuntime, shape: Shape, dtype: DType, where: Device) -> Any:
    """As ``allocate``, contiguous, on a device that holds a tensor already, so that it is there."""
    if runtime.forked:
        return allocate(shape, dtype, where)
    nbytes = dtype.itemsize
    for n in shape:
        nbytes *= n
    return wrap_device(DeviceArray(Buffer(runtime, nbytes, where), shape, dtype, where))


def check_index(runtime: Any, device: Device) -> None:
    """DeviceError if there is no such device of the type."""
    n = runtime.count()
    if (device.index or 0) >= n:
        raise DeviceError(
            f"{device}: there {'is' if n == 1 else 'are'} {n} device(s) of type "
            f"{device.type!r}, numbered from 0."
        )


def one_device(operator: str, tensors: list[Any], device_type: str) -> Device:
    """The device of that type on which tensors are; DeviceError where there are several."""
    found = [t.device for t in tensors if t.device.type == device_type]
    for other in found:
        if other is not found[0]:
            raise DeviceError(
                f"{operator}: Expected all tensors to be on the same device, but found at least "
                f"two devices, {found[0]} and {other}. Move one with .to({str(found[0])!r})."
            )
    return found[0]


def after_fork() -> None:
    """In a forked child: another thread may have held the lock."""
    global _lock
    _lock = threading.RLock()
