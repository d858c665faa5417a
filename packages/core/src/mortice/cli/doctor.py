"""``mortice doctor``: what is wrong with this installation, and what to do about it."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import click

from . import output

if TYPE_CHECKING:
    from mortice._plugins.report import Backend

Finding = tuple[str, str, str]  # ("ok" | "problem" | "note", what was looked at, what was found)

BAD_STATES = ("incompatible", "conflict", "crashed", "broken")


@click.command("doctor", help="Look for what is wrong with this installation.")
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
@click.option("--load", is_flag=True, help="Try to load each plug-in, in a child process.")
def command(json_: bool, load: bool) -> None:
    """Print the findings; exit 1 if one is a problem."""
    findings = [*_run(_versions, load), *_run(_configuration, load)]
    if load and any(state == "problem" for state, _, _ in findings):
        # a child would meet the same setting, and it would be told as the plug-in's failure
        findings.append(("note", "--load", "left out until the configuration is usable"))
        load = False
    findings += [finding for check in CHECKS for finding in _run(check, load)]
    if json_:
        columns = ("state", "subject", "finding")
        output.as_json({"format": 1, "findings": [dict(zip(columns, one)) for one in findings]})
    else:
        output.table(("state", "subject", "finding"), findings)
    if any(state == "problem" for state, _, _ in findings):
        raise SystemExit(1)


def _run(check: Callable[[bool], Iterator[Finding]], load: bool) -> Iterator[Finding]:
    """A check that cannot be made is itself a finding, and keeps no other from being made."""
    from mortice.errors import MorticeError

    try:
        yield from check(load)
    except (MorticeError, ImportError, OSError) as error:
        yield "problem", check.__name__.strip("_"), str(error)


def _versions(load: bool) -> Iterator[Finding]:
    import numpy as np

    from mortice._version import __version__

    yield "ok", "mortice", f"{__version__} at {os.path.dirname(os.path.dirname(__file__))}"
    where = f"{platform.system()} {platform.machine()}"
    yield "ok", "python", f"{platform.python_version()} at {sys.executable or '?'}, {where}"
    yield "ok", "numpy", str(np.__version__)  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]


def _configuration(load: bool) -> Iterator[Finding]:
    from mortice._base import config, paths
    from mortice._plugins import index, variables
    from mortice.errors import ConfigError

    user, project = paths.user_config_file(), paths.project_config_file()
    for what, path in (
        ("user config", user),
        ("system config", paths.system_config_file()),
        ("project", project),
    ):
        there = path is not None and os.path.isfile(path)
        yield "ok", what, str(path) if there else f"none (it would be {path})" if path else "none"
    yield from _without(config.misspelt_variables())
    wrong: dict[str, list[str]] = {}
    for knob in config.knobs():
        try:
            value, origin = config.get(knob.name), config.origin(knob.name)
        except ConfigError as error:
            wrong.setdefault(str(error), []).append(knob.name)
            # told once, here; what follows goes by the default, and is not lost with it
            setattr(config, knob.name, knob.default)
            continue
        if origin != "default":
            yield "note", f"config.{knob.name}", f"{value!r}, from {origin}"
    for text, names in wrong.items():
        told = names[0] if len(names) == 1 else "the settings"
        yield "problem", "configuration", f"{text.rstrip('.')}. What follows has {told} at default"
    yield from _lock()
    found = index.snapshot().found
    yield from _without(variables.wrong(found))
    for name, (distribution, meaning) in variables.declared(found).items():
        if name in os.environ:
            yield "note", name, f"{os.environ[name]!r}, for {distribution}: {meaning}"
    for name in sorted({*config.strange_variables()} - {*variables.declared(found)}):
        yield "note", name, "is no setting, and no plug-in installed declares it"


def _without(misspelt: dict[str, str]) -> Iterator[Finding]:
    """Tell of variables, and go on in this process as if they were not set."""
    for name, text in misspelt.items():
        yield "problem", "configuration", text
        del os.environ[name]


def _lock() -> Iterator[Finding]:
    """A lock that cannot be read refuses everything; what follows goes on without it."""
    from mortice._base import config
    from mortice._plugins import policy
    from mortice.errors import ConfigError

    try:
        if config.plugin_lock is not None:
            policy.read_lock(config.plugin_lock)
    except ConfigError as error:
        yield "problem", "configuration", f"{error} What follows goes without it"
        config.plugin_lock = None


def _cache(load: bool) -> Iterator[Finding]:
    from mortice._plugins import index, store

    index.snapshot()
    reason = index.not_stored_reason()
    if reason:
        yield "problem", "plug-in index", f"kept in memory only, so each process scans: {reason}"
    else:
        yield "ok", "plug-in index", str(store.folder())


def _plugins(load: bool) -> Iterator[Finding]:
    from mortice._plugins.report import list_backends

    for row in list_backends(all=True, load=load):
        state = "problem" if row.state in BAD_STATES else "note"
        if row.state == "ready" or (row.state == "not loaded" and not _failed_before(row)):
            state = "ok"
        note = ". ".join(text.rstrip(".") for text in (row.reason, row.fix) if text)
        said = f"{row.state}{': ' if note else ''}{note}"
        yield state, f"{row.kind}:{row.name}", f"{row.distribution} {row.version}, {said}".lstrip()


def _failed_before(row: Backend) -> bool:
    """Whether the last that is known of it is a failure; only ``--load`` tells if it still is."""
    return bool(row.reason) and not row.reason.startswith("ready when")


#: Loads all operator libraries, and prints which operators have kernels but no definition.
_UNDEFINED = """
import json
from mortice._dispatch.operator import load_namespace
from mortice._library.registration import undefined, why_undefined
from mortice._plugins import find
for entry in find("mortice.operators"):
    load_namespace(entry.name.partition(":")[0])
