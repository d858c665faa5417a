"""Compiled code beside torch.compile, jax.jit, numba and eager torch.

    python benchmarks/inductor.py [--only NAME] [--threads 1,2] [--quick] [--strict] [--no-write]

Each framework runs each workload in a process of its own, with pauses between them: threads that
spin after their work would spoil a neighbour's figure. A process compiles with empty caches (which
is the compile time: the first call, less one call afterwards), is compared with mortice eager, and
then timed in batches; the phases of all frameworks come in turn, several times. Reported are the
median of the processes' medians and the spread of their ratio, in CPU time on one thread and in wall
time on more. What memory bounds is timed in further processes, of every framework in turn and as
many of each. Second processes with the first one's caches give their first calls likewise, and a
process that does nothing else, with empty caches, its time from start to first result. Writes
benchmarks/results/inductor.md.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from harness import describe
from harness.machine import DROPPED
from harness.report import duration
from workloads import WORKLOADS, Unsaid, Workload

RESULTS = Path(__file__).parent / "results" / "inductor.md"
OURS, REFERENCE = "mortice", "mortice eager"
PAUSE = 0.4
BATCH_SECONDS = 0.02
#: Second processes of which the median counts.
SECONDS = 3


# -- the child: one framework, one workload --------------------------------------------------------


def child(framework: str, workload: str, threads: int, batches: int) -> None:
    """Measures, and prints one line of JSON; without batches, the time from start to first result."""
    import numpy as np
    from frameworks import FRAMEWORKS

    w = next(x for x in WORKLOADS if x.name == workload)
    try:
        prepared = FRAMEWORKS[framework](w, threads)
        if batches:
            _initialise(framework)
    except (Unsaid, ImportError) as missing:
        print(json.dumps({"missing": str(missing) or "no natural way to say it"}))
        return
    # On one thread CPU time is wall time less what other processes took.
    clock = time.process_time if threads == 1 else time.perf_counter
    if not batches:
        prepared.call()
        whole = time.process_time() if threads == 1 else time.time() - float(os.environ["BENCH_AT"])
        print(json.dumps({"whole": whole}))
        return
    gc.collect()  # whoever allocates next would pay for the imports
    ready = clock()
    prepared.call()
    first = clock() - ready
    for _ in range(3):
        prepared.call()
    count = 1
    while True:
        took = _batch(prepared.call, count, clock)
        if took * count > BATCH_SECONDS or count > 10_000:
            break
        count *= 2
    times = [_batch(prepared.call, count, clock) for _ in range(batches)]
    results = prepared.results()
    np.savez(os.environ["BENCH_RESULTS"], *results)
    print(json.dumps({
        "first": first, "times": times,
    }))  # fmt: skip


def _initialise(framework: str) -> None:
    """A compilation of something else, so that what is measured is the workload's own."""
    if framework == "jax.jit":
        import jax
        import jax.numpy as jnp

        jax.jit(lambda x: x + 1)(jnp.ones(3)).block_until_ready()
    elif framework == "mortice":
        import mortice

        f = mortice.compile(lambda x: x + 1, backend="inductor")
        x = mortice.ones(3)
        for _ in range(3):
            f(x)
        p = mortice.ones(3, requires_grad=True)
        mortice.compile(lambda x: (x * x).sum(), backend="inductor")(p).backward()
    elif framework == "torch.compile":
        import torch

        torch.compile(lambda x: x + 1)(torch.ones(3))
    elif framework == "numba":
        import numba

        numba.njit(parallel=True)(lambda n: n + 1)(1)


def _batch(call: Any, count: int, clock: Any) -> float:
    start = clock()
    for _ in range(count):
        call()
    return (clock() - start) / count


# -- the parent ------------------------------------------------------------------------------------


def measure(framework: str, w: Workload, threads: int, batches: int, scratch: Path) -> Any:
    """The children's figures, with the path of the results; None where it cannot say it."""
    folder = tempfile.mkdtemp(dir=scratch)
    found = _run(framework, w, threads, batches, folder)
    if found is None:
        return None
    again = [_run(framework, w, threads, 1, folder)["first"] for _ in range(SECONDS)]
    alone = _run(framework, w, threads, 0, tempfile.mkdtemp(dir=scratch))
    second = statistics.median(again) - min(found["times"])
    return {**found, "second": second, "whole": alone["whole"], "folder": folder}


