"""Streams and events: the order of work on a device, and marks in it.

They work on every device. One whose work is done when a call returns has nothing to order, and the
defaults of ``DeviceRuntime`` say so; the CPU is such a device.
"""

from __future__ import annotations

import itertools
from _thread import _local
from collections.abc import Callable
from typing import Any

from mortice._base.errors import ArgumentError, DeviceError, InvalidState
from mortice._dispatch import backends
from mortice._tensor.devices import located
from mortice._tensor.memory import check_index
from mortice._tensor.runtime import DeviceRuntime, HostFeatures
from mortice._types.device import Device, current_index, set_current_index

_numbers = itertools.count(1)


class _HostQueue(DeviceRuntime):
    """The CPU's: operators are done when they return."""

    device_type = "cpu"
    features = HostFeatures

    def count(self) -> int:
        return 1


_HOST = _HostQueue()


def runtime_for(device: Device) -> DeviceRuntime:
    """What answers for streams of a device; it is loaded now if it was not."""
    if device.type == "cpu":
        return _HOST
    if device.type == "meta":
        raise DeviceError("device 'meta' does no work, so it has no streams or events.")
    runtime = backends.runtime(device.type)
    check_index(runtime, device)
    return runtime


class Stream:
    """``Stream(device=None, *, priority=0)``: work given to it is done in order.

    Work of different streams of a device may overlap if the device says so
    (``Features.streams``). As a context manager it is the thread's current stream.
    """

    __slots__ = ("__weakref__", "_runtime", "device", "native_handle", "priority", "stream_id")

    device: Device
    stream_id: int
    priority: int
    native_handle: Any
    _runtime: DeviceRuntime
    #: The type of device that a subclass is for.
    _device_type: str | None = None

    def __new__(cls, device: Any = None, *, priority: int = 0) -> Stream:
        where = located(device, cls._device_type)
        return _made(where, priority, next(_numbers))

    def query(self) -> bool:
        """Whether all its work is done."""
        return self._runtime.stream_done(self.native_handle, self.device.index or 0)

    def synchronize(self) -> None:
        """Wait on the host until all its work is done."""
        self._runtime.stream_synchronize(self.native_handle, self.device.index or 0)

    def record_event(self, event: Event | None = None) -> Event:
        """Record ``event`` (a new one) behind the work given so far, and return it."""
        event = event or Event(self.device)
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        """Let work given from now on wait for an event."""
        event.wait(self)

    def wait_stream(self, stream: Stream) -> None:
        """Let work given from now on wait for all that ``stream`` was given so far."""
        self.wait_event(stream.record_event())

    @property
    def device_index(self) -> int:
        return self.device.index or 0

    @property
    def device_type(self) -> str:
        return self.device.type

    def __enter__(self) -> Stream:
        index = current_index(self.device.type)
        _current.stack.append((set_current(self), index))
        return self

    def __exit__(self, *exc: object) -> None:
        before, index = _current.stack.pop()
        set_current(before)
        set_current_index(before.device.type, index)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Stream)
            and other.device is self.device
            and other.stream_id == self.stream_id
        )

    def __hash__(self) -> int:
        return hash((self.device, self.stream_id))

    def __repr__(self) -> str:
        return f"<mortice.Stream {self.stream_id} on {self.device}>"


_classes: dict[str, type[Stream]] = {}


def class_for(device_type: str) -> type[Stream]:
    """The class of a device type's streams, a subclass of Stream."""
    found = _classes.get(device_type)
    if found is None:
        names = {"__slots__": (), "_device_type": device_type, "__doc__": Stream.__doc__}
        found = _classes.setdefault(device_type, type("Stream", (Stream,), names))
    return found


def _made(where: Device, priority: int | None, number: int) -> Stream:
    runtime = runtime_for(where)
    self = object.__new__(class_for(where.type))
    self._runtime = runtime
    self.device = where
    self.stream_id = number
    self.priority = priority or 0
    self.native_handle = runtime.stream(where.index or 0, priority)
    return self


