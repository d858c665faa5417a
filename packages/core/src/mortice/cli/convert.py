"""``mortice convert SOURCE TARGET``: between .pt and .safetensors files."""

from __future__ import annotations

import click


@click.command(name="convert", help="Convert a checkpoint between .pt and .safetensors.")
@click.argument("source", type=click.Path(exists=True, dir_okay=False))
@click.argument("target", type=click.Path(dir_okay=False))
@click.option("--key", default="", help="The part to convert, by its path: model.encoder")
@click.option("--force", is_flag=True, help="Replace an existing target.")
def command(source: str, target: str, key: str, force: bool) -> None:
    """Convert, and say how many tensors were written."""
    from mortice.serialization import convert

    count = convert(source, target, key=key, force=force)
    click.echo(f"{target}: {count} tensors")
