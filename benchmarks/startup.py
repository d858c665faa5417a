"""What starting costs: importing mortice, the first operator, and ``mortice list-backends``.

    python benchmarks/startup.py [--runs N] [--strict] [--no-write]

Each figure is the median of N fresh processes, with bytecode compiled before, as an installer does.
``list-backends`` runs beside 1,000 made-up distributions. Writes benchmarks/results/startup.md.
"""

from __future__ import annotations

import argparse
import os
import resource
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

CLOCKS = """
import time, sys
def clocks():
    return time.perf_counter(), time.process_time()
def since(start):
    return [now - then for now, then in zip(clocks(), start)]
start = clocks()
import numpy
"""

IMPORT = f"""{CLOCKS}
numpy = since(start)
before = set(sys.modules)
start = clocks()
import mortice
print(*numpy, *since(start), *sorted(set(sys.modules) - before))
"""

FIRST_OPERATOR = f"""{CLOCKS}
start = clocks()
import mortice
result = mortice.ones(2) + 1
print(*since(start))
assert result.tolist() == [2.0, 2.0]
"""

Sample = tuple[float, float]  # wall and CPU seconds


class Figure(NamedTuple):
    """A row of the table: the target in seconds if there is one, and a remark."""

    what: str
    samples: list[Sample]
    target: float | None
    remark: str = ""

    @property
    def median(self) -> float:
        return statistics.median(wall for wall, _ in self.samples)

    @property
    def quickest(self) -> float:
        return min(wall for wall, _ in self.samples)

    @property
    def cpu(self) -> float:
        return statistics.median(cpu for _, cpu in self.samples)

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

    def child(self, *arguments: str, path: str = "") -> tuple[Sample, str]:
        """Times and output of one process."""
        environment = dict(self.environment)
        environment["PYTHONPATH"] = os.pathsep.join(
            part for part in (path, environment.get("PYTHONPATH", "")) if part
        )
        start, before = time.perf_counter(), child_cpu()
        done = subprocess.run(
            [sys.executable, *arguments],
            env=environment,
            cwd=self.root,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        return (time.perf_counter() - start, child_cpu() - before), done.stdout

    def printed(self, code: str) -> tuple[list[Sample], list[str]]:
        """The pairs of times that the code printed, and the words after them."""
        words = self.child("-c", code)[1].split()
        count = next((i for i, word in enumerate(words) if not word[0].isdigit()), len(words))
        times = [float(word) for word in words[:count]]
        return list(zip(times[::2], times[1::2])), words[count:]

    def import_mortice(self) -> tuple[Figure, Figure, list[str]]:
        self.child("-c", IMPORT)  # compiles
        numpy: list[Sample] = []
        own: list[Sample] = []
        modules: list[str] = []
        for _ in range(self.runs):
            (first, second), modules = self.printed(IMPORT)
            numpy.append(first)
            own.append(second)
        remark = f"{len(modules)} modules"
        return (
            Figure("import numpy", numpy, None),
            Figure("import mortice, beyond numpy", own, 0.015, remark),
            modules,
        )

    def first_operator(self) -> Figure:
        self.child("-c", FIRST_OPERATOR)
        samples = [self.printed(FIRST_OPERATOR)[0][0] for _ in range(self.runs)]
        return Figure("first mortice.ones(2) + 1, beyond numpy", samples, 0.060)

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


def child_cpu() -> float:
    """CPU seconds of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


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
    lines += [f"Wall time of {runs} fresh processes each; on a busy machine see the CPU time.", ""]
    lines += ["| what | median | quickest | median CPU | target | |", "|---|--:|--:|--:|--:|---|"]
    for figure in figures:
        target = "" if figure.target is None else f"{figure.target * 1e3:.0f} ms"
        remark = ", ".join(text for text in (figure.remark, "missed" * figure.missed) if text)
        lines.append(
            f"| {figure.what} | {figure.median * 1e3:.1f} ms | {figure.quickest * 1e3:.1f} ms "
            f"| {figure.cpu * 1e3:.1f} ms | {target} | {remark} |"
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