class Event:
    """``Event(device=None, *, enable_timing=False)``: a mark in a stream's work."""

    __slots__ = ("__weakref__", "_mark", "_runtime", "device", "enable_timing", "event_id")

    def __init__(
        self,
        device: Any = None,
        *,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
    ) -> None:
        if interprocess:
            raise InvalidState("Event(interprocess=True): no device here shares events.")
        self.device = located(device)
        self.enable_timing = enable_timing
        self.event_id = next(_numbers)
        self._runtime = runtime_for(self.device)
        self._mark: Any = None

    def record(self, stream: Stream | None = None) -> None:
        """Mark what ``stream`` (the current one) was given so far; again moves the mark."""
        stream = current(self.device) if stream is None else _checked(stream)
        if stream.device.type != self.device.type:
            raise DeviceError(
                f"Event device {self.device} does not match the recording stream's device "
                f"{stream.device}. Make the event with device={str(stream.device)!r}."
            )
        self.device = stream.device
        self._mark = (self._runtime.record(stream.native_handle, stream.device_index),)

    def wait(self, stream: Stream | None = None) -> None:
        """Let work that ``stream`` (the current one) is given from now on wait for the mark."""
        if self._mark is None:
            return
        stream = current(self.device) if stream is None else _checked(stream)
        if stream.device.type == self.device.type:
            self._runtime.stream_wait(stream.native_handle, self._mark[0])
        else:
            self.synchronize()  # devices of two types know nothing of each other's queues

    def query(self) -> bool:
        """Whether the marked work is done; True where nothing was recorded."""
        return self._mark is None or self._runtime.mark_done(self._mark[0])

    def synchronize(self) -> None:
        """Wait on the host for the marked work."""
        if self._mark is not None:
            self._runtime.mark_synchronize(self._mark[0])

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds from this event to ``end_event``, both recorded with ``enable_timing``."""
        pair = (self, end_event)
        if not all(event.enable_timing for event in pair):
            raise InvalidState("Both events must be created with argument 'enable_timing=True'.")
        if any(event._mark is None for event in pair):
            raise InvalidState("Both events must be recorded before calculating elapsed time.")
        end_event.synchronize()
        return self._runtime.elapsed(self._mark[0], end_event._mark[0])

    def __repr__(self) -> str:
        return f"<mortice.Event {self.event_id} on {self.device}>"


def _checked(stream: Any) -> Stream:
    if not isinstance(stream, Stream):
        raise ArgumentError(f"expected a mortice.Stream, but got {type(stream).__name__}")
    return stream


# -- the current stream of each device, per thread ------------------------------------------------


class _Current(_local):
    def __init__(self) -> None:
        self.streams: dict[Device, Stream] = {}
        self.stack: list[tuple[Stream, int]] = []


_current = _Current()
_usual: dict[Device, Stream] = {}


def usual(device: Device) -> Stream:
    """The stream that a device's work goes to unless another is made current."""
    found = _usual.get(device)
    if found is None:
        found = _usual.setdefault(device, _made(device, None, 0))
    return found


def current(device: Any = None) -> Stream:
    """The thread's current stream on a device."""
    where = located(device)
    return _current.streams.get(where) or usual(where)


def options(runtime: DeviceRuntime, device: Device) -> dict[str, Any]:
    """The keyword arguments of a kernel: the current stream, if the device has several."""
    return {"stream": current(device).native_handle} if runtime.features.streams else {}


def set_current(stream: Stream) -> Stream:
    """Make a stream, and its device, current in this thread; return the stream that was."""
    before = current(_checked(stream).device)
    _current.streams[stream.device] = stream
    set_current_index(stream.device.type, stream.device_index)
    return before


def after_fork() -> None:
    """In a forked child: queues of devices that did not survive are gone."""
    _drop(lambda runtime: runtime.forked)


def forget(runtime: DeviceRuntime) -> None:
    """A runtime is no longer used: neither are its queues, in this thread."""
    _drop(lambda other: other is runtime)


def _drop(gone: Callable[[DeviceRuntime], bool]) -> None:
    for found in (_usual, _current.streams):
        for device in [d for d, s in found.items() if gone(s._runtime)]:
            del found[device]
