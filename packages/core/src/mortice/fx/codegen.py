"""Python code of a graph.

Each node is one statement. Values are dropped (``x = None``) where they are used last, so that their
memory can be reused. Symbolic sizes are computed in a prologue (``s0 = x.shape[0]``).
"""

from __future__ import annotations

import dataclasses
import keyword
import math
import operator
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mortice.fx import symbols
from mortice.fx.liveness import last_uses
from mortice.fx.node import Node

if TYPE_CHECKING:
    from mortice.fx.graph import Graph

_INFIX = {
    operator.add: "{} + {}", operator.sub: "{} - {}", operator.mul: "{} * {}", operator.truediv: "{} / {}",
    operator.floordiv: "{} // {}", operator.mod: "{} % {}", operator.pow: "{} ** {}",
    operator.matmul: "{} @ {}", operator.and_: "{} & {}", operator.or_: "{} | {}",
    operator.xor: "{} ^ {}", operator.lshift: "{} << {}", operator.rshift: "{} >> {}",
    operator.lt: "{} < {}", operator.le: "{} <= {}", operator.eq: "{} == {}", operator.ne: "{} != {}",
    operator.gt: "{} > {}", operator.ge: "{} >= {}", operator.getitem: "{}[{}]",
}  # fmt: skip
_PREFIX = {
    operator.neg: "-{}", operator.pos: "+{}", operator.invert: "~{}", operator.not_: "not {}",
}  # fmt: skip


@dataclasses.dataclass
class PythonCode:
    """``src`` defines ``forward``; ``globals`` are the names that it uses."""

    src: str
    globals: dict[str, Any]


class CodeGen:
    """The call's arguments are the placeholders' values, its result is the output's."""

    def process_inputs(self, *args: Any) -> Any:
        return args

    def process_outputs(self, out: Any) -> Any:
        return out

    def parameters(self, placeholders: list[str]) -> list[str]:
        return placeholders

    def prologue(self, placeholders: list[str], names: _Globals) -> list[str]:
        return []

    def returning(self, result: str, names: _Globals) -> str:
        return f"return {result}"


class PyTreeCodeGen(CodeGen):
    """The call takes and returns trees; the placeholders are the leaves of (args, kwargs), in order.

    ``in_spec`` is the structure of ``(args, kwargs)``; ``out_spec`` that of the result.
    """

    def __init__(self, parameter_names: list[str], in_spec: Any, out_spec: Any) -> None:
        self.parameter_names = parameter_names
        self.in_spec = in_spec
        self.out_spec = out_spec

    def process_inputs(self, *args: Any, **kwargs: Any) -> Any:
        return self.in_spec.flatten_up_to((args, kwargs))

    def process_outputs(self, out: Any) -> Any:
        return self.out_spec.unflatten(out)

    def parameters(self, placeholders: list[str]) -> list[str]:
        return self.parameter_names

    def prologue(self, placeholders: list[str], names: _Globals) -> list[str]:
        if not placeholders:
            return []
        args_spec, kwargs_spec = self.in_spec.children
        count = len(args_spec.children)
        args = "".join(f"{n}, " for n in self.parameter_names[:count])
        kwargs = ", ".join(f"{k!r}: {k}" for k in kwargs_spec.context)
        spec = names.add("_in_spec", self.in_spec)
        return [f"{', '.join(placeholders)}, = {spec}.flatten_up_to((({args}), {{{kwargs}}}))"]

    def returning(self, result: str, names: _Globals) -> str:
        return f"return {names.add('_out_spec', self.out_spec)}.unflatten({result})"


class _Globals:
    """Names of the objects that the code uses and that are no literals."""

    def __init__(self, taken: set[str], dotted: bool) -> None:
        self.values: dict[str, Any] = {}
        self.dotted = dotted
        self._taken = taken
        self._names: dict[int, str] = {}

    def add(self, wish: str, value: Any) -> str:
        known = self._names.get(id(value))
        if known is not None:
            return known
        name, number = wish, 0
        while name in self._taken or name in self.values:
            number += 1
            name = f"{wish}_{number}"
        self.values[name] = value
        self._names[id(value)] = name
        return name

    def function(self, target: Any) -> str:
        if hasattr(target, "_schema"):
            if not self.dotted:
                return self.add(str(target).replace(".", "_"), target)
            self.values["mortice"] = sys.modules["mortice"]
            return f"mortice.ops.{target}"
        module = getattr(target, "__module__", None) or ""
        name = getattr(target, "__name__", None) or type(target).__name__
        if module in ("_operator", "operator"):
            self.values["operator"] = operator
            return f"operator.{name}"
        plain = "".join(c if c.isalnum() else "_" for c in f"{module}.{name}" if c != "<")
        return self.add(plain.strip("_"), target)


@dataclasses.dataclass(frozen=True)
class _Code:
    """A node or symbolic size in the arguments: shown as code, not as a string."""

    text: str

    def __repr__(self) -> str:
        return self.text


