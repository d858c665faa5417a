"""The index of installed plug-ins: metadata only, remembered directory by directory.

A warm look costs one ``stat`` per entry of ``sys.path``, one per file of a distribution that
provides entries, and one read of the index file, however many distributions are installed. What
makes a remembered directory invalid:

* its own mtime, which installing, removing and upgrading change;
* the mtime and size of each metadata file read for a plug-in, which catches edits in place;
* being younger than two seconds when it was read: file systems' clocks are coarse, and a second
  change in the same tick would not show.

A distribution that gains our groups by an edit in place, without anything created or renamed, is
seen only by ``refresh``, which a name that is not found triggers too.
"""

from __future__ import annotations

import os
import stat
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from mortice._base.logging import active

from . import metadata
from .metadata import normalised
from .records import Directory, Found, Snapshot, known_entries, stamp, use_manifest

# Directories without any metadata (often the working directory, which changes all the time) are
# written to the index file only when scanning them would be slow.
SMALL_DIRECTORY = 1_000
KEPT_DIRECTORIES = 256


_lock = threading.RLock()
_memory: dict[str, Directory] = {}
_disk_read = False
_not_stored: str = ""  # why the index lives in memory only


def _after_fork() -> None:
    """In a child process: another thread of the parent may have held the lock."""
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def snapshot(*, refresh: bool = False) -> Snapshot:
    """What is installed now. ``refresh`` reads every directory again."""
    global _disk_read
    with _lock:
        if refresh:
            _memory.clear()
            _disk_read = True
        elif not _disk_read:
            from . import store

            _disk_read = True
            _memory.update(store.read())
        directories, changed = _directories()
        if changed:
            _save()
        return _combined(directories)


def not_stored_reason() -> str:
    """Why the index is kept in memory only, or an empty string."""
    return _not_stored


def _save() -> None:
    global _not_stored
    from . import store

    kept = [(path, one) for path, one in _memory.items() if one.persistent]
    _not_stored = store.write(dict(kept[-KEPT_DIRECTORIES:]))


# -- which directories --------------------------------------------------------------------------


def _directories() -> tuple[list[tuple[str, Directory]], bool]:
    """Every distinct entry of sys.path with its record, and whether one was read anew."""
    result: list[tuple[str, Directory]] = []
    seen: set[tuple[int, int] | str] = set()
    changed = False
    pending = [_as_path(entry) for entry in reversed(sys.path)]
    while pending:
        path = pending.pop()
        try:
            status = os.stat(path)
        except (OSError, ValueError):  # entries that do not exist are normal; ValueError: NUL
            continue
        identity = (status.st_dev, status.st_ino) if status.st_ino else os.path.realpath(path)
        if identity in seen:  # listed twice, or lib64 -> lib
            continue
        seen.add(identity)
        record = _memory.pop(path, None)
        if record is None or not record.is_current(status.st_mtime_ns):
            record = _read(path, status)
            changed = changed or record.persistent
        _memory[path] = record  # re-inserted last, so that the oldest are dropped first
        result.append((path, record))
        pending.extend(reversed(record.links))
    result.extend(_custom_finders())
    return result, changed


def _as_path(entry: Any) -> str:
    try:
        return os.path.abspath(os.fsdecode(entry) or ".")
    except (TypeError, OSError):  # no path at all, or the working directory is gone
        return ""


def _read(path: str, status: os.stat_result) -> Directory:
    record = Directory(status.st_mtime_ns, time.time_ns())
    logger = active("plugins")
    if logger:
        logger.debug("scanning %s", path)
    if stat.S_ISDIR(status.st_mode):
        _scan(path, record)
    else:
        from . import fallback

        fallback.read_archive(path, record)
    return record


def _custom_finders() -> Iterator[tuple[str, Directory]]:
    """Finders on sys.meta_path that know distributions of their own (frozen applications)."""
    for finder in sys.meta_path:
        module = finder.__module__ if isinstance(finder, type) else type(finder).__module__
        if module.startswith(("importlib.", "_frozen_importlib", "importlib_metadata", "mortice.")):
            continue
        if getattr(finder, "find_distributions", None) is not None:
            from . import fallback

            record = Directory(0, 0)
            fallback.read_finder(finder, record)
            yield f"finder {module}", record


# -- one directory ------------------------------------------------------------------------------