def _run(framework: str, w: Workload, threads: int, batches: int, folder: str) -> Any:
    """One child's figures, with caches in ``folder``."""
    n = str(threads)
    environ = {k: v for k, v in os.environ.items() if k not in DROPPED}
    environ.pop("OPENBLAS_L2_SIZE", None)
    environ |= dict.fromkeys(
        ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "MORTICE_NUM_THREADS",
         "NUMBA_NUM_THREADS"), n,
    )  # fmt: skip
    environ |= {
        "BENCH_AT": str(time.time()),
        "MORTICE_CACHE_DIR": folder, "TORCHINDUCTOR_CACHE_DIR": folder,
        "BENCH_RESULTS": str(Path(folder) / "results.npz"),
        "XLA_FLAGS": f"--xla_cpu_multi_thread_eigen={'true' if threads > 1 else 'false'} "
                     f"intra_op_parallelism_threads={n}",
        "PYTHONWARNINGS": "ignore",
    }  # fmt: skip
    command = [_python(framework), __file__, "--child", framework, w.name, n, str(batches)]
    if hasattr(os, "sched_setaffinity") and threads == 1:
        command = [sys.executable, "-c", _PINNED, *command]
    time.sleep(PAUSE)
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{framework}, {w.name}: {done.stderr[-3000:]}")
    found = json.loads(done.stdout.strip().splitlines()[-1])
    return None if "missing" in found else {**found, "results": environ["BENCH_RESULTS"]}


# One core for one thread, also for libraries that start more.
_PINNED = """
import os, sys
os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[-1]})
os.execv(sys.argv[1], sys.argv[1:])
"""


def _python(framework: str) -> str:
    """The interpreter of a framework: ``BENCH_PYTHON_JAX`` and the like name another one."""
    name = framework.partition(".")[0].partition(" ")[0].upper()
    return os.environ.get(f"BENCH_PYTHON_{name}", sys.executable)


def agree(w: Workload, a: str, b: str) -> float:
    """The greatest difference between two results, relative to the greatest element."""
    import numpy as np

    worst = 0.0
    with np.load(a) as mine, np.load(b) as theirs:
        for key in mine.files:
            x, y = mine[key].astype("f8"), theirs[key].astype("f8")
            scale = max(float(np.abs(y).max()), 1e-12)
            worst = max(worst, float(np.abs(x - y).max()) / scale)
    return worst


def run(
    workloads: list[Workload], frameworks: list[str], threads: list[int], phases: int,
    batches: int, show: Callable[[list[dict[str, Any]]], None],
) -> list[dict[str, Any]]:  # fmt: skip
    """One row per workload and number of threads; ``show`` is called after each."""
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as scratch:
        for w in workloads:
            for n in threads:
                found: dict[str, list[Any]] = {}
                for _ in range(phases):
                    for f in frameworks:
                        one = measure(f, w, n, batches, Path(scratch))
                        if one is not None:
                            found.setdefault(f, []).append(one)
                row = {"workload": w, "threads": n, "found": found}
                row["medians"] = {f: [_median(one) for one in ones] for f, ones in found.items()}
                for _ in range(phases, w.processes):
                    for f, ones in found.items():
                        more = _run(f, w, n, batches, ones[0]["folder"])
                        row["medians"][f].append(_median(more))
                row["error"] = {
                    f: agree(w, ones[0]["results"], found[REFERENCE][0]["results"])
                    for f, ones in found.items()
                }
                rows.append(row)
                print(line(row), flush=True)
                show(rows)
    return rows


def _median(one: dict[str, Any]) -> float:
    """The median of a process's batches."""
    return statistics.median(one["times"])


def median(row: dict[str, Any], framework: str) -> float:
    """The median of a framework's processes."""
    return statistics.median(row["medians"][framework])


def best_of_others(row: dict[str, Any]) -> tuple[str, float]:
    others = {f: median(row, f) for f in row["found"] if f not in (OURS, REFERENCE)}
    name = min(others, key=lambda f: others[f])
    return name, others[name]


def line(row: dict[str, Any]) -> str:
    w: Workload = row["workload"]
    parts = [f"{f} {duration(median(row, f))}" for f in row["found"]]
    name, best = best_of_others(row)
    ratio = median(row, OURS) / best
    return f"{w.name}, {row['threads']} threads: {', '.join(parts)}; {ratio:.2f} of {name}"


