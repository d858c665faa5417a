"""Tracing a program by running it on stand-ins: ``symbolic_trace``, ``Tracer``, ``wrap``."""

from __future__ import annotations

import builtins
import copy
import functools
import inspect
import sys
from _thread import RLock
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FunctionType, ModuleType
from typing import Any

from mortice._base.errors import InvalidState, InvalidValue, TraceError, nearest
from mortice._tensor.tensor import Tensor
from mortice.fx import attributes
from mortice.fx.codegen import PyTreeCodeGen
from mortice.fx.graph import Graph
from mortice.fx.graph_module import GraphModule
from mortice.fx.node import SIDE_EFFECTS, Node, map_aggregate
from mortice.fx.proxy import Proxy, TracerBase, record_function
from mortice.utils import pytree


class _Placeholder:
    def __repr__(self) -> str:
        return "PH"


#: In ``concrete_args``: this leaf of a nested argument is an input.
PH: Any = _Placeholder()


def symbolic_trace(root: Any, concrete_args: dict[str, Any] | None = None) -> GraphModule:
    """The program ``root``, a function or a Module, as a GraphModule.

    ``root`` is run once on stand-ins (Proxy), which write down what is done with them: functions,
    methods and leaf modules, as the program calls them. Branches on values, and loops of a length
    that depends on them, raise TraceError.

    Args:
        root: what to trace.
        concrete_args: arguments by name that keep these values; calls with others raise. Nested
            arguments may hold ``PH`` where there is an input.
    """
    tracer = Tracer()
    graph = tracer.trace(root, concrete_args)
    name = root.__name__ if isinstance(root, FunctionType) else type(root).__name__
    return GraphModule(tracer.root, graph, name)


