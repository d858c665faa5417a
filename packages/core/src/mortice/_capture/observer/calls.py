"""Calls: Python functions are looked into, the framework's are called, built-ins by allow-list."""

from __future__ import annotations

import functools
import types
from collections.abc import Sequence
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

from mortice._capture.guards import Element, Slot, Source
from mortice._capture.identity import module_of, one_of
from mortice._capture.observer import attributes, builtin_calls, classes, framework
from mortice._capture.observer.binding import bind_arguments
from mortice._capture.observer.decode import Unsupported, program
from mortice._capture.observer.frame import Frame
from mortice._capture.observer.framework import Kind
from mortice._capture.observer.handlers import resolved
from mortice._capture.observer.numbers import Traced, hand_over, settle, settled
from mortice._capture.observer.stand_in import native
from mortice._capture.observer.watch import Watch, is_plain

Args = Sequence[Any]
Kwargs = dict[str, Any]

#: Deeper than this, calls are made as they are: an observed call takes about eight Python frames.
MAX_DEPTH = 60

_METHOD_WRAPPER = type(object().__init__)
_UNBOUND = (types.MethodDescriptorType, types.WrapperDescriptorType)
#: Standard modules whose functions look at frames, clocks, threads or streams: called as they are.
_OPAQUE = frozenset(
    (
        "logging", "warnings", "traceback", "inspect", "threading", "unittest", "pdb", "bdb",
        "random", "time", "subprocess", "multiprocessing", "concurrent", "asyncio", "io", "gc",
        "weakref", "signal", "socket", "tempfile", "pickle", "importlib", "pytest", "_pytest",
        "numpy", "linecache", "tokenize", "ast", "dis", "queue", "selectors", "sys",
    )
)  # fmt: skip


def call(w: Watch, f: Any, args: Args, kwargs: Kwargs) -> Any:
    """``f(*args, **kwargs)``."""
    kind = type(f)
    if kind is FunctionType:
        return call_function(w, f, args, kwargs)
    if kind is MethodType:
        return call(w, f.__func__, (f.__self__, *args), kwargs)
    if framework.is_compiled(f):
        return call(w, attributes.load(w, f, "fn"), args, kwargs)
    if framework.is_operator_object(f):
        w.pin(f)
        given = {name: settle(w, x) for name, x in kwargs.items()}
        return _call_operator(w, f, settled(w, args), given)
    if not (issubclass(kind, type) or module_of(kind) == "builtins"):
        method = attributes.special(w, f, "__call__")
        if method is not None:
            return call(w, method, args, kwargs)
    args = settled(w, args)
    kwargs = {name: settle(w, x) for name, x in kwargs.items()}
    if issubclass(kind, type):
        return classes.instantiate(w, f, args, kwargs)
    if kind is BuiltinFunctionType:
        return builtin_calls.call_builtin(w, f, args, kwargs)
    if one_of(kind, (*_UNBOUND, _METHOD_WRAPPER)):
        return builtin_calls.call_unbound(w, f, args, kwargs)
    if kind is functools.partial:
        return _call_partial(w, f, args, kwargs)
    return native(w, f, args, kwargs, f"calls a {kind.__name__}")


# -- Python functions ------------------------------------------------------------------------------


def call_function(w: Watch, f: FunctionType, args: Args, kwargs: Kwargs) -> Any:
    kind = framework.kind_of(f)
    if kind is not Kind.USER:
        return call_framework(w, f, kind, args, kwargs)
    reason = _opaque(w, f)
    if reason is None:
        try:
            program(f.__code__)
        except Unsupported as error:
            reason = str(error)
    if reason is not None:
        return native(w, f, args, kwargs, reason)
    know_function(w, f)
    values = bind_arguments(w, f, args, kwargs)
    if values is None:
        return native(w, f, args, kwargs, f"arguments that do not fit {f.__name__}")
    return Frame(w, f, values, resolved(program(f.__code__))).run()


