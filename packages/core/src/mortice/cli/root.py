"""The command group: every sub-command is imported when it runs, and not before."""

from __future__ import annotations

import importlib
from typing import Any

import click

# name -> (module and object, one line of help)
COMMANDS: dict[str, tuple[str, str]] = {
    "list-backends": (
        "mortice.cli.list_backends:command",
        "Everything that is plugged in, with its state.",
    ),
    "plugins": ("mortice.cli.plugins:command", "Installed distributions with plug-ins."),
    "why": ("mortice.cli.why:command", "Why a name means what it means."),
    "doctor": ("mortice.cli.doctor:command", "Look for what is wrong with this installation."),
    "run": ("mortice.cli.run:command", "Run a script as several ranks."),
    "explain": (
        "mortice.cli.explain:command",
        "Run a script, and show what became of its compiled functions.",
    ),
    "gen": ("mortice.cli.gen:command", "Generate code for the operators that a package declares."),
    "inspect": ("mortice.cli.inspect:command", "What is in a checkpoint, without loading it."),
    "convert": (
        "mortice.cli.convert:command",
        "Convert a checkpoint between .pt and .safetensors.",
    ),
}


class LazyGroup(click.Group):
    """Lists core's commands from the table and others' from metadata, without importing any."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*COMMANDS, *sorted(self.third_party())]

    def third_party(self) -> dict[str, str]:
        """Name and line of help of the commands that plug-ins bring."""
        from mortice._plugins import find

        return {
            entry.name: entry.summary or f"From {entry.distribution}."
            for entry in find("mortice.commands")
            if entry.name not in COMMANDS
        }

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in COMMANDS:
            module, _, name = COMMANDS[cmd_name][0].partition(":")
            return getattr(importlib.import_module(module), name)
        from mortice._plugins import load
        from mortice.errors import PluginNotFound

        try:
            return load("mortice.commands", cmd_name)
        except PluginNotFound:
            return None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if self.get_command(ctx, name) is None:
            from mortice._base.errors import nearest

            hint = nearest(name, self.list_commands(ctx)) or " `mortice --help` lists them."
            ctx.fail(f"There is no command {name!r}.{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from mortice.errors import MorticeError

        rows = [(name, summary) for name, (_, summary) in COMMANDS.items()]
        with formatter.section("Commands"):
            formatter.write_dl(rows)
        try:
            others = sorted(self.third_party().items())
        except MorticeError as error:  # help must not depend on a sound configuration
            formatter.write(f"\nCommands of plug-ins cannot be listed: {error}\n")
            return
        if others:
            with formatter.section("Commands of plug-ins"):
                formatter.write_dl(others)


def _version(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    if value and not ctx.resilient_parsing:
        from mortice._version import __version__

        click.echo(f"mortice {__version__}")
        ctx.exit()


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="What is plugged into mortice and why; what is in a checkpoint; ranks.",
)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_version,
    help="Print the version and exit.",
)
def cli() -> None:
    """Hold the sub-commands."""
