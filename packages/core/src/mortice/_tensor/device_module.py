"""``mortice.<device type>``: one module for each device, made when it is first asked for.

Its functions are those of ``torch.cuda``. A plug-in that brings a module of its own, by entry point or
by ``mortice._register_device_module``, is asked first.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from mortice._base.absent import no_attribute
from mortice._base.errors import (
    PluginDisabled,
    PluginNotFound,
    PluginUnavailable,
    RegistrationError,
)
from mortice._dispatch import backends
from mortice._tensor import current, devices, generator, streams
from mortice._tensor.generator import Generator
from mortice._tensor.runtime import DeviceRuntime, Features, HostFeatures
from mortice._types.device import Device
from mortice._types.dtypes import DType


class DeviceModule(ModuleType):
    """The functions of one device type."""

    _device_type: str

    def __init__(self, device_type: str) -> None:
        super().__init__(f"mortice.{device_type}", f"Devices of type {device_type!r}.")
        self._device_type = device_type
        self.__all__ = [name for name in dir(self) if not name.startswith("_")]

    def __getattr__(self, name: str) -> Any:
        made = _LAZY.get(name)
        if made is not None:
            value = self.__dict__[name] = made(self._device_type)
            return value
        raise no_attribute(self.__name__, name, dir(self))

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(type(self)), *_LAZY})

    def _at(self, device: Any = None) -> Device:
        return devices.located(device, self._device_type)

    def _generators(self) -> list[Generator]:
        return [generator.default(self._at(i)) for i in range(self.device_count())]

    def is_available(self) -> bool:
        """Whether a device of this type is here."""
        return devices.count(self._device_type) > 0

    def device_count(self) -> int:
        """How many are here."""
        return devices.count(self._device_type)

    def is_initialized(self) -> bool:
        """Whether it is in use in this process."""
        return self._device_type == "cpu" or backends.is_loaded(self._device_type)

    def init(self) -> None:
        """Load the device now; raises what is wrong with it."""
        streams.runtime_for(self._at())

    def current_device(self) -> int | str:
        """Index of the thread's current device ("cpu" for the CPU)."""
        if self._device_type == "cpu":
            return "cpu"
        self.init()
        return self._at().index or 0

    def set_device(self, device: Any) -> None:
        """Make a device the thread's current one."""
        if not (isinstance(device, int) and device < 0):
            current.set_device(self._at(device))

    def synchronize(self, device: Any = None) -> None:
        """Wait until all work on a device is done."""
        current.synchronize(self._at(device))

    def current_stream(self, device: Any = None) -> streams.Stream:
        """The thread's current stream."""
        return streams.current(self._at(device))

    def default_stream(self, device: Any = None) -> streams.Stream:
        """The stream that work goes to unless another is made current."""
        return streams.usual(self._at(device))

    def set_stream(self, stream: Any) -> None:
        """Make a stream current in this thread."""
        if stream is not None:
            streams.set_current(stream)

    def manual_seed(self, seed: int) -> None:
        """Seed the current device's generator. Nothing happens where no device is here."""
        if self.is_available():
            generator.default(self._at()).manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        """Seed the generators of all devices of this type."""
        for one in self._generators():
            one.manual_seed(seed)

    def seed(self) -> None:
        """Seed the current device's generator by the operating system."""
        if self.is_available():
            generator.default(self._at()).seed()

    def seed_all(self) -> None:
        """Seed all devices' generators alike, by the operating system."""
        self.manual_seed_all(Generator().seed())

    def initial_seed(self) -> int:
        """The seed of the current device's generator."""
        return generator.default(self._at()).initial_seed()

    def get_rng_state(self, device: Any = None) -> Any:
        """State of a device's generator as a uint8 tensor."""
        return generator.default(self._at(device)).get_state()

    def set_rng_state(self, new_state: Any, device: Any = None) -> None:
        """Let a device's generator go on from a state."""
        generator.default(self._at(device)).set_state(new_state)

    def get_rng_state_all(self) -> list[Any]:
        """States of all devices' generators."""
        return [one.get_state() for one in self._generators()]

    def set_rng_state_all(self, new_states: Any) -> None:
        """Set the states of all devices' generators."""
        for one, state in zip(self._generators(), new_states, strict=True):
            one.set_state(state)

    def get_device_name(self, device: Any = None) -> str:
        """What people call the device."""
        where = self._at(device)
        return streams.runtime_for(where).name(where.index or 0)

    def mem_get_info(self, device: Any = None) -> tuple[int, int]:
        """(free, total) bytes; DeviceError where the device cannot say."""
        return current.memory_info(self._at(device))

    def empty_cache(self) -> None:
        """Give memory that is kept for later allocations back to the device."""
        if self.is_initialized():
            current.empty_cache(self._at())

    def get_amp_supported_dtype(self) -> list[DType]:
        """Dtypes that autocast may lower to."""
        return list(autocast_dtypes(self._device_type))

    def is_bf16_supported(self, including_emulation: bool = True) -> bool:
        """Whether autocast may lower to bfloat16."""
        return self.is_available() and any(
            d.name == "bfloat16" for d in autocast_dtypes(self._device_type)
        )

    def _is_in_bad_fork(self) -> bool:
        return backends.is_lost(self._device_type)

    def memory_allocated(self, device: Any = None) -> int:
        """Bytes that tensors hold on a device."""
        return current.memory_allocated(self._at(device))

    def max_memory_allocated(self, device: Any = None) -> int:
        """The most of it since the start, or since ``reset_peak_memory_stats``."""
        return current.max_memory_allocated(self._at(device))

    def memory_reserved(self, device: Any = None) -> int:
        """As ``memory_allocated``: core keeps nothing in reserve."""
        return current.memory_reserved(self._at(device))

    def max_memory_reserved(self, device: Any = None) -> int:
        """As ``max_memory_allocated``."""
        return current.max_memory_reserved(self._at(device))

    def memory_stats(self, device: Any = None) -> dict[str, int]:
        """Bytes and allocations now, at most, and in all, under PyTorch's names."""
        return current.memory_stats(self._at(device))

    def reset_peak_memory_stats(self, device: Any = None) -> None:
        """Count the peaks from here."""
        current.reset_peak_memory_stats(self._at(device))

    def reset_accumulated_memory_stats(self, device: Any = None) -> None:
        """Count what is made and given back from here."""
        current.reset_accumulated_memory_stats(self._at(device))


