"""Which entry a name means, and in what state it is, without loading anything.

The checks are a table, run in order for each candidate; each returns a Status that ends the
matter, or None. ``mortice why`` prints what each of them said.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from mortice._base.errors import (
    PluginBroken,
    PluginConflict,
    PluginCrashed,
    PluginDisabled,
    PluginError,
    PluginIncompatible,
    PluginNotFound,
    PluginUnavailable,
    nearest,
)

from . import attempts, catalog, manifest, markers, policy, probe
from .entry import Entry, Status
from .groups import HOOK_API_VERSION, Group, install_command, not_installed_hint

ERRORS: dict[str, type[PluginError]] = {
    "disabled": PluginDisabled,
    "incompatible": PluginIncompatible,
    "conflict": PluginConflict,
    "crashed": PluginCrashed,
    "broken": PluginBroken,
    "unavailable": PluginUnavailable,
}

REFRESH_INTERVAL = 1.0
_refreshed = float("-inf")


def resolve(group: Group, name: str) -> tuple[list[Entry], Entry | None, dict[Entry, Status]]:
    """The candidates for a name, the one that is used (or None), and each one's state."""
    found = catalog.candidates(group, name)
    if not found and _may_refresh():
        found = catalog.candidates(group, name, refresh=True)
    statuses = {entry: status(entry, found) for entry in found}
    usable = [entry for entry in found if statuses[entry].usable]
    return found, usable[0] if usable else None, statuses


def _may_refresh() -> bool:
    """A name not found is looked for afresh, at most once a second: scanning costs."""
    global _refreshed
    now = time.monotonic()
    if now - _refreshed < REFRESH_INTERVAL:
        return False
    _refreshed = now
    return True


def require(group: Group, name: str) -> Entry:
    """The entry to load for a name; raises the error of its state where it cannot be used."""
    found, chosen, statuses = resolve(group, name)
    if chosen is not None:
        return chosen
    if not found:
        raise not_found(group, name)
    raise error_for(found[0], statuses[found[0]])


def not_found(group: Group, name: str) -> PluginNotFound:
    """The error for a name that nobody provides."""
    names = sorted({entry.name for entry in catalog.entries(group)})
    hint = not_installed_hint(group.kind, name) or nearest(name, names)
    if not hint:
        hint = f" Installed: {', '.join(names)}." if names else " None is installed."
    return PluginNotFound(f"no {group.what} {name!r} is installed.{hint}")


def _sentence(text: str) -> str:
    return text if text.endswith((".", "?", "!")) else f"{text}."


def error_for(entry: Entry, status: Status) -> PluginError:
    """The error that says why the entry cannot be used."""
    fix = status.fix or default_fix(entry, status.state)
    error = ERRORS[status.state](
        f"{entry.group.what} {entry.name!r} cannot be used: {entry.described()} is "
        f"{'in ' if status.state == 'conflict' else ''}{status.state}: {_sentence(status.reason)} "
        f"{_sentence(fix)} `mortice why {entry.name}` tells more."
    )
    error.__cause__ = attempts.cause(entry)
    return error


def default_fix(entry: Entry, state: str) -> str:
    """What to type where the reason itself does not suggest it."""
    name = entry.distribution.name
    if entry.source != "installed":
        return f"Correct what {entry.value or 'was registered'} provides"
    without = f"or go on without it: MORTICE_DISABLE_PLUGINS={name}"
    if state == "crashed":
        return f"Upgrade it and try again with `mortice plugins --load --refresh`, {without}"
    if state == "unavailable":
        return "Provide what it needs, or choose another one from `mortice list-backends`"
    if entry.distribution.editable:  # its author is at work; an index may hold a stranger's
        return f"Correct its code and try again, {without}"
    command = f"pip install --upgrade --force-reinstall {name}"
    if name.startswith("mortice-"):
        command = f"{install_command(name)} --force-reinstall"
    return f"Reinstall or upgrade it ({command}), {without}"


def authors_fix(entry: Entry) -> str:
    """What to type where the mistake is in what the package's author wrote, so that installing the
    same release again would not help; empty where the usual advice is for the author already.
    """
    name = entry.distribution.name
    if entry.source != "installed" or entry.distribution.editable:
        return ""
    ours = name.startswith("mortice-")
    newer = install_command(name) if ours else f"pip install --upgrade {name}"
    return (
        "If the package is yours, correct that and install it again; else look for a newer release "
        f"({newer}), or go on without it: MORTICE_DISABLE_PLUGINS={name}"
    )


