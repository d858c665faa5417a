"""A made-up environment: distributions written by hand into a folder that a child process has on
its path, with a home, a cache and a working directory of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

#: Comparisons with PyTorch are for the session `parity`.
collect_ignore_glob = [] if find_spec("torch") is not None else ["*/test_parity_*.py"]


class Site:
    """One such environment. ``add`` installs a distribution; ``run`` runs code there."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.path = root / "site"
        self.home = root / "home"
        self.cwd = root / "cwd"
        self.cache = root / "cache"
        for folder in (self.path, self.home, self.cwd):
            folder.mkdir()
        self.paths = [self.path]

    def add(
        self,
        name: str,
        version: str = "1.0",
        *,
        entries: dict[str, dict[str, str]] | None = None,
        modules: dict[str, str] | None = None,
        manifest: str | None = 'hook_api = ">=1,<2"',
        manifest_at: str = "extra_metadata/mortice.toml",
        entry_points: bytes | None = None,
        folder: Path | None = None,
        record: bool = True,
    ) -> Path:
        """Write the distribution as an installer would; returns its dist-info directory."""
        folder = folder or self.path
        info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        if entry_points is None:
            entry_points = "".join(
                f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in rows.items())
                for group, rows in (entries or {}).items()
            ).encode()
        (info / "entry_points.txt").write_bytes(entry_points)
        files = [f"{info.name}/METADATA", f"{info.name}/entry_points.txt"]
        for file, source in (modules or {}).items():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_text(textwrap.dedent(source))
            files.append(file)
        if manifest is not None:
            where = (
                info / manifest_at if not manifest_at.startswith("/") else folder / manifest_at[1:]
            )
            where.parent.mkdir(parents=True, exist_ok=True)
            where.write_text(textwrap.dedent(manifest))
            files.append(where.relative_to(folder).as_posix())
        if record:
            (info / "RECORD").write_text("".join(f"{file},,\n" for file in files))
        return info

    def device(self, name: str, source: str = "", *, dist: str = "", **options: Any) -> Path:
        """A distribution with one device, whose module starts with ``source``."""
        dist = dist or f"acme-{name}"
        module = dist.replace("-", "_")
        hook = """
        import mortice.backend
        @mortice.backend.hookimpl
        def mortice_device(name):
            return Device
        class Device:
            pass
        """
        return self.add(
            dist,
            entries={"mortice.devices": {name: module}},
            modules={f"{module}.py": textwrap.dedent(source) + textwrap.dedent(hook)},
            **options,
        )

    def environment(self, **extra: str) -> dict[str, str]:
        """The child's environment: this one's, without what would reach outside."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("MORTICE_", "XDG_"))}
        path = os.pathsep.join([*map(str, self.paths), os.environ.get("PYTHONPATH", "")])
        return {
            **kept,
            "PYTHONPATH": path,
            "HOME": str(self.home),
            "USERPROFILE": str(self.home),
            "APPDATA": str(self.home / "roaming"),
            "XDG_CONFIG_HOME": str(self.home / "config"),
            "XDG_CONFIG_DIRS": str(self.home / "etc"),
            "MORTICE_CACHE_DIR": str(self.cache),
            "PYTHONWARNINGS": "error",
            **extra,
        }

    def start(self, *arguments: str, **extra: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, *arguments],
            env=self.environment(**extra),
            cwd=self.cwd,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
        )

    def run(self, code: str, *, status: int = 0, **extra: str) -> str:
        """Run code; returns what it printed, standard error after standard output."""
        return self._finish(self.start("-c", textwrap.dedent(code), **extra), status)

    def cli(self, *arguments: str, status: int = 0, **extra: str) -> str:
        """Run the ``mortice`` command; returns what it printed."""
        return self._finish(self.start("-m", "mortice", *arguments, **extra), status)

    @staticmethod
    def _finish(child: subprocess.Popen[str], status: int) -> str:
        out, err = child.communicate(timeout=100)
        assert child.returncode == status, f"exit status {child.returncode}\n{out}\n{err}"
        return out + err


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """An empty environment."""
    return Site(tmp_path)
