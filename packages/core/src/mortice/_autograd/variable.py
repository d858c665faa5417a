"""The gradient side of a tensor: requires_grad, grad, grad_fn, hooks, detach and data."""

from __future__ import annotations

import weakref
from typing import Any

from mortice._autograd.hooks import add_hook
from mortice._autograd.node import Leaf, Node, Output
from mortice._base.errors import AutogradError, InvalidState
from mortice._dispatch import keys as K
from mortice._dispatch.state import GLOBAL
from mortice._tensor.make import alias_of, storage_of


def _fresh(t: Any) -> None:
    if t._k & K.VIEW and t._s is not None and t._s.epoch:
        from mortice._autograd.views import refresh

        refresh(t)


def set_requires_grad(t: Any, value: bool) -> None:
    if value == t.requires_grad:
        return
    if GLOBAL.watch:
        GLOBAL.settle(t, "requires_grad_")
    if value:
        if not t._t.differentiable:
            raise AutogradError(
                "only Tensors of floating point and complex dtype can require gradients, not "
                f"{t._t!r}. Convert first, for example with .float()."
            )
        t._g = _leaf_of(t)
        t._k |= K.AUTOGRAD
        return
    if not isinstance(t._g, Leaf):
        raise AutogradError(
            "you can only change requires_grad flags of leaf variables. If you want to use a "
            "computed variable in a subgraph that doesn't require differentiation use "
            "var_no_grad = var.detach()."
        )
    t.__dict__["_leaf"] = t._g  # keeps .grad and the hooks for a later requires_grad_(True)
    t._g = None
    t._k &= ~K.AUTOGRAD


def _leaf_of(t: Any) -> Leaf:
    kept = t.__dict__.pop("_leaf", None)
    return Leaf(t) if kept is None else kept


def is_leaf(t: Any) -> bool:
    _fresh(t)
    return t._g is None or type(t._g) is Leaf


def grad_fn(t: Any) -> Any:
    if GLOBAL.watch:
        GLOBAL.settle(t, "grad_fn")
    _fresh(t)
    g = t._g
    return None if g is None or type(g) is Leaf else g.node


def get_grad(t: Any) -> Any:
    g = t._g
    if type(g) is Leaf:
        return g.grad
    leaf = t.__dict__.get("_leaf")
    if leaf is not None:
        return leaf.grad
    if g is not None and "_grad" not in t.__dict__:
        import warnings

        warnings.warn(
            "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its "
            ".grad attribute won't be populated during autograd.backward(). Call "
            ".retain_grad() on it first, if you need it.",
            UserWarning,
            stacklevel=3,
        )
    return t.__dict__.get("_grad")


def set_grad(t: Any, value: Any) -> None:
    if value is not None:
        _check_grad(t, value)
    g = t._g
    if type(g) is Leaf:
        g.grad = value
    elif "_leaf" in t.__dict__:
        t.__dict__["_leaf"].grad = value
    elif g is None and value is not None:
        leaf = t.__dict__["_leaf"] = Leaf(t)
        leaf.grad = value
    else:
        t.__dict__["_grad"] = value


def _check_grad(t: Any, value: Any) -> None:
    if not hasattr(value, "_k"):
        raise TypeError(
            f"assigned grad expected to be a Tensor or None but got grad of type "
            f"{type(value).__name__}"
        )
    if value is t:
        raise AutogradError("can't assign Variable as its own grad")
    if value._t is not t._t or value.device != t.device:
        raise AutogradError(
            f"assigned grad has data of a different type: {value._t!r} on {value.device}, "
            f"expected {t._t!r} on {t.device}. Convert it with .to(tensor)."
        )
    if tuple(value._a.shape) != tuple(t._a.shape):
        raise AutogradError(
            f"assigned grad has data of a different size: {list(value.shape)}, expected "
            f"{list(t.shape)}"
        )


def retains_grad(t: Any) -> bool:
    return bool(t.__dict__.get("_retains"))


