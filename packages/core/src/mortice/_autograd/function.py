"""``Function``: an operation whose forward and backward the user writes."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

from mortice._autograd import inplace
from mortice._autograd.grad_mode import no_grad
from mortice._autograd.node import (
    Info,
    Node,
    Output,
    attach_many,
    attach_single,
    freed,
    save,
    save_result,
)
from mortice._base.errors import ArgumentError, AutogradError
from mortice._dispatch import keys as K
from mortice._dispatch.state import THREAD, unrecorded
from mortice._tensor.make import alias_of, base_of


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "_k") and hasattr(value, "_g")


class FunctionNode(Node):
    """The node of one application; the user's ``ctx`` hangs on it."""

    __slots__ = ("ctx",)


class FunctionCtx:
    """What ``forward`` leaves for ``backward``; attributes of any name may be set on it.

    Attributes:
        needs_input_grad: one bool for each argument of ``apply``.
    """

    needs_input_grad: tuple[bool, ...] = ()

    def __init__(self) -> None:
        self._to_save: tuple[Any, ...] = ()
        self._dirty: tuple[Any, ...] = ()
        self._constant: tuple[Any, ...] = ()
        self._materialize = True
        self._node: Any = None
        self._given: tuple[bool, ...] = ()
        self._outputs: list[tuple[Any, Any, Any] | None] = []

    def save_for_backward(self, *tensors: Any) -> None:
        """Keep tensors (or None) for ``saved_tensors``; in-place changes to them are noticed."""
        for i, tensor in enumerate(tensors):
            if tensor is not None and not _is_tensor(tensor):
                raise ArgumentError(
                    f"save_for_backward can only save tensors, but argument {i} is of type "
                    f"{type(tensor).__name__}. Set other values as attributes of ctx."
                )
        self._to_save = tensors

    def mark_dirty(self, *tensors: Any) -> None:
        """Say which arguments ``forward`` changed in place; it must return them."""
        self._dirty = tensors

    def mark_non_differentiable(self, *tensors: Any) -> None:
        """Say which outputs have no gradient."""
        self._constant = tensors

    def set_materialize_grads(self, value: bool) -> None:
        """Whether ``backward`` gets zeros (the default) or None for an unused output."""
        self._materialize = bool(value)

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """What ``save_for_backward`` kept. AutogradError if it was freed or changed in place."""
        node = self._node() if self._node is not None else None
        if node is None:
            return self._to_save
        if node.saved is None:
            raise freed()
        return tuple(None if x is None else x.get(node) for x in node.saved)

    @property
    def saved_for_backward(self) -> tuple[Any, ...]:
        return self.saved_tensors


