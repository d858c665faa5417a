"""``mortice.compile``: what is asked for, checked; and what is compiled, wrapped."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mortice._base.errors import ArgumentError, OptionError

from .declaration import chosen_options
from .kept import Shelf, keep
from .registry import resolve
from .segment import compile_segment
from .settings import RECOMPILE_LIMIT, Settings


def compile(
    model: Any = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | Callable[..., Any] | None = None,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    disable: bool = False,
    recompile_limit: int | None = None,
) -> Any:
    """A function, method or Module that is captured when it is called, and runs compiled.

    Capture rewrites nothing: Python runs the function, operators are noted instead of executed,
    and what was noted is compiled as a graph when a value is needed. The result of a call, its
    errors and side effects are those of the function itself.

    Args:
        model: What to compile; without it, this is a decorator. A Module gives a Module that
            shares all its state with the one given; ``Module.compile()`` works in place. A
            function that is compiled already is compiled anew.
        fullgraph: Raise where the function needs a value in its middle, with the line.
        dynamic: Whether sizes are symbolic: True from the first call on, False never, None for
            those that were seen to change.
        backend: Name or function; see ``mortice.compiler.list_backends()``.
        mode: A set of the backend's options by name; see ``list_mode_options()``.
        options: Options of the backend; see ``mortice.compiler.options_of(backend)``.
        disable: Return ``model`` as it is.
        recompile_limit: Graphs that one place of the function may be compiled to before it runs
            operator by operator; 8 if not given.

    Raises:
        PluginNotFound: (a RuntimeError) No such backend; the nearest name is given.
        OptionError: (a RuntimeError) An unknown option or mode, a value of another type, or both
            ``mode`` and ``options``.
        ArgumentError: (a TypeError) ``model`` cannot be called, or an argument has another type.
    """
    settings = _settings(fullgraph, dynamic, backend, mode, options, recompile_limit)

    def decorate(target: Any) -> Any:
        return target if disable else compiled(target, settings)

    return decorate if model is None else decorate(model)


def compiled(model: Any, settings: Settings) -> Any:
    """``model`` compiled with settings that have been checked."""
    from mortice._capture.compiled import Compiled

    def wrap(fn: Callable[..., Any]) -> Compiled:
        return Compiled(fn, settings)

    if isinstance(model, Compiled):
        return wrap(model.fn)
    if isinstance(model, type):
        raise ArgumentError(
            f"compile() takes a function, a method or a Module, not the class {model.__name__}. "
            "Compile an instance of it, or one of its methods."
        )
    hook = getattr(type(model), "__mortice_compile__", None)
    if hook is not None:
        return hook(model, wrap)
    if not callable(model):
        raise ArgumentError(
            f"compile() takes a function, a method or a Module, not {type(model).__name__}"
        )
    return wrap(model)


def _settings(
    fullgraph: Any, dynamic: Any, backend: Any, mode: Any, options: Any, recompile_limit: Any
) -> Settings:
    _check("fullgraph", fullgraph, (bool,))
    _check("dynamic", dynamic, (bool, type(None)))
    _check("mode", mode, (str, type(None)))
    _check("options", options, (Mapping, type(None)))
    _check("recompile_limit", recompile_limit, (int, type(None)))
    if recompile_limit is not None and (recompile_limit < 1 or recompile_limit is True):
        raise ArgumentError(
            f"compile(): recompile_limit is {recompile_limit!r}; expected at least 1"
        )
    if mode is not None and options:
        raise OptionError(
            "compile(): either mode or options can be given, not both. "
            "mortice.compiler.list_mode_options() shows the options that a mode stands for."
        )
    found = resolve(backend)
    chosen = chosen_options(
        found.name, found.declaration, options or {}, configured=found.configured, mode=mode
    )
    return Settings(
        backend=found.fn,
        backend_name=found.name,
        compile_segment=compile_segment,
        declaration=found.declaration,
        options=chosen,
        mode=mode,
        fullgraph=fullgraph,
        dynamic=dynamic,
        recompile_limit=recompile_limit or RECOMPILE_LIMIT,
        keep=None if found.declaration.keeping is None else keep,
        shelf=None if found.declaration.keeping is None else Shelf.of,
    )


def _check(name: str, value: Any, types: tuple[type, ...]) -> None:
    if not isinstance(value, types):
        wanted = " or ".join("None" if t is type(None) else t.__name__ for t in types)
        raise ArgumentError(f"compile(): {name} is {value!r}; expected {wanted}")