def register(device_type: str, module: ModuleType) -> None:
    """``mortice._register_device_module``: ``module`` becomes ``mortice.<device type>``.

    RegistrationError if that name is taken by anything but the module made by core.
    """
    root = sys.modules["mortice"]
    name = Device(device_type).type
    taken = vars(root).get(name)
    if taken is not None and not isinstance(taken, DeviceModule):
        raise RegistrationError(
            f"The runtime module of {name!r} has already been registered with {taken!r}."
        )
    sys.modules[f"mortice.{name}"] = module
    setattr(root, name, module)


_register_device_module = register


def get_device_module(device: Any = None) -> ModuleType:
    """``mortice.<device type>`` of a device; of the accelerator, or of the CPU where there is none."""
    from importlib import import_module

    if isinstance(device, ModuleType):
        return device
    kind = (devices.accelerator() or "cpu") if device is None else devices.located(device).type
    return import_module(f"mortice.{kind}")


def autocast_dtypes(device_type: str) -> tuple[DType, ...]:
    """Dtypes that autocast may lower to on a device, the default one first."""
    if device_type == "cpu":
        return HostFeatures.autocast_dtypes
    try:
        runtime: DeviceRuntime = backends.runtime(device_type)
    except (PluginNotFound, PluginUnavailable, PluginDisabled) as error:
        if isinstance(error, PluginNotFound) and device_type not in devices.ASKED_FOR:
            raise
        return Features.autocast_dtypes  # as files and programs for it expect
    return runtime.features.autocast_dtypes


# -- classes, made when asked for --------------------------------------------------------------------


def _device_class(kind: str) -> type:
    class device(current.device_guard):
        """``with device(1):`` makes a device the current one for a block; None changes nothing."""

        def __init__(self, device: Any) -> None:
            super().__init__(None if device is None else devices.located(device, kind))

    return device


def _device_of_class(kind: str) -> type:
    class device_of(current.device_guard):
        """Makes the device of a tensor the current one, if it is of this type."""

        def __init__(self, obj: Any) -> None:
            super().__init__(obj.device if obj.device.type == kind else None)

    return device_of


def _stream_class(kind: str) -> type[streams.Stream]:
    return streams.class_for(kind)


def _event_class(kind: str) -> type[streams.Event]:
    class Event(streams.Event):
        """A mark in a stream's work; see ``mortice.Event``."""

        def __init__(self, enable_timing: bool = False, **options: Any) -> None:
            options.setdefault("device", devices.located(None, kind))
            super().__init__(enable_timing=enable_timing, **options)

    return Event


def _stream_context(kind: str) -> Callable[[Any], Any]:
    from contextlib import nullcontext

    def stream(stream: streams.Stream | None) -> Any:
        """A context manager that makes ``stream`` current; None changes nothing."""
        return nullcontext() if stream is None else stream

    return stream


def _default_generators(kind: str) -> tuple[Generator, ...]:
    return tuple(generator.default(devices.located(i, kind)) for i in range(devices.count(kind)))


#: Attributes made when they are first asked for.
_LAZY: dict[str, Callable[[str], Any]] = {
    "Event": _event_class,
    "Stream": _stream_class,
    "StreamContext": _stream_context,
    "default_generators": _default_generators,
    "device": _device_class,
    "device_of": _device_of_class,
    "stream": _stream_context,
}
