"""``mortice plugins``: by distribution."""

from __future__ import annotations

from typing import Any

import click

from . import output


@click.command("plugins", help="List the distributions that bring plug-ins.")
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
@click.option("--refresh", is_flag=True, help="Read metadata again, forget old probes.")
@click.option("--load", is_flag=True, help="Try to load each, in a child process.")
def command(json_: bool, refresh: bool, load: bool) -> None:
    """Print one row for each distribution: its worst state, its version, what it brings."""
    from mortice._plugins.report import list_backends, problems, shadowed

    rows = _by_distribution(list_backends(all=True, load=load, refresh=refresh))
    wrong = problems()
    if json_:
        told = [{"where": where, "what": what} for where, what in wrong]
        hidden = [{"distribution": name, "what": what} for name, what in shadowed()]
        output.as_json({"format": 1, "plugins": rows, "problems": told, "shadowed": hidden})
        return
    if rows:
        output.table(
            ("state", "distribution", "version", "brings", "location"),
            [
                (
                    row["state"],
                    row["distribution"] or row["source"],
                    row["version"],
                    ", ".join(_with_state(one, row["state"]) for one in row["entries"]),
                    row["location"],
                )
                for row in rows
            ],
        )
    else:
        click.echo("No distribution with plug-ins is installed.")
    for where, what in wrong:
        click.echo(output.printable(f"problem: {where}: {what}"), err=True)


def _with_state(entry: dict[str, Any], shown: str) -> str:
    name = f"{entry['kind']}:{entry['name']}"
    return name if entry["state"] == shown else f"{name} ({entry['state']})"


def _by_distribution(backends: list[Any]) -> list[dict[str, Any]]:
    from mortice._plugins.entry import STATES

    rows: dict[tuple[str, str, str], dict[str, Any]] = {}
    for one in backends:
        row = rows.setdefault(
            (one.distribution, one.version, one.location),
            {
                "state": one.state,
                "distribution": one.distribution,
                "version": one.version,
                "source": one.source,
                "location": one.location,
                "entries": [],
            },
        )
        row["entries"].append(
            {"kind": one.kind, "name": one.name, "state": one.state, "reason": one.reason}
        )
        row["state"] = min(row["state"], one.state, key=STATES.index)
    return [rows[key] for key in sorted(rows)]