def generate(graph: Graph, root: str, dotted: bool) -> PythonCode:
    """The graph as ``def forward(self, ...)``."""
    placeholders = [n for n in graph.nodes if n.op == "placeholder"]
    names = _Globals({n.name for n in graph.nodes}, dotted)
    codegen = graph._codegen
    flat = [n.name for n in placeholders]
    given = _parameter_names(placeholders)
    parameters = codegen.parameters(
        [_parameter(n, name, names) for n, name in zip(placeholders, given)]
    )
    lines = codegen.prologue(flat, names)
    if not lines:
        lines += [f"{n.name} = {x}" for n, x in zip(placeholders, given) if x != n.name]
    bound = symbols.bindings(graph)
    if bound:
        names.values.update(symbols.SCOPE)
    lines += [line for n in placeholders for line in _bound(bound.get(n, ()))]
    last = last_uses(graph)
    result = "None"
    for node in graph.nodes:
        if node.op == "output":
            result = _literal(node.args[0], names)
        elif node.op != "placeholder":
            lines.append(f"{node.name} = {_expression(node, root, names)}")
            lines += _bound(bound.get(node, ()))
            lines[-1] += _drops(last.get(node, ()))
    lines.append(codegen.returning(result, names))
    body = "\n".join(f"    {line}" for line in lines)
    src = f"def forward({', '.join([root, *parameters])}):\n{body}\n"
    return PythonCode(src, names.values)


def _parameter_names(placeholders: list[Node]) -> list[str]:
    """The placeholders' own names where these can be parameters, though they may be builtins'."""
    found: list[str] = []
    for node in placeholders:
        wish = node.target.lstrip("*")
        usable = (
            wish.isidentifier() and not keyword.iskeyword(wish) and wish not in ("self", *found)
        )
        others = {n.name for n in placeholders if n is not node}
        found.append(wish if usable and wish not in others else node.name)
    return found


def _parameter(node: Node, name: str, names: _Globals) -> str:
    if node.target.startswith("*"):
        return node.target[: node.target.count("*")] + name
    return f"{name} = {_literal(node.args[0], names)}" if node.args else name


def _drops(nodes: Sequence[Node]) -> str:
    return f";  {' = '.join(n.name for n in nodes)} = None" if nodes else ""


def _bound(pairs: Sequence[tuple[str, str]]) -> list[str]:
    return [f"{name} = {code}" for name, code in pairs]


def _expression(node: Node, root: str, names: _Globals) -> str:
    if node.op == "get_attr":
        return _attribute(root, node.target)
    if node.op == "call_module":
        return f"{_attribute(root, node.target)}({_arguments(node.args, node.kwargs, names)})"
    if node.op == "call_method":
        first = _literal(node.args[0], names)
        return f"{first}.{node.target}({_arguments(node.args[1:], node.kwargs, names)})"
    if not node.kwargs:
        short = _operator_form(node, names)
        if short is not None:
            return short
    return f"{names.function(node.target)}({_arguments(node.args, node.kwargs, names)})"


def _operator_form(node: Node, names: _Globals) -> str | None:
    target, args = node.target, node.args
    shape = None
    if getattr(target, "__module__", None) == "_operator":
        shape = {1: _PREFIX, 2: _INFIX}.get(len(args), {}).get(target)
    if shape is not None:
        if target is operator.getitem:
            return f"{_operand(args[0], names)}[{_literal(args[1], names)}]"
        return shape.format(*(_operand(x, names) for x in args))
    if target is getattr and len(args) == 2 and str(args[1]).isidentifier():
        return f"{_literal(args[0], names)}.{args[1]}"
    return None


def _operand(value: Any, names: _Globals) -> str:
    text = _literal(value, names)
    return text if isinstance(value, Node) or text[0] in "([" or text.isalnum() else f"({text})"


def _attribute(root: str, target: str) -> str:
    text = root
    for part in target.split("."):
        text = f"{text}.{part}" if part.isidentifier() else f"getattr({text}, {part!r})"
    return text


def _arguments(args: Any, kwargs: Any, names: _Globals) -> str:
    shown = [_literal(x, names) for x in args]
    shown += [f"{k} = {_literal(v, names)}" for k, v in kwargs.items()]
    return ", ".join(shown)


_CONSTANTS = (int, str, bytes, bool, type(None), type(...))


def _literal(value: Any, names: _Globals) -> str:
    """An argument as code; what has no literal becomes a global."""
    if isinstance(value, Node):
        return value.name
    if symbols.is_symbolic(value):
        return value.source()
    kind = type(value)
    if kind in _CONSTANTS:
        return repr(value)
    if isinstance(value, tuple):
        items = [_literal(x, names) for x in value]
        if hasattr(value, "_fields"):
            return f"{names.function(kind)}({', '.join(items)})"
        return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"
    if isinstance(value, list):
        return f"[{', '.join(_literal(x, names) for x in value)}]"
    if isinstance(value, dict):
        pairs = (f"{_literal(k, names)}: {_literal(v, names)}" for k, v in value.items())
        return f"{{{', '.join(pairs)}}}"
    if kind is slice:
        parts = (value.start, value.stop, value.step)
        return f"slice({', '.join(_literal(x, names) for x in parts)})"
    return _object(value, kind, names)


def _object(value: Any, kind: type, names: _Globals) -> str:
    if kind is float:
        return repr(value) if math.isfinite(value) else f"float('{value}')"
    if kind is complex:
        return f"complex({_object(value.real, float, names)}, {_object(value.imag, float, names)})"
    module = kind.__module__
    if module in ("mortice._types.dtypes", "mortice._types.layout"):
        names.values["mortice"] = sys.modules["mortice"]
        return repr(value)
    if module == "mortice._types.device":
        names.values["device"] = kind
        return repr(value)
    if isinstance(value, type) or callable(value):
        return names.function(value)
    return names.add(f"_{kind.__name__.lower()}", value)
