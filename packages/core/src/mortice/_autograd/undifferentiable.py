"""Operators without a derivative: their outputs require grad, and backward says what is missing."""

from __future__ import annotations

from typing import Any

from mortice._autograd.node import Info, Node, attach_many, attach_single
from mortice._base.errors import AutogradError
from mortice._dispatch.operator import Kernel, Operator


def wrap(op: Operator, nxt: Kernel) -> Kernel:
    """``nxt`` recording a node that refuses to be run backwards."""

    def refuse(node: Node, grads: Any) -> Any:
        raise AutogradError(
            f"derivative for {op.qualified} is not implemented. Give it one with "
            "mortice.library.register_autograd, or detach() its inputs."
        )

    info = Info(f"NotImplemented[{op.name}]", refuse, op)
    positions = op.schema.tensor_positions
    mutated = op.schema.mutated

    def recorded(*args: Any) -> Any:
        result = nxt(*args)
        if mutated:
            return result
        edges: list[Any] = []
        for i in positions:
            value = args[i]
            if isinstance(value, (list, tuple)):
                edges += [None if t is None else t._g for t in value]  # pyright: ignore[reportUnknownVariableType]
            else:
                edges.append(getattr(value, "_g", None))
        node = Node()
        node.info = info
        node.edges = tuple(edges)
        node.saved = ()
        if isinstance(result, (list, tuple)):
            attach_many(node, result)
        elif result is not None and hasattr(result, "_k") and result._t.differentiable:
            attach_single(node, result)
        return result

    return recorded
