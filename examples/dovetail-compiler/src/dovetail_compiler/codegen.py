"""Graphs as Python functions over numpy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import mortice
from mortice.backend import array, wrap
from mortice.fake import SymFloat, SymInt
from mortice.fx import GraphModule, Node

#: Operators whose numpy function gives the same bits, tensors being of one floating dtype.
FUNCTIONS = {
    "aten.add.Tensor": "add", "aten.sub.Tensor": "subtract", "aten.mul.Tensor": "multiply",
    "aten.div.Tensor": "divide", "aten.neg.default": "negative", "aten.abs.default": "absolute",
    "aten.sqrt.default": "sqrt", "aten.floor.default": "floor", "aten.ceil.default": "ceil",
    "aten.maximum.default": "maximum", "aten.minimum.default": "minimum",
}  # fmt: skip
FLOATS = (mortice.float32, mortice.float64)


class Disagreement(AssertionError):
    """The generated code and the graph differ by more than the option ``tolerance``."""


def dovetail(
    gm: GraphModule, example_inputs: Sequence[Any], *, options: Mapping[str, Any]
) -> Callable[..., Any]:
    """The backend: ``run(*inputs) -> tuple``, with ``run.output_code`` for logs and reports."""
    source, names = generate(gm, reuse=options["reuse"])
    exec(source, names)  # noqa: S102  made of the graph's own names
    run = names["run"]
    run.output_code = source
    tolerance = options["tolerance"]
    return run if tolerance < 0 else checked(run, gm, tolerance)


def checked(run: Callable[..., Any], gm: GraphModule, tolerance: float) -> Callable[..., Any]:
    """``run``, each call compared with the graph's."""

    def compared(*inputs: Any) -> Any:
        expected = gm(*[x.clone() if mortice.is_tensor(x) else x for x in inputs])
        results = run(*inputs)
        for i, (a, b) in enumerate(zip(results, expected)):
            if mortice.is_tensor(a) and (a.double() - b.double()).abs().max() > tolerance:
                raise Disagreement(f"result {i} differs by more than {tolerance}")
        return results

    compared.output_code = run.output_code  # type: ignore[attr-defined]
    return compared


# -- code -------------------------------------------------------------------------------------------


def generate(gm: GraphModule, *, reuse: bool) -> tuple[str, dict[str, Any]]:
    """(source of ``run``, the names that it uses)."""
    names: dict[str, Any] = {"np": np, "array": array, "wrap": wrap}
    code = gm.graph.python_code(dotted=False)
    names.update(code.globals)
    head, *lines = code.src.splitlines()  # as the graph writes itself: one node a line
    body = [head.replace("forward(self, ", "run(").replace("forward(self", "run(")]
    dying = _dying(gm)
    nodes = {node.name: node for node in gm.graph.nodes}
    for line in lines:
        node = nodes.get(line.strip().partition(" = ")[0])
        own = node is not None and _as_numpy(node, dying if reuse else {}, names)
        body.append(f"    {own}" if own else line)
    return "\n".join(body) + "\n", names


def _as_numpy(node: Node, dying: dict[Node, list[Node]], names: dict[str, Any]) -> str:
    """The node as a call of numpy's; empty where it stays what it is."""
    function = FUNCTIONS.get(str(node.target))
    if node.op != "call_function" or function is None or node.kwargs or not _is_plain(node):
        return ""
    call = f"np.{function}({', '.join(map(_operand, node.args))}"
    for dead in dying.get(node, ()):
        if _is_own(dead) and _fits(dead, node):
            return f"{call}, out=array({dead.name})); {node.name} = {dead.name}"
    names[f"dtype_{node.name}"] = node.meta["val"].dtype
    return f"{node.name} = wrap({call}), dtype_{node.name})"


def _operand(x: Any) -> str:
    """An operand as code: an array, an input that is a number, or an expression over those."""
    if isinstance(x, Node):
        return f"array({x.name})" if mortice.is_tensor(x.meta["val"]) else x.name
    return x.source() if isinstance(x, (SymInt, SymFloat)) else repr(x)


def _is_plain(node: Node) -> bool:
    """Whether result and operands are of one floating dtype, and numbers are int or float."""
    dtype = node.meta["val"].dtype
    for x in node.args:
        value = x.meta["val"] if isinstance(x, Node) else x
        if mortice.is_tensor(value):
            if value.dtype is not dtype:
                return False
        elif type(value) not in (int, float, SymInt, SymFloat):
            return False
    return dtype in FLOATS


def _is_own(node: Node) -> bool:
    """Whether our own code made its memory, and nobody may look at that through a view."""
    return (
        str(node.target) in FUNCTIONS
        and _is_plain(node)
        and not node.kwargs
        and all(str(user.target) in FUNCTIONS for user in node.users)
    )


def _fits(dead: Node, node: Node) -> bool:
    a, b = dead.meta["val"], node.meta["val"]
    return a.dtype is b.dtype and str(tuple(a.shape)) == str(tuple(b.shape))


def _dying(gm: GraphModule) -> dict[Node, list[Node]]:
    """Node -> the operands that nobody needs after it."""
    found: dict[Node, list[Node]] = {}
    seen: set[Node] = set()
    for node in reversed(gm.graph.nodes):
        for operand in node.all_input_nodes:
            if operand not in seen:
                seen.add(operand)
                found.setdefault(node, []).append(operand)
    return found