def report(rows: list[dict[str, Any]], frameworks: list[str]) -> tuple[list[str], bool]:
    """Markdown, and whether all targets are met and all results agree."""
    lines = ["| workload | threads | " + " | ".join(frameworks)
             + " | ours / best | processes | at most | met |"]  # fmt: skip
    lines.append("|---" * (len(frameworks) + 6) + "|")
    good = True
    for row in rows:
        w, found = row["workload"], row["found"]
        name, best = best_of_others(row)
        ratio = median(row, OURS) / best
        each = [a / b for a, b in zip(*(row["medians"][f] for f in (OURS, name)), strict=True)]
        ok = ratio <= w.target and row["error"][OURS] <= w.tolerance
        good &= ok
        cells = [duration(median(row, f)) if f in found else "" for f in frameworks]
        lines.append(
            f"| {w.name} | {row['threads']} | "
            + " | ".join(cells)
            + f" | {ratio:.2f} ({name}) | {min(each):.2f} to {max(each):.2f} | {w.target:g} | "
            + f"{'yes' if ok else 'no'} |"
        )
    lines += _spread(rows, frameworks)
    compiled = [f for f in frameworks if "eager" not in f]
    lines += _table(rows, compiled, "Compile time (first call less one call, caches empty, framework "
                    "initialised):", lambda one: one["first"] - min(one["times"]))  # fmt: skip
    lines += _table(rows, compiled, "The same in a second process, with the first one's caches "
                    "(jax and numba keep none unless told to):", lambda one: one["second"])  # fmt: skip
    lines += _table(rows, frameworks, "From the start of a process to its first result, caches empty:",
                    lambda one: one["whole"])  # fmt: skip
    lines += ["", "Greatest difference from mortice eager, relative to the greatest element:", ""]
    lines += [
        f"- {row['workload'].name}: "
        + ", ".join(f"{f} {e:.1e}" for f, e in row["error"].items() if f != REFERENCE)
        for row in rows
        if row["threads"] == rows[0]["threads"]
    ]
    return lines, good


def _spread(rows: list[dict[str, Any]], frameworks: list[str]) -> list[str]:
    """A table of the rows that were timed in several processes by purpose."""
    rows = [row for row in rows if row["workload"].processes > 1]
    if not rows:
        return []
    title = ("What memory bounds goes by where a process's blocks lie. The least and the greatest of the "
             "medians of processes, as many of each framework and in turn:")  # fmt: skip
    lines = ["", title, "",
             "| workload | threads | processes | " + " | ".join(frameworks) + " |",
             "|---" * (len(frameworks) + 3) + "|"]  # fmt: skip
    for row in rows:
        found: dict[str, list[float]] = row["medians"]
        cells = [
            f"{duration(min(found[f]))} to {duration(max(found[f]))}" if f in found else ""
            for f in frameworks
        ]
        count = len(found[OURS])
        lines.append(
            f"| {row['workload'].name} | {row['threads']} | {count} | " + " | ".join(cells) + " |"
        )
    return lines


def _table(
    rows: list[dict[str, Any]], frameworks: list[str], title: str, figure: Callable[[Any], float]
) -> list[str]:
    """A table of one figure per framework: the median of the phases."""
    lines = ["", title, "", "| workload | threads | " + " | ".join(frameworks) + " |",
             "|---" * (len(frameworks) + 2) + "|"]  # fmt: skip
    for row in rows:
        cells: list[str] = []
        for f in frameworks:
            spent = [figure(one) for one in row["found"].get(f, [])]
            cells.append(duration(max(statistics.median(spent), 0.0)) if spent else "")
        lines.append(f"| {row['workload'].name} | {row['threads']} | " + " | ".join(cells) + " |")
    return lines


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
        return
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="workloads whose name contains this")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--frameworks", default="")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--strict", action="store_true", help="fail where a target is not met")
    parser.add_argument("--no-write", action="store_true")
    given = parser.parse_args()
    from frameworks import FRAMEWORKS

    names = given.frameworks.split(",") if given.frameworks else list(FRAMEWORKS)
    unknown = [n for n in names if n not in FRAMEWORKS]
    if unknown or not {OURS, REFERENCE} < set(names):
        parser.error(f"--frameworks takes {OURS}, {REFERENCE} and at least one more of "
                     f"{', '.join(FRAMEWORKS)}")  # fmt: skip
    chosen = [w for w in WORKLOADS if given.only in w.name]
    if not chosen:
        parser.error(f"no workload's name contains {given.only!r}")
    head = describe("mortice", "mortice-inductor", "numpy", "llvmlite", "torch", "jax", "numba")
    threads = [int(n) for n in given.threads.split(",")]
    phases, batches = (1, 7) if given.quick else (3, 15)

    def show(rows: list[dict[str, Any]]) -> None:
        """Writes what there is: a run that is broken off keeps its rows."""
        if not given.no_write:
            lines, _ = report(rows, names)
            RESULTS.write_text("\n".join(["# Compiled code", "", *head, "", *lines, ""]))

    rows = run(chosen, names, threads, phases, batches, show)
    lines, good = report(rows, names)
    print("\n".join(["# Compiled code", "", *head, "", *lines]))
    if given.strict and not good:
        raise SystemExit("a target is not met")


if __name__ == "__main__":
    main()
