"""``mortice explain SCRIPT``: run a program, and show what became of its compiled functions."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from .output import StrictCommand


@click.command(
    name="explain",
    cls=StrictCommand,
    help="Run SCRIPT with its ARGUMENTS, and write what became of its compiled functions as a page.",
    context_settings={"allow_interspersed_args": False},
)
@click.option(
    "--out", default="explain.html", show_default=True, type=click.Path(dir_okay=False),
    help="The page to write.",
)  # fmt: skip
@click.option("--text", is_flag=True, help="Print the reports instead.")
@click.argument("script", type=click.Path(exists=True, dir_okay=False))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(script: str, arguments: tuple[str, ...], out: str, text: bool) -> None:
    """Exit as the script does; the page is written however it ends."""
    from mortice._capture import instances
    from mortice._compile.explain import report_of

    with instances.keeping() as made:
        try:
            _run(script, arguments)
        finally:
            _write([report_of(compiled) for compiled in made], script, out, text)


def _run(script: str, arguments: tuple[str, ...]) -> None:
    """As ``python SCRIPT ARGUMENTS``."""
    import runpy

    before = sys.argv, sys.path
    sys.argv = [script, *arguments]
    sys.path = [os.path.dirname(os.path.abspath(script)), *sys.path]
    try:
        runpy.run_path(script, run_name="__main__")
    finally:
        sys.argv, sys.path = before


def _write(reports: list[Any], script: str, out: str, text: bool) -> None:
    if text:
        for report in reports:
            click.echo(f"{report}\n")
        return
    from mortice._compile.page import page

    with open(out, "w", encoding="utf-8") as file:
        file.write(page(reports, f"What became of {os.path.basename(script)}"))
    graphs = sum(report.graph_count for report in reports)
    click.echo(f"{out}: {len(reports)} compiled functions, {graphs} graphs", err=True)
