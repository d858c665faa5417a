"""The table of knobs: what can be configured, in one place, and how each value is checked.

A knob has one name everywhere: ``config.NAME`` in Python, ``MORTICE_NAME`` in the environment and
``name`` in a config file. The table is data; :mod:`mortice._base.config` decides where a value
comes from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from .errors import ConfigError, nearest


class Knob:
    """One row of the table.

    ``narrow(above, project)`` combines the project's value with the one from the higher layers so
    that a project can only restrict; None means that a project may not set the knob at all.
    """

    __slots__ = ("choices", "default", "doc", "env", "kind", "minimum", "name", "narrow")

    def __init__(
        self,
        name: str,
        kind: str,
        default: Any,
        doc: str,
        *,
        choices: tuple[str, ...] = (),
        minimum: float = 0,
        narrow: Callable[[Any, Any], Any] | None = None,
    ) -> None:
        self.name = name
        self.env = f"MORTICE_{name.upper()}"
        self.kind = kind
        self.default = default
        self.doc = doc
        self.choices = choices
        self.minimum = minimum
        self.narrow = narrow


# -- how a project's value narrows the one above it ---------------------------------------------


def _stricter_fallback(above: str, project: str) -> str:
    return max(above, project, key=FALLBACKS.index)


def _intersection(above: tuple[str, ...] | None, project: tuple[str, ...]) -> tuple[str, ...]:
    return project if above is None else tuple(name for name in above if name in project)


def _union(above: tuple[str, ...], project: tuple[str, ...]) -> tuple[str, ...]:
    return above + tuple(name for name in project if name not in above)


def _both(above: bool, project: bool) -> bool:
    return above and project


def _first_set(above: str | None, project: str) -> str:
    return above or project


def _fewer(above: int, project: int) -> int:
    return min(above, project) if above else project


FALLBACKS = ("silent", "warn", "error")

KNOBS: dict[str, Knob] = {
    knob.name: knob
    for knob in (
        Knob(
            "accelerator",
            "name",
            None,
            "Device type that is meant where none is named: by `mortice.accelerator` and a "
            "bare device index. Unset: the only one that is here.",
        ),
        Knob(
            "cache_dir",
            "path",
            None,
            "Directory for everything mortice keeps between processes: the plug-in index, probe "
            "results, compiled code. Unset: the platform's cache directory.",
        ),
        Knob(
            "fallback",
            "choice",
            "warn",
            "What happens when a device has no kernel for an operator and it would run on the CPU: "
            "`silent`, `warn` (once per operator) or `error`.",
            choices=FALLBACKS,
            narrow=_stricter_fallback,
        ),
        Knob(
            "logs",
            "logs",
            None,
            "What to log to standard error: comma-separated `NAME` or `NAME=LEVEL`, such as "
            "`plugins=debug`. A bare name means `info`; `all` names every logger.",
        ),
        Knob(
            "dump",
            "path",
            None,
            "Directory to which each compiled graph is written, as code and drawn, with what the "
            "backend made of it.",
        ),
        Knob(
            "num_threads",
            "int",
            0,
            "Threads that CPU kernels and numpy's BLAS may use, read when the device `cpu` is first used. "
            "0: each library's own default, one per core.",
            narrow=_fewer,
        ),
        Knob(
            "plugins",
            "names",
            None,
            "Allow-list: only discovered plug-ins named here are used. Each is a distribution, an "
            "entry name, or `KIND:NAME`. Unset: all.",
            narrow=_intersection,
        ),
        Knob(
            "disable_plugins",
            "names",
            (),
            "Deny-list, in the same form as the allow-list. It wins over the allow-list.",
            narrow=_union,
        ),
        Knob(
            "plugin_autoload",
            "flag",
            True,
            "0: use no discovered plug-in except those the allow-list names.",
            narrow=_both,
        ),
        Knob(
            "prefer_plugins",
            "pairs",
            {},
            "Settles conflicts: `KIND:NAME=DISTRIBUTION`, comma-separated, or a table in a file.",
        ),
        Knob(
            "plugin_lock",
            "path",
            None,
            "Lock file: only the distributions, versions and hashes it lists are used.",
            narrow=_first_set,
        ),
        Knob(
            "listeners",
            "names",
            (),
            "Listeners to load, by entry name. None is loaded unless named here.",
        ),
        Knob(
            "probe_timeout",
            "seconds",
            30.0,
            "Seconds a plug-in may take to load in a probe, the child process that tries it.",
            minimum=0.1,
        ),
        Knob(
            "distributed_debug",
            "flag",
            False,
            "1: before each collective the ranks tell each other what they are about to do, so that "
            "different shapes, dtypes or orders are an error that names the rank, and no hang.",
        ),
        Knob(
            "options",
            "table",
            {},
            'Options of plug-ins, in config files only: `[options."KIND:NAME"]`.',
        ),
    )
}


# -- checking a value ---------------------------------------------------------------------------

_FLAGS = {
    "1": True, "true": True, "yes": True, "on": True,
    "0": False, "false": False, "no": False, "off": False,
}  # fmt: skip

# Name -> what it logs. A part of mortice that begins to log adds its row.
LOGGERS: dict[str, str] = {
    "plugins": "directories scanned, plug-ins loaded or refused, probes",
    "graph": "compiling: each captured graph, and what is handed to the backend, as code",
    "guards": "what a call depends on that is replayed",
    "replay": "whether a function's calls are replayed, and why not",
    "recompiles": "why a place of a compiled function gets another graph",
    "cache": "why a compiled graph is not kept on disk",
    "graph_breaks": "why a graph ends before its function does, with the line",
    "fusion": "which operators a compile backend puts into one kernel, which not, and why",
    "output_code": "the code that a compile backend made",
}
LOG_LEVELS = ("debug", "info", "warning", "error")


class UnknownSetting(ConfigError, AttributeError):
    """A name that is no knob; an AttributeError too, so that ``hasattr`` answers."""


def unknown(name: str, origin: str) -> UnknownSetting:
    """The error for a name that is no knob."""
    hint = nearest(name, KNOBS) or f" Known names: {', '.join(sorted(KNOBS))}."
    return UnknownSetting(f"{origin}: there is no setting {name!r}.{hint}")


def check(knob: Knob, value: Any, origin: str) -> Any:
    """``value`` in the knob's own type; raises ConfigError naming ``origin``."""
    try:
        return _CHECKS[knob.kind](knob, value)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{origin} is {value!r}, which is not usable: {error}") from None


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value.strip()
    raise TypeError(f"expected text, found {type(value).__name__}")


