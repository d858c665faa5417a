"""The tables: one row per operator, totals, and for ``-v`` each failing check."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from typing import Any, NamedTuple

from checks import ASPECTS

COLUMNS = {
    "forward": "fwd",
    "strided": "strided",
    "method": "method",
    "inplace": "inplace",
    "out": "out",
    "grad": "grad",
    "gradgrad": "grad2",
    "error": "error",
    "random": "random",
    "overload": "aten",
    "fake": "fake",
    "symbolic": "symbolic",
    "compiled": "compiled",
    "traced": "traced",
}


class Row(NamedTuple):
    """All results of one operator; ``absent`` says what mortice lacks."""

    name: str
    results: dict[str, tuple[str, str | None, str]]  # key -> (aspect, message, sample)
    absent: str | None

    @property
    def failing(self) -> dict[str, str]:
        return {key: message for key, (_, message, _) in self.results.items() if message}

    @property
    def passed(self) -> int:
        return len(self.results) - len(self.failing)

    @property
    def percent(self) -> float:
        return 100.0 * self.passed / len(self.results) if self.results else 100.0

    def count(self, aspect: str) -> str:
        of = [message for kind, message, _ in self.results.values() if kind == aspect]
        good = sum(message is None for message in of)
        return "-" if not of else str(good) if good == len(of) else f"{good}/{len(of)}"


def header() -> str:
    return f"{'operator':<42}{'pass':>12}  " + "".join(f"{COLUMNS[a]:>9}" for a in ASPECTS)


def line(row: Row) -> str:
    if row.absent is not None:
        return f"{row.name:<42}{'absent':>12}  {row.absent[:110]}"
    share = f"{row.passed}/{len(row.results)}"
    return f"{row.name:<42}{share:>12}  " + "".join(f"{row.count(a):>9}" for a in ASPECTS)


def _form(message: str) -> str:
    """A message without its numbers, to count alike failures together."""
    return re.sub(r"-?\d+(\.\d+)?(e[-+]?\d+)?", "#", message)[:150]


def reasons(row: Row, limit: int = 3) -> list[str]:
    """The commonest failures of a row, each with its count and one check that shows it."""
    counts = Counter(_form(message) for message in row.failing.values())
    shown = []
    for form, count in counts.most_common(limit):
        key, message = next((k, m) for k, m in row.failing.items() if _form(m) == form)
        shown.append(f"    {count:>4} x {message[:230]}   [{key}]")
    return shown


def details(row: Row) -> list[str]:
    lines = []
    for key, (_, message, sample) in row.results.items():
        if message is not None:
            lines += [f"    {key}: {message}", f"        ({sample})"]
    return lines


def totals(rows: list[Row]) -> list[str]:
    there = [row for row in rows if row.absent is None and row.results]
    checks = sum(len(row.results) for row in there)
    passed = sum(row.passed for row in there)
    absent = sum(row.absent is not None for row in rows)
    lines = [f"{len(there)} operators, {absent} absent; {passed} of {checks} checks pass"]
    if there:
        shares = [row.percent for row in there]
        below = [row for row in there if row.percent < 90]
        lines.append(
            f"{sum(s == 100 for s in shares)} pass everything, median "
            f"{statistics.median(shares):.1f} in 100, {len(below)} below 90 in 100"
        )
    for aspect in ASPECTS:
        of = [m for row in there for kind, m, _ in row.results.values() if kind == aspect]
        if of:
            good = sum(m is None for m in of)
            lines.append(f"  {aspect:<9}{good:>8} of {len(of):<8}{100 * good / len(of):6.1f}")
    return lines


def markdown(rows: list[Row], command: str, seconds: float) -> list[str]:
    """The committed report: totals, every operator's counts, what is absent."""
    there = sorted((r for r in rows if r.absent is None and r.results), key=lambda r: r.name)
    absent = sorted(row.name for row in rows if row.absent is not None)
    lines = ["# Parity with torch 2.13", "", f"`{command}`, {seconds:.0f} s", ""]
    lines += [f"- {line.strip()}" for line in totals(rows)]
    lines += ["", f"Absent ({len(absent)}): {', '.join(absent)}.", ""]
    lines += ["| operator | pass | " + " | ".join(COLUMNS[a] for a in ASPECTS) + " |"]
    lines += ["|---|---|" + "---|" * len(ASPECTS)]
    for row in there:
        counts = " | ".join(row.count(a) for a in ASPECTS)
        lines.append(f"| {row.name} | {row.passed}/{len(row.results)} | {counts} |")
    return lines


def as_json(rows: list[Row]) -> list[dict[str, Any]]:
    return [
        {
            "operator": row.name,
            "absent": row.absent,
            "checks": len(row.results),
            "passed": row.passed,
            "percent": round(row.percent, 2),
            "failing": {
                key: {"aspect": aspect, "message": message, "sample": sample}
                for key, (aspect, message, sample) in row.results.items()
                if message
            },
        }
        for row in rows
    ]
