"""The tree itself: files that a person can read in one sitting, no trace of a machine."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

import pytest

MOST_LINES = 650
TEXT = {".py", ".pyi", ".toml", ".md", ".yaml", ".yml", ".cfg", ".txt", ".sh", ".svg", ""}
# Where a machine or a person would show: home folders and what lies under a work folder.
MACHINE = ("/" + "root/", "/" + "home/", "/" + "Users/", "/" + "work/", "C:\\" + "Users")


def tracked(root: Path) -> list[Path]:
    """The files of the repository: git's list, or all but what is made, without git."""
    listed = subprocess.run(
        ["git", "-C", str(root), "ls-files", "-z"], capture_output=True, text=True, check=False
    )
    if listed.returncode == 0:
        names = [n for n in listed.stdout.split("\0") if n]
        return [root / n for n in names if (root / n).is_file()]
    made = {".dev", ".nox", "dist", "wheelhouse", "__pycache__", ".git"}
    return [p for p in root.rglob("*") if p.is_file() and not made & set(p.parts)]


@pytest.fixture(scope="module")
def files(root: Path) -> list[Path]:
    found = tracked(root)
    assert len(found) > 30
    return found


def test_no_file_is_too_long(files: list[Path], root: Path) -> None:
    long = {}
    for path in files:
        if path.suffix in {".py", ".pyi"} and "_generated" not in path.parts:
            lines = len(path.read_text(encoding="utf-8").splitlines())
            if lines > MOST_LINES:
                long[str(path.relative_to(root))] = lines
    assert not long


def test_no_path_of_a_machine(files: list[Path], root: Path) -> None:
    found = []
    for path in files:
        if path.suffix not in TEXT:
            continue
        text = path.read_text(encoding="utf-8")
        found += [
            f"{path.relative_to(root)}:{number}: {line.strip()}"
            for number, line in enumerate(text.splitlines(), 1)
            if any(word in line for word in MACHINE)
        ]
    assert not found


def test_sources_parse_on_the_oldest_python(files: list[Path]) -> None:
    for path in files:
        if path.suffix in {".py", ".pyi"}:
            ast.parse(path.read_text(encoding="utf-8"), str(path), feature_version=(3, 10))


def test_no_drawer_for_everything(files: list[Path]) -> None:
    drawers = {"utils.py", "util.py", "helpers.py", "misc.py", "common.py"}
    assert not [p for p in files if p.name in drawers and "src" in p.parts]
