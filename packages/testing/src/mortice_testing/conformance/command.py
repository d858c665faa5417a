"""``mortice conformance DEVICE...``: what passes natively, and what by falling back."""

from __future__ import annotations

from collections import Counter
from typing import Any

import click

from mortice.errors import PluginError


@click.command(
    "conformance", help="Run the conformance cases on each DEVICE, and count what stays on it."
)
@click.argument("devices", nargs=-1, required=True)
@click.option("--markdown", is_flag=True, help="Print a Markdown table, and what falls back.")
@click.option("--json", "json_", is_flag=True, help="Print every outcome as JSON.")
def command(devices: tuple[str, ...], markdown: bool, json_: bool) -> None:
    """Exit status 1 if a case failed, 2 if a device cannot be used."""
    from mortice_testing.conformance.outcomes import measure_all

    try:
        found = {device: measure_all(device) for device in devices}
    except PluginError as error:
        click.echo(f"Error: {error}", err=True)
        raise SystemExit(2) from None
    if json_:
        import json

        click.echo(
            json.dumps({d: [one._asdict() for one in o] for d, o in found.items()}, indent=1)
        )
    elif markdown:
        click.echo("\n".join(as_markdown(found)))
    else:
        click.echo("\n".join(as_text(found)))
    failed = [(d, one) for d, outcomes in found.items() for one in outcomes if one.how == "failed"]
    for device, one in failed:
        told = " ".join(one.told.split())[:300]
        click.echo(f"FAILED on {device}, {one.family}: {one.name}: {told}", err=True)
    raise SystemExit(1 if failed else 0)


def table(found: dict[str, Any]) -> list[list[str]]:
    """Rows of cells: the heads, a row for each family, and the sums."""
    from mortice_testing.conformance.outcomes import counts

    by_device = {device: counts(outcomes) for device, outcomes in found.items()}
    families = list(next(iter(by_device.values())))
    rows = [["family", "cases", *by_device]]
    for family in families:
        cases = sum(next(iter(by_device.values()))[family].values())
        rows.append([family, str(cases), *(_cell(c[family]) for c in by_device.values())])
    sums = [sum(counted.values(), start=Counter[str]()) for counted in by_device.values()]
    rows.append(["all", str(sums[0].total()), *map(_cell, sums)])
    return rows


def _cell(counted: Counter[str]) -> str:
    """``native / fallback``, and what failed."""
    text = f"{counted['native']} / {counted['fallback']}"
    return f"{text}, {counted['failed']} failed" if counted["failed"] else text


def as_text(found: dict[str, Any]) -> list[str]:
    """Aligned lines."""
    rows = table(found)
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(c.ljust(w) for c, w in zip(row, widths)).rstrip() for row in rows]


def as_markdown(found: dict[str, Any]) -> list[str]:
    """A table of native / fallback, then the operators that made cases fall back."""
    head, *rows = table(found)
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    lines.append("")
    for device, outcomes in found.items():
        names = sorted({one.told for one in outcomes if one.how == "fallback"})
        if names:
            told = ", ".join(f"`{name.removeprefix('aten::')}`" for name in names)
            lines.append(f"- `{device}` falls back at: {told}.")
    return lines