# -- the checks ---------------------------------------------------------------------------------


def status(entry: Entry, rivals: list[Entry]) -> Status:
    """The entry's state; ``rivals`` are all entries of its name, itself among them."""
    for _, check in CHECKS:
        found = check(entry, rivals)
        if found is not None:
            return found
    return Status("not loaded")


def _policy(entry: Entry, rivals: list[Entry]) -> Status | None:
    return policy.refusal(entry)


def _hook_api(entry: Entry, rivals: list[Entry]) -> Status | None:
    told: Any = entry.manifest
    reason = told.get("incompatible") if told else None
    if not reason:
        return None
    name = entry.distribution.name
    older = not manifest.admits_later(told["hook_api"], HOOK_API_VERSION)
    fix = f"pip install --upgrade {name}" if older else "pip install --upgrade mortice"
    return Status("incompatible", reason, fix)


def _conflict(entry: Entry, rivals: list[Entry]) -> Status | None:
    """Two distributions with one full name; the parts of an operator namespace add up instead."""
    if entry.source != "installed":
        return None
    if any(one.source == "registered" for one in rivals):
        reason = "mortice.plugins.register put another one in its place in this process"
        return Status(
            "disabled", reason, f"mortice.plugins.unregister({entry.group.kind!r}, {entry.name!r})"
        )
    taken = catalog.reserved(entry.group, entry.name)
    if taken:
        return Status("conflict", taken, f"pip uninstall {entry.distribution.name}")
    if entry.group.kind == "operators" and ":" in entry.name:
        return None
    contenders = [
        one
        for one in rivals
        if one is entry or one.source == "built in" or not (_policy(one, []) or _hook_api(one, []))
    ]
    if len(contenders) < 2:
        return None
    reserved = next((one for one in contenders if one.source == "built in"), None)
    if reserved is not None:
        return Status(
            "conflict",
            f"the name {entry.name!r} is mortice's own",
            f"pip uninstall {entry.distribution.name}",
        )
    chosen = policy.preferred(contenders)
    if chosen is entry:
        return None
    names = " and ".join(str(one.distribution) for one in contenders)
    if chosen is not None:
        reason = f"{chosen.distribution} is preferred for {entry.selector}"
        return Status("disabled", reason, f"Change {_preference_origin()} to choose this one")
    return Status(
        "conflict",
        f"{names} both provide {entry.selector}",
        f"Choose one, as in MORTICE_PREFER_PLUGINS={entry.selector}={entry.distribution.name} "
        "(or prefer_plugins in a config file), or uninstall the other",
    )


def _preference_origin() -> str:
    from mortice._base import config

    return config.origin("prefer_plugins")


def _crash(entry: Entry, rivals: list[Entry]) -> Status | None:
    if attempts.is_ready(entry):
        return None
    result, believed = probe.last_crash(entry)
    if result is None or not believed:
        return None
    return Status("crashed", f"{result.status.reason} (probed {result.age()})", result.status.fix)


def _metadata(entry: Entry, rivals: list[Entry]) -> Status | None:
    return Status("broken", entry.problem, authors_fix(entry)) if entry.problem else None


def _needs(entry: Entry, rivals: list[Entry]) -> Status | None:
    unmet = manifest.unmet_need(entry.row, libraries=False)
    return Status("unavailable", *unmet) if unmet else None


def _loaded(entry: Entry, rivals: list[Entry]) -> Status | None:
    return attempts.outcome(entry)


Check = Callable[[Entry, list[Entry]], "Status | None"]

CHECKS: tuple[tuple[str, Check], ...] = (
    ("policy", _policy),
    ("hook API", _hook_api),
    ("conflict", _conflict),
    ("crash", _crash),
    ("metadata", _metadata),
    ("needs", _needs),
    ("load", _loaded),
)


def abandoned(entry: Entry) -> bool:
    """Whether the last process that loaded the entry died of it, and no probe has said why."""
    return markers.abandoned(entry, remove=False)
