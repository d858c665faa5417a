"""Checkpoints beside torch and safetensors: a large file, a mapped one, one of many small tensors.

    python benchmarks/serialization.py [--quick] [--strict] [--no-write] [--folder DIR]

Writes benchmarks/results/serialization.md with the machine's name. What is loaded is compared before
it is timed. safetensors is there for comparison: its files hold no structure and no checksums.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from harness import Candidate, Case, Measured, describe

RESULTS = Path(__file__).parent / "results" / "serialization.md"
OURS, THEIRS, BESIDE = "mortice", "torch", "safetensors"
MAPPED_SECONDS, MAPPED_BYTES = 0.050, 100 << 20

# In a process of its own: what mapping a file takes, in seconds and resident bytes.
MAPPED = """
import json, resource, sys, time
import mortice, mortice.serialization, numpy
mortice.load(sys.argv[2], mmap=True)  # a small file, for the imports
page = resource.getpagesize()
resident = lambda: int(open("/proc/self/statm").read().split()[1]) * page
before, begun = resident(), time.perf_counter()
loaded = mortice.load(sys.argv[1], mmap=True)
print(json.dumps([time.perf_counter() - begun, resident() - before]))
assert loaded["w"].numel() * 4 >= 1 << 20
"""


def cases(folder: Path, gigabyte: int, many: int) -> list[Case]:
    """Saving and loading, each by all three libraries, from the same data."""
    import numpy as np
    import safetensors.numpy
    import torch

    import mortice

    rng = np.random.default_rng(0)
    large = {"w": rng.standard_normal(gigabyte // 4, dtype=np.float32)}
    small = {
        f"layers.{i}.weight": rng.standard_normal((16, 16), dtype=np.float32) for i in range(many)
    }
    made: list[Case] = []
    for label, arrays in ((f"{gigabyte >> 20} MiB", large), (f"{many:,} tensors", small)):
        key = label.split()[0].replace(",", "")
        ours, theirs, beside = (folder / f"{key}.{end}" for end in ("ours", "theirs", "side"))
        tensors = {name: mortice.from_numpy(array) for name, array in arrays.items()}
        torches = {name: torch.from_numpy(array) for name, array in arrays.items()}
        save = [
            Candidate(OURS, _call(mortice.save, tensors, ours)),
            Candidate(THEIRS, _call(torch.save, torches, theirs)),
            Candidate(BESIDE, _call(safetensors.numpy.save_file, arrays, beside)),
        ]
        for candidate in save:
            candidate.run()
        loaded = mortice.load(theirs)
        assert all((loaded[name].numpy() == array).all() for name, array in arrays.items())
        assert torch.load(ours, weights_only=True).keys() == arrays.keys()
        load = [
            Candidate(OURS, _call(mortice.load, theirs)),
            Candidate(THEIRS, _call(torch.load, theirs, weights_only=True)),
            Candidate(BESIDE, _call(safetensors.numpy.load_file, beside)),
        ]
        is_large = arrays is large
        made.append(Case(f"save {label}", save, 1.0 if is_large else None))
        made.append(Case(f"load {label}", load, 1.0))
    return made


def _call(function: Callable[..., Any], *arguments: Any, **options: Any) -> Callable[[], Any]:
    return lambda: function(*arguments, **options)


def measure(case: Case, rounds: int) -> Measured:
    """One call of each in turn, in an order drawn anew each round."""
    cpu: dict[str, list[float]] = {c.label: [] for c in case.candidates}
    wall: dict[str, list[float]] = {c.label: [] for c in case.candidates}
    order = list(case.candidates)
    for candidate in order:
        candidate.run()
    for _ in range(rounds):
        random.shuffle(order)
        for candidate in order:
            gc.collect()
            begun, used = time.perf_counter(), time.process_time()
            result = candidate.run()
            cpu[candidate.label].append(time.process_time() - used)
            wall[candidate.label].append(time.perf_counter() - begun)
            del result
    return Measured(case, cpu, wall, 1)


def mapped(folder: Path, gigabyte: int) -> tuple[float, int]:
    """Seconds and resident bytes of mapping the large file."""
    import mortice

    small = folder / "small.pt"
    mortice.save({"w": mortice.ones(4)}, small)
    command = [sys.executable, "-c", MAPPED, str(folder / f"{gigabyte >> 20}.ours"), str(small)]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    seconds, resident = json.loads(out)
    return seconds, resident


def ratio(result: Measured) -> float:
    """Ours by torch's, in wall time."""
    return result.wall_ratio(OURS, THEIRS)


def row(result: Measured) -> str:
    """One line of the table."""
    times = [f"{statistics.median(result.wall[name]):.3f} s" for name in (OURS, THEIRS, BESIDE)]
    target = result.case.target
    bound = (
        ["", ""] if target is None else [f"{target:g}", "yes" if ratio(result) <= target else "no"]
    )
    cells = [result.case.name, *times, f"{ratio(result):.2f}", f"{result.ratio(OURS, THEIRS):.2f}"]
    return "| " + " | ".join([*cells, *bound]) + " |"


def page(results: list[Measured], seconds: float, resident: int, megabytes: int) -> list[str]:
    """The whole report."""
    fast, lean = seconds <= MAPPED_SECONDS, resident <= MAPPED_BYTES
    return [
        "# Checkpoints beside torch and safetensors",
        "",
        (
            f"Median wall time of {len(results[0].cpu[OURS])} calls, each library in turn. Loading "
            "checks checksums here, and in neither of the others; large records are read by "
            "several threads. Made by `python3 dev.py bench serialization`."
        ),
        "",
        *(f"- {text}" for text in describe("mortice", "numpy", "torch", "safetensors")),
        "",
        "| | mortice | torch | safetensors | ratio to torch | of CPU time | at most | met |",
        "|---|---|---|---|---|---|---|---|",
        *map(row, results),
        "",
        (
            f"Mapping {megabytes} MiB: {seconds * 1000:.1f} ms (at most "
            f"{MAPPED_SECONDS * 1000:.0f}: {'yes' if fast else 'no'}), {resident / 2**20:.1f} MiB "
            f"resident (at most {MAPPED_BYTES >> 20}: {'yes' if lean else 'no'})."
        ),
    ]


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--quick", action="store_true", help="smaller and fewer; nothing is written"
    )
    parser.add_argument("--strict", action="store_true", help="fail when a target is missed")
    parser.add_argument("--no-write", action="store_true")
    parser.add_argument("--folder", help="where the files lie while it runs (a temporary folder)")
    options = parser.parse_args(argv)
    gigabyte = 1 << (26 if options.quick else 30)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        made = cases(Path(folder), gigabyte, 2000 if options.quick else 10_000)
        results = [measure(case, 3 if options.quick else 9) for case in made]
        seconds, resident = mapped(Path(folder), gigabyte)
    lines = page(results, seconds, resident, gigabyte >> 20)
    print("\n".join(lines))
    if not (options.quick or options.no_write):
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text("\n".join(lines) + "\n", encoding="utf-8")
    missed = [r for r in results if r.case.target and ratio(r) > r.case.target]
    late = seconds > MAPPED_SECONDS or resident > MAPPED_BYTES
    return 1 if options.strict and (missed or late) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
