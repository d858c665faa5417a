"""The current device of a thread, and what may be asked about a device."""

from __future__ import annotations

from typing import Any

from mortice._base.errors import DeviceError
from mortice._tensor import memory
from mortice._tensor.devices import located
from mortice._tensor.streams import runtime_for
from mortice._types.device import Device, set_current_index


def set_device(device: Device) -> int:
    """Make a device the current one of its type in this thread; return the index before."""
    runtime_for(device)  # raises for one that is not here
    return set_current_index(device.type, device.index or 0)


class device_guard:
    """Makes a device the current one of its type for a block; None changes nothing."""

    def __init__(self, device: Device | None) -> None:
        self.device = device
        self._before: list[int] = []

    def __enter__(self) -> Any:
        if self.device is not None:
            self._before.append(set_device(self.device))
        return self

    def __exit__(self, *exc: object) -> None:
        if self.device is not None:
            set_current_index(self.device.type, self._before.pop())


def synchronize(device: Device) -> None:
    """Wait until all work on a device is done."""
    runtime_for(device).synchronize(device.index or 0)


def empty_cache(device: Device) -> None:
    """Give memory that is kept for later allocations back to the device."""
    runtime_for(device).empty_cache()


def memory_info(device: Device) -> tuple[int, int]:
    """(free, total) bytes; DeviceError where the device cannot say."""
    found = runtime_for(device).memory(device.index or 0)
    if found is None:
        raise DeviceError(f"{device} does not say how much memory it has.")
    return found


def _statistics(device: Any) -> memory.Statistics:
    return memory.statistics(located(device))


def memory_allocated(device: Any = None, /) -> int:
    """Bytes that tensors hold on a device."""
    return _statistics(device).bytes


def max_memory_allocated(device: Any = None, /) -> int:
    """The most of it since the start, or since ``reset_peak_memory_stats``."""
    return _statistics(device).peak_bytes


def memory_reserved(device: Any = None, /) -> int:
    """As ``memory_allocated``: core keeps nothing in reserve."""
    return _statistics(device).bytes


def max_memory_reserved(device: Any = None, /) -> int:
    """As ``max_memory_allocated``."""
    return _statistics(device).peak_bytes


def memory_stats(device: Any = None, /) -> dict[str, int]:
    """Bytes and allocations now, at most, and in all, under PyTorch's names."""
    return _statistics(device).as_dict()


def reset_peak_memory_stats(device: Any = None, /) -> None:
    """Count the peaks from here."""
    _statistics(device).reset_peak()


def reset_accumulated_memory_stats(device: Any = None, /) -> None:
    """Count what is made and given back from here."""
    _statistics(device).reset_accumulated()