class Function:
    """Base class of operations with their own derivative.

    Subclasses write static methods ``forward(ctx, *args)``, or ``forward(*args)`` together with
    ``setup_context(ctx, inputs, output)``, and ``backward(ctx, *grad_outputs)``, which returns one
    gradient, or None, for each argument of ``forward``. Call it by ``apply``.
    """

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """The operation. Operators called here record no history."""
        raise NotImplementedError(
            "a mortice.autograd.Function needs a static method forward(ctx, *args)"
        )

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """What to keep for backward; if it is overridden, ``forward`` gets no ctx."""
        raise NotImplementedError("setup_context is not implemented")

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """Gradients of the arguments, given those of the outputs."""
        raise NotImplementedError(
            "a mortice.autograd.Function needs a static method backward(ctx, *grad_outputs) to be "
            "differentiated"
        )

    vjp = backward

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise AutogradError(
            f"{type(self).__name__} is a mortice.autograd.Function: it has no instances. Call "
            f"{type(self).__name__}.apply(...)."
        )

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Run forward and record backward, if an argument requires grad."""
        with unrecorded(f"{cls.__name__}.apply() runs"):
            return cls._apply(args)

    @classmethod
    def _apply(cls, args: tuple[Any, ...]) -> Any:
        ctx = FunctionCtx()
        tensors = [value if _is_tensor(value) else None for value in args]
        ctx.needs_input_grad = tuple(t is not None and t.requires_grad for t in tensors)
        ctx._given = tuple(t is not None for t in tensors)
        records = THREAD.grad_enabled and any(ctx.needs_input_grad)
        with no_grad():
            result = _forward(cls, ctx, args)
        single = not isinstance(result, tuple)
        outputs = [result] if single else list(result)
        outputs = _own(outputs, args, ctx)
        if records:
            _record(cls, ctx, tensors, outputs, single)
        return outputs[0] if single else tuple(outputs)


def _forward(cls: type[Function], ctx: FunctionCtx, args: tuple[Any, ...]) -> Any:
    if cls.setup_context is Function.setup_context:
        return cls.forward(ctx, *args)
    result = cls.forward(*args)
    cls.setup_context(ctx, args, result)
    return result


def _own(outputs: list[Any], args: Sequence[Any], ctx: FunctionCtx) -> list[Any]:
    """Outputs that may be given a history: an argument handed through becomes an alias."""
    owned: list[Any] = []
    for out in outputs:
        dirty = any(out is x for x in ctx._dirty)
        if _is_tensor(out) and not dirty and (out._g is not None or any(out is a for a in args)):
            fresh = alias_of(out)
            ctx._to_save = tuple(fresh if x is out and out._g is not None and not any(
                out is a for a in args) else x for x in ctx._to_save)  # fmt: skip
            ctx._constant = tuple(fresh if x is out else x for x in ctx._constant)
            out = fresh
        owned.append(out)
    return owned


def _record(
    cls: type[Function], ctx: FunctionCtx, tensors: list[Any], outputs: list[Any], single: bool
) -> None:
    node = FunctionNode()
    node.info = _info(cls)
    node.edges = tuple(None if t is None else t._g for t in tensors)
    node.saved = ()
    node.ctx = ctx
    ctx._node = weakref.ref(node)
    live = [
        out if _is_tensor(out) and not any(out is x for x in ctx._constant) else None
        for out in outputs
    ]
    ctx._outputs = [None if t is None else (tuple(t.shape), t._t, t.device) for t in live]
    for t in live:
        if t is not None and any(t is x for x in ctx._dirty):
            _check_dirty(t, cls, single)
    if not any(t is not None and t._t.differentiable for t in live):
        return
    if single:
        _attach_single(node, live[0], ctx)
    else:
        attach_many(node, live)
    node.saved = tuple(saved(x, node) for x in ctx._to_save)
    ctx._to_save = ()


class _Named:
    """What ``inplace.check_inplace`` reads of an operator."""

    def __init__(self, name: str) -> None:
        self.qualified = name


def _check_dirty(t: Any, cls: type[Function], single: bool) -> None:
    inplace.check_inplace(t, _Named(cls.__name__))
    base = base_of(t)
    if base is not None and not single:
        raise AutogradError(
            f"{cls.__name__}: a view that is changed in place must be the only output. Return it "
            "alone, or pass the base."
        )


def _attach_single(node: FunctionNode, out: Any, ctx: FunctionCtx) -> None:
    if any(out is x for x in ctx._dirty):
        inplace.rebase(out, node)
    else:
        attach_single(node, out)


def saved(x: Any, node: FunctionNode) -> Any:
    if x is None:
        return None
    mine = x._g is node or (isinstance(x._g, Output) and x._g.node is node)
    return save_result(x) if mine else save(x)


_INFOS: weakref.WeakKeyDictionary[type[Function], Info] = weakref.WeakKeyDictionary()


def _info(cls: type[Function]) -> Info:
    found = _INFOS.get(cls)
    if found is None:
        of = weakref.ref(cls)

        def backward(node: FunctionNode, grads: list[Any]) -> Any:
            return _backward(of(), node, grads)

        found = _INFOS[cls] = Info(f"{cls.__name__}Backward", backward, None)
    return found


def _backward(cls: Any, node: FunctionNode, grads: list[Any]) -> tuple[Any, ...]:
    ctx = node.ctx
    if ctx._materialize:
        grads = [zeros(spec) if g is None else g for g, spec in zip(grads, ctx._outputs)]
    write = cls.backward if cls.backward is not Function.backward else cls.vjp
    found = write(ctx, *grads)
    found = found if isinstance(found, tuple) else (found,)
    expected = len(node.edges)
    extra = found[expected:]
    if len(found) < expected or any(g is not None for g in extra):
        raise AutogradError(
            f"function {node.name()} returned an incorrect number of gradients (expected "
            f"{expected}, got {len(found)}). backward() returns one gradient, or None, for each "
            "argument of forward()."
        )
    for i, (g, edge) in enumerate(zip(found, node.edges)):
        if g is not None and not _is_tensor(g):
            raise AutogradError(
                f"function {node.name()} returned a {type(g).__name__} as gradient {i}; expected "
                "a Tensor or None."
            )
        if g is not None and edge is None and not _is_given_tensor(ctx, i):
            raise AutogradError(
                f"function {node.name()} returned a gradient different from None at position "
                f"{i + 1}, but the corresponding forward input was not a Tensor."
            )
        if g is not None and edge is not None:
            _check_shape(node, i, g, edge)
    return found[:expected]


def _check_shape(node: FunctionNode, i: int, grad: Any, edge: Any) -> None:
    """Refuse here, where the function can be named, what its receiver could not sum to its shape."""
    meta = edge.node.output_meta(edge.number)
    if meta is None:
        return
    have, shape = tuple(grad.shape), tuple(meta[0])
    fits = len(have) >= len(shape) and all(
        n in (1, m) for n, m in zip(reversed(shape), reversed(have))
    )
    if not fits:
        raise AutogradError(
            f"function {node.name()} returned an invalid gradient at index {i}: got shape "
            f"{list(have)}, but expected {list(shape)}, the shape of that argument of forward()."
        )


def _is_given_tensor(ctx: FunctionCtx, position: int) -> bool:
    return position < len(ctx._given) and ctx._given[position]


def zeros(spec: Any) -> Any:
    if spec is None:
        return None
    from mortice._dispatch.operator import get

    shape, dtype, device = spec
    return get("full")(shape, 0, dtype, None, device, None)


# -- backward that cannot be differentiated again ------------------------------------------------


def once_differentiable(backward: Any) -> Any:
    """Mark a ``backward`` as not differentiable itself; a second derivative then says so."""
    import functools

    @functools.wraps(backward)
    def wrapped(ctx: Any, *grads: Any) -> Any:
        with no_grad():
            found = backward(ctx, *grads)
        if not THREAD.grad_enabled:
            return found
        given = [g for g in grads if _is_tensor(g)]
        if not any(g._k & K.AUTOGRAD for g in given):
            return found
        return _refusing(found, given)

    return wrapped


def _refuse(node: Node, grads: Any) -> Any:
    raise AutogradError(
        "trying to differentiate twice a function that was marked with @once_differentiable"
    )


_ONCE = Info("DelayedErrorBackward", _refuse, None)


def _refusing(found: Any, given: list[Any]) -> Any:
    """The gradients with a history that raises when it is followed."""
    single = not isinstance(found, tuple)
    outputs: list[Any] = [
        alias_of(g) if _is_tensor(g) else g for g in ((found,) if single else found)
    ]
    node = Node()
    node.info = _ONCE
    node.edges = tuple(g._g for g in given)
    node.saved = ()
    attach_many(node, [g if _is_tensor(g) else None for g in outputs])
    return outputs[0] if single else tuple(outputs)
