"""The sessions install our packages from this repository alone, and nothing twice."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def noxfile(root: Path) -> ModuleType:
    """noxfile.py as a module; nox warns if its sessions are registered twice."""
    spec = importlib.util.spec_from_file_location("noxfile", root / "noxfile.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tree(noxfile: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository of two packages."""
    for folder, name, rest in (
        ("core", "mortice", '[project.optional-dependencies]\ncpu = ["mortice-cpu~=0.1.0"]\n'),
        ("backend-cpu", "mortice-cpu", ""),
    ):
        path = tmp_path / "packages" / folder
        (path / "src").mkdir(parents=True)
        needs = '["mortice~=0.1.0", "other>=1"]' if name == "mortice-cpu" else '["numpy>=2.1"]'
        text = f'[project]\nname = "{name}"\ndependencies = {needs}\n{rest}'
        (path / "pyproject.toml").write_text(text)
    monkeypatch.setattr(noxfile, "ROOT", tmp_path)
    return tmp_path


@pytest.mark.usefixtures("tree")
def test_closure_splits_ours_from_others(noxfile: ModuleType) -> None:
    assert noxfile.closure("mortice", "pytest>=8") == (["mortice"], ["numpy>=2.1", "pytest>=8"])
    ours, others = noxfile.closure("mortice[cpu]")
    assert ours == ["mortice", "mortice-cpu"]
    assert others == ["numpy>=2.1", "other>=1"]
    assert noxfile.closure("Mortice_CPU") == (ours, others)


@pytest.mark.parametrize("name", ["mortice-absent", "mortice_absent", "Mortice.Absent"])
@pytest.mark.usefixtures("tree")
def test_an_index_is_never_asked_for_a_name_of_ours(noxfile: ModuleType, name: str) -> None:
    with pytest.raises(LookupError, match="mortice-absent is required but has no folder"):
        noxfile.closure("numpy", name)


def test_a_wheel_is_known_by_what_it_is_made_of(noxfile: ModuleType, tree: Path) -> None:
    folder = tree / "packages" / "core"
    first = noxfile.packages()["mortice"].content_hash()
    cache = folder / "src" / "__pycache__"
    cache.mkdir()
    (cache / "x.pyc").write_bytes(b"x")
    assert noxfile.packages()["mortice"].content_hash() == first
    (folder / "src" / "x.py").write_text("")
    second = noxfile.packages()["mortice"].content_hash()
    assert second != first
    (folder / "src" / "x.py").write_text("x = 1\n")
    assert noxfile.packages()["mortice"].content_hash() not in {first, second}


def test_every_session_says_what_it_does(root: Path) -> None:
    listed = subprocess.run(
        [sys.executable, "-m", "nox", "-f", str(root / "noxfile.py"), "--list", "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    sessions = {row["session"]: row["description"] for row in json.loads(listed.stdout)}
    assert all(sessions.values())
    guide = (root / "CONTRIBUTING.md").read_text(encoding="utf-8")
    gate = (root / ".ci" / "run").read_text(encoding="utf-8")
    for name in sessions:
        assert f"| `{name}` |" in guide
    for name in ("test", "system", "lint", "types", "contracts", "generate --check", "build"):
        assert f"gate python3 dev.py {name}\n" in gate


def test_skips_fail_where_they_are_not_allowed(root: Path, tmp_path: Path) -> None:
    """Session `system` sets MORTICE_NO_SKIP; a test that skips for want of the machine fails it."""
    (tmp_path / "conftest.py").write_text((root / "tests" / "conftest.py").read_text())
    (tmp_path / "test_it.py").write_text("import pytest\ndef test_it(): pytest.skip('no root')\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    for value, status in (("", 0), ("1", 1)):
        environ = {**os.environ, "MORTICE_NO_SKIP": value}
        done = subprocess.run(command, env=environ, cwd=tmp_path, capture_output=True, check=False)
        assert done.returncode == status, done.stdout
