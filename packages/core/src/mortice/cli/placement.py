"""``mortice why DEVICE OPERATOR``: where an operator runs. The device is asked in a child process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from typing import Any

import click

from mortice.errors import (
    ArgumentError,
    ConfigError,
    DeviceError,
    MorticeError,
    PluginNotFound,
    PluginUnavailable,
    UnknownName,
)

from . import output

# What the child says of a failure: whether the question was wrong, or the device is.
_ERRORS: dict[str, type[MorticeError]] = {"question": PluginNotFound, "device": MorticeError}
# A device that is installed and cannot be used raises a PluginError; DeviceError: a name of none.
_QUESTIONABLE = (ArgumentError, ConfigError, DeviceError, PluginNotFound, UnknownName)

_CHILD = "from mortice.cli.placement import child; child()"


def show(device: str, operator: str, dtypes: tuple[str, ...], *, json_: bool) -> None:
    """Print the placements; exit 1 if the device cannot say, or the operator runs nowhere on it."""
    from mortice._base import config

    job = json.dumps({"device": device, "operator": operator, "dtypes": dtypes})
    command = [sys.executable, "-c", _CHILD]
    try:
        done = subprocess.run(
            command, input=job, capture_output=True, text=True, timeout=config.probe_timeout,
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise PluginUnavailable(
            f"device {device!r} did not answer within {error.timeout:g} s (MORTICE_PROBE_TIMEOUT)."
        ) from None
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
        raise PluginUnavailable(f"device {device!r} could not be asked: {last[0]}")
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    if rows and "error" in rows[0]:
        raise _ERRORS[rows[0]["wrong"]](rows[0]["error"])
    if json_:
        output.as_json({"format": 1, "placements": rows})
    elif operator == "all":
        _count(device, rows)
    else:
        for row in rows:
            _print(row)
    if any(row["how"] == "nowhere" for row in rows):
        raise SystemExit(1)


def _print(row: dict[str, Any]) -> None:
    dtypes = ", ".join(row["dtypes"])
    click.echo(f"{row['operator']} ({dtypes}) on {row['device']}: {row['how']}")
    click.echo(f"  by    {output.printable(row['by'])}")
    if row["how"] == "fallback":
        click.echo("  mend  MORTICE_FALLBACK=error forbids it; a kernel of the device ends it")


def _count(device: str, rows: list[dict[str, Any]]) -> None:
    counts = Counter(row["how"] for row in rows)
    click.echo(f"{len(rows)} operators on {device}, with float32 tensors:")
    for how, n in counts.most_common():
        names = " ".join(row["operator"] for row in rows if row["how"] == how)
        click.echo(f"  {n:5}  {how.ljust(13)}  {names}")


def child() -> None:
    """Read a job from standard input, and write the placements to standard output."""
    import os

    job = json.load(sys.stdin)
    answer, sys.stdout = sys.stdout, sys.stderr  # a plug-in may print
    import mortice
    from mortice.backend import placement, placements

    try:
        if job["operator"] == "all":
            found = placements(mortice.device(job["device"]).type)
        else:
            dtypes = [_dtype(name) for name in job["dtypes"]]
            found = placement(job["operator"], mortice.device(job["device"]).type, dtypes)
        told: list[dict[str, Any]] = [one._asdict() for one in found]
    except MorticeError as error:
        wrong = "question" if isinstance(error, _QUESTIONABLE) else "device"
        told = [{"error": str(error), "wrong": wrong}]
    answer.write(json.dumps(told))
    answer.flush()
    os._exit(0)  # threads of the plug-in must not keep the answer


def _dtype(name: str) -> Any:
    from mortice._types import dtypes
    from mortice.errors import ArgumentError, nearest

    try:
        return dtypes.by_name(name)
    except KeyError:
        raise ArgumentError(f"there is no dtype {name!r}.{nearest(name, dtypes.ALL)}") from None
