"""What the tests that look at the whole repository share."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def root() -> Path:
    """The root of the repository."""
    return ROOT


@pytest.fixture(scope="session")
def projects() -> dict[str, tuple[Path, dict[str, Any]]]:
    """Folder and parsed pyproject of each package, by distribution name."""
    found = {}
    for path in sorted(ROOT.glob("packages/*/pyproject.toml")):
        parsed = tomllib.loads(path.read_text(encoding="utf-8"))
        found[parsed["project"]["name"]] = (path.parent, parsed)
    assert found, "no package found"
    return found


@pytest.fixture(scope="session")
def wheelhouse() -> Path:
    """The folder of the wheels that are being tested."""
    folder = os.environ.get("MORTICE_WHEELHOUSE")
    assert folder, "run through `python3 dev.py test`, which builds the wheels"
    return Path(folder)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Where skipping is not allowed (session `system`), a skipped test fails the run."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("MORTICE_NO_SKIP") and reporter and reporter.stats.get("skipped"):
        reporter.write_line("a skipped test fails this session", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
