"""Every entry there is: registered in this process, built into core, and installed."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType
from typing import Any

from mortice._base.errors import RegistrationError, nearest

from . import index, variables
from .entry import Entry
from .groups import CORE_NAMES, GROUPS, Group
from .metadata import Distribution, parse_value

# What core itself provides, under the same rules as everybody's: (group, name, value, manifest
# row). The names are reserved: an installed entry of the same name is a conflict.
BUILT_IN: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
    (
        "mortice.compile_backends",
        "eager",
        "mortice._compile.backends",
        {"summary": "runs captured graphs operator by operator, autograd as usual"},
    ),
    (
        "mortice.compile_backends",
        "aot_eager",
        "mortice._compile.backends",
        {"summary": "forward and backward traced and cut apart, run operator by operator"},
    ),
    (
        "mortice.compile_backends",
        "aot_eager_decomp_partition",
        "mortice._compile.backends",
        {"summary": "aot_eager with operators taken apart as inductor does"},
    ),
    (
        "mortice.compile_backends",
        "null",
        "mortice._compile.backends",
        {"summary": "computes nothing: returns preallocated outputs", "tags": ["debug"]},
    ),
    (
        "mortice.distributed_backends",
        "fake",
        "mortice.distributed.fake",
        {
            "summary": "no other processes: every operation ends at once",
            "tags": ["debug"],
            "devices": ["cpu"],
        },
    ),
    (
        "mortice.launchers",
        "local",
        "mortice.distributed.launch.local",
        {"summary": "processes on this machine, and on others where it is run, too"},
    ),
    (
        "mortice.launchers",
        "mpi",
        "mortice.distributed.launch.foreign",
        {"summary": "mpiexec starts the ranks"},
    ),
    (
        "mortice.launchers",
        "slurm",
        "mortice.distributed.launch.foreign",
        {"summary": "srun starts the ranks"},
    ),
)

_registered: dict[tuple[str, str], Entry] = {}
_lock = threading.Lock()


def entries(group: Group | None = None, *, refresh: bool = False) -> list[Entry]:
    """All entries, or those of one group, by kind and name. Reads metadata only."""
    found = [*_registered.values(), *_built_in(), *_installed(refresh)]
    if group is not None:
        found = [entry for entry in found if entry.group is group]
    order = list(GROUPS)
    return sorted(
        found,
        key=lambda entry: (order.index(entry.group.name), entry.name, entry.distribution.name),
    )


def candidates(group: Group, name: str, *, refresh: bool = False) -> list[Entry]:
    """The entries called ``name``; one registered in the process stands before all others."""
    mine = _registered.get((group.name, name))
    if mine is not None:
        return [mine]
    return [entry for entry in entries(group, refresh=refresh) if entry.name == name]


def by_name(listed: list[Entry]) -> dict[tuple[str, str], list[Entry]]:
    """What ``candidates`` gives for each group and name in a list of entries."""
    result: dict[tuple[str, str], list[Entry]] = {}
    for entry in listed:
        result.setdefault((entry.group.name, entry.name), []).append(entry)
    return {
        key: [_registered[key]] if key in _registered else found for key, found in result.items()
    }


def registered(group: Group) -> list[str]:
    """The names registered in this process."""
    return [name for where, name in _registered if where == group.name]


def _built_in() -> list[Entry]:
    core = Distribution("mortice", _core_version())
    return [
        Entry(
            GROUPS[group],
            name,
            value,
            core,
            source="built in",
            manifest={"entries": {f"{GROUPS[group].kind}:{name}": row}},
        )
        for group, name, value, row in BUILT_IN
    ]


def _core_version() -> str:
    from mortice._version import __version__

    return __version__


def _installed(refresh: bool) -> list[Entry]:
    result: list[Entry] = []
    snapshot = index.snapshot(refresh=refresh)
    variables.refuse_wrong(snapshot.found)
    for found in snapshot.found:
        by_name: dict[tuple[str, str], list[str]] = {}
        for group, name, value in found.entries:
            values = by_name.setdefault((group, name), [])
            if value not in values:
                values.append(value)
        for (group, name), values in by_name.items():
            problem = found.problem
            if len(values) > 1:
                problem = f"its entry_points.txt gives {name!r} twice: {' and '.join(values)}"
            elif parse_value(values[0]) is None:
                problem = f"its entry point {name} = {values[0]} is not of the form module[:object]"
            result.append(
                Entry(
                    GROUPS[group],
                    name,
                    values[0],
                    found.distribution,
                    manifest=found.manifest,
                    problem=problem,
                )
            )
    return result


# -- registration without a distribution --------------------------------------------------------


def reserved(group: Group, name: str) -> str:
    """Why nobody else may provide the name: core has it. Empty if it is free."""
    if group.kind == "module":
        first = name.partition(".")[0]
        if _core_defines(first):
            return f"mortice.{first} is core's own name"
        if core_owns(name) or "._" in f".{name}":
            return f"mortice.{name} is core's own module"
        return _taken_below(name)
    if name in CORE_NAMES.get(group.kind, ()):
        told = f"`mortice {name}`" if group.kind == "command" else f"{name!r}"
        return f"{told} is core's own {'namespace' if group.kind == 'operators' else group.what}"
    return ""


def register(group: Group, name: str, target: Any, row: dict[str, Any], *, replace: bool) -> Entry:
    """Add an entry to this process; see ``mortice.plugins.register``."""
    value = target if isinstance(target, str) else ""
    if isinstance(target, str) and parse_value(value) is None:
        raise RegistrationError(f"{value!r} is not of the form module[:object].")
    if not name or name != name.strip():
        raise RegistrationError(f"{name!r} is no usable name for a {group.what}.")
    taken = reserved(group, name)
    if taken:
        raise RegistrationError(f"{taken}. Choose another name.")
    others = candidates(group, name)
    if others and not replace:
        raise RegistrationError(
            f"{group.what} {name!r} is there already: {others[0].described()}. "
            "Choose another name, or pass replace=True to stand before it in this process."
        )
    entry = Entry(
        group,
        name,
        value,
        Distribution("", ""),
        source="registered",
        target=None if value else target,
        manifest={"entries": {f"{group.kind}:{name}": row}},
    )
    with _lock:
        _registered[group.name, name] = entry
    return entry


def unregister(group: Group, name: str) -> Entry:
    """Take back what ``register`` added."""
    with _lock:
        entry = _registered.pop((group.name, name), None)
    if entry is None:
        hint = nearest(name, registered(group))
        raise RegistrationError(f"no {group.what} {name!r} was registered in this process.{hint}")
    return entry


def _core_defines(name: str) -> bool:
    """Whether ``mortice.<name>`` is a class, function or constant of core itself."""
    core: Any = sys.modules["mortice"]
    found = vars(core).get(name, core)  # modules there may be plug-ins' that were used already
    return not isinstance(found, ModuleType) or name in core._LAZY or name in core._generated.LATER


def _taken_below(name: str) -> str:
    """Why a module of core has no room for ``name``; only such modules are imported."""
    parts = name.split(".")
    for end in range(1, len(parts)):
        owner = ".".join(parts[:end])
        if not core_owns(owner):
            break
        module = import_module(f"mortice.{owner}")
        if not hasattr(module, "__path__"):
            return f"mortice.{owner} is core's own module, and holds no others"
        found = vars(module).get(parts[end], module)
        if not isinstance(found, ModuleType) or parts[end] in getattr(module, "__all__", ()):
            return f"mortice.{owner}.{parts[end]} is core's own name"
    return ""


def core_owns(name: str) -> bool:
    """Whether ``mortice.<name>`` is a module of core itself; imports nothing of it."""
    import pkgutil

    folders: Sequence[str] | None = sys.modules["mortice"].__path__
    fullname = "mortice"
    for part in name.split("."):
        fullname = f"{fullname}.{part}"
        # Not through sys.meta_path, which wants the parent of a nested name to be imported.
        finders = [pkgutil.get_importer(folder) for folder in folders or ()]
        specs = [finder.find_spec(fullname) for finder in finders if finder is not None]
        spec = next((one for one in specs if one is not None and one.loader is not None), None)
        if spec is None:
            return False
        folders = spec.submodule_search_locations
    return True
