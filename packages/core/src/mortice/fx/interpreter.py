"""Running a graph node by node, and rewriting it on the way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mortice._base.errors import ArgumentError, InvalidState
from mortice.fx import attributes, stack, symbols
from mortice.fx.graph import Graph
from mortice.fx.graph_module import GraphModule
from mortice.fx.liveness import last_uses
from mortice.fx.node import Node, map_aggregate
from mortice.fx.proxy import Proxy, TracerBase


class Interpreter:
    """Runs a graph; subclasses override what is done with each kind of node.

    ``env`` holds the values of the nodes that have run and are still needed. ``graph`` may be another
    graph than the module's, whose attributes it uses.
    """

    def __init__(
        self, module: Any, garbage_collect_values: bool = True, graph: Graph | None = None
    ) -> None:
        self.module = module
        self.graph: Graph = graph if graph is not None else module.graph
        self.env: dict[Node, Any] = {}
        self.garbage_collect_values = garbage_collect_values
        self._last_uses = last_uses(self.graph) if garbage_collect_values else {}
        self._symbols: dict[str, Any] = {}
        self._bindings = symbols.bindings(self.graph)
        self._inputs: Iterator[Any] = iter(())

    def run(
        self,
        *args: Any,
        initial_env: dict[Node, Any] | None = None,
        enable_io_processing: bool = True,
    ) -> Any:
        """What the graph returns for ``args``.

        ``initial_env`` gives the values of nodes that shall not run. Without
        ``enable_io_processing``, arguments and result are the placeholders' and the output's own.
        """
        self.env = dict(initial_env) if initial_env else {}
        if enable_io_processing:
            args = tuple(self.graph.process_inputs(*args))
        self._inputs = iter(args)
        self._symbols = {}
        for node in self.graph.nodes:
            if node in self.env:
                continue
            try:
                with stack.origin(node.meta.get("stack")):
                    value = self.run_node(node)
            except Exception as error:
                _note_node(error, node)
                raise
            if node.op == "output":
                return self.graph.process_outputs(value) if enable_io_processing else value
            self.env[node] = value
            if node in self._bindings:
                self._symbols.update(symbols.read(self._bindings[node], node, value))
            for used in self._last_uses.get(node, ()):
                self.env.pop(used, None)
        return None

    def boxed_run(self, args_list: list[Any]) -> Any:
        """As ``run``, taking the inputs out of the list so that they can be freed."""
        args = list(args_list)
        args_list.clear()
        return self.run(*args, enable_io_processing=False)

    def run_node(self, n: Node) -> Any:
        """The value of a node whose arguments are in ``env``."""
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        return getattr(self, n.op)(n.target, args, kwargs)

    def placeholder(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if target.startswith("*") and not target.startswith("**"):
            return list(self._inputs)
        for value in self._inputs:
            return value
        if args:
            return args[0]
        raise ArgumentError(f"no argument was given for the input {target!r}, which has no default")

    def get_attr(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self.fetch_attr(target)

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return target(*args, **kwargs)

    def call_method(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return getattr(args[0], target)(*args[1:], **kwargs)

    def call_module(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self.fetch_attr(target)(*args, **kwargs)

    def output(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return args[0]

    def fetch_attr(self, target: str) -> Any:
        """The module's attribute at a dotted name."""
        return attributes.fetch(self.module, target)

    def fetch_args_kwargs_from_env(self, n: Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """A node's arguments with the values of nodes and symbolic sizes in their places."""
        return self.map_nodes_to_values(n.args, n), self.map_nodes_to_values(dict(n.kwargs), n)

    def map_nodes_to_values(self, args: Any, n: Node) -> Any:
        env = self.env
        symbolic = bool(self._bindings)

        def value_of(x: Any) -> Any:
            if isinstance(x, Node):
                if x not in env:
                    raise InvalidState(f"node {n.name} needs {x.name}, which has no value yet")
                return env[x]
            if symbolic and symbols.is_symbolic(x):
                return x.evaluate(self._symbols)
            return x

        return _plain(map_aggregate(args, value_of))


def _plain(value: Any) -> Any:
    """Arguments in lists and dicts that may be changed, as functions expect."""
    if type(value) is tuple:
        return tuple([_plain(x) for x in value])
    if isinstance(value, list):
        return [_plain(x) for x in value]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}  # pyright: ignore[reportUnknownVariableType]
    return value


def _note_node(error: Exception, node: Node) -> None:
    """Say at which node, and for which line of the user's, an error was raised."""
    if getattr(error, "_fx_node", None) is not None or not error.args:
        return
    text = f"\n\nWhile executing {node.format_node()}"
    if node.stack_trace:
        text += f"\nOriginal line: {node.stack_trace}"
    if isinstance(error.args[0], str):
        error.args = (error.args[0] + text, *error.args[1:])
    error._fx_node = node.name  # pyright: ignore[reportAttributeAccessIssue]


class Transformer(Interpreter):
    """Makes a new GraphModule: each node's method returns what stands for it, by default itself.

    The values are Proxies; calling functions on them, or ``super()``'s methods, adds nodes.
    """

    def __init__(self, module: GraphModule) -> None:
        super().__init__(module, garbage_collect_values=False)
        self.new_graph = Graph()
        self.new_graph.set_codegen(module.graph._codegen)
        self.tracer = _Retracer(self.new_graph)
        self._node: Node | None = None

    def run_node(self, n: Node) -> Any:
        self._node = n
        value = super().run_node(n)
        if isinstance(value, Proxy) and n.meta and not value.node.meta:
            value.node.meta = dict(n.meta)
        return value

    def placeholder(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return Proxy(
            self.new_graph.placeholder(target, default_value=args[0] if args else ...), self.tracer
        )

    def get_attr(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self.tracer.create_proxy("get_attr", target, args, kwargs)

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self.tracer.create_proxy("call_function", target, args, kwargs)

    def call_method(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self.tracer.create_proxy("call_method", target, args, kwargs)

    def call_module(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self.tracer.create_proxy("call_module", target, args, kwargs)

    def map_nodes_to_values(self, args: Any, n: Node) -> Any:
        # Symbolic sizes stay what they are.
        return _plain(map_aggregate(args, lambda x: self.env[x] if isinstance(x, Node) else x))

    def run(self, *args: Any, **kwargs: Any) -> Any:
        self._bindings = {}
        return super().run(*args, enable_io_processing=False, **kwargs)

    def transform(self) -> GraphModule:
        """The rewritten module."""
        result = self.run()
        node = self.new_graph.output(self.tracer.create_arg(result))
        node.meta = dict(self.graph.output_node().meta)
        return GraphModule(self.module, self.new_graph)


class _Retracer(TracerBase):
    """Adds nodes for a Transformer."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph
