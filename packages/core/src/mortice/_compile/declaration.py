"""What a backend says of itself: its options, its modes, and what it wants done to its graphs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from mortice._base.errors import ConfigError, OptionError, RegistrationError, nearest
from mortice._plugins.manifest import OPTION_TYPES, check_option_value

_NONE: Mapping[str, Any] = MappingProxyType({})

DEFAULT_MODE = "default"


def _nothing() -> Mapping[str, Any]:
    return _NONE


@dataclass(frozen=True)
class Option:
    """One option: the name of its type as in ``mortice.toml``, its default, and a line of help."""

    type: str
    default: Any
    doc: str = ""
    choices: tuple[Any, ...] = ()

    def check(self, value: Any, where: str) -> Any:
        """``value`` if it fits; OptionError that begins with ``where`` if not."""
        row: dict[str, Any] = {"type": self.type}
        if self.choices:
            row["choices"] = self.choices
        try:
            return copy.deepcopy(check_option_value(row, value, where))
        except ConfigError as error:
            raise OptionError(str(error)) from None


@dataclass(frozen=True)
class Declaration:
    """What a backend says of itself.

    Attributes:
        options: Its options by name; None if it takes whatever it is given, unchecked.
        modes: For each mode but ``default``, the options it stands for.
        decompositions: Operators to take apart before the backend sees the graph: a table
            ``{overload: function}``, or a function that returns one. None: as captured.
        differentiable: The result's operators record their own history, so the graph is handed
            over as it was captured; otherwise forward and backward are traced and given apart.
        check: With ``options=None``: called with the options given, raises OptionError.
        describe: With ``options=None``: gives the options there are, for lists.
        native_entry: Makes one native callable of a replay plan (``mortice.native.NativePlan``), or
            gives None where the plan stays Python's.
        native_recorder: Gives the native forms of what the recorder does in each call
            (``mortice.native.NativeRecorder``), or None where it stays Python's.
        trusted: What its functions return is not checked at each call.
        keeping: Gives what is needed to keep its results on disk (``mortice.compiler.Keeping``).
    """

    options: Mapping[str, Option] | None = field(default_factory=_nothing)
    modes: Mapping[str, Mapping[str, Any]] = field(default_factory=_nothing)
    decompositions: Any = None
    differentiable: bool = False
    check: Callable[[Mapping[str, Any]], None] | None = None
    describe: Callable[[], Mapping[str, Option]] | None = None
    native_entry: Callable[[Any], Any] | None = None
    native_recorder: Callable[[], Any] | None = None
    trusted: bool = False
    keeping: Callable[[], Any] | None = None

    def listed(self) -> Mapping[str, Option]:
        """The options there are, as far as they are known."""
        return self.describe() if self.describe is not None else self.options or _NONE


UNDECLARED = Declaration(options=None)
_ATTRIBUTE = "mortice_declaration"


def declare(
    fn: Callable[..., Any],
    *,
    options: Mapping[str, Any] | None = _NONE,
    modes: Mapping[str, Mapping[str, Any]] = _NONE,
    decompositions: Any = None,
    differentiable: bool = False,
    check: Callable[[Mapping[str, Any]], None] | None = None,
    describe: Callable[[], Mapping[str, Option]] | None = None,
    native_entry: Callable[[Any], Any] | None = None,
    native_recorder: Callable[[], Any] | None = None,
    trusted: bool = False,
    keeping: Callable[[], Any] | None = None,
) -> Callable[..., Any]:
    """Note a Declaration on a backend's function; returns the function.

    Each of ``options`` is an ``Option``, or a mapping as in ``mortice.toml``:
    ``{"type": "int", "default": 4, "doc": "..."}``.

    Raises:
        RegistrationError: An option's default does not fit its type, a mode names an option that
            is not there, or ``fn`` takes no attributes.
    """
    name = getattr(fn, "__name__", repr(fn))
    rows = {key: _option(key, row, name) for key, row in (options or _NONE).items()}
    for mode, values in modes.items():
        for key, value in values.items():
            if options is None:
                continue
            if key not in rows:
                raise RegistrationError(
                    f"backend {name!r}: mode {mode!r} sets {key!r}, which is none of its options."
                    f"{nearest(key, rows)}"
                )
            rows[key].check(value, f"backend {name!r}: mode {mode!r}: {key}")
    told = Declaration(
        None if options is None else MappingProxyType(rows),
        MappingProxyType({mode: MappingProxyType(dict(v)) for mode, v in modes.items()}),
        decompositions,
        differentiable,
        check,
        describe,
        native_entry,
        native_recorder,
        trusted,
        keeping,
    )
    try:
        setattr(fn, _ATTRIBUTE, told)
    except AttributeError:
        raise RegistrationError(
            f"{fn!r} takes no attributes, so nothing can be declared of it. Wrap it in a function."
        ) from None
    return fn


def declared(fn: Callable[..., Any]) -> Declaration | None:
    """What was declared of a function, if anything was."""
    return getattr(fn, _ATTRIBUTE, None)


def _option(name: str, row: Any, backend: str) -> Option:
    where = f"backend {backend!r}: option {name!r}"
    if not isinstance(row, Option):
        if not isinstance(row, Mapping) or "type" not in row or "default" not in row:
            raise RegistrationError(
                f'{where}: write {{"type": "int", "default": 4}}, found {row!r}.'
            )
        row = from_row(row)
    if row.type not in OPTION_TYPES:
        raise RegistrationError(
            f"{where}: unknown type {row.type!r}; expected one of {', '.join(OPTION_TYPES)}."
        )
    try:
        row.check(row.default, f"{where}: default")
    except OptionError as error:
        raise RegistrationError(str(error)) from None
    return row


def from_row(row: Mapping[str, Any]) -> Option:
    """An option as a manifest has it."""
    return Option(row["type"], row["default"], row.get("doc", ""), tuple(row.get("choices", ())))


# -- what is given against what is declared ------------------------------------------------------


def chosen_options(
    backend: str,
    told: Declaration,
    given: Mapping[str, Any],
    *,
    configured: Mapping[str, Any] = _NONE,
    mode: str | None = None,
) -> Mapping[str, Any]:
    """Defaults, then the config files', then what the mode stands for, then ``given``.

    ``-`` in a name is ``_``. What was given is copied and never changed. Raises OptionError for a
    name that is not declared, a value of another type, and a mode the backend does not have.
    """
    defaults = {name: option.default for name, option in (told.options or _NONE).items()}
    result = copy.deepcopy(defaults)
    for where, values in (
        ("a config file", configured),
        (f"mode {mode!r}", mode_options(backend, told, mode)),
        ("options", given),
    ):
        for key, value in values.items():
            name = str(key).replace("-", "_")
            result[name] = _checked(backend, told.options, name, value, where)
    if told.check is not None:
        told.check(result)
    return MappingProxyType(result)


def _checked(
    backend: str, known: Mapping[str, Option] | None, name: str, value: Any, where: str
) -> Any:
    if known is None:
        return copy.deepcopy(value)
    option = known.get(name)
    if option is None:
        hint = nearest(name, known) or _known(known)
        raise OptionError(f"backend {backend!r} has no option {name!r} (from {where}).{hint}")
    return option.check(value, f"option {name!r} of backend {backend!r} (from {where})")


def _known(options: Mapping[str, Option]) -> str:
    if not options:
        return " It declares none."
    return f" It declares: {', '.join(sorted(options))}."


def mode_options(backend: str, told: Declaration, mode: str | None) -> Mapping[str, Any]:
    """The options that a mode of a backend stands for; OptionError if it has no such mode."""
    if mode is None or mode == DEFAULT_MODE:
        return _NONE
    if mode not in told.modes:
        known = (DEFAULT_MODE, *told.modes)
        hint = nearest(mode, known)
        raise OptionError(
            f"backend {backend!r} has no mode {mode!r}; it has: {', '.join(known)}.{hint}"
        )
    return told.modes[mode]
