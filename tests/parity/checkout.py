"""Running from a source checkout: our packages on the path, and their entry points registered.

Where the wheels are installed (as ``dev.py parity`` does) there is nothing to do.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import sys
from pathlib import Path

PACKAGES = Path(__file__).resolve().parents[2] / "packages"


def use() -> None:
    """Makes ``import mortice`` and every plug-in of packages/ work."""
    if importlib.util.find_spec("mortice") is None:
        folders = [str(folder) for folder in sorted(PACKAGES.glob("*/src"))]
        sys.path[:0] = folders
        os.environ["PYTHONPATH"] = os.pathsep.join(
            [*folders, *filter(None, [os.environ.get("PYTHONPATH")])]
        )
    try:
        importlib.metadata.distribution("mortice")
    except importlib.metadata.PackageNotFoundError:
        register()


def register() -> None:
    """Stands in for the entry points that an installation would have."""
    try:
        import tomllib
    except ImportError:  # Python 3.10
        import tomli as tomllib
    import mortice.plugins

    for path in sorted(PACKAGES.glob("*/pyproject.toml")):
        groups = tomllib.loads(path.read_text(encoding="utf-8"))["project"].get("entry-points", {})
        for group, entries in groups.items():
            for name, target in entries.items():
                mortice.plugins.register(group, name, target, replace=True)
