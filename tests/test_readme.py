"""What the README and the other guides name is there: links, paths, sessions, commands."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from tests.test_tree import tracked

Projects = dict[str, tuple[Path, dict[str, Any]]]


#: Folders that are made, and a plug-in that nobody has.
MADE = {".dev", ".nox", "wheelhouse", "results", "node_modules", "acme_npu"}

#: Commands of other packages, which need not be installed.
PLUGGED_IN = {"conformance", "tenon-info"}

#: Pages of names that are not there, and names that stand for somebody's.
OF_WRONG_NAMES = {"mistakes.md", "capture-cases.md"}
MADE_UP = ("mortice.npu", "mortice.ops.joiner", "mortice.ops.mylib", "mortice.toml")


def links(path: Path) -> list[str]:
    found = re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text(encoding="utf-8"))
    return [link for link in found if "://" not in link]


@pytest.fixture(scope="module")
def guides(root: Path) -> list[Path]:
    """Every page for people; tables of results are made by programs."""
    found = [
        *root.glob("*.md"),
        *(path for top in ("docs", "examples", "packages") for path in root.glob(f"{top}/**/*.md")),
    ]
    assert len(found) > 30
    return sorted(path for path in found if not MADE & set(path.relative_to(root).parts))


def test_links_lead_somewhere(root: Path, guides: list[Path]) -> None:
    dead = [
        f"{path.relative_to(root)}: {link}"
        for path in guides
        for link in links(path)
        if not (path.parent / link).exists()
    ]
    assert not dead


def test_table_of_packages_is_complete_and_true(root: Path, projects: Projects) -> None:
    text = (root / "README.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| \[`([^`]+)`\]\(packages/[^)]+\) \|(.*)$", text, re.MULTILINE))
    assert sorted(rows) == sorted(projects)
    for name, (folder, _) in projects.items():
        assert f"[`{name}`](packages/{folder.name})" in text
        assert f"| `{name.replace('-', '_')}` |" in "|" + rows[name]


def test_paths_named_are_there(root: Path, guides: list[Path]) -> None:
    """A path may leave out folders at its beginning; FAMILY and such stand for a name."""
    files = [path.relative_to(root) for path in tracked(root)]
    there = {f"/{path.as_posix()}" for path in files}
    there |= {f"/{folder.as_posix()}/" for path in files for folder in path.parents}
    absent = []
    for page in guides:
        for path in re.findall(r"`([\w.\-]+/[\w.\-/]*)`", page.read_text(encoding="utf-8")):
            named = re.search(r"(/|\.(py|pyi|md|yaml|toml|svg))$", path)
            made_up = re.search(r"\b[A-Z]{3,}\.", path) or path.split("/")[0] in MADE
            if named and not made_up and not any(one.endswith(f"/{path}") for one in there):
                absent.append(f"{page.relative_to(root)}: {path}")
    assert not absent


def test_sessions_named_are_there(root: Path, guides: list[Path]) -> None:
    sessions = (root / "noxfile.py").read_text(encoding="utf-8")
    for page in guides:
        for name in re.findall(r"(?:dev\.py|nox -s) ([a-z]\w*)", page.read_text(encoding="utf-8")):
            assert f"\ndef {name}(" in sessions or f'name="{name}"' in sessions, (page, name)


def test_commands_named_are_there_with_their_options(root: Path, guides: list[Path]) -> None:
    from click import Context

    from mortice.cli.root import cli

    context = Context(cli)
    wrong = []
    for page in guides:
        text = page.read_text(encoding="utf-8")
        for name, rest in re.findall(
            r"(?:`|^ *)mortice ([a-z][\w-]+)([^`|#\n]*)", text, re.MULTILINE
        ):
            command = cli.get_command(context, name)
            if command is None and name in PLUGGED_IN:
                continue
            known = {option for p in command.params for option in p.opts} if command else set()
            # What stands behind the script is the script's.
            options = re.findall(r"(?<!\S)--[\w-]+", rest.partition(".py")[0])
            if command is None or set(options) - known - {"--help"}:
                wrong.append(f"{page.relative_to(root)}: mortice {name}{rest}")
    assert not wrong


def test_names_in_python_are_there(root: Path, guides: list[Path]) -> None:
    from mortice._plugins.groups import GROUPS

    absent = {
        f"{page.relative_to(root)}: {name}"
        for page in guides
        if page.name not in OF_WRONG_NAMES
        for name in re.findall(
            r"(?<![\w/.\"'@-])mortice(?:_\w+)?(?:\.[A-Za-z_]\w*)+", page.read_text(encoding="utf-8")
        )
        if name not in GROUPS and not name.startswith(MADE_UP) and not is_there(name)
    }
    assert not absent


def is_there(dotted: str) -> bool:
    """Whether a dotted name is a module's, or something in one."""
    path, *rest = dotted.split(".")
    found: Any = import_module(path)
    for part in rest:
        path = f"{path}.{part}"
        try:
            found = getattr(found, part) if hasattr(found, part) else import_module(path)
        except ImportError:
            return part == "NAME"
    return True


def test_the_picture_is_well_formed(root: Path) -> None:
    tree = ET.parse(root / "docs" / "architecture.svg")
    assert tree.getroot().tag.endswith("svg")
    title = tree.getroot().find("{http://www.w3.org/2000/svg}title")
    assert title is not None
