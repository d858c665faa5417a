"""Devices whose packages bring code generators of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import mortice
from mortice.errors import RegistrationError

from .options import ConfigModule, own_config


class KernelCompiler(Protocol):
    """Turns a loop-IR kernel into something that runs on the device."""

    def __call__(self, kernel: Any) -> Callable[..., None]:
        """``kernel``: ``mortice_llvm.ir.Kernel``. The result is called with a list of
        (buffer, offset in elements), one for each of ``kernel.buffers``, then the sizes
        (``kernel.sizes()``), strides (``kernel.symbols()``) and scalars, in that order.
        """
        ...


class Backend(NamedTuple):
    """What a device's package registered."""

    compiler: KernelCompiler
    custom_pass: Callable[[Any], None] | None
    config: ConfigModule | None


_BACKENDS: dict[str, Backend] = {}


def register_backend_for_device(
    device: str,
    compiler: KernelCompiler,
    device_custom_pass: Callable[[Any], None] | None = None,
    device_custom_config: ConfigModule | None = None,
) -> None:
    """Has graphs on ``device`` compiled: fused as for the CPU, each kernel by ``compiler``.

    Args:
        device: the device type.
        compiler: see ``KernelCompiler``. A kernel that it raises ``NotImplementedError`` for is
            run operator by operator.
        device_custom_pass: called with the GraphModule, if the graph has tensors of that device.
        device_custom_config: options that ``<device>.<key>`` names; part of the cache key.

    The last registration for a device holds. Raises RegistrationError if the config is inductor's
    own.
    """
    if device_custom_config is own_config():
        raise RegistrationError("a device's config is a ConfigModule of its own, not inductor's.")
    if device_custom_config is not None and not isinstance(device_custom_config, ConfigModule):
        raise RegistrationError(
            f"device_custom_config of {device!r}: expected a ConfigModule, found "
            f"{type(device_custom_config).__name__}."
        )
    _BACKENDS[device] = Backend(compiler, device_custom_pass, device_custom_config)


def backend_of(device: str) -> Backend | None:
    """What is registered for a device; a device's package that is not loaded yet is loaded."""
    found = _BACKENDS.get(device)
    if found is None and _load(device):
        found = _BACKENDS.get(device)
    return found


def _load(device: str) -> bool:
    """Loads the plug-in of a device, and lets its runtime register. False if there is none."""
    if all(entry.name != device for entry in mortice.plugins.find("device")):
        return False
    register = getattr(mortice.backend.runtime(device), "register_inductor", None)
    if register is not None and device not in _BACKENDS:
        register()
    return True


def config_of(device: str) -> ConfigModule | None:
    """The config that a device's package registered."""
    found = backend_of(device)
    return None if found is None else found.config


def option_names() -> list[str]:
    """``<device>.<key>`` of all devices registered so far."""
    return [
        f"{device}.{name}"
        for device, b in _BACKENDS.items()
        if b.config is not None
        for name in b.config.names()
    ]


def configs() -> list[ConfigModule]:
    """The configs of all devices registered so far."""
    return [b.config for b in _BACKENDS.values() if b.config is not None]
