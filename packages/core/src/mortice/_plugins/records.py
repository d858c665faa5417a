"""What is remembered of installed plug-ins: directories, and the distributions found in them."""

from __future__ import annotations

import os
from typing import Any

from mortice._base.errors import ConfigError

from .groups import GROUPS
from .metadata import Distribution

#: A directory younger than this when it was read is read again: clocks of file systems are coarse.
RACY_NS = 2_000_000_000


class Found:
    """A distribution that provides entries: what one metadata directory said."""

    __slots__ = ("distribution", "entries", "files", "manifest", "problem")

    def __init__(
        self,
        distribution: Distribution,
        entries: list[tuple[str, str, str]],
        files: list[tuple[str, int, int]],
        manifest: dict[str, Any] | None,
        problem: str,
    ) -> None:
        self.distribution = distribution
        self.entries = entries
        self.files = files  # (path, mtime_ns, size), -1 where it does not exist
        self.manifest = manifest
        self.problem = problem  # why its manifest is unusable; empty if it is fine


class Directory:
    """One entry of sys.path, as it was when it was last read."""

    __slots__ = ("found", "links", "mtime", "names", "persistent", "problems", "scanned")

    def __init__(self, mtime: int, scanned: int) -> None:
        self.mtime = mtime
        self.scanned = scanned
        self.found: list[Found] = []
        self.names = " "  # " a b c ": every distribution there, for shadowing
        self.links: list[str] = []  # targets of .egg-link files
        self.problems: list[tuple[str, str]] = []  # (path, what is wrong)
        self.persistent = True

    def is_current(self, mtime: int) -> bool:
        if self.mtime != mtime or mtime > self.scanned - RACY_NS:
            return False
        return all(
            stamp(path) == (at, size) and at <= self.scanned - RACY_NS
            for found in self.found
            for path, at, size in found.files
        )


class Snapshot:
    """The distributions that provide entries, in the order of sys.path, each once."""

    __slots__ = ("found", "problems", "shadowed")

    def __init__(self) -> None:
        self.found: list[Found] = []
        self.problems: list[tuple[str, str]] = []
        self.shadowed: list[tuple[Found, str]] = []  # (copy, path of what hides it)


def known_entries(
    entries: list[tuple[str, str, str]], file: str, record: Directory
) -> list[tuple[str, str, str]]:
    """The entries in groups that exist; the others are noted as problems."""
    from mortice._base.errors import nearest

    for group, name, _ in entries:
        if group not in GROUPS:
            what = f"[{group}] is no group we know, so its {name!r} is not used."
            record.problems.append((file, what + nearest(group, GROUPS)))
    return [entry for entry in entries if entry[0] in GROUPS]


def use_manifest(found: Found, data: bytes, origin: str) -> None:
    """Parse a manifest's text into ``found``."""
    from . import manifest
    from .groups import HOOK_API_VERSION

    try:
        found.manifest = manifest.parse(data, origin)
    except ConfigError as error:
        found.problem = str(error)
    except RecursionError:
        found.problem = f"{origin} is nested too deeply"
    else:
        reason = manifest.incompatibility(found.manifest, HOOK_API_VERSION)
        found.manifest["incompatible"] = reason or ""


def stamp(path: str) -> tuple[int, int]:
    """mtime in ns, and size; -1 and -1 where the file does not exist."""
    try:
        status = os.stat(path)
    except OSError:
        return -1, -1
    return status.st_mtime_ns, status.st_size
