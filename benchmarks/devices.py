"""What core costs on a plug-in's device: operators on ``null``, which computes nothing, beside the CPU.

    python benchmarks/devices.py [--no-write]

Writes benchmarks/results/devices.md. What is left on ``null`` is dispatch, the shape rule, one
allocation with its statistics, and the call of the kernel; on the CPU the computing is in the figure.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from harness import Candidate, Case, describe, measure, one_thread

RESULTS = Path(__file__).parent / "results" / "devices.md"
DEVICES = ("null", "cpu")


def expressions(mortice: Any, device: str) -> dict[str, Callable[[], Any]]:
    """Name -> what is timed, on tensors of 4 x 4."""
    x = mortice.ones(4, 4).to(device)
    y = mortice.zeros(4, 4).to(device)
    w = mortice.ones(4, 4).to(device).requires_grad_(True)
    return {
        "relu(x)": lambda: x.relu(),
        "x + x": lambda: x + x,
        "x + 1": lambda: x + 1,
        "x @ x": lambda: x @ x,
        "x.t()": lambda: x.t(),
        "x.sum(1)": lambda: x.sum(1),
        "x.clone()": lambda: x.clone(),
        "y.add_(x)": lambda: y.add_(x),
        "grad of (x @ w).relu().sum()": lambda: mortice.autograd.grad((x @ w).relu().sum(), w),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--no-write", action="store_true", help="print only")
    options = parser.parse_args()
    one_thread()
    import mortice

    runs = {device: expressions(mortice, device) for device in DEVICES}
    cases = [
        Case(name, [Candidate(device, runs[device][name]) for device in DEVICES])
        for name in runs["cpu"]
    ]
    lines = ["# What core costs on a plug-in's device", ""]
    lines += ["Median CPU time per call over interleaved batches, one thread; made by"]
    lines += ["`python3 dev.py bench devices`. `null` computes nothing.", ""]
    lines += [f"- {text}" for text in describe("mortice", "numpy")]
    lines += ["", "| 4 x 4 | null | cpu |", "|---|---|---|"]
    for result in measure(cases):
        cells = [f"{result.median(device) * 1e6:.2f} us" for device in DEVICES]
        lines.append(f"| `{result.case.name}` | {' | '.join(cells)} |")
    text = "\n".join(lines) + "\n"
    print(text)
    if not options.no_write:
        RESULTS.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
