"""Configuration: ``config.NAME`` reads a knob, ``config.override(NAME=value)`` changes it for a
block, ``config.NAME = value`` for the process. The knobs are the table in :mod:`.knobs`.

A value comes from the first of these that has one:

1. ``config.override`` in this thread or task,
2. assignment in this process,
3. the environment, ``MORTICE_NAME`` (an empty variable counts as unset),
4. the user's config file,
5. the system's config file,
6. the default in the table.

``[tool.mortice]`` of the project's pyproject.toml is then applied to what 3-6 gave, and may only
narrow it. Nothing is read before the first knob is asked for.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import ModuleType
from typing import Any, cast

from . import paths
from .errors import ConfigError
from .knobs import KNOBS, Knob, check, unknown

# What pyright sees; the values come from the properties of ``_Config``.
accelerator: str | None
cache_dir: str | None
fallback: str
logs: dict[str, str] | None
dump: str | None
num_threads: int
plugins: tuple[str, ...] | None
disable_plugins: tuple[str, ...]
plugin_autoload: bool
prefer_plugins: dict[str, str]
plugin_lock: str | None
listeners: tuple[str, ...]
probe_timeout: float
distributed_debug: bool
options: dict[str, dict[str, Any]]

# Set by mortice for its own child processes, and not for people.
_INTERNAL_VARIABLES = frozenset({"MORTICE_PROBE_CHILD"})

_no_overrides: Mapping[str, Any] = {}
_overrides: ContextVar[Mapping[str, Any]] = ContextVar("mortice.config", default=_no_overrides)
_assigned: dict[str, Any] = {}
_actions: dict[str, Callable[[], None]] = {}
_resolved: dict[str, tuple[Any, str]] = {}
_files: list[tuple[str, dict[str, Any]]] | None = None
_project: tuple[str, dict[str, Any]] | None = None


def get(name: str) -> Any:
    """The present value of a knob. Raises ConfigError for unknown names and unusable values."""
    overrides = _overrides.get()
    if name in overrides:
        return overrides[name]
    if name in _assigned:
        return _assigned[name]
    return _resolve(name)[0]


def origin(name: str) -> str:
    """Where the present value comes from, in words: a variable, a file, or ``default``."""
    if name in _overrides.get():
        return "config.override"
    if name in _assigned:
        return f"config.{name} = ... in this process"
    return _resolve(name)[1]


@contextmanager
def override(**values: Any) -> Generator[None, None, None]:
    """Set knobs for a block of code, in this thread or asyncio task only.

    ``with config.override(fallback="error"): ...``
    """
    checked = {name: check(_knob(name), value, name) for name, value in values.items()}
    token = _overrides.set({**_overrides.get(), **checked})
    try:
        yield
    finally:
        _overrides.reset(token)


def on_assignment(name: str, action: Callable[[], None]) -> None:
    """Have ``action()`` called after each ``config.NAME = value``."""
    _actions[name] = action


def reload() -> None:
    """Read the environment and the files again at the next use; assignments stay."""
    global _files, _project
    _resolved.clear()
    _files = _project = None


def knobs() -> tuple[Knob, ...]:
    """Every row of the table."""
    return tuple(KNOBS.values())


# -- resolution ---------------------------------------------------------------------------------


def _knob(name: str) -> Knob:
    knob = KNOBS.get(name)
    if knob is None:
        raise unknown(name, "config")
    return knob


def _resolve(name: str) -> tuple[Any, str]:
    found = _resolved.get(name)
    if found is None:
        knob = _knob(name)
        if not _resolved:
            _refuse_misspelt_variables()
        value, where = _from_layers(knob)
        found = _resolved[name] = _narrowed(knob, value, where)
    return found


def _from_layers(knob: Knob) -> tuple[Any, str]:
    text = os.environ.get(knob.env, "")
    if text.strip():
        return check(knob, text, knob.env), f"{knob.env} in the environment"
    for path, table in _config_files():
        if knob.name in table:
            where = f"{knob.name} in {path}"
            return check(knob, table[knob.name], where), where
    return knob.default, "default"


def _narrowed(knob: Knob, value: Any, where: str) -> tuple[Any, str]:
    path, table = _project_table()
    if knob.name not in table:
        return value, where
    project_where = f"{knob.name} in [tool.mortice] of {path}"
    if knob.narrow is None:
        raise ConfigError(
            f"{project_where}: a project may only narrow, so it cannot set {knob.name!r}. "
            f"Set it in {paths.user_config_file()} or as {knob.env}."
        )
    combined = knob.narrow(value, check(knob, table[knob.name], project_where))
    return (value, where) if combined == value else (combined, project_where)


def _config_files() -> list[tuple[str, dict[str, Any]]]:
    global _files
    if _files is None:
        _files = [
            (path, _table_of(path, _read(path)))
            for path in (paths.user_config_file(), paths.system_config_file())
            if path is not None and os.path.isfile(path)
        ]
    return _files


def _project_table() -> tuple[str, dict[str, Any]]:
    global _project
    if _project is None:
        path = paths.project_config_file()
        data = b"" if path is None else _read(path)
        # A pyproject.toml that does not mention us is none of our business, broken or not.
        if path is None or b"tool.mortice" not in data.replace(b" ", b"").replace(b'"', b""):
            _project = ("", {})
        else:
            _project = (path, _table_of(path, data, "tool", "mortice"))
    return _project


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}. Mend or remove it.") from error


def _table_of(path: str, data: bytes, *keys: str) -> dict[str, Any]:
    from .toml import parse

    table: dict[str, Any] = parse(data, path)
    for key in keys:
        inner: Any = table.get(key, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"{path}: {'.'.join(keys)} is not a table. Write [{'.'.join(keys)}].")
        table = cast("dict[str, Any]", inner)
    for name in table:
        if name not in KNOBS:
            raise unknown(name, path)
    return table


def strange_variables() -> list[str]:
    """The variables called MORTICE_ that are none of core's: a plug-in's, or misspelt."""
    known = {knob.env for knob in KNOBS.values()} | _INTERNAL_VARIABLES
    return [name for name in os.environ if name.startswith("MORTICE_") and name not in known]


def misspelt(strangers: Iterable[str], known: Iterable[str]) -> dict[str, str]:
    """What is wrong with those variables that are close to a known one; others are let be."""
    import difflib

    told: dict[str, str] = {}
    stems = {name.removeprefix("MORTICE_"): name for name in known}
    for name in strangers:
        stem = name.removeprefix("MORTICE_").upper()
        close = difflib.get_close_matches(stem, stems, n=1, cutoff=0.8)
        if close:
            told[name] = (
                f"the environment variable {name} is not known. Did you mean {stems[close[0]]}?"
            )
    return told


def misspelt_variables() -> dict[str, str]:
    """Those that are close to one of core's, and what is to be said of each."""
    strangers = strange_variables()
    return misspelt(strangers, [knob.env for knob in KNOBS.values()]) if strangers else {}


def _refuse_misspelt_variables() -> None:
    for text in misspelt_variables().values():
        raise ConfigError(text)


class _Config(ModuleType):
    """Makes ``config.NAME`` read, ``config.NAME = x`` assign and ``del config.NAME`` forget."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        if name in KNOBS:
            # The property raised an AttributeError, as that about a misspelt name in a file is;
            # Python then asks here, and only asking again tells the reason.
            return get(name)
        raise unknown(name, "config")

    def __setattr__(self, name: str, value: Any) -> None:
        if name in KNOBS:
            _assigned[name] = check(KNOBS[name], value, f"config.{name}")
            if name in _actions:
                _actions[name]()
        elif name.startswith("_"):
            super().__setattr__(name, value)
        else:
            raise unknown(name, "config")

    def __delattr__(self, name: str) -> None:
        if name in KNOBS:
            _assigned.pop(name, None)
        else:
            super().__delattr__(name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *KNOBS})


def _reader(name: str) -> property:
    return property(lambda module: get(name))


# Properties rather than __getattr__, for which a module first makes an AttributeError and its text.
for _name in KNOBS:
    setattr(_Config, _name, _reader(_name))

sys.modules[__name__].__class__ = _Config
