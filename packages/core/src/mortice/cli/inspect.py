"""``mortice inspect FILE``: what is in a checkpoint, without loading it."""

from __future__ import annotations

import click

from . import output


@click.command(name="inspect", help="What is in a checkpoint, without loading it.")
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
@click.option("--records", is_flag=True, help="Also the records of the zip container.")
def command(file: str, json_: bool, records: bool) -> None:
    """Print tensors, other values and globals. Exit status 1 if the globals are not safe."""
    from mortice.serialization import inspect

    found = inspect(file)
    if json_:
        value = found._asdict()
        value["rows"] = [row._asdict() for row in found.rows]
        output.as_json(value)
    else:
        _print(file, found, records)
    if found.unsafe:
        raise SystemExit(1)


def _print(file: str, found: object, records: bool) -> None:
    from mortice.serialization.inspection import Contents

    assert isinstance(found, Contents)
    click.echo(
        f"{file}: {found.format} format, {found.byteorder} endian, "
        f"{len(found.rows)} tensors in {_size(found.storage_bytes)} of storages, "
        f"file {_size(found.file_bytes)}"
    )
    if found.rows:
        output.table(
            ("name", "kind", "dtype", "shape", "size", "location"),
            [
                (
                    row.name,
                    row.kind + (" (shares)" if row.shares else ""),
                    row.dtype,
                    "x".join(map(str, row.shape)) or "scalar",
                    _size(row.nbytes),
                    row.location,
                )
                for row in found.rows
            ],
        )
    if found.others:
        click.echo("\nOther values")
        output.table(("name", "value"), list(found.others.items()))
    if records and found.records:
        click.echo("\nRecords")
        output.table(
            ("name", "bytes", "offset"),
            [(name, str(size), str(offset)) for name, size, offset in found.records],
        )
    if found.unsafe:
        from mortice.serialization.safe import paste_all, paste_hint

        click.echo("\nGlobals that are not safe: mortice.load refuses the file")
        for name in found.unsafe:
            click.echo(f"  {name}\n    {paste_hint(name)}")
        if len(found.unsafe) > 1:
            click.echo(f"All of them, if you trust the file:\n  {paste_all(found.unsafe)}")


def _size(nbytes: int) -> str:
    if nbytes < 1024:
        return f"{nbytes} B"
    power = min((nbytes.bit_length() - 1) // 10, 4)
    return f"{nbytes / 1024**power:.1f} {('KiB', 'MiB', 'GiB', 'TiB')[power - 1]}"
