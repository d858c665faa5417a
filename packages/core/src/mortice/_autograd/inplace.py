"""In-place operators and gradient history: what is refused, and how histories are replaced."""

from __future__ import annotations

from typing import Any

from mortice._autograd.node import Info, Leaf, Node
from mortice._base.errors import AutogradError
from mortice._dispatch import keys as K
from mortice._dispatch.operator import clear_tables
from mortice._dispatch.state import GLOBAL, below_autograd
from mortice._tensor.make import ViewInfo, base_of, storage_of, view_of
from mortice._tensor.make import restride as restride_handle


def check_inplace(t: Any, op: Any) -> None:
    """AutogradError if writing to ``t`` in place would lose or falsify gradients."""
    if type(t._g) is Leaf:
        raise AutogradError(
            f"{op.qualified}: a leaf Variable that requires grad is being used in an in-place "
            "operation. Use an out-of-place operator, or write inside `with mortice.no_grad():`."
        )
    base = base_of(t)
    if base is None:
        return
    if base._k & K.AUTOGRAD:
        if type(base._g) is Leaf:
            raise AutogradError(
                f"{op.qualified}: a view of a leaf Variable that requires grad is being used in an "
                "in-place operation. Use an out-of-place operator, or write inside `with "
                "mortice.no_grad():`."
            )
        if t._g is None:
            raise AutogradError(
                f"{op.qualified}: a view was created in no_grad mode and is being modified inplace "
                "with grad mode enabled. Make the view with grad mode on, or write inside "
                "`with mortice.no_grad():`."
            )
    g = t._g
    if g is not None and g.__class__ is not Node and g.node.outputs > 1:
        raise AutogradError(
            f"{op.qualified}: output {g.number} of {g.node.name()} is a view and is being modified "
            "inplace. This view is the output of a function that returns multiple views; such "
            "functions do not allow the output views to be modified inplace. Use an out-of-place "
            "operator instead."
        )


def old_value(t: Any) -> Any:
    """What ``t`` holds before the write, for formulas that read it."""
    with below_autograd():
        copy = t.clone()
    copy._g = t._g
    if t._g is not None:
        copy._k |= K.AUTOGRAD
    return copy


def rebase(t: Any, node: Node) -> None:
    """Make ``node`` the history of ``t`` after an in-place write, and of its base if a view.

    Integers and booleans have none, whatever is written to them.
    """
    if not t._t.differentiable:
        return
    meta = (t._a.shape, t._t)
    node.meta = meta
    node.extra = None
    base = base_of(t)
    s = t._s
    if base is None:
        t._g = node
        t._k |= K.AUTOGRAD
        if s is not None:
            s.epoch += 1
            views_may_be_stale()
        return
    copied = Node()
    copied.info = _COPY_SLICES
    copied.edges = (base._g, *node.edges)
    layout = None if base.is_contiguous() else (tuple(base._a.shape), base.stride())
    kind = None if t._t is base._t else t._t
    copied.saved = (node, t._a.shape, t.stride(), offset_in(t, base), layout, kind)
    copied.meta = (base._a.shape, base._t)
    copied.extra = None
    base._g = copied
    base._k |= K.AUTOGRAD
    s = storage_of(base)
    s.epoch += 1
    views_may_be_stale()
    from mortice._autograd.views import regenerate

    regenerate(t, base, s.epoch)
    base_info = base._b
    if base_info.__class__ is ViewInfo:
        base_info.epoch = s.epoch


def views_may_be_stale() -> None:
    if not GLOBAL.views_may_be_stale:
        GLOBAL.views_may_be_stale = True
        clear_tables()


def offset_in(view: Any, base: Any) -> int:
    """Where a view starts in its base, in elements of the view's dtype."""
    start = base.storage_offset() * base._t.itemsize // view._t.itemsize
    return view.storage_offset() - start


def seen_as(grad: Any, dtype: Any) -> Any:
    """A gradient's memory in the dtype of a view: complex numbers as pairs, or pairs as complex."""
    if dtype is None:
        return grad
    from mortice._dispatch.operator import get

    if grad._t.is_complex:
        return get("view_as_real")(grad)
    from mortice._types.shapes import storage_extent

    pairs = storage_extent(grad._a.shape, grad.stride(), grad.storage_offset()) // 2
    return get("view_as_complex")(grad.as_strided((pairs, 2), (2, 1), 0))


def _copy_slices_backward(node: Node, grads: Any) -> Any:
    """The base's gradient: outside the written region it goes straight on, inside through the write.

    The write's own edges lead on from there; what the region held before reaches the base through
    the history that the view had.
    """
    if node.saved is None:
        from mortice._autograd.node import freed

        raise freed()
    inner, shape, stride, offset, layout, kind = node.saved
    grad = grads[0].contiguous() if layout is None else _laid_out(grads[0], *layout)
    region = seen_as(grad, kind).as_strided(shape, stride, offset)
    through = inner.info.backward(inner, [region.clone()])
    if node.edges[0] is None:
        return (None, *through)
    rest = grad.clone() if layout is None else _laid_out(grad, *layout)
    seen_as(rest, kind).as_strided(shape, stride, offset).zero_()
    return (rest, *through)


def _laid_out(grad: Any, shape: Any, stride: Any) -> Any:
    """A copy of a gradient with the strides that the base has."""
    from mortice._types.shapes import storage_extent

    flat = grad.new_zeros((storage_extent(shape, stride, 0),))
    return flat.as_strided(shape, stride, 0).copy_(grad)


_COPY_SLICES = Info("CopySlices", _copy_slices_backward, None)

__all__ = ["check_inplace", "old_value", "rebase", "restride_handle", "view_of"]
