"""The class that authors of devices write: what a device must do, and defaults for the rest."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

from mortice._types.dtypes import DType, bfloat16, float16


class Features:
    """What a device can do; every answer has a safe default. Tests ask these, never for names."""

    #: Do kernels take inputs with any strides? Otherwise core makes them contiguous first.
    strided = False
    #: Do kernels take Python numbers where an operator does in place of a tensor (``x + 1``)?
    #: Otherwise core hands them over as arrays without dimensions, in the dtype operands meet in.
    numbers = False
    #: Dtypes that kernels may be asked for; None means all.
    dtypes: tuple[DType, ...] | None = None
    #: Do kernels take the keyword ``stream``, what ``DeviceRuntime.stream`` made? Otherwise all
    #: streams of a device are one.
    streams = False
    #: In a child made by fork: "error" (using the device says so), "restart" (a runtime is made
    #: anew, the parent's tensors stay out of reach) or "keep" (it is plain memory; all goes on).
    fork = "error"
    #: Dtypes that autocast may lower to, the default one first.
    autocast_dtypes: tuple[DType, ...] = (float16, bfloat16)
    #: Do kernels compute? If not, results are undefined, and only their sizes and dtypes are right.
    computes = True


class HostFeatures(Features):
    """The CPU's."""

    strided = True
    fork = "keep"
    autocast_dtypes = (bfloat16, float16)


class DeviceRuntime:
    """Base class of a device. A plug-in's ``mortice_device`` hook returns a subclass.

    ``count``, ``allocate``, ``copy_in`` and ``copy_out`` are to be written; the other methods have
    defaults. Buffers are whatever ``allocate`` returns. Sizes are in bytes, offsets too; ``index``
    says which device of the type. What ``stream`` and ``record`` return is whatever the device
    calls a queue of work and a mark in one.
    """

    features: type[Features] = Features
    #: The name under which the device is installed; core sets it.
    device_type: str = ""
    #: Whether this is the parent's runtime, in a forked child; core sets it.
    forked: bool = False

    # -- to be written ---------------------------------------------------------------------------

    def count(self) -> int:
        """Number of devices of this type present."""
        raise _unwritten(self, "count")

    def allocate(self, nbytes: int, index: int) -> Any:
        """A buffer of ``nbytes`` on device ``index``."""
        raise _unwritten(self, "allocate")

    def free(self, buffer: Any) -> None:
        """Give a buffer back. Called when no tensor refers to it any more."""

    def copy_in(self, buffer: Any, offset: int, data: memoryview) -> None:
        """Copy bytes from host memory into a buffer."""
        raise _unwritten(self, "copy_in")

    def copy_out(self, buffer: Any, offset: int, data: memoryview) -> None:
        """Copy bytes of a buffer to writable host memory."""
        raise _unwritten(self, "copy_out")

    def copy_device(
        self, target: Any, target_offset: int, source: Any, source_offset: int, nbytes: int
    ) -> None:
        """Copy between two buffers of this device type, which may be one and overlap."""
        data = bytearray(nbytes)
        self.copy_out(source, source_offset, memoryview(data))
        self.copy_in(target, target_offset, memoryview(data))

    def synchronize(self, index: int) -> None:
        """Wait until all work on a device is done."""

    def kernel(self, op: str, dtypes: tuple[DType, ...]) -> Callable[..., Any] | None:
        """A kernel for an operator ("add.Tensor") and its tensors' dtypes, or None.

        It is called with DeviceArrays in place of tensors (and of numbers that stand for one, see
        ``Features.numbers``), the other arguments as they are, and then the output arrays to
        fill; with the keyword ``stream`` if ``Features.streams``. A
        kernel for "copy_" (dtypes of source and target) gets a source and a target of one size and
        any strides, and converts.
        """
        return None

    def kernel_for(self, op: str, dtypes: tuple[DType, ...]) -> Callable[..., Any] | None:
        """What core asks: ``kernel``, if ``Features.dtypes`` has all the dtypes."""
        known = self.features.dtypes
        if known is not None and not all(dtype in known for dtype in dtypes):
            return None
        return self.kernel(op, dtypes)

    # -- streams and events ------------------------------------------------------------------------

    def stream(self, index: int, priority: int | None) -> Any:
        """A queue of its own for work; the device's usual one for a priority of None."""
        return None

    def stream_done(self, stream: Any, index: int) -> bool:
        """Whether all work given to a stream is done. By default it is waited for."""
        self.stream_synchronize(stream, index)
        return True

    def stream_synchronize(self, stream: Any, index: int) -> None:
        """Wait on the host until all work given to a stream is done."""
        self.synchronize(index)

    def record(self, stream: Any, index: int) -> Any:
        """A mark behind the work that a stream was given so far. By default that is waited for,
        and the mark is the time in seconds.
        """
        self.stream_synchronize(stream, index)
        return perf_counter()

    def mark_done(self, mark: Any) -> bool:
        """Whether the work before a mark is done."""
        return True

    def mark_synchronize(self, mark: Any) -> None:
        """Wait on the host for the work before a mark."""

    def stream_wait(self, stream: Any, mark: Any) -> None:
        """Let later work of a stream wait for a mark. By default the host waits at once."""
        self.mark_synchronize(mark)

    def elapsed(self, start: Any, end: Any) -> float:
        """Milliseconds from one mark to another."""
        return (end - start) * 1e3

    # -- what may be asked about a device ------------------------------------------------------------

    def name(self, index: int) -> str:
        """What people call the device."""
        return f"{self.device_type} {index}"

    def memory(self, index: int) -> tuple[int, int] | None:
        """(free, total) bytes, or None where the device cannot say."""
        return None

    def empty_cache(self) -> None:
        """Give memory that is kept for later allocations back to the device."""

    def native_pointer(self, buffer: Any) -> int:
        """An address or handle by which other libraries know a buffer."""
        return int(getattr(buffer, "address", id(buffer)))


def _unwritten(runtime: DeviceRuntime, method: str) -> NotImplementedError:
    cls = type(runtime)
    return NotImplementedError(
        f"{cls.__module__}.{cls.__qualname__} has no method {method}, which core needs of every "
        f"device. mortice.backend.DeviceRuntime.{method} says what it is to do."
    )
