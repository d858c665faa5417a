"""The accelerator: the device type that is meant where none is named.

It is ``config.accelerator`` if that is set, else the only one that is here; where several are,
asking says which. Everything here takes a device of that type, its name, an index, or None for the
current device of the thread. ``mortice.<type>`` has the same for one type.
"""

from __future__ import annotations

from typing import Any

from mortice._base.errors import DeviceError
from mortice._tensor import current
from mortice._tensor import devices as _devices
from mortice._tensor.current import (
    max_memory_allocated,
    max_memory_reserved,
    memory_allocated,
    memory_reserved,
    memory_stats,
    reset_accumulated_memory_stats,
    reset_peak_memory_stats,
)
from mortice._tensor.streams import Stream
from mortice._tensor.streams import set_current as _set_stream
from mortice._types.device import Device

__all__ = [
    "current_accelerator",
    "current_device_idx",
    "current_device_index",
    "current_stream",
    "device_count",
    "device_index",
    "empty_cache",
    "get_memory_info",
    "is_available",
    "max_memory_allocated",
    "max_memory_reserved",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
    "set_device_idx",
    "set_device_index",
    "set_stream",
    "synchronize",
]


def is_available() -> bool:
    """Whether a device that is not the CPU is here."""
    from mortice._plugins.report import names

    return any(_devices.count(n) for n in names("mortice.devices") if n not in ("cpu", "meta"))


def current_accelerator(check_available: bool = False) -> Device | None:
    """The accelerator as a device without index, or None; with ``check_available`` it is here.

    DeviceError where several types are here and nothing says which is meant.
    """
    found = _devices.accelerator(present=check_available)
    return None if found is None else Device(found)


def device_count() -> int:
    """How many devices of the accelerator's type are here."""
    found = _devices.accelerator()
    return 0 if found is None else _devices.count(found)


def _accelerator(device: Any = None) -> Device:
    where = _devices.located(device)
    if where.type in ("cpu", "meta"):
        raise DeviceError(
            f"{where} is no accelerator. mortice.accelerator.current_accelerator() says which is."
        )
    return where


def current_device_index() -> int:
    """Index of the thread's current device."""
    return _accelerator().index or 0


def set_device_index(device: Any, /) -> None:
    """Make a device the thread's current one; a negative index changes nothing."""
    if isinstance(device, int) and device < 0:
        return
    current.set_device(_accelerator(device))


current_device_idx = current_device_index
set_device_idx = set_device_index


class device_index(current.device_guard):
    """``with device_index(1):`` makes a device current for a block; None changes nothing."""

    def __init__(self, device: Any, /) -> None:
        super().__init__(None if device is None else _accelerator(device))


def current_stream(device: Any = None, /) -> Stream:
    """The thread's current stream on a device."""
    from mortice._tensor.streams import current as current_of

    return current_of(_accelerator(device))


def set_stream(stream: Stream) -> None:
    """Make a stream, and its device, current in this thread."""
    _set_stream(stream)


def synchronize(device: Any = None, /) -> None:
    """Wait until all work on a device is done."""
    current.synchronize(_accelerator(device))


def empty_cache() -> None:
    """Give memory that is kept for later allocations back to the device."""
    current.empty_cache(_accelerator())


def get_memory_info(device: Any = None, /) -> tuple[int, int]:
    """(free, total) bytes of a device; DeviceError where it cannot say."""
    return current.memory_info(_accelerator(device))
