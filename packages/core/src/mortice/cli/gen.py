"""``mortice gen --yaml FILE --out DIR``: code for the operators that a package declares."""

from __future__ import annotations

from pathlib import Path

import click


@click.command(name="gen", help="Generate code for the operators that a package declares.")
@click.option("--yaml", "source", required=True, type=click.Path(exists=True, dir_okay=False))
@click.option("--out", required=True, type=click.Path(file_okay=False))
@click.option("--check", is_flag=True, help="Write nothing; exit 1 if the code is not current.")
def command(source: str, out: str, check: bool) -> None:
    """Write what changed, and say so."""
    from mortice.errors import MorticeError
    from mortice.gen import package

    files = package.generate(Path(source), Path(out))
    stale = package.write(files, Path(out), check)
    if check and stale:
        raise MorticeError(f"not current: {', '.join(stale)}. Run it again without --check.")
    click.echo(
        f"{len(files)} files, {len(stale)} written"
        if not check
        else f"{len(files)} files are current"
    )
