"""The sockets: finding, judging and loading plug-ins.

Importing this package reads nothing and imports nothing; each function brings in what it needs.
The parts, in the order in which they are used:

=============  ================================================================
groups         the table of entry-point groups
index          what is installed, from metadata, remembered per directory
manifest       ``mortice.toml``, what a plug-in says of itself
policy         what may be used
catalog        all entries: registered, built in, installed
resolution     which entry a name means, and its state
attempts       what came of loading it
manager        loading it
events         telling listeners
report         telling people
=============  ================================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from mortice._base.errors import PluginError

    from .entry import Entry, Status


def find(group: str) -> tuple[Entry, ...]:
    """The entries of a group (its full name or its kind), from metadata only."""
    from . import catalog
    from .groups import group_of

    return tuple(catalog.entries(group_of(group)))


def load(group: str, name: str) -> Any:
    """What ``name`` in ``group`` provides: the class its hook returns, or the module itself.

    Loaded at the first call in the process. Raises PluginNotFound, or the Plugin* error of the
    entry's state, which says what to do.
    """
    from . import manager

    return manager.load(group, name)


def make(group: str, name: str) -> Any:
    """The one instance in this process of the class that ``load`` gives, made at the first call.

    What making it raises becomes the entry's state, and is told in the same way.
    """
    from . import manager

    return manager.make(group, name)


def load_entry(entry: Entry) -> Any:
    """As ``load``, for one entry from ``find``."""
    from . import manager

    return manager.load_entry(entry)


def operator_parts(namespace: str, device: str | None = None) -> tuple[Entry, ...]:
    """The entries that make up an operator namespace, each for ``load_entry``.

    Those whose manifest names devices belong to them: they are given for that ``device`` alone
    (``namespace`` may then be ``""`` for all namespaces), the others for ``device=None``.
    """
    return tuple(
        entry
        for entry in find("mortice.operators")
        if namespace in ("", entry.name.partition(":")[0])
        and (device in entry.row["devices"] if entry.row.get("devices") else device is None)
    )


def load_operator_parts(
    namespace: str, device: str | None = None, use: Callable[[Any], None] = lambda provided: None
) -> list[PluginError]:
    """Load every part of a namespace that can be; returns the errors of those that cannot.

    ``use`` is given what each part provides.

    For ``device`` as in ``operator_parts``. A part that is broken must not take the others with it:
    raise its error only when the operator asked for is not there afterwards.
    """
    from mortice._base.errors import PluginError

    failed: list[PluginError] = []
    for entry in operator_parts(namespace, device):
        try:
            use(load_entry(entry))
        except PluginError as error:
            failed.append(error)
    return failed


def state(group: str, name: str) -> Status:
    """The state of a name, without loading it; its ``state`` is ``not found`` for nobody's."""
    from . import report
    from .groups import group_of

    return report.state(group_of(group), name)


def options(group: str, name: str, given: dict[str, Any] | None = None) -> dict[str, Any]:
    """The options of an entry: its manifest's defaults, then the config files', then ``given``.

    Raises ConfigError for a name its manifest does not declare, or a value of another type.
    """
    from . import report
    from .groups import group_of

    return report.options(group_of(group), name, given or {})


def emit(event: str, **facts: Any) -> None:
    """Tell listeners of an event: ``emit("graph_compiled", backend=..., graph=..., seconds=...)``."""
    from . import manager

    manager.emit(event, **facts)
