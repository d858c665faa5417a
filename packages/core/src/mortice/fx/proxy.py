"""Stand-ins for values, which write down what is done with them."""

from __future__ import annotations

import dis
import operator
import sys
from collections.abc import Iterator
from typing import Any, cast

from mortice._base.errors import TraceError
from mortice.fx.graph import Graph
from mortice.fx.node import Node, map_aggregate
from mortice.fx.stack import user_line

__all__ = ["Attribute", "Proxy", "TraceError", "TracerBase"]


class TracerBase:
    """Makes nodes of ``graph`` and the proxies that stand for their values.

    With ``record_stack_traces`` a node's ``meta["stack"]`` is the user's line.
    """

    graph: Graph
    record_stack_traces: bool = False
    #: Whether a method of a module may be traced with ``self`` a proxy, as scripts do.
    proxy_buffer_attributes: bool = False

    def create_node(
        self,
        kind: str,
        target: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        name: str | None = None,
        type_expr: Any = None,
    ) -> Node:
        """A node whose arguments are nodes and constants already."""
        return self.graph.create_node(kind, target, args, kwargs, name, type_expr)

    def proxy(self, node: Node) -> Proxy:
        return Proxy(node, self)

    def create_proxy(
        self,
        kind: str,
        target: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        name: str | None = None,
        type_expr: Any = None,
    ) -> Proxy:
        """A node for a call whose arguments hold proxies, and its proxy."""
        node = self.create_node(
            kind,
            target,
            self.create_arg(tuple(args)),
            self.create_arg(dict(kwargs)),
            name,
            type_expr,
        )
        if self.record_stack_traces:
            stack = user_line()
            if stack:
                node.meta["stack"] = stack
        return self.proxy(node)

    def create_arg(self, a: Any) -> Any:
        """An argument of a node for a value in the traced program; TraceError if there can be none."""
        return map_aggregate(a, self._create_leaf)

    def _create_leaf(self, a: Any) -> Any:
        if isinstance(a, Proxy):
            return a.node
        if isinstance(a, range):
            return range(*(self.create_arg(x) for x in (a.start, a.stop, a.step)))
        return a

    # -- what a stand-in cannot do -------------------------------------------------------------

    def to_bool(self, obj: Proxy) -> bool:
        raise TraceError(
            f"the traced program branches on {obj.node.name}, whose value is not known while it is traced"
            f"{_at()}. Choose by mortice.where, give the deciding argument as one of concrete_args, or "
            "use mortice.compile, which follows branches."
        )

    def iter(self, obj: Proxy) -> Iterator[Any]:
        """Unpacking into a known number of names works; loops over a stand-in do not."""
        count = _unpacked()
        if count is not None:
            return iter([operator.getitem(cast("Any", obj), i) for i in range(count)])
        raise TraceError(
            f"the traced program loops over {obj.node.name}, whose length is not known while it is traced"
            f"{_at()}. Loop over a range of known length and index it."
        )

    def keys(self, obj: Proxy) -> Any:
        """What ``**obj`` unpacks."""
        return Attribute(obj, "keys")()


#: How tensors, symbolic numbers, operators and named tuples are told from other values.
_NOT_OURS = frozenset(
    ("_k", "_is_symbolic", "_is_symbolic_int", "_is_symbolic_float", "_schema", "_fields")
)


def _at() -> str:
    line = user_line()
    return f", at {line}" if line else ""


def _unpacked() -> int | None:
    """How many names the line that called ``iter`` unpacks into, if that is what it does."""
    frame = sys._getframe(3)
    code, offset = frame.f_code, frame.f_lasti
    for instruction in dis.get_instructions(code):
        if instruction.offset == offset:
            return instruction.arg if instruction.opname == "UNPACK_SEQUENCE" else None
    return None


