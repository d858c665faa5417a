"""The index on disk: one file for each environment and user, in the cache directory.

Its first line tells format and checksum; anything that does not fit means: scan again. It is
replaced atomically, and lives in memory alone where it cannot be written.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from mortice._base import config, paths

from .groups import GROUPS, HOOK_API_VERSION
from .metadata import Distribution
from .records import Directory, Found

FORMAT = 1


def folder() -> str | None:
    """The directory for everything about plug-ins, per environment; None if there is no home."""
    base = config.cache_dir or paths.default_cache_dir()
    if base is None:
        return None
    from zlib import crc32

    version = "{}.{}".format(*sys.version_info)
    environment = crc32(os.fsencode(f"{sys.prefix}\0{version}\0{_user()}"))
    return os.path.join(base, "plugins", f"{environment:08x}")


def read() -> dict[str, Directory]:
    """The remembered directories; empty where there are none, or none that can be trusted."""
    path = _file()
    if path is None:
        return {}
    try:
        with open(path, "rb") as file:
            if not _is_ours(os.fstat(file.fileno())):
                return {}
            header, _, body = file.read().partition(b"\n")
    except OSError:
        return {}
    if header != _header(body):
        return {}
    try:
        return {path: _to_directory(row) for path, row in json.loads(body).items()}
    except (ValueError, TypeError, KeyError, AttributeError):
        return {}


def write(directories: dict[str, Directory]) -> str:
    """Store the records; returns why that was not possible, or an empty string."""
    path = _file()
    if path is None:
        return "there is no home directory; set MORTICE_CACHE_DIR"
    body = json.dumps({key: _from_directory(one) for key, one in directories.items()}).encode()
    return replace_file(path, _header(body) + b"\n" + body)


def replace_file(path: str, data: bytes) -> str:
    """Write ``data`` to ``path`` in one step; returns why not, or an empty string."""
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        with open(temporary, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except OSError as error:
        try:
            os.unlink(temporary)
        except OSError:
            pass  # it was never made; otherwise the next write of this process replaces it
        return f"{os.path.dirname(path)} cannot be written: {error.strerror}"
    return ""


def _file() -> str | None:
    where = folder()
    return None if where is None else os.path.join(where, "index.json")


def _header(body: bytes) -> bytes:
    from zlib import crc32

    groups = crc32(" ".join(GROUPS).encode())
    return f"mortice-index {FORMAT}.{HOOK_API_VERSION}.{groups:x} {crc32(body):08x}".encode()


def _user() -> int:
    return os.getuid() if hasattr(os, "getuid") else 0


def _is_ours(status: os.stat_result) -> bool:
    """Whether nobody else wrote the file: it names modules that we will import."""
    return not hasattr(os, "getuid") or status.st_uid == os.getuid()


def _from_directory(one: Directory) -> dict[str, Any]:
    return {
        "mtime": one.mtime,
        "scanned": one.scanned,
        "names": one.names,
        "links": one.links,
        "problems": one.problems,
        "found": [
            {
                "distribution": [
                    found.distribution.name,
                    found.distribution.version,
                    found.distribution.path,
                    found.distribution.location,
                    found.distribution.editable,
                ],
                "entries": found.entries,
                "files": found.files,
                "manifest": found.manifest,
                "problem": found.problem,
            }
            for found in one.found
        ],
    }


def _to_directory(row: dict[str, Any]) -> Directory:
    one = Directory(int(row["mtime"]), int(row["scanned"]))
    one.names = row["names"]
    one.links = row["links"]
    one.problems = [(path, what) for path, what in row["problems"]]
    for found in row["found"]:
        one.found.append(
            Found(
                Distribution(*found["distribution"]),
                [(group, name, value) for group, name, value in found["entries"]],
                [(path, stamp, size) for path, stamp, size in found["files"]],
                found["manifest"],
                found["problem"],
            )
        )
    return one
