"""Locations: where a file says its storages were, and where they go.

A tag is plain data, such as ``cpu`` or ``cuda:0``, until something maps it. The order in which
takers are asked: registrations by ascending priority, equal priorities in the order in which they
were made (the built-in cpu has 10, meta 22); then the plug-in of the group
``mortice.serialization`` for the tag's device type; then the device of that type itself.
"""

from __future__ import annotations

import bisect
import itertools
import threading
from collections.abc import Callable
from typing import Any

from mortice._tensor.storage import Storage
from mortice._types.device import CPU, Device
from mortice.errors import CheckpointError, DeviceError, InvalidValue, PluginError, PluginNotFound

Tagger = Callable[[Any], "str | None"]
Deserializer = Callable[[Any, str], Any]

_lock = threading.Lock()
_order = itertools.count()
_registry: list[tuple[int, int, Tagger, Deserializer]] = []
_plugins: dict[str, Any] = {}


def register_package(priority: int, tagger: Tagger, deserializer: Deserializer) -> None:
    """Add a way to name and restore locations.

    ``tagger(storage)`` gives a location or None; ``deserializer(storage, location)`` gets a host
    storage and gives it on its device, or None. The first answer counts, lowest priority first;
    of equal priorities the one registered first.
    """
    if type(priority) is not int:
        raise InvalidValue(f"a priority is a whole number, not {priority!r}.")
    with _lock:
        bisect.insort(_registry, (priority, next(_order), tagger, deserializer))


def location_tag(storage: Any) -> str:
    """The location under which a storage is saved. Raises InvalidValue if nobody names one."""
    for _, _, tagger, _ in _registry:
        location = tagger(storage)
        if location is not None:
            return location
    kind = storage.device.type
    plugin = _plugin(kind)
    if plugin is not None:
        location = plugin.tag(storage)
        if location is not None:
            return location
    return f"{kind}:{storage.device.index or 0}"


def default_restore_location(storage: Any, location: str) -> Any:
    """``storage`` where ``location`` says. Raises CheckpointError if nobody knows the location."""
    for _, _, _, deserializer in _registry:
        placed = deserializer(storage, location)
        if placed is not None:
            return placed
    kind = location.partition(":")[0]
    plugin = _plugin(kind)
    if plugin is not None:
        placed = plugin.restore(storage, location)
        if placed is not None:
            return placed
    try:
        device = Device(location)
    except DeviceError as error:
        raise CheckpointError(
            f"the file's tensors lie on {location!r}, which is not here ({error})",
            fix="Load them on the CPU: map_location='cpu'.",
        ) from error
    from mortice.serialization.tensors import storage_on

    return storage_on(storage, device)


def _plugin(kind: str) -> Any:
    """An instance of the tag's plug-in class, or None where no plug-in has the tag."""
    if kind in ("cpu", "meta"):
        return None
    if kind not in _plugins:
        from mortice._plugins import make

        try:
            _plugins[kind] = make("mortice.serialization", kind)
        except PluginNotFound:
            return None
        except PluginError as error:
            raise CheckpointError(
                f"the plug-in for the location {kind!r} cannot be used ({error})",
                fix="Load without it: map_location='cpu'.",
            ) from error
    return _plugins[kind]


def _cpu_tag(storage: Any) -> str | None:
    return "cpu" if storage.device is CPU else None


def _cpu_restore(storage: Any, location: str) -> Any:
    return storage if location == "cpu" else None


def _meta_tag(storage: Any) -> str | None:
    return "meta" if storage.device.type == "meta" else None


def _meta_restore(storage: Any, location: str) -> Any:
    if location != "meta":
        return None
    from mortice._types.device import META
    from mortice.serialization.tensors import storage_on

    return storage_on(storage, META)


register_package(10, _cpu_tag, _cpu_restore)
register_package(22, _meta_tag, _meta_restore)


class Placement:
    """Where each location of a file goes, by ``map_location`` in any of its forms.

    None (where the file says), a device or its name, a dict from location to location (others stay
    as they are), or a function (storage, location) -> storage or None (None: where the file says).
    """

    def __init__(self, map_location: Any) -> None:
        self._function: Callable[[Any, str], Any] | None = None
        self._table: dict[str, str] = {}
        self._everything: Device | None = None
        if isinstance(map_location, bytes):
            map_location = map_location.decode("ascii")
        if map_location is None:
            return
        if isinstance(map_location, (str, Device)):
            self._everything = Device(map_location)
        elif isinstance(map_location, dict):
            self._table = {str(key): str(value) for key, value in map_location.items()}
        elif callable(map_location):
            self._function = map_location
        else:
            raise InvalidValue(
                "map_location is None, a device or its name, a dict from location to location, or "
                f"a function (storage, location), not {map_location!r}."
            )

    def wants_data(self, location: str) -> bool:
        """Whether storages at ``location`` have to be read at all."""
        if self._function is not None:
            return True
        return self._target(location) != "meta"

    def place(self, storage: Storage, location: str) -> Any:
        """``storage`` (on the host) where ``location`` goes."""
        if self._function is not None:
            placed = self._function(storage, location)
            return placed if placed is not None else default_restore_location(storage, location)
        return default_restore_location(storage, self._target(location))

    def _target(self, location: str) -> str:
        if self._everything is not None:
            return str(self._everything)
        return self._table.get(location, location)