class Proxy:
    """Stands for the value of a node; operations on it become nodes."""

    def __init__(self, node: Node, tracer: TracerBase) -> None:
        self.node = node
        self.tracer = tracer

    def __repr__(self) -> str:
        return f"Proxy({self.node.name})"

    def __getattr__(self, name: str) -> Attribute:
        if name in _NOT_OURS or (name.startswith("__") and name.endswith("__")):
            raise AttributeError(name)
        return Attribute(self, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.tracer.create_proxy("call_method", "__call__", (self, *args), kwargs)

    def __iter__(self) -> Iterator[Any]:
        return self.tracer.iter(self)

    def __bool__(self) -> bool:
        return self.tracer.to_bool(self)

    def keys(self) -> Any:
        return self.tracer.keys(self)

    def __setitem__(self, index: Any, value: Any) -> None:
        raise TraceError(
            f"the traced program writes into {self.node.name}{_at()}, and a stand-in cannot be written to. "
            "Use mortice.where or a scatter operator, or mortice.fx.make_fx, which follows writes."
        )

    def __contains__(self, element: Any) -> bool:
        raise TraceError(
            f"the traced program asks what {self.node.name} contains{_at()}; its values are not known "
            "while it is traced."
        )

    def __len__(self) -> int:
        raise TraceError(
            f"len({self.node.name}) is not known while the program is traced{_at()}. Use .size(0), or "
            "mortice.fx.wrap('len') at the top of your module."
        )

    def __index__(self) -> int:
        raise TraceError(
            f"{self.node.name} is used as a Python integer{_at()}, which it is not yet."
        )

    __int__ = __index__

    def __float__(self) -> float:
        raise TraceError(f"{self.node.name} is used as a Python float{_at()}, which it is not yet.")

    def __hash__(self) -> int:
        return id(self)

    @classmethod
    def __mortice_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return record_function(func, args, kwargs or {})


def record_function(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """The node for a call of a public function or of a tensor's method."""
    tracer = find_tracer((args, kwargs))
    name = getattr(func, "__name__", "")
    if name.startswith("Tensor_op_"):
        return tracer.create_proxy("call_function", getattr(operator, name[10:]), args, kwargs)
    if name.startswith("Tensor_"):
        return tracer.create_proxy("call_method", name[7:], args, kwargs)
    return tracer.create_proxy("call_function", func, args, kwargs)


def find_tracer(value: Any) -> TracerBase:
    """The tracer of the proxies in a structure; TraceError if there are several."""
    found: list[TracerBase] = []

    def note(x: Any) -> Any:
        if isinstance(x, Proxy) and x.tracer not in found:
            found.append(x.tracer)
        return x

    map_aggregate(value, note)
    if len(found) != 1:
        raise TraceError(f"one call uses values of {len(found)} tracers; expected exactly one")
    return found[0]


class Attribute(Proxy):
    """An attribute of a stand-in: a method if it is called, else read when it is first used."""

    def __init__(self, root: Proxy, attr: str) -> None:
        self.root = root
        self.attr = attr
        self.tracer = root.tracer
        self._node: Node | None = None

    @property
    def node(self) -> Node:  # pyright: ignore[reportIncompatibleVariableOverride]
        if self._node is None:
            proxy = self.tracer.create_proxy("call_function", getattr, (self.root, self.attr), {})
            self._node = proxy.node
        return self._node

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.tracer.create_proxy("call_method", self.attr, (self.root, *args), kwargs)


def _binary(target: Any) -> Any:
    def call(self: Proxy, other: Any) -> Any:
        return self.tracer.create_proxy("call_function", target, (self, other), {})

    return call


def _reflected(target: Any) -> Any:
    def call(self: Proxy, other: Any) -> Any:
        return self.tracer.create_proxy("call_function", target, (other, self), {})

    return call


def _unary(target: Any) -> Any:
    def call(self: Proxy) -> Any:
        return self.tracer.create_proxy("call_function", target, (self,), {})

    return call


_REFLECTABLE = "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift".split()
_OTHER = "lt le eq ne gt ge getitem".split()


def _function(name: str) -> Any:
    return getattr(operator, f"{name}_" if name in ("and", "or") else name)


for _name in (*_REFLECTABLE, *_OTHER):
    setattr(Proxy, f"__{_name}__", _binary(_function(_name)))
for _name in _REFLECTABLE:
    setattr(Proxy, f"__r{_name}__", _reflected(_function(_name)))
for _name in ("neg", "pos", "invert"):
    setattr(Proxy, f"__{_name}__", _unary(_function(_name)))
Proxy.__abs__ = _unary(operator.abs)  # pyright: ignore[reportAttributeAccessIssue]
