"""What the floors below ask about devices other than the host; all of it is loaded when asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mortice._base.errors import ArgumentError, DeviceError, InvalidState, PluginError
from mortice._dispatch import backends
from mortice._plugins import modules
from mortice._types import device as device_types
from mortice._types.device import Device, indexed


def _any_device_kernel(name: str) -> Callable[..., Any] | None:
    from mortice._tensor.kernels import ANY_DEVICE

    return ANY_DEVICE.get(name)


def _adapt(runtime: Any, op: Any, device: str) -> Any:
    from mortice._tensor.kernels import adapt

    return adapt(runtime, op, device)


def _check_installed(name: str) -> None:
    """DeviceError where no installed package provides a device type; loads nothing."""
    if backends.is_loaded(name):
        return
    from mortice._base.errors import nearest
    from mortice._plugins import find
    from mortice._plugins.groups import not_installed_hint

    known = {"cpu", "meta", *(entry.name for entry in find("mortice.devices"))}
    if name not in known:
        hint = not_installed_hint("device", name) or nearest(name, known)
        raise DeviceError(
            f"no installed package provides a device of type {name!r}; there are: "
            f"{', '.join(sorted(known))}.{hint} `mortice list-backends --kind "
            "device --all` shows them with their states."
        )


#: Device types that programs ask about whether they are installed or not.
ASKED_FOR = frozenset(("cpu", "cuda", "xpu", "mps", "mtia", "hpu"))


def _module_exists(device_type: str) -> bool:
    """Whether ``mortice.<device type>`` is to be made: it is installed, or often asked for."""
    if device_type in ASKED_FOR:
        return True
    from mortice._plugins import find

    return any(entry.name == device_type for entry in find("mortice.devices"))


def _make_module(device_type: str) -> Any:
    from mortice._tensor.device_module import DeviceModule

    return DeviceModule(device_type)


# -- the accelerator -------------------------------------------------------------------------------


def accelerator(*, present: bool = False) -> str | None:
    """The device type that is meant where none is named, or None where there is none.

    ``config.accelerator`` if it is set; else the only one installed; else the only one of them
    that has a device here. With ``present`` it must have one. DeviceError where several do.
    """
    from mortice._base import config
    from mortice._plugins.report import names

    chosen = config.accelerator
    if chosen:
        return chosen if not present or count(chosen) else None
    installed = [name for name in names("mortice.devices") if name not in device_types.BUILT_IN]
    if len(installed) < 2 and not present:
        return installed[0] if installed else None
    here = [name for name in installed if count(name)]
    if len(here) > 1:
        raise DeviceError(
            f"{len(here)} types of accelerator are here: {', '.join(here)}. Say which is meant "
            f"where none is named: MORTICE_ACCELERATOR={here[0]}, or mortice.config.accelerator."
        )
    if here:
        return here[0]
    return installed[0] if installed and not present else None


def _named_accelerator() -> str:
    found = accelerator()
    if found is None:
        raise DeviceError(
            "A bare device index means the accelerator, and none is installed here. Name the "
            "device, for example device('cpu')."
        )
    return found


def located(device: Any, device_type: str | None = None) -> Device:
    """``device`` with its index: a device, its name, an index of ``device_type`` (of the
    accelerator), or None for the current one of it. DeviceError if no type is known.
    """
    if device is None or (isinstance(device, int) and not isinstance(device, bool)):
        kind = device_type or accelerator()
        if kind is None:
            raise DeviceError(
                "Cannot access accelerator device when none is available. Name a device: 'cpu', or "
                "one that `mortice list-backends --kind device` shows."
            )
        return indexed(Device(kind, device))
    if isinstance(device, (str, Device)):
        return indexed(Device(device))
    raise ArgumentError(
        f"expected a device, its name or its index, but got {type(device).__name__}"
    )


def count(device_type: str) -> int:
    """How many devices of a type are here; 0 where its plug-in cannot be used."""
    if device_type in device_types.BUILT_IN:
        return 1
    try:
        return backends.runtime(device_type).count()
    except PluginError:
        return 0


def _started(device_type: str) -> None:
    """A device is used for the first time."""
    from mortice._tensor.device_methods import attach_all

    attach_all(device_type)


def _ended(runtime: Any) -> None:
    """A device's plug-in was taken back."""
    from mortice._tensor import streams

    streams.forget(runtime)


# -- fork ------------------------------------------------------------------------------------------


def _after_fork() -> None:
    """In a forked child: see ``Features.fork``."""
    from mortice._tensor import memory, streams

    backends.leave_parent()
    memory.after_fork()
    streams.after_fork()


# -- threads of the CPU ----------------------------------------------------------------------------


def set_num_threads(n: int) -> None:
    """Threads that one operator on the CPU may use; at least 1. Needs mortice-cpu."""
    if not isinstance(n, int) or isinstance(n, bool):
        raise ArgumentError(f"set_num_threads expects an int, but got {type(n).__name__}")
    if n < 1:
        raise InvalidState(f"set_num_threads expects a positive integer, but got {n}")
    backends.runtime("cpu").set_num_threads(n)


def get_num_threads() -> int:
    """Threads that one operator on the CPU may use. Needs mortice-cpu."""
    return backends.runtime("cpu").get_num_threads()


backends.any_device_kernel = _any_device_kernel
backends.adapt_runtime = _adapt
backends.after_fork = _after_fork
backends.started = _started
backends.ended = _ended
modules.device_module_exists = _module_exists
modules.make_device_module = _make_module
device_types.check_installed = _check_installed
device_types.default_accelerator = _named_accelerator
