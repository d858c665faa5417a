"""Distributions that are not directories: zips on sys.path, and finders of frozen applications.

Only here is importlib.metadata imported. A distribution that makes it raise is noted and passed
over, alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

from .metadata import Distribution, normalised, parse_entry_points
from .records import Directory, Found, known_entries, use_manifest


def read_archive(path: str, record: Directory) -> None:
    """Fill ``record`` from the zip file ``path``; other files hold no distributions."""
    import zipfile

    if not zipfile.is_zipfile(path):
        return
    import importlib.metadata

    _read_all(path, lambda: importlib.metadata.distributions(path=[path]), record)


def read_finder(finder: Any, record: Directory) -> None:
    """Fill ``record`` with what ``finder.find_distributions`` yields."""
    from importlib.metadata import DistributionFinder

    record.persistent = False  # nothing tells when its answer changes
    what = f"{type(finder).__module__}.{type(finder).__qualname__} on sys.meta_path"
    _read_all(what, lambda: finder.find_distributions(DistributionFinder.Context()), record)


def _read_all(origin: str, distributions: Callable[[], Iterable[Any]], record: Directory) -> None:
    names: list[str] = []
    try:
        for distribution in distributions():
            try:
                names.append(_read_one(origin, distribution, record))
            except Exception as error:
                record.problems.append((origin, f"a distribution in it cannot be read: {error!r}"))
    except Exception as error:
        record.problems.append((origin, f"cannot list its distributions: {error!r}"))
    record.names = f" {' '.join(names)} "


def _read_one(origin: str, distribution: Any, record: Directory) -> str:
    name = str(distribution.metadata["Name"] or "")
    entries, wrong = parse_entry_points(distribution.read_text("entry_points.txt") or "")
    record.problems.extend((f"{origin}: entry_points.txt of {name}", what) for what in wrong)
    if entries:
        told = Distribution(name, str(distribution.version or ""), "", origin)
        found = Found(told, known_entries(entries, origin, record), [], None, "")
        for file in ("extra_metadata/mortice.toml", "mortice.toml"):
            text = distribution.read_text(file)
            if text is not None:
                use_manifest(found, text.encode(), os.path.join(origin, file))
                break
        record.found.append(found)
    return normalised(name)
