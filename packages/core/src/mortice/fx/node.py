"""A node of a graph: one operation, its arguments and who uses its result."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from mortice._base.errors import InvalidState, InvalidValue
from mortice.fx.immutable import ImmutableDict, ImmutableList

if TYPE_CHECKING:
    from mortice.fx.graph import Graph

OPS = ("placeholder", "get_attr", "call_function", "call_method", "call_module", "output")


def map_aggregate(value: Any, fn: Callable[[Any], Any]) -> Any:
    """``value`` with ``fn`` applied to what its tuples, lists, dicts and slices hold."""
    cls: type = type(value)
    if cls is tuple:
        return tuple([map_aggregate(x, fn) for x in value])
    if issubclass(cls, tuple):
        items = [map_aggregate(x, fn) for x in value]
        return value._make(items) if hasattr(value, "_fields") else cls(items)
    if issubclass(cls, list):
        return ImmutableList([map_aggregate(x, fn) for x in value])
    if issubclass(cls, dict):
        return ImmutableDict({k: map_aggregate(v, fn) for k, v in value.items()})
    if cls is slice:
        return slice(
            map_aggregate(value.start, fn),
            map_aggregate(value.stop, fn),
            map_aggregate(value.step, fn),
        )
    return fn(value)


def map_arg(value: Any, fn: Callable[[Node], Any]) -> Any:
    """``value`` with each Node inside it replaced by ``fn(node)``."""
    return map_aggregate(value, lambda x: fn(x) if isinstance(x, Node) else x)


class Node:
    """One operation of a Graph, made by the graph's methods.

    Attributes:
        op: one of ``placeholder``, ``get_attr``, ``call_function``, ``call_method``,
            ``call_module``, ``output``.
        target: what is called: a callable, a method's name, the dotted name of a module or
            attribute, or a placeholder's name.
        args, kwargs: its arguments, which may hold nodes at any depth; assign to change them.
        users: the nodes that use the result, in the order in which they came to do so.
        meta: free for passes; ``val`` is the fake result, ``stack`` the user's line.
        type: an annotation of the result, or None.
    """

    target: Any

    __slots__ = (
        "__weakref__", "_args", "_erased", "_inputs", "_kwargs", "_next", "_prev", "graph", "meta", "name", "op",
        "target", "type", "users",
    )  # fmt: skip

    def __init__(
        self,
        graph: Graph,
        name: str,
        op: str,
        target: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        type_expr: Any = None,
    ) -> None:
        if op not in OPS:
            raise InvalidValue(f"unknown kind of node {op!r}; expected one of {', '.join(OPS)}")
        if op == "call_function":
            if not callable(target):
                raise InvalidValue(
                    f"call_function needs a callable as its target, not {target!r}; a method's name goes with "
                    "call_method, a module's with call_module."
                )
        elif not isinstance(target, str):
            raise InvalidValue(f"{op} needs a str as its target, not {target!r}")
        self.graph = graph
        self.name = name
        self.op = op
        self.target = target
        self.type = type_expr
        self.users: dict[Node, None] = {}
        self.meta: dict[str, Any] = {}
        self._erased = False
        self._prev: Node = self
        self._next: Node = self
        self._inputs: dict[Node, None] = {}
        self._args: tuple[Any, ...] = ()
        self._kwargs: dict[str, Any] = {}
        self._set_arguments(args, kwargs)

    # -- arguments -----------------------------------------------------------------------------

    def _set_arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        for node in self._inputs:
            node.users.pop(self, None)
        inputs: dict[Node, None] = {}

        def note(value: Any) -> Any:
            if isinstance(value, Node):
                inputs[value] = None
                value.users[self] = None
            return value

        self._args = tuple([map_aggregate(x, note) for x in args])
        self._kwargs = ImmutableDict({k: map_aggregate(v, note) for k, v in kwargs.items()})
        self._inputs = inputs

    @property
    def args(self) -> tuple[Any, ...]:
        return self._args

    @args.setter
    def args(self, value: tuple[Any, ...]) -> None:
        self._set_arguments(tuple(value), self._kwargs)

    @property
    def kwargs(self) -> dict[str, Any]:
        return self._kwargs

    @kwargs.setter
    def kwargs(self, value: dict[str, Any]) -> None:
        self._set_arguments(self._args, value)

    @property
    def all_input_nodes(self) -> list[Node]:
        """The nodes among the arguments, each once, in order."""
        return list(self._inputs)

    def update_arg(self, idx: int, arg: Any) -> None:
        args = list(self._args)
        args[idx] = arg
        self.args = tuple(args)

    def insert_arg(self, idx: int, arg: Any) -> None:
        """Put an argument before position ``idx``."""
        if not 0 <= idx <= len(self._args):
            raise InvalidValue(f"position {idx} is not within 0 to {len(self._args)}")
        self.args = (*self._args[:idx], arg, *self._args[idx:])

    def update_kwarg(self, key: str, arg: Any) -> None:
        self.kwargs = {**self._kwargs, key: arg}

    def replace_input_with(self, old_input: Node, new_input: Node) -> None:
        """Use ``new_input`` wherever ``old_input`` is an argument."""

        def swap(node: Node) -> Node:
            return new_input if node is old_input else node

        self._set_arguments(map_arg(self._args, swap), map_arg(self._kwargs, swap))

    def replace_all_uses_with(
        self,
        replace_with: Node,
        delete_user_cb: Callable[[Node], bool] = lambda user: True,
        *,
        propagate_meta: bool = False,
    ) -> list[Node]:
        """Make the users of this node use ``replace_with``; returns those that were changed.

        Users for which ``delete_user_cb`` is false are left alone. ``propagate_meta`` copies this
        node's meta to the other, which must have none.
        """
        if propagate_meta:
            if replace_with.meta:
                raise InvalidState(
                    f"propagate_meta=True would overwrite the meta of {replace_with.name}"
                )
            replace_with.meta.update(self.meta)
        changed = [user for user in self.users if delete_user_cb(user)]
        for user in changed:
            user.replace_input_with(self, replace_with)
        return changed

    # -- place ---------------------------------------------------------------------------------

    @property
    def next(self) -> Node:
        return self._next

    @property
    def prev(self) -> Node:
        return self._prev

    def prepend(self, x: Node) -> None:
        """Move ``x`` to before this node."""
        if x.graph is not self.graph:
            raise InvalidState(
                f"{x.name} is of another graph than {self.name}; use graph.node_copy"
            )
        if x is self:
            return
        x._unlink()
        before = self._prev
        before._next, x._prev = x, before
        x._next, self._prev = self, x

    def append(self, x: Node) -> None:
        """Move ``x`` to after this node."""
        if x is not self:
            self._next.prepend(x)

    def _unlink(self) -> None:
        before, after = self._prev, self._next
        before._next, after._prev = after, before

    # -- what it is ----------------------------------------------------------------------------

    def is_impure(self, impure_random: bool = True) -> bool:
        """Whether it does more than give a result, so that it stays without users.

        Placeholders, the output, operators that write to an argument or that return nothing, and,
        unless ``impure_random`` is false, operators that take random numbers.
        """
        if self.op in ("placeholder", "output"):
            return True
        if self.op == "call_module":
            owner = self.graph.owning_module
            module = owner.get_submodule(self.target) if owner is not None else None
            return bool(getattr(module, "_is_impure", False))
        if self.op != "call_function":
            return False
        if self.target in SIDE_EFFECTS:
            return True
        overload: Any = self.target
        schema = getattr(overload, "_schema", None)
        if schema is None:
            return False
        if schema.mutated or not schema.returns:
            return True
        return impure_random and "nondeterministic_seeded" in overload.tags

    @property
    def stack_trace(self) -> str | None:
        """The user's line: ``file:line, in function: source line``."""
        return self.meta.get("stack")

    def __repr__(self) -> str:
        return self.name

    def __iter__(self) -> Iterator[Any]:
        raise InvalidValue(
            f"node {self.name} is not iterable: it stands for a value that is not there yet"
        )

    def format_node(
        self,
        placeholder_names: list[str] | None = None,
        maybe_return_typename: list[str] | None = None,
    ) -> str | None:
        """One line such as ``%add : [num_users=1] = call_function[target=aten.add.Tensor](...)``.

        With a list, a placeholder appends its name to ``placeholder_names`` and gives None, and the
        output appends its annotation to ``maybe_return_typename``.
        """
        note = f": {_type_name(self.type)} " if self.type is not None else ""
        if self.op == "placeholder":
            if placeholder_names is not None:
                placeholder_names.append(f"{self.target}{note.rstrip()}")
                return None
            default = f"(default={self._args[0]!r})" if self._args else ""
            return f"%{self.name} {note}: [num_users={len(self.users)}] = placeholder[target={self.target}]{default}"
        if self.op == "get_attr":
            return f"%{self.name} {note}: [num_users={len(self.users)}] = get_attr[target={self.target}]"
        if self.op == "output":
            if self.type is not None and maybe_return_typename is not None:
                maybe_return_typename.append(f" -> {_type_name(self.type)}")
            return f"return {_show(self._args[0])}"
        return (
            f"%{self.name} {note}: [num_users={len(self.users)}] = {self.op}"
            f"[target={show_target(self.target)}](args = {_show(self._args)}, kwargs = {_show(self._kwargs)})"
        )


def _show(value: Any) -> str:
    return repr(map_arg(value, lambda node: _Percent(f"%{node.name}")))


class _Percent(str):
    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def show_target(target: Any) -> str:
    """The name of a target as people write it: ``aten.add.Tensor``, ``operator.getitem``, ``relu``."""
    if isinstance(target, str):
        return target
    if hasattr(target, "_schema"):
        return str(target)
    module = getattr(target, "__module__", "") or ""
    name = getattr(target, "__qualname__", None) or getattr(target, "__name__", None)
    if name is None:
        return repr(target)
    module = "operator" if module == "_operator" else module
    return f"{module}.{name}" if module not in ("builtins", "") else name


def _type_name(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


#: Functions that are called for what they do; passes never remove them.
SIDE_EFFECTS: set[Any] = set()


def has_side_effect(fn: Any) -> Any:
    """Decorator: calls of ``fn`` stay in a graph though nobody uses the result."""
    SIDE_EFFECTS.add(fn)
    return fn