class Tracer(TracerBase):
    """Traces a program; subclasses say which modules are leaves.

    Attributes:
        root: the traced Module, or what holds the tensors that a traced function uses.
        graph: the graph.
    """

    record_stack_traces = True

    def __init__(self) -> None:
        self.root: Any = None
        self._module_names: dict[int, str] = {}
        self._tensor_names: dict[int, str] = {}
        self._constants = 0

    # -- what subclasses override --------------------------------------------------------------

    def is_leaf_module(self, m: Any, module_qualified_name: str) -> bool:
        """Whether calls of a module become one node: those of mortice.nn, but for Sequential."""
        package = type(m).__module__.partition(".")[0]
        return package == "mortice_nn" and type(m).__name__ != "Sequential"

    def path_of_module(self, mod: Any) -> str:
        """Dotted name of a module below the root."""
        name = self._module_names.get(id(mod))
        if name is None:
            raise TraceError(
                f"the module {type(mod).__name__}() is called, but it is no sub-module of "
                f"{type(self.root).__name__}: assign it to an attribute in __init__."
            )
        return name

    def call_module(
        self, m: Any, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """A call of a sub-module: a node if it is a leaf, else it is traced through."""
        name = self.path_of_module(m)
        if not self.is_leaf_module(m, name):
            return forward(*args, **kwargs)
        return self.create_proxy("call_module", name, args, kwargs, name.replace(".", "_"))

    # -- arguments -----------------------------------------------------------------------------

    def _create_leaf(self, a: Any) -> Any:
        if isinstance(a, Tensor):
            return self._attribute(a)
        if id(a) in self._module_names and not isinstance(a, Proxy):
            name = self._module_names[id(a)]
            return self.create_node("get_attr", name, (), {}, name.replace(".", "_"))
        return super()._create_leaf(a)

    def _attribute(self, tensor: Any) -> Node:
        name = self._tensor_names.get(id(tensor))
        if name is None:
            name = f"_tensor_constant{self._constants}"
            self._constants += 1
            # Of the tracer's own root, not of the user's module.
            self.root.__dict__[name] = tensor
            self._tensor_names[id(tensor)] = name
        return self.create_node("get_attr", name, (), {}, name.replace(".", "_"))

    # -- tracing -------------------------------------------------------------------------------

    def trace(self, root: Any, concrete_args: dict[str, Any] | None = None) -> Graph:
        """The graph of ``root``, a function or a Module."""
        self.graph = Graph()
        module_class = attributes.module_class(root)
        if module_class is not None:
            function = root.forward
            self.root = copy.copy(root)
            self._module_names = {id(m): n for n, m in root.named_modules()}
            pairs = [*root.named_parameters(), *root.named_buffers()]
            self._tensor_names = {id(t): n for n, t in pairs}
        else:
            function, self.root = root, attributes.Scope()
        with _tracing(self, module_class):
            args, kwargs, checks = self._arguments(function, concrete_args or {})
            for name, proxy, value in checks:
                self.create_proxy("call_function", check_specialised, (proxy, value, name), {})
            result = function(*args, **kwargs)
        if isinstance(self.graph._codegen, PyTreeCodeGen):
            leaves, spec = pytree.tree_flatten(result)
            self.graph._codegen.out_spec = spec
            result = tuple(leaves)
        self.graph.output(self.create_arg(result))
        self.graph.owning_module = None
        return self.graph

    def _arguments(self, function: Any, concrete: dict[str, Any]) -> Any:
        """(args, kwargs, what has to be checked) to call the traced function with."""
        parameters = list(inspect.signature(function).parameters.values())
        names = [p.name for p in parameters]
        for name in concrete:
            if name not in names:
                raise InvalidValue(
                    f"concrete_args: there is no argument {name!r}.{nearest(name, names)} The arguments are: "
                    f"{', '.join(names)}"
                )
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        checks: list[Any] = []
        specs: list[Any] = []
        nested = any(_has_placeholder(v) for v in concrete.values())
        for p in parameters:
            if p.name in concrete:
                value, spec = self._concrete(p.name, concrete[p.name], nested, checks)
            else:
                value, spec = self._input(p), pytree.LEAF
            specs.append(spec)
            if p.kind is p.VAR_POSITIONAL:
                args.append(_Star(value))
            elif p.kind is p.VAR_KEYWORD:
                kwargs.update(_DoubleStar(value))
            elif p.kind is p.KEYWORD_ONLY:
                kwargs[p.name] = value
            else:
                args.append(value)
        if nested:
            self._nest(parameters, specs)
        return _flattened(args), kwargs, checks

    def _nest(self, parameters: list[inspect.Parameter], specs: list[Any]) -> None:
        if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD, p.KEYWORD_ONLY) for p in parameters):
            raise TraceError(
                "PH in concrete_args needs a function whose arguments are all positional."
            )
        leaves = sum(s.num_leaves for s in specs)
        args = pytree.TreeSpec(tuple, None, tuple(specs), leaves)
        whole = pytree.TreeSpec(tuple, None, (args, pytree.tree_structure({})), leaves)
        self.graph.set_codegen(PyTreeCodeGen([p.name for p in parameters], whole, None))

    def _input(self, p: inspect.Parameter) -> Proxy:
        stars = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        default = () if p.default is p.empty else (self.create_arg(p.default),)
        return self.create_proxy("placeholder", f"{stars}{p.name}", default, {}, p.name)

    def _concrete(self, name: str, value: Any, nested: bool, checks: list[Any]) -> Any:
        """An argument that keeps its value: its inputs are proxies, the rest is checked in calls."""
        leaves, spec = pytree.tree_flatten(value)
        if not nested:
            proxy = self.create_proxy("placeholder", name, (self.create_arg(value),), {}, name)
            checks.append((name, proxy, value))
            return value, pytree.LEAF
        found: list[Any] = []
        for i, leaf in enumerate(leaves):
            leaf_name = name if spec.is_leaf() else f"{name}_{i}"
            proxy = self.create_proxy("placeholder", leaf_name, (), {}, leaf_name)
            if leaf is not PH:
                checks.append((leaf_name, proxy, leaf))
            found.append(proxy if leaf is PH else leaf)
        return spec.unflatten(found), spec


def _has_placeholder(value: Any) -> bool:
    return any(x is PH for x in pytree.tree_leaves(value))


class _Star:
    """A stand-in for ``*args``: the traced function gets it as its ``args``."""

    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy


def _flattened(args: list[Any]) -> list[Any]:
    if any(isinstance(x, _Star) for x in args):
        raise TraceError(
            "the traced function takes *args, whose number is not known while it is traced. Give it named "
            "arguments, or trace with mortice.fx.make_fx(f)(*example)."
        )
    return args


