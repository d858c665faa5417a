"""What people are told: lists of entries with their states, and why a name means what it means."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from mortice._base import config
from mortice._base.errors import ConfigError, nearest

from . import attempts, catalog, index, manager, manifest, policy, probe, resolution
from .entry import Entry, Status
from .groups import HIDDEN_TAGS, KINDS, Group, group_of
from .metadata import normalised


class Backend(NamedTuple):
    """One line of a list: an entry and its state. ``fix`` is what to type about it."""

    kind: str
    name: str
    state: str
    reason: str
    fix: str
    distribution: str
    version: str
    source: str
    value: str
    tags: tuple[str, ...]
    summary: str
    location: str
    seconds: float | None


def list_backends(
    kind: str | None = None, *, all: bool = False, load: bool = False, refresh: bool = False
) -> list[Backend]:
    """Every plug-in, of one kind or of all, with its state.

    Reads metadata only. ``load=True`` tries each usable one in a child process with a time limit.
    ``all=True`` includes those tagged debug or experimental. ``refresh=True`` forgets what was
    remembered: directories are read again, and old probe results dropped.
    """
    group = None if kind is None else group_of(kind)
    entries = catalog.entries(group, refresh=refresh)
    rivals = catalog.by_name(entries)
    if not all:
        entries = [entry for entry in entries if not set(entry.tags) & set(HIDDEN_TAGS)]
    if refresh:
        for entry in entries:
            probe.forget(entry)
    return [
        row(entry, standing(entry, rivals[entry.group.name, entry.name], load=load))
        for entry in entries
    ]


def names(group: str, exclude_tags: Iterable[str] = HIDDEN_TAGS) -> list[str]:
    """The names of a group that can be used as far as metadata tells, sorted."""
    excluded = set(exclude_tags)
    found = catalog.by_name(catalog.entries(group_of(group)))
    return sorted(
        {
            entry.name
            for rivals in found.values()
            for entry in rivals
            if not excluded & set(entry.tags) and resolution.status(entry, rivals).usable
        }
    )


def row(entry: Entry, status: Status) -> Backend:
    """An entry with a state, as a line of a list."""
    refused = not status.usable
    return Backend(
        kind=entry.group.kind,
        name=entry.name,
        state=status.state,
        reason=status.reason,
        fix=(status.fix or resolution.default_fix(entry, status.state)) if refused else "",
        distribution=entry.distribution.name,
        version=entry.distribution.version,
        source=entry.source,
        value=entry.value,
        tags=entry.tags,
        summary=entry.summary,
        location=entry.distribution.path or entry.distribution.location,
        seconds=attempts.seconds(entry),
    )


def standing(entry: Entry, rivals: list[Entry], *, load: bool = False) -> Status:
    """The entry's state, with what a probe once found; ``load`` probes now.

    ``rivals`` are all entries of its name, itself among them.
    """
    status = resolution.status(entry, rivals)
    if status.state != "not loaded":
        return status
    if load:
        if entry.source == "registered" or not probe.can_probe():
            return manager.attempt(entry)  # a child would not know it
        found = probe.run(entry)
        return Status(
            found.status.state,
            found.status.reason or f"loaded in a child process in {found.seconds:.2f} s",
            found.status.fix,
        )
    return Status("not loaded", _history(entry))


def _history(entry: Entry) -> str:
    """What is known of an entry that was not loaded in this process."""
    if resolution.abandoned(entry):
        return "the last process that loaded it died; the next use probes it first"
    result = probe.last(entry)
    if result is None:
        return ""
    said = f"{result.status.state}: {result.status.reason}" if result.status.reason else ""
    return f"{said or result.status.state} when probed {result.age()}"


def state(group: Group, name: str) -> Status:
    """The state of a name: of the entry that is used, else of the first that is not."""
    found, chosen, statuses = resolution.resolve(group, name)
    if not found:
        return Status("not found", str(resolution.not_found(group, name)))
    entry = chosen or found[0]
    return standing(entry, found) if statuses[entry].usable else statuses[entry]


def options(group: Group, name: str, given: dict[str, Any]) -> dict[str, Any]:
    """See ``mortice._plugins.options``."""
    entry = resolution.require(group, name)
    declared: dict[str, Any] = entry.row.get("options", {})
    result = {option: told["default"] for option, told in declared.items()}
    origin = config.origin("options")
    for table, where in ((config.options.get(entry.selector, {}), origin), (given, "options")):
        for option, value in table.items():
            result[option] = _option(declared, option, value, where, entry.selector)
    return result


# -- why ----------------------------------------------------------------------------------------


class Decision(NamedTuple):
    """All that was considered for one name: ``steps`` are (check, verdict) for the entry."""

    entry: Entry
    status: Status
    chosen: bool
    steps: list[tuple[str, str]]


def why(name: str, kind: str | None = None) -> list[Decision]:
    """Each entry that ``name`` could mean, what every check said, and which one is used.

    ``name`` is an entry's name, ``KIND:NAME``, or a distribution. Empty if nobody provides it.
    """
    head, colon, rest = name.partition(":")
    if kind is None and colon and head in KINDS:
        kind, name = head, rest
    groups = [group_of(kind)] if kind else list(KINDS.values())
    decisions = [one for group in groups for one in _decisions(group, name)]
    if not decisions and kind is None:
        decisions = [
            one
            for entry in catalog.entries()
            if policy.selects(name, entry)
            for one in _decisions(entry.group, entry.name)
            if one.entry.key == entry.key
        ]
    return decisions


def _decisions(group: Group, name: str) -> list[Decision]:
    found, chosen, statuses = resolution.resolve(group, name)
    return [
        Decision(
            entry,
            standing(entry, found) if statuses[entry].usable else statuses[entry],
            entry is chosen,
            _steps(entry, found),
        )
        for entry in found
    ]


def _steps(entry: Entry, rivals: list[Entry]) -> list[tuple[str, str]]:
    steps = [("found", _found(entry))]
    for label, check in resolution.CHECKS:
        verdict = check(entry, rivals)
        if verdict is None:
            steps.append((label, _PASSED[label](entry, rivals)))
            continue
        steps.append((label, verdict.state + (f": {verdict.reason}" if verdict.reason else "")))
        if not verdict.usable:
            steps.append(("stopped", "later checks were not made"))
            break
    else:
        history = _history(entry) if attempts.outcome(entry) is None else ""
        if history:
            steps.append(("history", history))
    return steps


def _found(entry: Entry) -> str:
    where = entry.distribution.path or entry.distribution.location
    editable = ", editable" if entry.distribution.editable else ""
    return entry.described() + (f" at {where}{editable}" if where else "")


def _admission(entry: Entry, rivals: list[Entry]) -> str:
    if entry.source != "installed":
        return f"{entry.source}, so it needs no admission; not in the deny-list"
    allowed = config.plugins
    lock = config.plugin_lock
    told = "discovery is on, no allow-list" if allowed is None else config.origin("plugins")
    return f"allowed ({told}, not in the deny-list{f', in the lock {lock}' if lock else ''})"


def _rivalry(entry: Entry, rivals: list[Entry]) -> str:
    others = [one for one in rivals if one.key != entry.key]
    if not others:
        return "nobody else provides this name"
    names = " and ".join(str(one.distribution) for one in others)
    if policy.preferred(rivals) is entry:
        return f"{config.origin('prefer_plugins')} prefers this one to {names}"
    if entry.group.kind == "operators" and ":" in entry.name:
        return f"{names} adds to the same part"
    return f"{names} provides this name, too, and is not admitted"


def _api(entry: Entry, rivals: list[Entry]) -> str:
    told: Any = entry.manifest
    if entry.source != "installed":
        return "not declared, not needed"
    if told and "hook_api" in told:
        return f"fits {told['hook_api']}"
    return "unknown: the manifest is unusable" if entry.problem else "no manifest, so unknown"


# What to say of a check that found nothing wrong.
_PASSED: dict[str, Any] = {
    "policy": _admission,
    "hook API": _api,
    "conflict": _rivalry,
    "crash": lambda entry, rivals: "no crash is known",
    "metadata": lambda entry, rivals: "fine",
    "needs": lambda entry, rivals: "met" if entry.row.get("needs") else "none declared",
    "load": lambda entry, rivals: "not loaded in this process",
}


# -- the installation as a whole ----------------------------------------------------------------


def problems() -> list[tuple[str, str]]:
    """What is wrong with installed metadata and policy: (where, what)."""
    snapshot = index.snapshot()
    found = list(snapshot.problems)
    entries = catalog.entries()
    found.extend(_described_in_vain(entries))
    found.extend(("policy", text) for text in policy.unmatched(entries))
    found.extend(("configuration", text) for text in _configured_in_vain(entries))
    return found


def _configured_in_vain(entries: list[Entry]) -> Iterator[str]:
    """Options of config files that no entry declares, and an accelerator that nobody provides."""
    devices = {entry.name for entry in entries if entry.group.kind == "device"}
    wanted = config.accelerator
    if wanted is not None and wanted not in (*devices, "cpu", "meta"):
        where = config.origin("accelerator")
        yield f"{where} names {wanted!r}, and no device installed is called so.{nearest(wanted, devices)}"
    usable = [entry for entry in entries if not entry.problem]
    where = config.origin("options")
    for selector, table in config.options.items():
        declared = [e.row.get("options", {}) for e in usable if e.selector == selector]
        if not declared:
            if not any(entry.selector == selector for entry in entries):
                hint = nearest(selector, {entry.selector for entry in entries})
                yield f"{where} has a table for {selector!r}, which is not installed.{hint}"
            continue
        # of several with one name, the first: which of them is meant is told as a conflict
        for option, value in table.items():
            try:
                _option(declared[0], option, value, where, selector)
            except ConfigError as error:
                yield str(error)


def _option(declared: dict[str, Any], option: str, value: Any, where: str, selector: str) -> Any:
    """``value`` if ``option`` is declared and takes it; raises ConfigError."""
    place = f"{where}: {option!r} of {selector}"
    if option not in declared:
        hint = nearest(option, declared) or f" Declared: {', '.join(declared) or 'none'}."
        raise ConfigError(f"{place} is not declared in its manifest.{hint}")
    return manifest.check_option_value(declared[option], value, place)


def problems_of(distribution: str) -> list[str]:
    """What is wrong with the metadata of a distribution, by its name as indexes compare it."""
    snapshot = index.snapshot()
    wanted = normalised(distribution)
    folders = [f.distribution.path for f in snapshot.found if f.distribution.path
               and normalised(f.distribution.name) == wanted]  # fmt: skip
    return [
        what if what.endswith((".", "?")) else f"{what}."
        for where, what in snapshot.problems
        if any(where == folder or where.startswith(os.path.join(folder, "")) for folder in folders)
    ]


def _described_in_vain(entries: Iterable[Entry]) -> Iterator[tuple[str, str]]:
    """Tables of manifests about entries that the distribution does not have: needs not checked."""
    provided: dict[str, set[str]] = {}
    manifests: dict[str, Any] = {}
    for entry in entries:
        if entry.source == "installed" and entry.manifest:
            name = str(entry.distribution)
            provided.setdefault(name, set()).add(entry.selector)
            manifests[name] = entry.manifest
    for name, told in manifests.items():
        for one in sorted(set(told["entries"]) - provided[name]):
            hint = nearest(one, provided[name])
            yield name, f"its manifest describes {one}, which is none of its entries.{hint}"


def shadowed() -> list[tuple[str, str]]:
    """Second copies of a distribution further along sys.path, which is no conflict."""
    return [
        (str(found.distribution), f"{found.distribution.path} is hidden by the copy in {hider}")
        for found, hider in index.snapshot().shadowed
    ]
