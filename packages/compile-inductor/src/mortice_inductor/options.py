"""Typed options: modules of them, and scoped patches."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, NamedTuple

from mortice.errors import OptionError, nearest


class UnknownOption(OptionError, AttributeError):
    """No option has that name."""


class Option(NamedTuple):
    """One option; ``type`` ``object`` takes anything, ``float`` takes integers, too."""

    name: str
    type: type
    default: Any
    doc: str = ""


class ConfigModule(types.ModuleType):
    """A module whose attributes are options.

    Setting an attribute holds for the process. ``patch(name, value)``, ``patch(name=value)`` and
    ``patch({name: value})`` are a context manager and a decorator; values that they set are seen
    by the thread (or task) that runs within.
    """

    def __init__(self, name: str, doc: str, options: tuple[Option, ...]) -> None:
        super().__init__(name, doc)
        state = self.__dict__
        state["_options"] = {o.name: o for o in options}
        state["_values"] = {o.name: o.default for o in options}
        state["_patches"] = ContextVar(f"{name} patches", default=None)

    def __getattr__(self, name: str) -> Any:
        options = self.__dict__.get("_options", {})
        if name in options:
            patches = self.__dict__["_patches"].get() or {}
            return patches[name] if name in patches else self.__dict__["_values"][name]
        if name.startswith("__"):
            raise AttributeError(name)
        raise self._unknown(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__["_options"]:
            self.__dict__["_values"][name] = self.check(name, value)
        elif name.startswith("_") or name.isupper():
            super().__setattr__(name, value)
        else:
            raise self._unknown(name)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.__dict__["_options"]]

    def _unknown(self, name: str) -> UnknownOption:
        known = self.__dict__["_options"]
        return UnknownOption(f"{self.__name__} has no option {name!r}.{nearest(name, known)}")

    def names(self) -> list[str]:
        """Names of all options."""
        return sorted(self.__dict__["_options"])

    def check(self, name: str, value: Any) -> Any:
        """``value`` if it fits the option; UnknownOption or OptionError if not."""
        option = self.__dict__["_options"].get(name)
        if option is None:
            raise self._unknown(name)
        wanted = option.type
        fits = wanted is object or isinstance(value, wanted)
        if wanted is float:
            fits = isinstance(value, (int, float))
        if isinstance(value, bool) and wanted in (int, float):
            fits = False
        if not fits:
            raise OptionError(
                f"option {name!r} of {self.__name__} is {value!r}; expected {wanted.__name__}, "
                f"found {type(value).__name__}."
            )
        return value

    def get_config_copy(self) -> dict[str, Any]:
        """All values in force here."""
        state = self.__dict__
        return {**state["_values"], **(state["_patches"].get() or {})}

    def patch(self, given: str | Mapping[str, Any] | None = None, value: Any = None,
              **named: Any) -> Patch:  # fmt: skip
        """Values for a while; all are checked before any holds."""
        values = {given: value} if isinstance(given, str) else dict(given or {})
        values |= named
        return Patch(self, {name: self.check(name, v) for name, v in values.items()})


class Patch:
    """A context manager, and a decorator that enters it at every call."""

    def __init__(self, config: ConfigModule, values: dict[str, Any]) -> None:
        self._config = config
        self._values = values
        self._tokens: list[Any] = []

    def __enter__(self) -> None:
        patches: ContextVar[dict[str, Any] | None] = self._config.__dict__["_patches"]
        self._tokens.append(patches.set({**(patches.get() or {}), **self._values}))

    def __exit__(self, *exc: object) -> None:
        self._config.__dict__["_patches"].reset(self._tokens.pop())

    def __call__(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fn)
        def patched(*args: Any, **kwargs: Any) -> Any:
            with Patch(self._config, self._values):
                return fn(*args, **kwargs)

        return patched


def own_config() -> ConfigModule:
    """``mortice_inductor.config``."""
    from importlib import import_module

    return import_module("mortice_inductor.config")  # pyright: ignore[reportReturnType]
