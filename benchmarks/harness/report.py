"""The table of a benchmark, as Markdown."""

from __future__ import annotations

from harness.timing import Measured


def duration(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.0f} ns"


def row(result: Measured, ours: str, theirs: str, beside: str) -> list[str]:
    ratio = result.ratio(ours, theirs)
    spread = result.ratios_by_phase(ours, theirs)
    target = result.case.target
    verdict = "" if target is None else "yes" if ratio <= target else "no"
    return [
        result.case.name,
        duration(result.median(ours)),
        duration(result.median(theirs)),
        duration(result.median(beside)) if beside in result.cpu else "",
        f"{ratio:.2f}",
        f"{min(spread):.2f} to {max(spread):.2f}",
        f"{result.wall_ratio(ours, theirs):.2f}",
        "" if target is None else f"{target:g}",
        verdict,
    ]


def table(results: list[Measured], ours: str, theirs: str, beside: str) -> list[str]:
    """Markdown lines: medians, ratio, its spread over the phases, target, whether it is met."""
    header = ["", ours, theirs, beside, "ratio", "by phase", "wall ratio", "at most", "met"]
    rows = [row(result, ours, theirs, beside) for result in results]
    widths = [max(len(r[i]) for r in [header, *rows]) for i in range(len(header))]
    lines = ["| " + " | ".join(cell.ljust(w) for cell, w in zip(r, widths, strict=True)) + " |"
             for r in [header, *rows]]  # fmt: skip
    lines.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
    return lines
