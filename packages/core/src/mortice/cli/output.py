"""Printing: a table on a terminal, aligned text in a pipe, JSON on request."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import click

COLOURS = {
    "ready": "green",
    "not loaded": "",
    "unavailable": "yellow",
    "disabled": "yellow",
    "ok": "green",
    "note": "",
}


class StrictCommand(click.Command):
    """A command before a script of somebody's: of a misspelt option the nearest one is told, also
    where it is the beginning of a longer name, or written as in Python.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            from mortice._base.errors import nearest

            names = [name for one in self.params for name in one.opts if name.startswith("--")]
            asked = error.option_name.replace("_", "-")
            # one letter too many, and the rest not written: --nprocc of --nproc-per-node
            begun = [name for name in names if len(asked) > 5 and name.startswith(asked[:-1])]
            hint = nearest(asked, names) or "".join(f" Did you mean {one!r}?" for one in begun[:1])
            hint = hint or f" `mortice {self.name} --help` lists them."
            raise click.UsageError(f"No such option {error.option_name}.{hint}", ctx) from None


def as_json(value: Any) -> None:
    """Print ``value`` as JSON."""
    import json

    print(json.dumps(value, indent=2, default=list))


def on_terminal() -> bool:
    """Whether a person is looking."""
    return sys.stdout.isatty()


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, state: str = "state") -> None:
    """Print rows under their columns; the column named ``state`` is coloured on a terminal."""
    if on_terminal():
        _rich_table(columns, rows, state)
    else:
        _plain_table(columns, rows)


def _plain_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    lines = [[name.upper() for name in columns], *[[_one_line(cell) for cell in r] for r in rows]]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip())


def _one_line(text: str) -> str:
    """One row is one line, whatever a plug-in put into its texts."""
    return printable(" ".join(text.split())) or "-"


def _rich_table(columns: Sequence[str], rows: Sequence[Sequence[str]], state: str) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        grid.add_column(name, overflow="fold", no_wrap=name in ("kind", "name", state))
    for row in rows:
        cells = [Text(printable(cell)) for cell in row]
        if state in columns:
            cell = cells[columns.index(state)]
            cell.stylize(COLOURS.get(cell.plain, "red"))
        grid.add_row(*cells)
    Console().print(grid)


def printable(text: str) -> str:
    """Without control characters, with which a plug-in's text could rewrite the screen."""
    return "".join(char if char.isprintable() or char == "\n" else "?" for char in text)
