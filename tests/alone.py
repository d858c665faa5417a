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

# Entry-point group to what `mortice list-backends` calls its kind.
KINDS = {
    "mortice.operators": "operators",
    "mortice.devices": "device",
    "mortice.compile_backends": "compile",
    "mortice.distributed_backends": "distributed",
    "mortice.serialization": "serialization",
    "mortice.launchers": "launcher",
    "mortice.modules": "module",
    "mortice.commands": "command",
    "mortice.listeners": "listener",
}


def installed() -> dict[tuple[str, str], str]:
    """The (kind, name) of every entry point for mortice here, and its distribution."""
    return {
        (KINDS[entry.group], entry.name): distribution.metadata["Name"]
        for distribution in importlib.metadata.distributions()
        for entry in distribution.entry_points
        if entry.group.startswith("mortice.")
    }


def listed() -> dict[tuple[str, str], str]:
    """What `mortice list-backends` says is there, once each has been loaded in a child process."""
    command = Path(sys.executable).with_name("mortice")
    arguments = [str(command), "list-backends", "--all", "--load", "--json"]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True)
    report = json.loads(done.stdout)
    assert not report["problems"], report["problems"]
    # What core itself brings has no entry point.
    rows = [row for row in report["backends"] if row["source"] == "installed"]
    # What needs hardware or a library that is nobody's wheel says so.
    missing = [
        row for row in rows if row["state"] == "unavailable" and row["reason"] and row["fix"]
    ]
    wrong = [row for row in rows if row["state"] != "ready" and row not in missing]
    assert not wrong, wrong
    return {(row["kind"], row["name"]): row["distribution"] for row in rows}


def main(name: str) -> None:
    """Try the distribution `name`; any failure is an exception."""
    module = importlib.import_module(name.replace("-", "_"))
    version = importlib.metadata.version(name)
    said = getattr(module, "__version__", version)
    assert said == version, (said, version)
    assert Path(module.__file__ or "").is_relative_to(sys.prefix), module.__file__
    for entry in importlib.metadata.distribution(name).entry_points:
        assert entry.load() is not None, entry
    try:
        importlib.metadata.distribution("mortice")
    except importlib.metadata.PackageNotFoundError:
        print(f"{name} {version}: imports; stands without core")
        return
    expected, found = installed(), listed()
    assert found == expected, f"listed {found}, installed {expected}"
    print(f"{name} {version}: imports; lists {len(found)} entries, all ready")


if __name__ == "__main__":
    main(sys.argv[1])