def _DoubleStar(proxy: Proxy) -> dict[str, Any]:
    raise TraceError(
        f"the traced function takes **{proxy.node.name}, whose names are not known while it is traced. "
        "Give it named arguments, or trace with mortice.fx.make_fx(f)(*example)."
    )


def check_specialised(value: Any, expected: Any, name: str) -> None:
    """InvalidValue unless an argument has the value that the program was traced with."""
    if isinstance(value, Tensor) or not (value is expected or value == expected):
        raise InvalidValue(
            f"{name} has been specialised to {expected!r} by concrete_args, but the call gives {value!r}. "
            "Trace again for another value."
        )


SIDE_EFFECTS.add(check_specialised)


# -- what is patched while a program is traced -----------------------------------------------------

_LOCK = RLock()
_ACTIVE: list[Tracer] = []


@contextmanager
def _tracing(tracer: Tracer, module_class: type | None) -> Generator[None]:
    """Let calls of modules, and of functions that are no operators, reach the tracer.

    Programs that other threads run meanwhile are not affected: what is put in place acts on
    stand-ins only.
    """
    with _LOCK:
        undo: list[tuple[Any, str, Any]] = []
        _ACTIVE.append(tracer)
        try:
            if module_class is not None:
                undo.append((module_class, "__call__", module_class.__call__))
                setattr(module_class, "__call__", _call_of(module_class.__call__))  # noqa: B010
            for namespace in _namespaces():
                for name, function in list(vars(namespace).items()):
                    if isinstance(function, FunctionType) and _is_ours(name, function):
                        undo.append((namespace, name, function))
                        setattr(namespace, name, _recorded_once(function))
            yield
        finally:
            _ACTIVE.pop()
            for owner, name, value in reversed(undo):
                setattr(owner, name, value)


def _call_of(original: Any) -> Any:
    @functools.wraps(original)
    def call(module: Any, *args: Any, **kwargs: Any) -> Any:
        tracer = _ACTIVE[-1] if _ACTIVE else None
        if tracer is None or not _any_proxy((args, kwargs)):
            return original(module, *args, **kwargs)
        forward = functools.partial(original, module)
        return tracer.call_module(module, forward, args, kwargs)

    return call


def _namespaces() -> list[ModuleType]:
    names = ("mortice", "mortice_nn.functional")
    return [sys.modules[n] for n in names if n in sys.modules]


def _is_ours(name: str, function: FunctionType) -> bool:
    """Whether it is one of ours, written by hand: those that are generated know stand-ins."""
    module = function.__module__
    return (
        name[0] != "_"
        and module.startswith(("mortice.", "mortice_nn."))
        and not module.startswith("mortice._generated.")
    )


def _any_proxy(value: Any) -> bool:
    found: list[Any] = []

    def note(x: Any) -> Any:
        if isinstance(x, Proxy):
            found.append(x)
        return x

    map_aggregate(value, note)
    return bool(found)


def _recorded(function: Any) -> Any:
    """``function``, which becomes a node when it is called on stand-ins."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if _any_proxy((args, kwargs)):
            return record_function(function, args, kwargs)
        return function(*args, **kwargs)

    return call


#: Made once for each of our functions: a trace puts some 200 in place.
_recorded_once = functools.cache(_recorded)


def wrap(fn_or_name: Any) -> Any:
    """Let calls of a function be nodes, instead of tracing through it.

    As a decorator, or ``wrap("name")`` at the top of a module for a function or builtin used there.
    """
    if callable(fn_or_name):
        return _recorded(fn_or_name)
    frame = sys._getframe(1)
    if frame.f_code.co_name != "<module>":
        raise InvalidState("wrap(name) must be called at the top level of a module")
    scope = frame.f_globals
    function = scope.get(fn_or_name, getattr(builtins, fn_or_name, None))
    if not callable(function):
        names = [n for n, v in scope.items() if callable(v)]
        raise InvalidValue(
            f"wrap: there is no function {fn_or_name!r} in this module.{nearest(fn_or_name, names)}"
        )
    scope[fn_or_name] = _recorded(function)
    return fn_or_name
