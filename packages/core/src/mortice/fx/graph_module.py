"""A graph with the attributes that it uses, callable."""

from __future__ import annotations

import copy
import itertools
import linecache
import weakref
from collections.abc import Iterator
from typing import Any

from mortice._base.errors import InvalidState
from mortice.fx import attributes
from mortice.fx.attributes import Scope
from mortice.fx.codegen import PythonCode
from mortice.fx.graph import Graph

_COUNTER = itertools.count()


class GraphModule:
    """Runs ``graph`` on attributes taken from ``root``: a module, a dict by dotted name, or any object.

    Where ``root`` is a Module (or a dict with one in it), so is the GraphModule: its parameters,
    buffers, ``state_dict``, ``train`` and ``to`` are those of the attributes that the graph uses.
    Otherwise it offers ``named_parameters``, ``named_buffers`` and ``get_submodule`` itself.
    Tensors and modules are shared with the root, not copied. The code is made when it is first
    asked for or run, and again after ``recompile()``.
    """

    #: Whose class is not a Module's. The names that __init__ sets by way of __dict__.
    _graph: Graph
    _function: Any
    meta: dict[str, Any]

    def __new__(cls, root: Any, graph: Graph | None = None, class_name: str = "GraphModule") -> Any:
        base = attributes.module_class(root)
        if base is None or issubclass(cls, base):
            return object.__new__(cls)
        return object.__new__(_combined(cls, base))

    def __init__(
        self, root: Any, graph: Graph | None = None, class_name: str = "GraphModule"
    ) -> None:
        base = attributes.module_class(root)
        if base is not None:
            base.__init__(self)
            self.training = getattr(root, "training", True)  # pyright: ignore[reportUninitializedInstanceVariable]
        graph = graph if graph is not None else Graph()
        if graph.owning_module is not None:
            graph = copy.deepcopy(graph)
        self.__dict__.update(_graph=graph, _function=None, meta={}, class_name=class_name)
        make = base or Scope
        if isinstance(root, dict):
            for target, value in root.items():
                attributes.assign(self, target, value, make)
        elif root is not None:
            for node in graph.nodes:
                if node.op in ("get_attr", "call_module") and not _has(self, node.target):
                    value = attributes.fetch(root, node.target)
                    attributes.assign(self, node.target, value, make)
        graph.owning_module = self

    # -- graph and code ------------------------------------------------------------------------

    @property
    def graph(self) -> Graph:
        return self._graph

    @graph.setter
    def graph(self, graph: Graph) -> None:
        if graph.owning_module not in (None, self):
            graph = copy.deepcopy(graph)
        self.__dict__["_graph"] = graph
        graph.owning_module = self
        self.recompile()

    @property
    def code(self) -> str:
        """The graph as Python, with operators by their full names."""
        return self._graph.python_code().src

    def recompile(self) -> None:
        """Forget the function made of the graph: call it after a change of the graph."""
        self.__dict__["_function"] = None

    def _compile(self) -> Any:
        function = _load(self._graph.python_code(dotted=False), self)
        self.__dict__["_function"] = function
        return function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return (self._function or self._compile())(self, *args, **kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return (self._function or self._compile())(self, *args, **kwargs)

    def print_readable(self, print_output: bool = True) -> str:
        """The code below a class line, printed unless ``print_output`` is false."""
        body = "".join(f"    {line}\n" for line in self.code.rstrip().split("\n"))
        text = f"class {self.class_name}:\n{body}"
        if print_output:
            print(text)  # noqa: T201  what it is for
        return text

    class_name: str

    # -- attributes ----------------------------------------------------------------------------

    def get_submodule(self, target: str) -> Any:
        return attributes.fetch(self, target) if target else self

    def get_parameter(self, target: str) -> Any:
        return attributes.fetch(self, target)

    get_buffer = get_parameter

    def add_submodule(self, target: str, m: Any) -> bool:
        """Put a module (or any callable) at a dotted name."""
        attributes.assign(self, target, m, attributes.module_class(self) or Scope)
        return True

    def delete_submodule(self, target: str) -> bool:
        """Take the module at a dotted name away; whether there was one."""
        parent, _, name = target.rpartition(".")
        if not _has(self, target):
            return False
        delattr(attributes.fetch(self, parent) if parent else self, name)
        return True

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, Any]]:
        pairs = attributes.tensors(self)
        return ((n, x) for n, x in pairs if attributes.is_parameter(x))

    def named_buffers(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, Any]]:
        pairs = attributes.tensors(self)
        return ((n, x) for n, x in pairs if not attributes.is_parameter(x))

    def parameters(self, recurse: bool = True) -> Iterator[Any]:
        return (x for _, x in self.named_parameters())

    def buffers(self, recurse: bool = True) -> Iterator[Any]:
        return (x for _, x in self.named_buffers())

    # -- copies --------------------------------------------------------------------------------

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self._copied(lambda value: copy.deepcopy(value, memo), memo)

    def __copy__(self) -> Any:
        return self._copied(lambda value: value, {})

    def _copied(self, copied: Any, memo: dict[int, Any]) -> Any:
        made = object.__new__(type(self))
        memo[id(self)] = made
        own = ("_graph", "_function")
        made.__dict__.update({k: copied(v) for k, v in self.__dict__.items() if k not in own})
        graph = copy.deepcopy(self._graph)
        made.__dict__.update(_graph=graph, _function=None)
        graph.owning_module = made
        return made

    def __reduce__(self) -> Any:
        raise InvalidState(
            "a GraphModule is not pickled, since its nodes hold functions; save an exported program with "
            "mortice.export.save, or the code (gm.code) and the state."
        )

    def _get_name(self) -> str:
        return self.class_name

    def __str__(self) -> str:
        return f"{self.class_name}()\n\n{self.code}"

    def __repr__(self) -> str:
        return f"{self.class_name}()"


def _has(root: Any, target: str) -> bool:
    value = root
    for part in target.split("."):
        if not hasattr(value, part):
            return False
        value = getattr(value, part)
    return True


_COMBINED: dict[tuple[type, type], type] = {}
#: What a Module does better than a GraphModule that is none.
_MODULES_OWN = (
    "__call__", "__repr__", "get_submodule", "get_parameter", "get_buffer", "named_parameters", "named_buffers",
    "parameters", "buffers",
)  # fmt: skip


def _combined(cls: type, module: type) -> type:
    """A class that is both, made once for each pair."""
    found = _COMBINED.get((cls, module))
    if found is None:
        methods = {name: getattr(module, name) for name in _MODULES_OWN}
        found = _COMBINED[cls, module] = type(cls.__name__, (cls, module), methods)
        found.__module__ = cls.__module__
    return found


def _load(code: PythonCode, owner: GraphModule) -> Any:
    """The function that the code defines; its source can be seen in tracebacks and debuggers."""
    name = f"<mortice fx graph {next(_COUNTER)}>"
    lines = code.src.splitlines(keepends=True)
    linecache.cache[name] = (len(code.src), None, lines, name)
    scope = dict(code.globals)
    exec(compile(code.src, name, "exec"), scope)  # noqa: S102  the code is made of the graph
    function = scope["forward"]
    weakref.finalize(function, linecache.cache.pop, name, None)
    return function