print(json.dumps({name: why_undefined(name) for name in undefined()}))
"""


def _operators(load: bool) -> Iterator[Finding]:
    """Kernels for operators that nobody defines: seen only once the libraries are loaded."""
    if not load:
        return
    import json
    import subprocess

    run = subprocess.run(
        [sys.executable, "-c", _UNDEFINED], capture_output=True, text=True, timeout=120, check=False
    )
    if run.returncode:
        last = (run.stderr.strip().splitlines() or [f"exit status {run.returncode}"])[-1]
        yield "problem", "operators", f"the operator libraries cannot be loaded together: {last}"
        return
    for name, why in json.loads(run.stdout.splitlines()[-1]).items():
        yield "problem", name, why


def _metadata(load: bool) -> Iterator[Finding]:
    from mortice._plugins.report import problems, shadowed

    for where, what in problems():
        yield "problem", where, what
    for name, what in shadowed():
        yield "note", name, what


def _shared_files(load: bool) -> Iterator[Finding]:
    """Files that two distributions installed: the last one won, and the other may be broken."""
    owners: dict[str, set[str]] = {}
    for folder in {os.path.realpath(path) for path in sys.path if os.path.isdir(path)}:
        for entry in os.scandir(folder):
            if entry.name.endswith(".dist-info"):
                name = entry.name.partition("-")[0].replace("_", "-").lower()
                for path in _recorded(entry.path):
                    owners.setdefault(os.path.normpath(os.path.join(folder, path)), set()).add(name)
    pairs: dict[tuple[str, ...], list[str]] = {}
    for path, names in owners.items():
        if len(names) > 1:
            pairs.setdefault(tuple(sorted(names)), []).append(path)
    for names, paths in sorted(pairs.items()):
        more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        yield (
            "problem",
            " and ".join(names),
            (
                f"both own {min(paths)}{more}: the one installed last wrote them. Keep one of the "
                "two in this environment, and reinstall it"
            ),
        )


def _recorded(folder: str) -> Iterator[str]:
    """The files of a distribution's RECORD, but for what installers make themselves."""
    import csv

    try:
        with open(os.path.join(folder, "RECORD"), newline="", encoding="utf-8") as file:
            for row in csv.reader(file):
                if row and not row[0].endswith(".pyc"):
                    yield row[0]
    except (OSError, UnicodeDecodeError):  # editable by hand, or no wheel: nothing is known
        return


CHECKS = (_cache, _plugins, _operators, _metadata, _shared_files)
