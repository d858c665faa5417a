"""``mortice list-backends``."""

from __future__ import annotations

import click

from mortice._plugins.groups import KINDS, not_installed_hint

from . import output


@click.command("list-backends", help="List everything that is plugged in, with its state.")
@click.option("--kind", type=click.Choice(list(KINDS)), help="Only this kind.")
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
@click.option("--all", "all_", is_flag=True, help="Include debug and experimental ones.")
@click.option("--refresh", is_flag=True, help="Read metadata again, forget old probes.")
@click.option("--load", is_flag=True, help="Try to load each, in a child process.")
def command(kind: str | None, json_: bool, all_: bool, refresh: bool, load: bool) -> None:
    """Print the list."""
    from mortice._plugins.report import list_backends, problems

    rows = list_backends(kind, all=all_, load=load, refresh=refresh)
    wrong = problems()
    if json_:
        told = [{"where": where, "what": what} for where, what in wrong]
        output.as_json({"format": 1, "backends": [row._asdict() for row in rows], "problems": told})
        return
    if rows:
        output.table(
            ("kind", "name", "state", "from", "note"),
            [
                (
                    row.kind,
                    row.name,
                    row.state,
                    f"{row.distribution} {row.version}".strip() or row.source,
                    "; ".join(text for text in (row.reason, row.fix) if text) or row.summary,
                )
                for row in rows
            ],
        )
    elif kind is None:
        click.echo(f"Nothing is plugged in: no kernels.{not_installed_hint('device', 'cpu')}")
    else:
        click.echo(f"No {kind} is plugged in.")
    for where, what in wrong:
        click.echo(output.printable(f"problem: {where}: {what}"), err=True)
