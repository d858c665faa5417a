"""Core's forwarding stubs name modules that exist, and match what the entry points map."""

from __future__ import annotations

import importlib
from importlib.metadata import entry_points
from pathlib import Path

import mortice

CORE = Path(mortice.__file__).parent


def stubs() -> dict[str, str]:
    """Alias -> target, for each forwarding stub."""
    found = {}
    for path in CORE.rglob("*.pyi"):
        lines = path.read_text(encoding="utf-8").splitlines()
        if lines[0].startswith("# Forwards to the package"):
            relative = path.relative_to(CORE).with_suffix("").as_posix()
            alias = relative.removesuffix("/__init__").replace("/", ".")
            found[alias] = lines[1].split()[1]
    return found


def test_each_stub_forwards_to_what_the_import_system_gives() -> None:
    found = stubs()
    assert "nn.functional" in found
    for alias, target in found.items():
        module = importlib.import_module(f"mortice.{alias}")
        assert module is importlib.import_module(target), alias


def test_every_module_of_ours_has_a_stub() -> None:
    ours = {
        entry.name: entry.value
        for entry in entry_points(group="mortice.modules")
        if entry.value.startswith("mortice_")
    }
    assert ours.items() <= stubs().items()
