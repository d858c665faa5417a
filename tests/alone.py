"""Try one of our packages where nothing else is installed: ``python alone.py DISTRIBUTION``.

Run by the session `build` with the interpreter of an environment that holds the distribution and
what it declares. It imports, knows its version, every entry point it declares loads, and the
``mortice`` command, where core is there, lists exactly what is installed.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path


def installed() -> set[tuple[str, str]]:
    """The (group, name) of every entry point for mortice in this environment."""
    return {
        (entry.group, entry.name)
        for distribution in importlib.metadata.distributions()
        for entry in distribution.entry_points
        if entry.group.startswith("mortice.")
    }


def listed() -> set[tuple[str, str]]:
    """What `mortice list-backends` says is there."""
    command = Path(sys.executable).with_name("mortice")
    done = subprocess.run(
        [str(command), "list-backends", "--all", "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    return {(row["group"], row["name"]) for row in json.loads(done.stdout)}


def main(name: str) -> None:
    """Try the distribution `name`; any failure is an exception."""
    module = importlib.import_module(name.replace("-", "_"))
    version = importlib.metadata.version(name)
    assert module.__version__ == version, (module.__version__, version)
    assert Path(module.__file__ or "").is_relative_to(sys.prefix), module.__file__
    for entry in importlib.metadata.distribution(name).entry_points:
        assert entry.load() is not None, entry
    try:
        importlib.metadata.distribution("mortice")
    except importlib.metadata.PackageNotFoundError:
        print(f"{name} {version}: imports; stands without core")
        return
    expected, found = installed(), listed()
    assert found == expected, f"listed {sorted(found)}, installed {sorted(expected)}"
    print(f"{name} {version}: imports; lists {len(found)} entries")


if __name__ == "__main__":
    main(sys.argv[1])
