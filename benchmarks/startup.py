"""What starting costs: importing mortice, the first operator, and ``mortice list-backends``.

    python benchmarks/startup.py [--runs N] [--strict] [--no-write]

Each figure is the median of N fresh processes, with bytecode compiled before, as an installer does.
``list-backends`` runs beside 1,000 made-up distributions. Writes benchmarks/results/startup.md.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent))

from harness import describe

RESULTS = Path(__file__).parent / "results" / "startup.md"
DISTRIBUTIONS = 1_000
OLD = 1_700_000_000  # a settled time, as after yesterday's install

# What `import mortice` must leave alone.
BANNED = (
    "importlib.metadata", "importlib_metadata", "llvmlite", "ml_dtypes", "pluggy", "click", "rich",
    "packaging", "mortice_cpu", "mortice_nn", "mortice_testing", "mortice_llvm",
)  # fmt: skip

IMPORT = """
import time, sys
start = time.perf_counter()
import numpy
between = time.perf_counter()
before = set(sys.modules)
import mortice
print(between - start, time.perf_counter() - between, *sorted(set(sys.modules) - before))
"""

FIRST_OPERATOR = """
import time
import numpy
start = time.perf_counter()
import mortice
result = mortice.ones(2) + 1
print(time.perf_counter() - start)
assert result.tolist() == [2.0, 2.0]
"""


class Figure(NamedTuple):
    """A row of the table: seconds, the target if there is one, and a remark."""

    what: str
    seconds: list[float]
    target: float | None
    remark: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def missed(self) -> bool:
        return self.target is not None and self.median > self.target


class Bench:
    """Fresh processes in an environment of their own: cache, home, bytecode, path."""

    def __init__(self, root: Path, runs: int) -> None:
        self.root = root
        self.runs = runs
        self.cache = root / "cache"
        kept = {k: v for k, v in os.environ.items() if not k.startswith("MORTICE_")}
        kept.pop("PYTHONDONTWRITEBYTECODE", None)
        self.environment = {
            **kept,
            "HOME": str(root),
            "MORTICE_CACHE_DIR": str(self.cache),
            "PYTHONPYCACHEPREFIX": str(root / "bytecode"),
        }

    def child(self, *arguments: str, path: str = "") -> tuple[float, str]:
        """Wall time and output of one process."""
        environment = dict(self.environment)
        environment["PYTHONPATH"] = os.pathsep.join(
            part for part in (path, environment.get("PYTHONPATH", "")) if part
        )
        start = time.perf_counter()
        done = subprocess.run(
            [sys.executable, *arguments],
            env=environment,
            cwd=self.root,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        return time.perf_counter() - start, done.stdout

    def import_mortice(self) -> tuple[Figure, Figure, list[str]]:
        self.child("-c", IMPORT)  # compiles
        numpy, own, modules = [], [], []
        for _ in range(self.runs):
            first, second, *modules = self.child("-c", IMPORT)[1].split()
            numpy.append(float(first))
            own.append(float(second))
        remark = f"{len(modules)} modules"
        return (
            Figure("import numpy", numpy, None),
            Figure("import mortice, beyond numpy", own, 0.015, remark),
            modules,
        )

    def first_operator(self) -> Figure:
        self.child("-c", FIRST_OPERATOR)
        seconds = [float(self.child("-c", FIRST_OPERATOR)[1]) for _ in range(self.runs)]
        return Figure("first mortice.ones(2) + 1, beyond numpy", seconds, 0.060)

    def list_backends(self) -> list[Figure]:
        site = self.root / "site"
        make_distributions(site)
        command = ("-m", "mortice", "list-backends")
        _, said = self.child(*command, path=str(site))
        assert said.splitlines()[0].split()[:2] == ["KIND", "NAME"], said
        assert "device-7" in said, said
        cold = []
        for _ in range(self.runs):
            shutil.rmtree(self.cache)
            cold.append(self.child(*command, path=str(site))[0])
        warm = [self.child(*command, path=str(site))[0] for _ in range(self.runs)]
        bare = [self.child("-c", "import numpy")[0] for _ in range(self.runs)]
        beside = f"beside {DISTRIBUTIONS} distributions"
        return [
            Figure("python -c 'import numpy', whole process", bare, None),
            Figure("mortice list-backends, warm index", warm, 0.25, beside),
            Figure("mortice list-backends, cold index", cold, None, beside),
        ]


def make_distributions(site: Path) -> None:
    """1,000 distributions as installed, ten of them with a device, all of a settled age."""
    for number in range(DISTRIBUTIONS):
        info = site / f"made_up_{number}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Name: made-up-{number}\nVersion: 1.0\n")
        (info / "RECORD").write_text("")
        if number % 100 == 7:
            text = f"[mortice.devices]\ndevice-{number} = made_up_{number}\n"
        elif number % 3 == 0:
            text = f"[console_scripts]\nmade-up-{number} = made_up_{number}:main\n"
        else:
            continue
        (info / "entry_points.txt").write_text(text)
    for folder, _, files in os.walk(site, topdown=False):
        for file in files:
            os.utime(os.path.join(folder, file), (OLD, OLD))
        os.utime(folder, (OLD, OLD))


def page(figures: list[Figure], banned: list[str], runs: int) -> list[str]:
    lines = ["# Start-up", "", *describe("mortice", "numpy"), ""]
    lines += [f"Median (and quickest) of {runs} fresh processes.", ""]
    lines += ["| what | median | quickest | target | |", "|---|---:|---:|---:|---|"]
    for figure in figures:
        target = "" if figure.target is None else f"{figure.target * 1e3:.0f} ms"
        remark = ", ".join(text for text in (figure.remark, "missed" * figure.missed) if text)
        lines.append(
            f"| {figure.what} | {figure.median * 1e3:.1f} ms | {min(figure.seconds) * 1e3:.1f} ms "
            f"| {target} | {remark} |"
        )
    found = ", ".join(banned) or "none of them"
    lines += ["", f"`import mortice` must not import {', '.join(BANNED)}: it imports {found}."]
    return lines


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--strict", action="store_true", help="fail when a target is missed")
    parser.add_argument("--no-write", action="store_true")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as root:
        bench = Bench(Path(root), options.runs)
        numpy, own, modules = bench.import_mortice()
        figures = [numpy, own, bench.first_operator(), *bench.list_backends()]
    banned = [name for name in BANNED if name in modules]
    lines = page(figures, banned, options.runs)
    print("\n".join(lines))
    if not options.no_write:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text("\n".join(lines) + "\n", encoding="utf-8")
    failed = bool(banned) or any(figure.missed for figure in figures)
    return 1 if options.strict and failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
