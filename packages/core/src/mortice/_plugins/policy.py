"""Which plug-ins may be used: allow-list, deny-list, lock, and the choice in a conflict.

Where the settings come from (environment, user, system, project) is :mod:`mortice._base.config`'s
business; what they mean is decided here.
"""

from __future__ import annotations

import os
from typing import Any

from mortice._base import config
from mortice._base.errors import ConfigError, nearest

from .entry import Entry, Status
from .groups import GROUPS, KINDS
from .metadata import normalised

LOCK_FORMAT = 1


def selects(selector: str, entry: Entry) -> bool:
    """Whether a name in a policy list means this entry.

    It may be a distribution, an entry name or ``KIND:NAME``.
    """
    return selector in (entry.name, entry.selector, f"{entry.group.name}:{entry.name}") or (
        entry.source == "installed" and normalised(selector) == normalised(entry.distribution.name)
    )


def refusal(entry: Entry) -> Status | None:
    """Why policy keeps the entry from being used, or None if it does not.

    The lists that admit concern what was discovered; what the program itself registers, and what
    core brings, need no admission. The deny-list concerns everything.
    """
    denied = next((one for one in config.disable_plugins if selects(one, entry)), None)
    if denied is not None:
        where = config.origin("disable_plugins")
        return Status("disabled", f"{where} names {denied!r}", f"Take {denied!r} out of {where}")
    if entry.source != "installed":
        return None
    return _not_admitted(entry) or _not_named_listener(entry) or _not_locked(entry)


def _not_admitted(entry: Entry) -> Status | None:
    allowed = config.plugins
    if allowed is not None:
        if any(selects(one, entry) for one in allowed):
            return None
        where = config.origin("plugins")
        reason = f"{where} is an allow-list and does not name it"
        return Status("disabled", reason, f"Add {entry.distribution.name!r} to {where}")
    if config.plugin_autoload:
        return None
    where = config.origin("plugin_autoload")
    fix = f"Name it in MORTICE_PLUGINS={entry.distribution.name}, or take away {where}"
    return Status("disabled", f"{where} turns discovery off", fix)


def _not_named_listener(entry: Entry) -> Status | None:
    if entry.group.name != "mortice.listeners" or entry.name in config.listeners:
        return None
    fix = f"Set MORTICE_LISTENERS={entry.name} to have it called"
    return Status("disabled", "listeners are off unless config.listeners names them", fix)


# -- conflicts ----------------------------------------------------------------------------------


def preferred(entries: list[Entry]) -> Entry | None:
    """Which of several entries with one name the user chose, or None."""
    wanted = config.prefer_plugins.get(entries[0].selector)
    if wanted is None:
        return None
    for entry in entries:
        if normalised(entry.distribution.name) == normalised(wanted):
            return entry
    return None


# -- the lock -----------------------------------------------------------------------------------


def _not_locked(entry: Entry) -> Status | None:
    path = config.plugin_lock
    if path is None:
        return None
    rows = read_lock(path)
    row = rows.get(normalised(entry.distribution.name))
    if row is None:
        return Status("disabled", f"the lock {path} does not list it", _relock(path))
    version = entry.distribution.version
    if row["version"] != version:
        reason = f"the lock {path} lists version {row['version']}, and {version} is installed"
        fix = f"pip install {entry.distribution.name}=={row['version']}, or write the lock again"
        return Status("disabled", reason, fix)
    found = record_hash(entry.distribution.path)
    if row["record_sha256"] != found:
        reason = f"its RECORD has the hash {found}, not the {row['record_sha256']} in lock {path}"
        return Status("disabled", reason, "Find out who changed the installed files, and reinstall")
    return None


def _relock(path: str) -> str:
    return f"Add it to {path} if you trust it"


_locks: dict[tuple[str, int, int], dict[str, dict[str, str]]] = {}


def read_lock(path: str) -> dict[str, dict[str, str]]:
    """The rows of a lock file by normalised distribution name; ConfigError if it is unusable."""
    import json

    try:
        status = os.stat(path)
        key = (path, status.st_mtime_ns, status.st_size)
        if key in _locks:
            return _locks[key]
        with open(path, "rb") as file:
            told: Any = json.load(file)
        if told["format"] != LOCK_FORMAT:
            raise ValueError(f"format is {told['format']!r}, expected {LOCK_FORMAT}")
        rows: dict[str, dict[str, str]] = {}
        for row in told["plugins"]:
            wanted = ("distribution", "version", "record_sha256")
            if not all(isinstance(row[column], str) for column in wanted):
                raise ValueError(f"a row is {row!r}, expected text for {', '.join(wanted)}")
            rows[normalised(row["distribution"])] = row
    except OSError as error:
        raise ConfigError(
            f"the plug-in lock {path} (from {config.origin('plugin_lock')}) cannot be read: "
            f"{error.strerror}. Write it again or unset plugin_lock."
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"the plug-in lock {path} is damaged: {type(error).__name__}: {error}. "
            "Write it again or unset plugin_lock."
        ) from error
    _locks[key] = rows
    return rows


def record_hash(dist_info: str) -> str:
    """SHA-256 of the RECORD, which holds the hash of every installed file; empty if there is none."""
    from .metadata import read_file

    data = read_file(os.path.join(dist_info, "RECORD")) if dist_info else None
    if data is None:
        return ""
    import hashlib

    return hashlib.sha256(data).hexdigest()


def unmatched(entries: list[Entry]) -> list[str]:
    """Names in policy that mean nothing installed: often a typing mistake."""
    listeners = {entry.name for entry in entries if entry.group.kind == "listener"}
    known = {name for e in entries for name in (e.name, e.selector, e.distribution.name) if name}
    lists = (("plugins", config.plugins or ()), ("disable_plugins", config.disable_plugins))
    result = [
        f"{config.origin(knob)} names {one!r}, which matches nothing installed.{nearest(one, known)}"
        for knob, names in lists
        for one in names
        if not any(selects(one, entry) for entry in entries)
    ]
    result.extend(
        f"{config.origin('listeners')} names {one!r}, and no listener installed is called so."
        f"{nearest(one, listeners)}"
        for one in config.listeners
        if one not in listeners
    )
    for selector, wanted in config.prefer_plugins.items():
        kind, _, name = selector.partition(":")
        if kind not in KINDS and kind not in GROUPS:
            where = config.origin("prefer_plugins")
            result.append(f"{where}: {selector!r} is not KIND:NAME.{nearest(kind, KINDS)}")
        elif not any(
            (entry.group.kind, entry.name) == (kind, name)
            and normalised(entry.distribution.name) == normalised(wanted)
            for entry in entries
        ):
            where = config.origin("prefer_plugins")
            hint = nearest(wanted, _providers(entries, kind, name)) or nearest(
                selector, {entry.selector for entry in entries}
            )
            result.append(
                f"{where} prefers {wanted!r} for {selector}, which is not installed.{hint}"
            )
    return result


def _providers(entries: list[Entry], kind: str, name: str) -> set[str]:
    """The distributions that have an entry of that name."""
    return {e.distribution.name for e in entries if (e.group.kind, e.name) == (kind, name)}
