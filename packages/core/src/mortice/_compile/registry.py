"""The compile backends: those built in, registered in this process, and installed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from mortice._base import config
from mortice._base.errors import ArgumentError, PluginNotFound, RegistrationError
from mortice._plugins import attempts, catalog, manager, resolution
from mortice._plugins.entry import Entry
from mortice._plugins.groups import KINDS, not_installed_hint

from .declaration import UNDECLARED, Declaration, declare, declared, from_row

_GROUP = KINDS["compile"]
_INSTALLED_DEFAULT = "inductor"
_default: str | Callable[..., Any] = _INSTALLED_DEFAULT


@dataclass(frozen=True)
class Backend:
    """A backend ready for use; ``configured`` is what the config files set of its options."""

    name: str
    fn: Callable[..., Any]
    declaration: Declaration
    configured: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


# -- registering --------------------------------------------------------------------------------


def register_backend(
    compiler_fn: Callable[..., Any] | None = None,
    name: str | None = None,
    tags: Iterable[str] = (),
    *,
    summary: str = "",
    replace: bool = False,
    **told: Any,
) -> Any:
    """Make a function a compile backend of this process; a decorator without ``compiler_fn``.

    Args:
        compiler_fn: ``fn(gm, example_inputs, *, options) -> callable(*inputs) -> tuple``; it may
            leave ``options`` out if it has none.
        name: What ``backend=`` names it by; its ``__name__`` if not given.
        tags: ``debug`` and ``experimental`` keep it out of ``list_backends()``.
        summary: One line for lists.
        replace: Stand before another backend of that name, in this process.
        told: ``options``, ``modes``, ``decompositions`` and ``differentiable``, as ``declare`` has
            them.

    Returns:
        ``compiler_fn``.

    Raises:
        RegistrationError: Another backend has the name. The same function under its own name
            again, a cell of a notebook run again, and a plug-in whose package also registers what
            its entry point provides, are fine.
    """
    if compiler_fn is None:

        def decorate(fn: Callable[..., Any]) -> Callable[..., Any]:
            return register_backend(fn, name, tags, summary=summary, replace=replace, **told)

        return decorate
    if not callable(compiler_fn):
        raise ArgumentError(
            f"register_backend(): expected a function, found {type(compiler_fn).__name__}"
        )
    name = name or getattr(compiler_fn, "__name__", None)
    if name is None:
        raise RegistrationError(f"{compiler_fn!r} has no __name__. Pass name=.")
    if told or declared(compiler_fn) is None:
        declare(compiler_fn, **told)
    before = catalog.candidates(_GROUP, name)
    if any(_provides_itself(entry, compiler_fn) for entry in before):
        return compiler_fn
    again = any(_is_same(entry.target, compiler_fn) for entry in before)
    row = {"summary": summary, "tags": list(tags)}
    catalog.register(_GROUP, name, compiler_fn, row, replace=replace or again)
    attempts.forget(_GROUP, name)
    return compiler_fn


def register_debug_backend(compiler_fn: Any = None, name: str | None = None, **told: Any) -> Any:
    """``register_backend`` with the tag ``debug``."""
    return register_backend(compiler_fn, name, ("debug",), **told)


def register_experimental_backend(
    compiler_fn: Any = None, name: str | None = None, **told: Any
) -> Any:
    """``register_backend`` with the tag ``experimental``."""
    return register_backend(compiler_fn, name, ("experimental",), **told)


def _provides_itself(entry: Entry, fn: Callable[..., Any]) -> bool:
    """Whether the function comes from the package that an installed entry names."""
    mine = str(getattr(fn, "__module__", "")).partition(".")[0]
    return entry.source == "installed" and mine == _package_of(entry)


def _package_of(entry: Entry) -> str:
    return entry.value.partition(":")[0].strip().partition(".")[0]


def _is_same(old: Any, new: Any) -> bool:
    """The same function, or the same definition executed again."""
    if old is None:
        return False
    place = ("__module__", "__qualname__")
    names = [getattr(new, key, None) for key in place]
    return old is new or (None not in names and names == [getattr(old, key, None) for key in place])


# -- looking up ---------------------------------------------------------------------------------


def lookup_backend(compiler_fn: str | Callable[..., Any]) -> Callable[..., Any]:
    """The function of a backend; loads the one that is named, and no other.

    Raises PluginNotFound (a RuntimeError) with the nearest name, or the error of the state of a
    plug-in that cannot be used, which names its distribution.
    """
    return resolve(compiler_fn).fn


def resolve(backend: str | Callable[..., Any] | None) -> Backend:
    """A backend by name or function, loaded; None is the default one."""
    if backend is None:
        backend = _default
    if not isinstance(backend, str):
        return _of_function(backend)
    try:
        fn = manager.load(_GROUP.name, backend)
    except PluginNotFound as error:
        if not_installed_hint("compile", backend):
            raise PluginNotFound(f'{error} backend="aot_eager" needs no other package.') from None
        raise
    entry = resolution.require(_GROUP, backend)
    return Backend(
        backend,
        fn,
        _with_manifest(fn, entry),
        config.options.get(entry.selector, MappingProxyType({})),
    )


def _of_function(fn: Any) -> Backend:
    if not callable(fn):
        raise ArgumentError(
            "backend is the name of a compile backend or a function "
            f"fn(gm, example_inputs, *, options), not {type(fn).__name__} {fn!r}. "
            "mortice.compiler.list_backends() lists the names."
        )
    name = getattr(fn, "__name__", type(fn).__name__)
    return Backend(name, fn, declared(fn) or UNDECLARED)


def _with_manifest(fn: Callable[..., Any], entry: Entry) -> Declaration:
    """What was declared in code, and the options and modes of ``mortice.toml`` before it."""
    told = declared(fn) or Declaration()
    rows = {name: from_row(row) for name, row in entry.row.get("options", {}).items()}
    modes = entry.row.get("modes", {})
    return replace(
        told,
        options=None if told.options is None else MappingProxyType({**told.options, **rows}),
        modes=MappingProxyType({**told.modes, **modes}),
    )


def set_default_backend(backend: str | Callable[..., Any] | None = None) -> None:
    """The backend of ``mortice.compile`` without ``backend=``; None restores ``inductor``."""
    global _default
    if backend is not None:
        resolve(backend)
    _default = _INSTALLED_DEFAULT if backend is None else backend


def get_default_backend() -> str | Callable[..., Any]:
    """The name or function that ``mortice.compile`` uses without ``backend=``."""
    return _default
