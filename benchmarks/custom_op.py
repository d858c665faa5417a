"""Custom operators beside torch's, and the cost of a call through ``ops``.

    python benchmarks/custom_op.py [--no-write]

Writes benchmarks/results/custom_op.md. Targets: a custom_op call at most 1.5 times a define/impl
call, and at most a quarter of torch's custom_op call; ``ops.aten.sin.default(x)`` at most 100 ns
above ``sin(x)``.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from harness import Candidate, Case, Measured, describe, measure, one_thread

RESULTS = Path(__file__).parent / "results" / "custom_op.md"
CUSTOM, PLAIN, THEIRS = "mortice custom_op", "mortice define/impl", "torch custom_op"
SIN, SIN_OPS = "mortice.sin", "mortice.ops.aten.sin.default"


def define_both(lib: Any, tensor: Any) -> tuple[Any, Any, Any]:
    """The same operator by custom_op and by define/impl; the library must be kept alive."""

    def body(x):
        return x.clone()

    body.__annotations__ = {"x": tensor, "return": tensor}
    custom = lib.custom_op("bench_custom::copied", mutates_args=())(body)
    library = lib.Library("bench_plain", "FRAGMENT")
    library.define("copied(Tensor x) -> Tensor")
    library.impl("copied", lambda x: x.clone(), "CompositeExplicitAutograd")
    return custom, library, body


def cases() -> tuple[list[Case], Any]:
    import torch

    import mortice

    torch.set_num_threads(1)
    ours, keep, _ = define_both(mortice.library, mortice.Tensor)
    theirs, keep_theirs, _ = define_both(torch.library, torch.Tensor)
    plain = mortice.ops.bench_plain.copied.default
    x, y = mortice.ones(4), torch.ones(4)
    if ours(x).tolist() != theirs(y).tolist() or plain(x).tolist() != [1.0] * 4:
        raise SystemExit("the candidates disagree")
    sin, sin_ops = mortice.sin, mortice.ops.aten.sin.default
    found = [
        Case(
            "copy of 4 elements",
            [
                Candidate(CUSTOM, lambda: ours(x)),
                Candidate(PLAIN, lambda: plain(x)),
                Candidate(THEIRS, lambda: theirs(y)),
            ],
        ),
        Case(
            "sin of 4 elements",
            [Candidate(SIN, lambda: sin(x)), Candidate(SIN_OPS, lambda: sin_ops(x))],
        ),
    ]
    return found, (keep, keep_theirs)


def verdict(text: str, value: float, bound: float, unit: str = "") -> str:
    met = "met" if value <= bound else "not met"
    return f"- {text}: {value:.3g}{unit}, at most {bound:g}{unit}: {met}."


def page(results: list[Measured]) -> list[str]:
    custom, sin = results
    lines = ["# Custom operators beside torch", ""]
    made = "Median CPU time per call over interleaved batches, one thread; made by"
    lines += [f"{made} `python3 dev.py bench custom_op`.", ""]
    lines += [f"- {text}" for text in describe("mortice", "numpy", "torch")]
    lines.append("")
    for result in results:
        for candidate in result.case.candidates:
            lines.append(
                f"- {result.case.name}, {candidate.label}: {result.median(candidate.label) * 1e9:.0f} ns"
            )
    lines.append("")
    lines.append(
        verdict("custom_op over define/impl", custom.median(CUSTOM) / custom.median(PLAIN), 1.5)
    )
    lines.append(
        verdict("custom_op over torch's", custom.median(CUSTOM) / custom.median(THEIRS), 0.25)
    )
    lines.append(
        verdict(
            "ops.aten.sin.default over sin",
            (sin.median(SIN_OPS) - sin.median(SIN)) * 1e9,
            100,
            " ns",
        )
    )
    return lines


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--no-write", action="store_true", help="print only")
    options = parser.parse_args(argv)
    one_thread()
    found, keep = cases()
    text = "\n".join(page(measure(found))) + "\n"
    del keep
    print(text)
    if not options.no_write:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