def retain_grad(t: Any) -> None:
    if not t.requires_grad:
        raise AutogradError("can't retain_grad on Tensor that has requires_grad=False")
    if is_leaf(t) or retains_grad(t):
        return
    if GLOBAL.watch:
        GLOBAL.settle(t, "retain_grad")
    t.__dict__["_retains"] = True
    t.__dict__["_grad"] = None
    ref = weakref.ref(t)

    def keep(grad: Any) -> None:
        tensor = ref()
        if tensor is not None:
            have = tensor.__dict__.get("_grad")
            tensor.__dict__["_grad"] = grad if have is None else have + grad

    _tensor_hooks(t, "retain")[id(keep)] = keep


def _tensor_hooks(t: Any, kind: str) -> dict[int, Any]:
    g = t._g
    extra: dict[str, Any] = g.node._extra()
    return extra.setdefault(kind, {}).setdefault(g.number, {})


def register_hook(t: Any, hook: Any) -> Any:
    if not t.requires_grad:
        raise AutogradError("cannot register a hook on a tensor that doesn't require gradient")
    if GLOBAL.watch:
        GLOBAL.settle(t, "register_hook")
    return add_hook(_tensor_hooks(t, "tensor"), hook)


def register_post_accumulate_hook(t: Any, hook: Any) -> Any:
    if not t.requires_grad or type(t._g) is not Leaf:
        raise AutogradError("post accumulate grad hooks cannot be registered on non-leaf tensors")
    return add_hook(t._g._extra().setdefault("accumulated", {}), hook)


def detach(t: Any) -> Any:
    """The same memory and version counter, without history (``aten::detach``)."""
    r = alias_of(t)
    if type(t) is not type(r):
        r = _as_plain_subclass(r, t)
    return r


def _as_plain_subclass(r: Any, t: Any) -> Any:
    return r


def detach_(t: Any) -> Any:
    if t._b is not None:
        raise InvalidState(
            "Can't detach views in-place. Use detach() instead. If you are using "
            "DistributedDataParallel, wrap the model before viewing its parameters."
        )
    if GLOBAL.watch:
        GLOBAL.settle(t, "detach_")
    t._g = None
    t._k &= ~K.AUTOGRAD
    return t


def get_data(t: Any) -> Any:
    """A detached alias whose version counter is its own, so autograd does not see its writes."""
    from mortice._tensor.storage import Storage

    if GLOBAL.watch:
        GLOBAL.settle(t, "data")
    if t._k & K.PYTHON:
        return t.detach()  # the class decides what that is
    r = alias_of(t)
    s = storage_of(t)
    own = object.__new__(Storage)
    own.root, own.device, own.version, own.epoch = s.root, s.device, 0, 0
    own._bytes, own._nbytes = s._bytes, s._nbytes  # pyright: ignore[reportPrivateUsage]
    own.owner, own.pending, own.exported = s.owner or s, None, s.exported
    r._s = own
    return r


def set_data(t: Any, value: Any) -> None:
    """Let a tensor hold other data, its identity and history kept."""
    if not hasattr(value, "_k"):
        raise TypeError(f".data must be set to a Tensor, not {type(value).__name__}")
    if GLOBAL.watch:
        GLOBAL.settle(t, "data")
        GLOBAL.settle(value, "data")
    if t._g is not None and not value._t.differentiable:
        raise AutogradError(
            "data set to a tensor that requires gradients must be floating point or complex dtype"
        )
    t._a = value._a
    t._t = value._t
    t._s = value._s if value._s is not None else storage_of(value)
    t._k = (value._k & ~(K.FUNCTIONALITY_MASK)) | (t._k & (K.FUNCTIONALITY_MASK & ~K.VIEW))
    t._b = None
    if type(t._g) is Leaf:
        t._g.meta = (t._a.shape, t._t)
        t._g.device = t.device


__all__ = ["Leaf", "Node", "Output"]
