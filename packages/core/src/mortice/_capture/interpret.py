"""Running a segment's graph operator by operator, with the gradient modes it was recorded in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mortice._autograd.grad_mode import set_grad_enabled
from mortice._dispatch.modes import overload_of
from mortice._dispatch.operator import get
from mortice.fx import GraphModule, Interpreter, Node


class _ByOperator(Interpreter):
    """Histories are made where the recording made them.

    Inputs that the graph writes to at its end are read from copies: what is saved of them for
    backward must keep the value that it had.
    """

    def __init__(self, module: GraphModule) -> None:
        super().__init__(module)
        copy_ = overload_of(get("copy_"))
        writes = [n for n in self.graph.nodes if n.target is copy_]
        self._written = {n.args[0]: n for n in writes}
        self._targets: dict[Node, Any] = {}

    def run_node(self, n: Node) -> Any:
        with set_grad_enabled(bool(n.meta.get("grad"))):
            value = super().run_node(n)
        if n in self._written:
            self._targets[n] = value
            with set_grad_enabled(True):
                return value.clone()
        return value

    def fetch_args_kwargs_from_env(self, n: Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        args, kwargs = super().fetch_args_kwargs_from_env(n)
        if n.args and self._written.get(n.args[0]) is n:
            args = (self._targets[n.args[0]], *args[1:])
        return args, kwargs


def by_operator(module: GraphModule) -> Callable[..., Any]:
    """``run(*inputs)`` that interprets the graph."""
    return lambda *inputs: _ByOperator(module).run(*inputs)
