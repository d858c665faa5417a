"""What installed files say: entry_points.txt, METADATA, RECORD, direct_url.json.

Plain text in, plain data out, without importlib.metadata: its import alone costs more than
reading a whole environment, and one damaged directory makes it raise for all.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import Any

PREFIX = "mortice."
# RECORD, with a line for each file, is the largest one read; some have 100,000 lines.
LARGEST_FILE = 64 << 20
_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


class Distribution:
    """An installed distribution that provides entries, or one registered in the process."""

    __slots__ = ("editable", "location", "name", "path", "version")

    def __init__(
        self, name: str, version: str, path: str = "", location: str = "", editable: bool = False
    ) -> None:
        self.name = name
        self.version = version
        self.path = path  # its dist-info directory; empty for one inside a zip or a finder
        self.location = location  # the entry of sys.path it was found through
        self.editable = editable

    def __str__(self) -> str:
        return f"{self.name} {self.version}".rstrip()

    def __repr__(self) -> str:
        return f"<Distribution {self} at {self.path or self.location or 'no file'}>"


def normalised(name: str) -> str:
    """A distribution's name as package indexes compare it."""
    parts = name.lower().replace("_", "-").replace(".", "-").split("-")
    return "-".join(part for part in parts if part)


def decoded(data: bytes) -> str:
    """Text of a metadata file, whatever byte-order mark an editor left in it.

    Raises UnicodeDecodeError where it is no text.
    """
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16")
    return data.decode("utf-8-sig")


def parse_entry_points(text: str) -> tuple[list[tuple[str, str, str]], list[str]]:
    """``(group, name, value)`` of our groups, and what was wrong, line by line."""
    found: list[tuple[str, str, str]] = []
    wrong: list[str] = []
    group = ""
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line[0] in "#;":
            continue
        if line[0] == "[":
            if not line.endswith("]"):
                wrong.append(f"line {number}: {line!r} is no section header")
            group = line[1:].rstrip("]").strip()
            continue
        name, equals, value = (part.strip() for part in line.partition("="))
        if not group and PREFIX in line:
            wrong.append(f"line {number}: {line!r} stands outside any [group]")
        elif group.startswith(PREFIX):
            if equals and name and value:
                found.append((group, name, value))
            else:
                wrong.append(f"line {number}: {line!r} is not of the form name = module[:object]")
    return found, wrong


def parse_value(value: str) -> tuple[str, str] | None:
    """``module`` and ``object`` (maybe empty) of an entry's value; None if malformed."""
    reference = value
    if value.endswith("]"):  # extras: once allowed, always ignored
        reference = value.partition("[")[0]
    module, _, attribute = (part.strip() for part in reference.partition(":"))
    names = module.split(".") + (attribute.split(".") if attribute else [])
    if ":" in reference and not attribute:
        return None
    return (module, attribute) if all(name.isidentifier() for name in names) else None


def parse_headers(text: str) -> tuple[str, str]:
    """Name and Version of a METADATA or PKG-INFO text; empty where missing."""
    name = version = ""
    for line in text.splitlines():
        if not line:  # the headers end at the first blank line
            break
        key, _, value = line.partition(":")
        if key.lower() == "name":
            name = value.strip()
        elif key.lower() == "version":
            version = value.strip()
    return name, version


def split_directory_name(directory: str) -> tuple[str, str]:
    """Name and version that ``name-version.dist-info`` (or ``.egg-info``) itself tells."""
    stem = directory.rpartition(".")[0]
    name, _, rest = stem.partition("-")
    return name, rest.partition("-")[0]  # an egg-info's name goes on with -py3.11


def read_distribution(path: str, location: str) -> tuple[Distribution, list[str]]:
    """The distribution whose metadata directory is ``path``, and what was wrong with it."""
    wrong: list[str] = []
    name, version = split_directory_name(os.path.basename(path))
    for file in ("METADATA", "PKG-INFO"):
        data = read_file(os.path.join(path, file))
        if data is None:
            continue
        try:
            told_name, told_version = parse_headers(decoded(data))
        except UnicodeDecodeError:
            wrong.append(f"{file} is not UTF-8 text")
            break
        name, version = told_name or name, told_version or version
        break
    else:
        wrong.append("METADATA is missing")
    return Distribution(name, version, path, location, _is_editable(path)), wrong


def read_file(path: str) -> bytes | None:
    """The file's bytes, or None where there is no such file. Other failures raise OSError.

    Something that is no plain file (a pipe would block us for ever) or is absurdly large is a
    failure, too.
    """
    try:
        descriptor = os.open(path, _READ)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is no plain file", path)
        if status.st_size > LARGEST_FILE:
            raise OSError(errno.EFBIG, f"it is larger than {LARGEST_FILE} bytes", path)
        with open(descriptor, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(descriptor)


def manifest_in_record(path: str) -> str | None:
    """Path of ``<import package>/mortice.toml`` as the RECORD in ``path`` lists it."""
    data = read_file(os.path.join(path, "RECORD"))
    if data is None or b"/mortice.toml," not in data:
        return None
    for line in data.decode("utf-8", "replace").splitlines():
        file = line.partition(",")[0]
        if file.endswith("/mortice.toml") and file.count("/") == 1 and not file.startswith("."):
            return os.path.join(os.path.dirname(path), *file.split("/"))
    return None


def manifest_beside_module(module: str) -> str | None:
    """Path of ``mortice.toml`` in the import package of ``module``, found without importing it.

    For editable installs by builders whose RECORD lists a link instead of the package's files.
    """
    import importlib.util

    top = module.partition(".")[0]
    try:
        spec = importlib.util.find_spec(top)
    except Exception:  # a finder of another tool may raise anything; then there is no manifest
        return None
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        candidate = os.path.join(folder, "mortice.toml")
        if os.path.isfile(candidate):
            return candidate
    return None


def _is_editable(path: str) -> bool:
    if path.endswith(".egg-info"):
        return True
    data = read_file(os.path.join(path, "direct_url.json"))
    if data is None or b"editable" not in data:
        return False
    import json

    try:
        told: Any = json.loads(data)
        return told["dir_info"]["editable"] is True
    except (ValueError, KeyError, TypeError):
        return False  # it only decides what is advised, and what is tried again
