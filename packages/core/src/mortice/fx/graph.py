"""A graph: a list of nodes in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from mortice._base.errors import InvalidState
from mortice.fx import symbols
from mortice.fx.codegen import CodeGen, PythonCode, generate
from mortice.fx.lint import lint
from mortice.fx.naming import Namespace, target_name
from mortice.fx.node import Node, map_arg, show_target


class NodeList:
    """The nodes of a graph in order; ``reversed`` and ``len`` work, and nodes may be erased on the way."""

    def __init__(self, graph: Graph, backwards: bool = False) -> None:
        self._graph = graph
        self._backwards = backwards

    def __len__(self) -> int:
        return self._graph._len

    def __iter__(self) -> Iterator[Node]:
        root = self._graph._root
        node = root._prev if self._backwards else root._next
        while node is not root:
            if not node._erased:
                yield node
            node = node._prev if self._backwards else node._next

    def __reversed__(self) -> Iterator[Node]:
        return iter(NodeList(self._graph, not self._backwards))

    def __repr__(self) -> str:
        return repr(list(self))


class _InsertPoint:
    def __init__(self, graph: Graph, before: Node) -> None:
        self._graph = graph
        self._previous = graph._before
        graph._before = before

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        self._graph._before = self._previous


class Graph:
    """Nodes in the order of execution, from placeholders to the output.

    Attributes:
        owning_module: the GraphModule that runs it, if any.
    """

    def __init__(self, owning_module: Any = None) -> None:
        self._root = Node(self, "", "placeholder", "", (), {})
        self._before = self._root
        self._len = 0
        self._names = Namespace()
        self._codegen = CodeGen()
        self.owning_module = owning_module

    @property
    def nodes(self) -> NodeList:
        return NodeList(self)

    # -- making nodes --------------------------------------------------------------------------

    def create_node(
        self,
        op: str,
        target: Any,
        args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None,
        name: str | None = None,
        type_expr: Any = None,
    ) -> Node:
        """A new node at the insertion point (the end, unless set); ``name`` is a wish."""
        unique = self._names.create_name(name if name is not None else target_name(target))
        node = Node(self, unique, op, target, args or (), kwargs or {}, type_expr)
        self._before.prepend(node)
        self._len += 1
        return node

    def placeholder(self, name: str, type_expr: Any = None, default_value: Any = ...) -> Node:
        """An input; it stands before all other nodes."""
        args = () if default_value is ... else (default_value,)
        return self.create_node("placeholder", name, args, type_expr=type_expr)

    def get_attr(self, qualified_name: str, type_expr: Any = None) -> Node:
        """What the module has at the dotted ``qualified_name``: a parameter, buffer, constant."""
        name = qualified_name.replace(".", "_")
        return self.create_node("get_attr", qualified_name, name=name, type_expr=type_expr)

    def call_function(
        self,
        the_function: Any,
        args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None,
        type_expr: Any = None,
        name: str | None = None,
    ) -> Node:
        return self.create_node("call_function", the_function, args, kwargs, name, type_expr)

    def call_method(
        self,
        method_name: str,
        args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None,
        type_expr: Any = None,
    ) -> Node:
        """``args[0].method_name(*args[1:], **kwargs)``."""
        return self.create_node("call_method", method_name, args, kwargs, None, type_expr)

    def call_module(
        self,
        module_name: str,
        args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None,
        type_expr: Any = None,
    ) -> Node:
        """A call of the sub-module at the dotted ``module_name``."""
        name = module_name.replace(".", "_")
        return self.create_node("call_module", module_name, args, kwargs, name, type_expr)

    def output(self, result: Any, type_expr: Any = None) -> Node:
        """The last node: what the graph returns, a structure that holds nodes."""
        return self.create_node("output", "output", (result,), type_expr=type_expr)

    def node_copy(self, node: Node, arg_transform: Callable[[Node], Any] = lambda x: x) -> Node:
        """A copy here of another graph's node, each node among its arguments given to ``arg_transform``."""
        args = map_arg(node.args, arg_transform)
        kwargs = map_arg(node.kwargs, arg_transform)
        copied = self.create_node(node.op, node.target, args, kwargs, node.name, node.type)
        copied.meta = dict(node.meta)
        return copied

    def graph_copy(
        self, g: Graph, val_map: dict[Node, Any], return_output_node: bool = False
    ) -> Any:
        """Copy the nodes of ``g`` here and return what ``g`` returns, in nodes of this graph.

        ``val_map`` says what stands here for nodes of ``g``; it is filled with the others. With
        ``return_output_node`` the result is the pair of that and ``g``'s output node; None if ``g``
        has no output.
        """
        for node in g.nodes:
            if node in val_map:
                continue
            if node.op == "output":
                result = map_arg(node.args[0], val_map.__getitem__)
                return (result, node) if return_output_node else result
            val_map[node] = self.node_copy(node, val_map.__getitem__)
        return None

    def __deepcopy__(self, memo: dict[int, Any]) -> Graph:
        copied = Graph()
        memo[id(self)] = copied
        copied._codegen = self._codegen
        values: dict[Node, Any] = {}
        found = copied.graph_copy(self, values, return_output_node=True)
        if found is not None:
            result, old = found
            node = copied.output(result, old.type)
            node.meta = dict(old.meta)
        return copied

    # -- places --------------------------------------------------------------------------------

    def inserting_before(self, n: Node | None = None) -> _InsertPoint:
        """Where new nodes go, within ``with`` or from now on: before ``n``, or at the beginning."""
        return _InsertPoint(self, self._own(n) if n is not None else self._root._next)

    def inserting_after(self, n: Node | None = None) -> _InsertPoint:
        """As ``inserting_before``: after ``n``, or at the end."""
        return _InsertPoint(self, self._own(n)._next if n is not None else self._root)

    def _own(self, node: Node) -> Node:
        if node.graph is not self:
            raise InvalidState(f"node {node.name} belongs to another graph")
        return node

    def erase_node(self, to_erase: Node) -> None:
        """Take a node out; InvalidState if it is used."""
        self._own(to_erase)
        if to_erase.users:
            users = ", ".join(user.name for user in to_erase.users)
            raise InvalidState(
                f"node {to_erase.name} still has users: {users}. Replace them first, for example with "
                "node.replace_all_uses_with(other)."
            )
        if to_erase._erased:
            return
        to_erase.args, to_erase.kwargs = (), {}
        to_erase._unlink()
        to_erase._erased = True
        if self._before is to_erase:
            self._before = to_erase._next
        self._len -= 1

    # -- finding -------------------------------------------------------------------------------

    def find_nodes(self, *, op: str, target: Any = None, sort: bool = True) -> list[Node]:
        """The nodes of a kind, and with ``target`` those with that target, in order."""
        return [n for n in self.nodes if n.op == op and (target is None or n.target == target)]

    def output_node(self) -> Node:
        for node in reversed(self.nodes):
            if node.op == "output":
                return node
        raise InvalidState("the graph has no output node")

    # -- inputs and outputs --------------------------------------------------------------------

    def set_codegen(self, codegen: CodeGen) -> None:
        """How the arguments of the call become the placeholders' values, and the results its own."""
        self._codegen = codegen

    def process_inputs(self, *args: Any) -> Any:
        return self._codegen.process_inputs(*args)

    def process_outputs(self, out: Any) -> Any:
        return self._codegen.process_outputs(out)

    def python_code(self, root_module: str = "self", *, dotted: bool = True) -> PythonCode:
        """The graph as a Python function; ``dotted`` names operators in full, to be read."""
        return generate(self, root_module, dotted)

    # -- checks and cleaning -------------------------------------------------------------------

    def lint(self) -> None:
        """Raise InvalidState if the graph is not well formed, naming the node."""
        lint(self)

    def eliminate_dead_code(self, is_impure_node: Callable[[Node], bool] | None = None) -> bool:
        """Erase the nodes that nobody uses and that do nothing else; whether there were any.

        ``is_impure_node`` replaces Node.is_impure as to which stay. Those from which a symbolic size in
        use gets its value stay, too.
        """
        impure = is_impure_node or Node.is_impure
        binding = symbols.bindings(self)
        before = self._len
        for node in reversed(self.nodes):
            if not node.users and node not in binding and not impure(node):
                self.erase_node(node)
        return self._len < before

    # -- reading -------------------------------------------------------------------------------

    def __str__(self) -> str:
        names: list[str] = []
        returned: list[str] = []
        lines = [line for n in self.nodes if (line := n.format_node(names, returned)) is not None]
        head = f"graph({', '.join(f'%{n}' for n in names)}){returned[0] if returned else ''}:"
        return "\n    ".join([head, *lines])

    def tabular(self) -> str:
        """The nodes as a table: opcode, name, target, args, kwargs."""
        rows = [("opcode", "name", "target", "args", "kwargs")]
        rows += [
            (n.op, n.name, show_target(n.target), repr(n.args), repr(dict(n.kwargs)))
            for n in self.nodes
        ]
        return _table(rows)

    def print_tabular(self) -> None:
        print(self.tabular())  # noqa: T201  what it is for


def _table(rows: Iterable[tuple[str, ...]]) -> str:
    cells = list(rows)
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    lines = ["  ".join(c.ljust(w) for c, w in zip(row, widths)).rstrip() for row in cells]
    lines.insert(1, "  ".join("-" * w for w in widths))
    return "\n".join(lines)