def _scan(path: str, record: Directory) -> None:
    """Fill ``record`` from the directory ``path``."""
    if path.lower().endswith(".egg"):  # an unpacked egg holds its metadata in EGG-INFO
        _read_metadata_alone(os.path.join(path, "EGG-INFO"), path, record, [])
        return
    count = 0
    metadata_names: list[str] = []
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                count += 1
                name = entry.name
                if name.endswith((".dist-info", ".egg-info")):
                    metadata_names.append(name)
                elif name.endswith(".egg-link"):
                    record.links.extend(_egg_link(os.path.join(path, name)))
    except OSError as error:
        record.problems.append((path, f"cannot be listed: {error.strerror}"))
        return
    record.persistent = bool(metadata_names or record.links) or count > SMALL_DIRECTORY
    names: dict[str, list[str]] = {}
    for name in sorted(metadata_names):
        stem = metadata.split_directory_name(name)[0]
        if name.startswith("~"):  # what pip leaves when an uninstall is interrupted
            record.problems.append(
                (os.path.join(path, name), "is left over from an interrupted uninstall; delete it")
            )
        elif not stem:
            record.problems.append(
                (os.path.join(path, name), "has no distribution name; delete it")
            )
        else:
            names.setdefault(normalised(stem), []).append(name)
    record.names = f" {' '.join(names)} "
    for copies in names.values():
        for name in copies:
            _read_metadata_alone(os.path.join(path, name), path, record, copies)


def _egg_link(path: str) -> list[str]:
    data = metadata.read_file(path)
    lines = (data or b"").decode("utf-8", "replace").split("\n")
    return [os.path.join(os.path.dirname(path), lines[0].strip())] if lines[0].strip() else []


def _read_metadata_alone(path: str, location: str, record: Directory, copies: list[str]) -> None:
    """As ``_read_metadata``; whatever goes wrong concerns this distribution alone."""
    try:
        _read_metadata(path, location, record, copies)
    except OSError as error:
        record.problems.append((error.filename or path, f"cannot be read: {error.strerror}"))
    except Exception as error:
        record.problems.append((path, f"cannot be understood: {error!r:.200}"))


def _read_metadata(path: str, location: str, record: Directory, copies: list[str]) -> None:
    """Add the distribution whose metadata directory is ``path``, if it provides entries of ours."""
    file = os.path.join(path, "entry_points.txt")
    data = metadata.read_file(file)
    if data is None or (b"mortice" not in data and not data.startswith((b"\xff\xfe", b"\xfe\xff"))):
        return
    try:
        text = metadata.decoded(data)
    except UnicodeDecodeError as error:
        record.problems.append((file, f"is not UTF-8 text (byte {error.start}); reinstall"))
        return
    entries, wrong = metadata.parse_entry_points(text)
    if not entries and not wrong:
        return
    if len(copies) > 1 and not _is_newest(path, copies):
        newest = _newest(os.path.dirname(path), copies)
        record.problems.append((path, f"is a stale second copy; {newest} is used; delete it"))
        return
    distribution, mistakes = metadata.read_distribution(path, location)
    found = Found(distribution, known_entries(entries, file, record), [], None, "")
    _read_manifest(found)
    for mistake in (*wrong, *mistakes):
        record.problems.append((file if mistake in wrong else path, mistake))
    found.files.append((file, *stamp(file)))
    record.found.append(found)


def _read_manifest(found: Found) -> None:
    """Find and parse mortice.toml. A bad one makes every entry of the distribution broken."""
    path = found.distribution.path
    candidates = [os.path.join(path, "extra_metadata", "mortice.toml")]
    candidates.append(os.path.join(path, "mortice.toml"))
    recorded = metadata.manifest_in_record(path)
    if recorded:
        candidates.append(recorded)
    for file in candidates:
        data = metadata.read_file(file)
        if data is not None:
            break
    else:
        beside = _beside_editable(found)
        data = metadata.read_file(beside) if beside else None
        file = beside or ""
    if data is not None:
        found.files.append((file, *stamp(file)))
        use_manifest(found, data, file)


def _beside_editable(found: Found) -> str | None:
    if not found.distribution.editable:
        return None
    for _, _, value in found.entries:
        parsed = metadata.parse_value(value)
        path = metadata.manifest_beside_module(parsed[0]) if parsed else None
        if path:
            return path
    return None


def _is_newest(path: str, copies: list[str]) -> bool:
    return os.path.basename(path) == _newest(os.path.dirname(path), copies)


def _newest(folder: str, copies: list[str]) -> str:
    """Which of several metadata directories of one distribution is the living one.

    A half-removed one has lost its RECORD; among whole ones the highest version counts, which,
    unlike dates, survives copying.
    """
    from packaging.version import InvalidVersion, Version

    def rank(name: str) -> tuple[bool, Version, str]:
        try:
            version = Version(metadata.split_directory_name(name)[1])
        except InvalidVersion:
            version = Version("0")
        return os.path.isfile(os.path.join(folder, name, "RECORD")), version, name

    return max(copies, key=rank)


# -- all of them --------------------------------------------------------------------------------


def _combined(directories: list[tuple[str, Directory]]) -> Snapshot:
    """One list: a distribution found earlier on the path hides a later one of the same name."""
    result = Snapshot()
    for position, (_, record) in enumerate(directories):
        result.problems.extend(record.problems)
        for found in record.found:
            name = f" {normalised(found.distribution.name)} "
            hider = next((p for p, r in directories[:position] if name in r.names), None)
            if hider is None:
                result.found.append(found)
            else:
                result.shadowed.append((found, hider))
    return result
