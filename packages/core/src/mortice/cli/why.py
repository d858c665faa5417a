"""``mortice why NAME``: the whole chain of decisions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mortice.errors import PluginNotFound

from . import output

if TYPE_CHECKING:
    from mortice._plugins.report import Backend, Decision


@click.command(
    "why",
    help="Show why NAME (an entry, KIND:NAME or a distribution) is as it is; "
    "of a device also where OPERATOR runs on it (`all`: counts).",
)
@click.argument("name")
@click.argument("operator", required=False)
@click.option("--dtype", "dtypes", multiple=True, help="Dtypes of OPERATOR's tensors, in order.")
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
@click.option("--load", is_flag=True, help="Try to load it, in a child process.")
def command(
    name: str, operator: str | None, dtypes: tuple[str, ...], json_: bool, load: bool
) -> None:
    """Print what every check said; exit 1 if it cannot be used, 2 if nobody provides it."""
    if operator is not None:
        from mortice.cli import placement

        placement.show(name.removeprefix("device:"), operator, dtypes, json_=json_)
        return
    from mortice._plugins import manager, report

    decisions = report.why(name)
    if not decisions:
        raise PluginNotFound(_unknown(name))
    if load:
        probed = [
            report.standing(one.entry, manager.rivals(one.entry), load=True) for one in decisions
        ]
        decisions = [one._replace(status=status) for one, status in zip(decisions, probed)]
    if json_:
        output.as_json(
            {
                "format": 1,
                "decisions": [
                    {
                        **report.row(one.entry, one.status)._asdict(),
                        "used": one.chosen,
                        "steps": [{"check": check, "verdict": said} for check, said in one.steps],
                    }
                    for one in decisions
                ],
            }
        )
    else:
        for one in decisions:
            _print(one, report.row(one.entry, one.status))
    if not any(one.chosen and one.status.usable for one in decisions):
        raise SystemExit(1)


def _print(one: Decision, row: Backend) -> None:
    click.echo(
        f"{output.printable(one.entry.selector)}: {row.state}{', chosen' if one.chosen else ''}"
    )
    width = max(len(check) for check, _ in one.steps)
    for check, said in one.steps:
        click.echo(f"  {check.ljust(width)}  {output.printable(said)}")
    if row.reason and one.status.state != "not loaded":
        click.echo(f"  {'reason'.ljust(width)}  {output.printable(row.reason)}")
    if row.fix:
        click.echo(f"  {'mend'.ljust(width)}  {output.printable(row.fix)}")


def _unknown(name: str) -> str:
    from mortice._base.errors import nearest
    from mortice._plugins import catalog, report
    from mortice._plugins.groups import KINDS, not_installed_hint

    wrong = report.problems_of(name)
    if wrong:
        return f"{name} is installed, and nothing of it can be used: {' '.join(wrong)}"
    entries = catalog.entries()
    known = {text for e in entries for text in (e.name, e.selector, e.distribution.name) if text}
    bare = name.rpartition(":")[2]
    hints = (not_installed_hint(kind, bare) for kind in KINDS)
    hint = next((text for text in hints if text), "") or nearest(name, known)
    return f"Nothing installed is called {name!r}.{hint or ' `mortice list-backends --all` lists what is.'}"
