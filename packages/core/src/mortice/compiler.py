"""Compile backends and compiled functions: which there are, and what they do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from mortice._base.errors import nearest
from mortice._capture.dynamic import mark_dynamic, mark_static
from mortice._capture.stance import set_stance
from mortice._compile.control import EXPORTING, allow_in_graph, disable, reset
from mortice._compile.declaration import DEFAULT_MODE, Declaration, Option, declare, mode_options
from mortice._compile.registry import (
    get_default_backend,
    lookup_backend,
    register_backend,
    register_debug_backend,
    register_experimental_backend,
    resolve,
    set_default_backend,
)
from mortice._dispatch.state import THREAD
from mortice._plugins.groups import HIDDEN_TAGS

if TYPE_CHECKING:
    from mortice._compile.explain import Report, explain
    from mortice._compile.front import compile
    from mortice._compile.kept import Keeping

__all__ = [
    "Declaration",
    "Keeping",
    "Option",
    "Report",
    "allow_in_graph",
    "compile",
    "declare",
    "disable",
    "explain",
    "get_default_backend",
    "is_compiling",
    "is_dynamo_compiling",
    "is_exporting",
    "list_backends",
    "list_mode_options",
    "list_options",
    "lookup_backend",
    "mark_dynamic",
    "mark_static",
    "options_of",
    "register_backend",
    "register_debug_backend",
    "register_experimental_backend",
    "reset",
    "set_default_backend",
    "set_stance",
]


def list_backends(exclude_tags: Iterable[str] | None = HIDDEN_TAGS) -> list[str]:
    """Names of the compile backends that can be used as far as metadata tells, sorted.

    Those with one of ``exclude_tags`` are left out. Loads none; ``mortice.list_backends("compile")``
    gives states and reasons, too.
    """
    from mortice._plugins.report import names

    return names("compile", exclude_tags or ())


def is_compiling() -> bool:
    """Whether this thread captures the call of a compiled function, or exports a program."""
    return THREAD.recorder is not None or EXPORTING.on


def is_dynamo_compiling() -> bool:
    """Whether this thread captures the call of a compiled function. The name is PyTorch's."""
    return THREAD.recorder is not None


def is_exporting() -> bool:
    """Whether this thread runs a program for ``mortice.export.export``."""
    return EXPORTING.on


def options_of(backend: Any = None) -> Mapping[str, Option]:
    """The options of a backend (by default the default one): type, default and help by name.

    Empty for a plain function, which may be given whatever it understands.
    """
    return resolve(backend).declaration.listed()


def list_options(backend: Any = None) -> list[str]:
    """Names of the options that ``compile(options=...)`` knows for a backend, sorted."""
    return sorted(options_of(backend))


def list_mode_options(
    mode: str | None = None, dynamic: bool | None = None, backend: Any = None
) -> dict[str, Any]:
    """What each mode of a backend sets: ``{mode: {option: value}}``; one mode's for ``mode``.

    ``dynamic`` is there for PyTorch's signature; no mode depends on it.
    """
    found = resolve(backend)
    if mode is not None:
        return dict(mode_options(found.name, found.declaration, mode))
    return {DEFAULT_MODE: {}, **{name: dict(v) for name, v in found.declaration.modes.items()}}


def __getattr__(name: str) -> Any:
    if name in ("Report", "explain"):  # brings mortice.fx, which nothing else here needs
        from mortice._compile import explain as found

        return getattr(found, name)
    if name == "Keeping":
        from mortice._compile.kept import Keeping as found

        return found
    if name == "compile":
        from mortice._compile.front import compile as found

        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}.{nearest(name, __all__)}")
