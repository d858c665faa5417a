"""Installed distributions that are wrong, each in its own way, for the table of mistakes."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Wrong(NamedTuple):
    """A distribution ``mistake-<name>`` with one device entry and one module."""

    source: str
    manifest: str | None = 'hook_api = ">=1,<2"\n'
    version: str = "1.0"


GOOD = """
from mortice.backend import DeviceRuntime, hookimpl
class Runtime(DeviceRuntime):
    def count(self): return 1
@hookimpl
def mortice_device(name): return Runtime
"""

WRONG: dict[str, Wrong] = {
    "noimport": Wrong("import a_library_that_is_not_there\n"),
    "exits": Wrong("raise SystemExit('no licence')\n"),
    "nohook": Wrong("x = 1\n"),
    "notaclass": Wrong(GOOD.replace("return Runtime", "return 5")),
    "nogpu": Wrong(
        "from mortice.backend import Unavailable\nraise Unavailable('no such card', 'buy one')\n"
    ),
    "toonew": Wrong(GOOD, 'hook_api = ">=9"\n'),
    "badtoml": Wrong(GOOD, "hook_api = \n"),
    "typo": Wrong(GOOD, 'hook_api = ">=1"\n[divice.typo]\nsummary = "x"\n'),
    "switchedoff": Wrong(GOOD),
}


def make(site: Path) -> None:
    """Writes them all into a folder for sys.path, and two more that claim one name."""
    for name, wrong in WRONG.items():
        _distribution(site, f"mistake-{name}", wrong, name, f"mistake_{name}")
    for which in ("first", "second"):
        _distribution(site, f"{which}-claim", Wrong(GOOD), "claimed", f"{which}_claim")


def _distribution(site: Path, name: str, wrong: Wrong, device: str, module: str) -> None:
    (site / f"{module}.py").write_text(wrong.source, encoding="utf-8")
    info = site / f"{name.replace('-', '_')}-{wrong.version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {wrong.version}\n"
    )
    (info / "entry_points.txt").write_text(f"[mortice.devices]\n{device} = {module}\n")
    if wrong.manifest is not None:
        (info / "mortice.toml").write_text(wrong.manifest)
