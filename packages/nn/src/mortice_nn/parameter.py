"""Parameter and Buffer: tensors that a Module registers when they are assigned to it."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import mortice
from mortice import Tensor
from mortice.overrides import disabled_mortice_function


class Parameter(Tensor):
    """A tensor that belongs to a model: assigned to a Module it appears in ``parameters()``.

    ``data`` (any shape and dtype) is shared, not copied, and detached from its graph. Without
    ``data`` the parameter has shape (0,). A ``requires_grad`` of True needs a floating or complex
    dtype.
    """

    # Operators on parameters give plain tensors, and are as fast as on those.
    __mortice_function__ = disabled_mortice_function

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = True) -> Parameter:
        values = mortice.empty(0) if data is None else data
        return Tensor._make_subclass(cls, values, requires_grad)

    def __deepcopy__(self, memo: dict[int, Any]) -> Parameter:
        found = memo.get(id(self))
        if found is not None:
            return found
        copy = type(self)(self.detach().clone(), self.requires_grad)
        memo[id(self)] = copy
        return copy

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return "Parameter containing:\n" + Tensor.__repr__(self, tensor_contents=tensor_contents)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        state = (self.data, self.requires_grad, OrderedDict[str, Any]())
        return _rebuild_parameter, state


class Buffer(Tensor):
    """A tensor that is state but not trained: assigned to a Module it becomes a buffer.

    ``persistent`` buffers are part of ``state_dict()``.
    """

    persistent: bool
    __mortice_function__ = disabled_mortice_function

    def __new__(cls, data: Tensor | None = None, *, persistent: bool = True) -> Buffer:
        values = mortice.empty(0) if data is None else data
        buffer = Tensor._make_subclass(cls, values, values.requires_grad)
        buffer.persistent = persistent
        return buffer

    def __deepcopy__(self, memo: dict[int, Any]) -> Buffer:
        found = memo.get(id(self))
        if found is not None:
            return found
        copy = type(self)(self.detach().clone(), persistent=self.persistent)
        memo[id(self)] = copy
        return copy

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return "Buffer containing:\n" + Tensor.__repr__(self, tensor_contents=tensor_contents)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return _rebuild_buffer, (self.data, self.requires_grad, self.persistent)


def _rebuild_parameter(
    data: Tensor, requires_grad: bool, backward_hooks: OrderedDict[str, Any]
) -> Parameter:
    """What a pickled Parameter calls; checkpoints name it ``torch._utils._rebuild_parameter``."""
    return Parameter(data, requires_grad)


def _rebuild_buffer(data: Tensor, requires_grad: bool, persistent: bool) -> Buffer:
    buffer = Buffer(data, persistent=persistent)
    buffer.requires_grad = requires_grad
    return buffer
