"""``mortice tenon-info``."""

from __future__ import annotations

import click


@click.command("tenon-info", help="Count the tenon devices and what they have run.")
def info() -> None:
    """Print the number of devices and of launches."""
    from tenon_device.plugin import KERNELS, Tenon

    click.echo(f"{Tenon().count()} devices, kernels: {', '.join(sorted(KERNELS))}")
