"""Backend names: parsing ``cpu:gloo,cuda:nccl``, registering, and what is there for each device."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, ClassVar

from mortice._plugins import find, load
from mortice._plugins.groups import HIDDEN_TAGS, KINDS
from mortice.errors import (
    ArgumentError,
    DistBackendError,
    InvalidValue,
    PluginNotFound,
    Unavailable,
)

from .communicator import Communicator, Setup

_KIND = "distributed"


class Backend(str):
    """A backend's name, in lower case: ``Backend("GLOO") == "gloo"``.

    ``Backend.register_backend`` adds one to this process; installed ones come with their packages.
    """

    __slots__ = ()

    UNDEFINED: ClassVar[str] = "undefined"
    GLOO: ClassVar[str] = "gloo"
    MPI: ClassVar[str] = "mpi"
    NCCL: ClassVar[str] = "nccl"
    UCC: ClassVar[str] = "ucc"
    XCCL: ClassVar[str] = "xccl"

    def __new__(cls, name: str) -> Backend:
        if not isinstance(name, str):
            raise ArgumentError(f"a backend's name is text, found {type(name).__name__}.")
        return super().__new__(cls, _name(name, name))

    @classmethod
    def register_backend(
        cls,
        name: str,
        func: Callable[..., Any],
        extended_api: bool = False,
        devices: str | Sequence[str] | None = None,
    ) -> None:
        """Make ``func`` the backend ``name`` in this process.

        ``func`` is a subclass of ``Communicator``, or a function ``(store, rank, size, timeout)``
        that returns one (None: this process is no member), where timeout is a timedelta; with
        ``extended_api`` it is called as ``(setup, options)``. ``devices`` are the device types it
        is for, the CPU by default.

        Raises RegistrationError if the name is taken.
        """
        from mortice.plugins import register

        types = (devices,) if isinstance(devices, str) else tuple(devices or ())
        if isinstance(func, type) and issubclass(func, Communicator):
            register(_KIND, Backend(name), func, devices=types or func.devices)
            return
        made = _from_function(name, func, extended=extended_api, devices=types or ("cpu",))
        register(_KIND, Backend(name), made, devices=made.devices)

    @classmethod
    def backend_list(cls) -> list[str]:
        """The names that can be used as far as metadata tells."""
        return sorted(_offered())


def _from_function(
    name: str, func: Callable[..., Any], *, extended: bool, devices: tuple[str, ...]
) -> type[Communicator]:
    """A class whose ``create`` calls a factory function."""

    class Made(Communicator):
        @classmethod
        def create(cls, setup: Setup) -> Any:
            if extended:
                return func(setup, setup.options)
            return func(setup.store, setup.rank, setup.size, timedelta(seconds=setup.timeout))

    Made.devices = devices
    Made.__name__ = Made.__qualname__ = f"{name}_from_{getattr(func, '__name__', 'function')}"
    Made.__abstractmethods__ = frozenset()
    Made.__doc__ = inspect.getdoc(func)
    return Made


# -- the string ---------------------------------------------------------------------------------


def parse(text: str) -> dict[str, str]:
    """Device type -> backend name, of ``"gloo"`` or ``"cpu:gloo,cuda:nccl"``.

    A name alone stands for every device that the backend is for. Raises InvalidValue for what is
    neither, for empty names and for a device named twice.
    """
    if not isinstance(text, str):
        raise ArgumentError(f"backend: expected text, found {type(text).__name__}.")
    if ":" not in text:
        name = _name(text, text)
        return dict.fromkeys(devices_of(name), name)
    found: dict[str, str] = {}
    for pair in text.split(","):
        device, colon, name = pair.partition(":")
        if not colon or ":" in name:
            raise InvalidValue(
                f"backend {text!r}: {pair.strip()!r} is no pair; write DEVICE:BACKEND, as in "
                '"cpu:gloo,cuda:nccl".'
            )
        device = device.strip().lower()
        if not device:
            raise InvalidValue(f"backend {text!r}: no device is named before {pair.strip()!r}.")
        name = _name(name, text)
        if device in found:
            raise InvalidValue(
                f"backend {text!r} names the device {device} twice: {found[device]} and {name}."
            )
        found[device] = name
    return found


def _name(name: str, text: str) -> str:
    name = name.strip().lower()
    if not name:
        raise InvalidValue(f"backend {text!r}: a backend's name is empty.")
    if "," in name:
        raise InvalidValue(
            f"backend {text!r}: several backends are named with their devices, as in "
            '"cpu:gloo,cuda:nccl".'
        )
    return name


def canonical(devices: Mapping[str, str]) -> str:
    """The string of a mapping: ``cpu:gloo,cuda:nccl``."""
    return ",".join(f"{device}:{name}" for device, name in devices.items())


# -- what is there ------------------------------------------------------------------------------


def _offered() -> dict[str, tuple[str, ...]]:
    """Name -> device types, of all backends that can be used as far as metadata tells."""
    from mortice._plugins import catalog, resolution

    listed = catalog.entries(KINDS[_KIND])
    rivals = catalog.by_name(listed)
    return {
        entry.name: tuple(entry.row.get("devices") or ("cpu",))
        for entry in listed
        if not set(entry.tags) & set(HIDDEN_TAGS)
        and resolution.status(entry, rivals[entry.group.name, entry.name]).usable
    }


def devices_of(name: str) -> tuple[str, ...]:
    """The device types that a backend is for; PluginNotFound with what to install if there is none."""
    for entry in find(_KIND):
        if entry.name == name:
            return tuple(entry.row.get("devices") or ("cpu",))
    return backend_class(name).devices


def defaults() -> dict[str, str]:
    """Device type -> the backend used when none is named.

    For each device the first name in alphabetical order of those that are for it; of those made
    by ``register_backend`` the first registered goes before all.
    """
    from mortice._plugins import catalog

    offered = _offered()
    registered = [name for name in catalog.registered(KINDS[_KIND]) if name in offered]
    chosen: dict[str, str] = {}
    for name in (*registered, *sorted(offered)):
        for device in offered[name]:
            chosen.setdefault(device, name)
    if not chosen:
        from mortice._plugins.groups import install_command

        raise PluginNotFound(
            "no distributed backend is installed. For the CPU: "
            f"{install_command('mortice-gloo')} (package mortice-gloo)."
        )
    return chosen


def backend_class(name: str) -> type[Communicator]:
    """The class of a backend; raises the error that says why it cannot be used."""
    cls = load(_KIND, name)
    if not issubclass(cls, Communicator):
        raise DistBackendError(
            f"distributed backend {name!r} ({origin(name)}) is {cls!r}, which does not derive from "
            "mortice.distributed.Communicator."
        )
    return cls


def origin(name: str) -> str:
    """The distribution that a backend comes from."""
    for entry in find(_KIND):
        if entry.name == name:
            return entry.described()
    return "registered in this process"


def create(name: str, setup: Setup) -> Communicator:
    """Make a communicator; an error that its class raises is told with backend and distribution."""
    cls = backend_class(name)
    try:
        made: Any = cls.create(setup)
    except (KeyboardInterrupt, SystemExit):
        raise
    except Unavailable as error:
        raise DistBackendError(
            f"distributed backend {name!r} ({origin(name)}) cannot be used here: {error}",
            operation="init",
            rank=setup.rank,
        ) from error
    except Exception as error:
        raise DistBackendError(
            f"distributed backend {name!r} ({origin(name)}) could not be made for group "
            f"{setup.name} on rank {setup.rank}: {type(error).__name__}: {error}",
            operation="init",
            rank=setup.rank,
        ) from error
    if not isinstance(made, Communicator):
        raise DistBackendError(
            f"distributed backend {name!r} ({origin(name)}): its factory returned {made!r} for "
            f"rank {setup.rank}, and a mortice.distributed.Communicator is expected.",
            operation="init",
            rank=setup.rank,
        )
    return made
