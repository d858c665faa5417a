"""Tracing on fake inputs into ATen operators below autograd."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mortice._tensor.make import alias_of
from mortice.fx import GraphModule, Interpreter, dispatch_trace


def trace(fn: Callable[..., Any], inputs: Sequence[Any], table: Any = None) -> GraphModule:
    """``fn`` on fake inputs as a graph, the operators of ``table`` taken apart."""
    return dispatch_trace.trace(fn, tuple(inputs), {}, table, keeps_differentiable=True)


def taken_apart(gm: GraphModule, inputs: Sequence[Any], table: Any) -> GraphModule:
    """A captured graph with the operators of ``table`` taken apart; no gradients are involved."""
    plain = [alias_of(x) if hasattr(x, "_k") else x for x in inputs]
    return trace(Interpreter(gm).run, plain, table)