def _opaque(w: Watch, f: FunctionType) -> str | None:
    module = f.__globals__.get("__name__")
    if type(module) is str and module.partition(".")[0] in _OPAQUE:
        return f"calls {module}.{f.__name__}"
    if len(w.frames) >= MAX_DEPTH:
        return f"more than {MAX_DEPTH} calls deep"
    return None


def know_function(w: Watch, f: FunctionType) -> None:
    """Guard what a function is made of: its code and defaults; its cells have a path."""
    if w.is_fresh(f) or not w.once("function", id(f)):
        return
    source = w.source(f, f.__qualname__)
    module = f.__globals__.get("__name__")
    if type(module) is str and framework.is_library(module):
        return  # nobody swaps the code of the framework's own functions
    for name in ("__code__", "__defaults__", "__kwdefaults__"):
        w.read(w.intern(Slot, source, name), getattr(f, name))
    cells = w.intern(Slot, source, "__closure__")
    for index, cell in enumerate(f.__closure__ or ()):
        w.know(cell, w.intern(Element, cells, index))
    w.root(f.__globals__, f"globals of {f.__globals__.get('__name__')}", strong=True)


# -- the framework -----------------------------------------------------------------------------------


def call_framework(w: Watch, f: Any, kind: Kind, args: Args, kwargs: Kwargs) -> Any:
    """A function of core: called as it is."""
    if kind is Kind.UNKNOWN:
        return native(w, f, args, kwargs, f"calls {f.__module__}.{f.__qualname__}")
    result = _call_with_numbers(w, f, kind, args, kwargs)
    if kind is Kind.CONSTANT:
        w.constant(result)
    elif (
        one_of(type(result), (list, dict))
        or one_of(type(result), _ITERATORS)
        or (issubclass(type(result), tuple) and not is_plain(result))
    ):
        w.fresh(result)
    return result


def _call_with_numbers(w: Watch, f: Any, kind: Kind, args: Args, kwargs: Kwargs) -> Any:
    """Numbers that are traced stay so where they become a graph's numbers."""
    values = [*args, *kwargs.values()]
    count = len(args)

    def run(v: Sequence[Any]) -> Any:
        return w.whole(lambda: f(*v[:count], **dict(zip(kwargs, v[count:]))))

    if kind is not Kind.PURE or not any(type(x) is Traced for x in values):
        values = settled(w, values)
        arguments_read(w, f, values)
        return run(values)
    arguments_read(w, f, [x for x in values if type(x) is not Traced])
    return hand_over(w, run, values)


_ITERATORS = (type(iter(())), type(iter([])))


def arguments_read(w: Watch, f: Any, values: Sequence[Any]) -> None:
    """The callee reads its arguments through and through."""
    for value in values:
        if not w.deep(value) and not framework.is_context(type(value)):
            w.unknown(f"passes a {type(value).__name__} to {f.__name__}")


def _call_operator(w: Watch, f: Any, args: Args, kwargs: Kwargs) -> Any:
    if framework.operator_has_effects(f):
        return native(w, f, args, kwargs, f"calls {f.__qualname__}")
    arguments_read(w, f, (*args, *kwargs.values()))
    result = w.whole(lambda: f(*args, **kwargs))
    return w.fresh(result) if one_of(type(result), (list, tuple)) else result


# -- partial ---------------------------------------------------------------------------------------------


def _call_partial(w: Watch, f: Any, args: Args, kwargs: Kwargs) -> Any:
    parts = [f.func, f.args, f.keywords]
    if w.is_outer(f):
        source: Source = w.source(f)
        for name, value in zip(("func", "args", "keywords"), parts):
            w.read(w.intern(Slot, source, name), value)
        w.entries(f.args)
    else:
        w.fresh(f.keywords)
    function, first, keywords = parts
    if not w.entries(keywords):
        w.unknown("keywords of a partial")
    return call(w, function, (*first, *args), {**keywords, **kwargs})