def _choice(knob: Knob, value: Any) -> str:
    text = _text(value).lower()
    if text in knob.choices:
        return text
    raise ValueError(f"expected one of {', '.join(knob.choices)}.{nearest(text, knob.choices)}")


def _flag(knob: Knob, value: Any) -> bool:
    if isinstance(value, (bool, int)) and value in (0, 1):
        return bool(value)
    found = _FLAGS.get(value.strip().lower()) if isinstance(value, str) else None
    if found is None:
        raise ValueError("expected 1 or 0 (also true, false, yes, no, on, off)")
    return found


def _number(knob: Knob, value: Any, make: Callable[[Any], Any], what: str) -> Any:
    try:
        if isinstance(value, bool) or (make is int and isinstance(value, float)):
            raise ValueError
        number = make(value)
    except (TypeError, ValueError):
        raise ValueError(f"expected {what}") from None
    if not knob.minimum <= number < float("inf"):  # NaN fails this too
        raise ValueError(f"expected {what} of at least {knob.minimum:g}")
    return number


def _int(knob: Knob, value: Any) -> int:
    return _number(knob, value, int, "a whole number")


def _seconds(knob: Knob, value: Any) -> float:
    return _number(knob, value, float, "a number of seconds")


def _path(knob: Knob, value: Any) -> str | None:
    import os

    if value is None:
        return None
    path = cast("str | bytes", os.fspath(value))
    if isinstance(path, bytes) or "\0" in path or not path.strip():
        raise ValueError("expected a path")
    return os.path.abspath(os.path.expanduser(path))


def _name(knob: Knob, value: Any) -> str | None:
    if value is None:
        return None
    text = _text(value)
    if not text.isidentifier():
        raise ValueError("expected one name")
    return text


def _names(knob: Knob, value: Any) -> tuple[str, ...] | None:
    if value is None and knob.default is None:
        return None
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, (list, tuple)):
        raise TypeError(f"expected a list of names, found {type(value).__name__}")
    texts = (_text(part) for part in cast("list[Any]", parts))
    return tuple(text for text in texts if text)


def _pairs(knob: Knob, value: Any) -> dict[str, str]:
    if isinstance(value, str):
        pairs = [part.partition("=") for part in value.split(",") if part.strip()]
        if any(not (key.strip() and equals and found.strip()) for key, equals, found in pairs):
            raise ValueError("expected KEY=VALUE, comma-separated")
        return {key.strip(): found.strip() for key, _, found in pairs}
    if not isinstance(value, Mapping):
        raise TypeError(f"expected a table, found {type(value).__name__}")
    table = cast("Mapping[Any, Any]", value)
    return {_text(key): _text(found) for key, found in table.items()}


def _table(knob: Knob, value: Any) -> dict[str, dict[str, Any]]:
    table = cast("Mapping[Any, Any]", value)
    if not isinstance(value, Mapping) or not all(isinstance(v, Mapping) for v in table.values()):
        raise TypeError('expected tables named "KIND:NAME", in a config file')
    return {_text(key): dict(found) for key, found in table.items()}


def _logs(knob: Knob, value: Any) -> dict[str, str] | None:
    if value is None:
        return None
    if isinstance(value, str):
        pairs = [part.strip().partition("=") for part in value.split(",") if part.strip()]
        value = {name.strip(): level.strip() for name, _, level in pairs}
    elif not isinstance(value, Mapping):
        raise TypeError(f"expected NAME=LEVEL, found {type(value).__name__}")
    levels: dict[str, str] = {}
    for name, level in cast("Mapping[str, Any]", value).items():
        level = _text(level).lower() or "info"
        if name != "all" and name not in LOGGERS:
            known = ("all", *LOGGERS)
            raise ValueError(
                f"no logger {name!r}.{nearest(name, known) or ' Known: ' + ', '.join(known)}"
            )
        if level not in LOG_LEVELS:
            raise ValueError(f"no level {level!r}; expected one of {', '.join(LOG_LEVELS)}")
        levels[name] = level
    return levels


_CHECKS: dict[str, Callable[[Knob, Any], Any]] = {
    "choice": _choice,
    "flag": _flag,
    "int": _int,
    "logs": _logs,
    "name": _name,
    "names": _names,
    "pairs": _pairs,
    "path": _path,
    "seconds": _seconds,
    "table": _table,
}
