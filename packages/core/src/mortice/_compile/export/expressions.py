"""Symbolic sizes from text, read as arithmetic and nothing else."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

from mortice._base.errors import ExportError
from mortice._types.symbolic import sym_max, sym_min

_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_CALLS: dict[str, Callable[..., Any]] = {"max": sym_max, "min": sym_min, "float": float}
#: Deeper or longer than any expression that a program has.
_LONGEST = 10_000


def read(source: Any, symbols: Mapping[str, Any]) -> Any:
    """The value of ``source``, a number or an expression over the names in ``symbols``."""
    if type(source) in (int, float):
        return source
    if not isinstance(source, str) or len(source) > _LONGEST:
        raise ExportError(f"expected a size or an expression of sizes, not {source!r:.80}")
    try:
        tree = ast.parse(source, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ExportError(f"cannot read the size {source!r:.80}: {error}") from None
    return _value(tree.body, symbols, source)


def _value(node: ast.expr, symbols: Mapping[str, Any], source: str) -> Any:
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return node.value
    if isinstance(node, ast.Name) and node.id in symbols:
        return symbols[node.id]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand, symbols, source)
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        left, right = _value(node.left, symbols, source), _value(node.right, symbols, source)
        if isinstance(node.op, ast.Pow) and not (type(right) is int and 0 <= right <= 64):
            raise ExportError(f"the size {source!r:.80} has a power that is no small integer")
        return _BINARY[type(node.op)](left, right)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        function = _CALLS.get(node.func.id)
        if function is not None:
            return function(*(_value(a, symbols, source) for a in node.args))
    raise ExportError(f"the size {source!r:.80} holds something else than arithmetic of sizes")
