"""Which config an option belongs to: inductor's, or ``<device>.<key>`` of a device's package."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from mortice.errors import nearest

from . import devices
from .options import ConfigModule, UnknownOption, own_config


def routed(given: Mapping[str, Any]) -> list[tuple[ConfigModule, str, Any]]:
    """(config, name, value) for every option given; ``-`` in a name is ``_``.

    Inductor's own names come first; ``<device>.<key>`` goes to the config that the device's package
    registered, which is loaded only if no device of that name is registered yet. Raises
    UnknownOption with the nearest name, OptionError for a value of the wrong type.
    """
    own = own_config()
    out: list[tuple[ConfigModule, str, Any]] = []
    for key, value in given.items():
        name = str(key).replace("-", "_")
        if name in own.names():
            out.append((own, name, own.check(name, value)))
            continue
        device, dot, inner = name.partition(".")
        found = devices.config_of(device) if dot else None
        if found is None or inner not in found.names():
            known = [*own.names(), *devices.option_names()]
            raise UnknownOption(f"inductor has no option {key!r}.{nearest(name, known)}")
        out.append((found, inner, found.check(inner, value)))
    return out


@contextmanager
def patched(given: Mapping[str, Any] | None) -> Generator[None]:
    """All options given, in force within; what was in force before is restored, on errors too."""
    with ExitStack() as stack:
        for owner, name, value in routed(given or {}):
            stack.enter_context(owner.patch(name, value))
        yield
