"""Views whose base got a new history in place: their grad_fn is made anew before they are used."""

from __future__ import annotations

from typing import Any

from mortice._autograd.node import Info, Node
from mortice._autograd.pending import PendingEdge
from mortice._dispatch import keys as K
from mortice._dispatch.operator import Kernel, Operator
from mortice._dispatch.state import GLOBAL, THREAD
from mortice._tensor.array import PendingArray
from mortice._tensor.make import ViewInfo, base_of
from mortice._types.shapes import storage_extent


def refresh(t: Any) -> None:
    """Give a view the history that its base has now, if that changed since."""
    b = t._b
    s = t._s
    if b is None or s is None:
        return
    seen = b.epoch if b.__class__ is ViewInfo else 0
    if seen == s.epoch:
        return
    base = base_of(t)
    assert base is not None
    if base._k & K.AUTOGRAD:
        if base._g.__class__ is PendingEdge:
            if type(t._a) is PendingArray:
                t._g = base._g  # both are known when what was recorded has run
                t._k |= K.AUTOGRAD
                return
            GLOBAL.settle(base, "")
        regenerate(t, base, s.epoch)
    else:
        t._b = ViewInfo(base, s.epoch)


def regenerate(t: Any, base: Any, epoch: int) -> None:
    """History of a view as a strided view of its base."""
    node = Node()
    node.info = _AS_STRIDED
    node.edges = (base._g,)
    from mortice._autograd.inplace import offset_in

    geometry = (t._a.shape, t.stride(), offset_in(t, base))
    kind = None if t._t is base._t else base._t
    node.saved = (*geometry, tuple(base._a.shape), base.stride(), kind)
    node.meta = (t._a.shape, t._t)
    node.extra = None
    t._g = node
    t._k |= K.AUTOGRAD
    t._b = ViewInfo(base, epoch)


def _as_strided_backward(node: Node, grads: Any) -> Any:
    from mortice._autograd.node import freed
    from mortice._ops.formulas import as_strided_grad

    if node.saved is None:
        raise freed()
    shape, stride, offset, base_shape, base_stride, kind = node.saved
    extent = storage_extent(base_shape, base_stride, 0)
    if kind is not None:
        from mortice._autograd.inplace import seen_as

        places = extent * 2 if kind.is_complex else extent // 2
        memory = seen_as(as_strided_grad(grads[0], (places,), shape, stride, offset), kind)
    else:
        memory = as_strided_grad(grads[0], (extent,), shape, stride, offset)
    return (memory.as_strided(base_shape, base_stride, 0),)


_AS_STRIDED = Info("AsStridedBackward0", _as_strided_backward, None)


def refreshing(op: Operator) -> Kernel:
    """A kernel that refreshes the views among its arguments and calls on without the View key.

    Before a write to a view without history it makes sure that the base has none either: a view
    made in no_grad mode, or before its base required grad, would change it behind autograd's back.
    """
    positions = op.schema.tensor_positions
    written = op.schema.mutated

    def refreshed(*args: Any) -> Any:
        for i in positions:
            value = args[i]
            if isinstance(value, (list, tuple)):
                for item in value:  # pyright: ignore[reportUnknownVariableType]
                    if item is not None and item._k & K.VIEW:
                        refresh(item)
            elif value is not None and getattr(value, "_k", 0) & K.VIEW:
                refresh(value)
        if written and THREAD.grad_enabled:
            for i in written:
                check_write(args[i], op)
        keys = op.keys_of(args) & ~K.VIEW
        return op.lookup(keys)(*args)

    return refreshed


def check_write(t: Any, op: Operator) -> None:
    if getattr(t, "_k", K.AUTOGRAD) & K.AUTOGRAD:
        return  # no tensor, or the operator's autograd kernel checks
    base = base_of(t)
    if base is not None and base._k & K.AUTOGRAD:
        from mortice._autograd.inplace import check_inplace

        check_inplace(t, op)
