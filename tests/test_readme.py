"""What the README promises is there."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

Projects = dict[str, tuple[Path, dict[str, Any]]]


def links(path: Path) -> list[str]:
    found = re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text(encoding="utf-8"))
    return [link for link in found if "://" not in link]


def test_links_lead_somewhere(root: Path) -> None:
    guides = [root / "README.md", root / "CONTRIBUTING.md", *sorted(root.glob("docs/**/*.md"))]
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


def test_the_two_commands_are_sessions(root: Path) -> None:
    text = (root / "README.md").read_text(encoding="utf-8")
    sessions = (root / "noxfile.py").read_text(encoding="utf-8")
    for name in re.findall(r"python3 dev\.py (\w+)", text):
        assert f"\ndef {name}(" in sessions or f'name="{name}"' in sessions


def test_the_picture_is_well_formed(root: Path) -> None:
    tree = ET.parse(root / "docs" / "architecture.svg")
    assert tree.getroot().tag.endswith("svg")
    title = tree.getroot().find("{http://www.w3.org/2000/svg}title")
    assert title is not None
