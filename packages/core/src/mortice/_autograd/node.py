"""Nodes of the gradient graph.

An edge (``Tensor._g``) is either a Node, meaning its output 0, or an Output, naming a node and one
of its several outputs. Both have ``.node`` and ``.number``. A leaf's edge is its Leaf node.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from mortice._base.errors import ArgumentError, AutogradError
from mortice._dispatch.keys import AUTOGRAD
from mortice._dispatch.state import GLOBAL, THREAD
from mortice._tensor.make import alias_of

_AUTOGRAD = AUTOGRAD


class Info:
    """What all nodes of one operator share: display name, backward function, operator.

    ``last`` is called instead of ``backward`` where the node's saved values are not needed again.
    """

    __slots__ = ("backward", "last", "name", "op")

    def __init__(
        self, name: str, backward: Callable[..., Any], op: Any,
        last: Callable[..., Any] | None = None,
    ) -> None:  # fmt: skip
        self.name = name
        self.backward = backward
        self.op = op
        self.last = backward if last is None else last


class Node:
    """One recorded operator.

    Attributes:
        edges: for each differentiable input, the edge to follow, or None.
        saved: what the backward function needs; None once freed.
        meta: (shape, dtype) of the output, or a tuple of those if there are several.
        extra: hooks and anomaly traceback, rarely there.
    """

    __slots__ = ("__weakref__", "edges", "extra", "info", "meta", "saved")

    info: Any
    edges: tuple[Any, ...]
    saved: Any
    meta: Any
    extra: Any

    number = 0

    @property
    def node(self) -> Node:
        return self

    def name(self) -> str:
        """PyTorch's name of the node, such as ``AddBackward0``."""
        return self.info.name

    @property
    def next_functions(self) -> tuple[tuple[Any, int], ...]:
        """(node, output number) of each input's edge; (None, 0) where there is none."""
        return tuple((None, 0) if e is None else (e.node, e.number) for e in self.edges)

    @property
    def metadata(self) -> dict[Any, Any]:
        """A dictionary for the user's own notes on this node."""
        return self._extra().setdefault("metadata", {})

    def register_hook(self, hook: Callable[..., Any]) -> Any:
        """Call ``hook(grad_inputs, grad_outputs)`` after the node's backward ran."""
        from mortice._autograd.hooks import add_hook

        return add_hook(self._extra().setdefault("post", {}), hook)

    def register_prehook(self, hook: Callable[..., Any]) -> Any:
        """Call ``hook(grad_outputs)`` before the node's backward runs."""
        from mortice._autograd.hooks import add_hook

        return add_hook(self._extra().setdefault("pre", {}), hook)

    def _extra(self) -> dict[str, Any]:
        if self.extra is None:
            self.extra = {}
        return self.extra

    def shape_of(self, number: int) -> Any:
        return self.output_meta(number)[0]

    def output_meta(self, number: int) -> Any:
        """(shape, dtype) of one output; None if it is not differentiable."""
        meta = self.meta
        return meta[number] if _is_multi(meta) else meta

    @property
    def outputs(self) -> int:
        """Number of outputs."""
        return len(self.meta) if _is_multi(self.meta) else 1

    def __repr__(self) -> str:
        return f"<{self.name()} object at {id(self):#x}>"


def _is_multi(meta: Any) -> bool:
    """Several outputs are a list, one output is a tuple."""
    return type(meta) is list


class Output:
    """One output of a node that has several."""

    __slots__ = ("node", "number")

    def __init__(self, node: Node, number: int) -> None:
        self.node = node
        self.number = number


class Leaf(Node):
    """Where gradients arrive: PyTorch's AccumulateGrad. Holds ``grad``, not the tensor."""

    __slots__ = ("device", "grad", "tensor")

    grad: Any

    def __init__(self, tensor: Any) -> None:
        self.info = _LEAF_INFO
        self.edges = ()
        self.saved = ()
        self.meta = (tensor._a.shape, tensor._t)
        self.extra = None
        self.grad = None
        self.device = tensor.device
        self.tensor = weakref.ref(tensor)

    @property
    def variable(self) -> Any:
        return self.tensor()


def _leaf_backward(node: Any, grads: Any) -> Any:
    raise AssertionError("the engine accumulates into leaves itself")


_LEAF_INFO = Info("AccumulateGrad", _leaf_backward, None)


# -- recording, called by generated wrappers ---------------------------------------------------


def edge(value: Any) -> Any:
    """The edge of an argument that may be None or a Python number."""
    return getattr(value, "_g", None)


def edges_of(tensors: Sequence[Any]) -> list[Any]:
    return [None if t is None else t._g for t in tensors]


def attach_single(node: Node, result: Any) -> None:
    """Make ``node`` the history of its only output."""
    node.meta = (result._a.shape, result._t)
    node.extra = None if not GLOBAL.recording else notes()
    result._g = node
    result._k |= _AUTOGRAD


def attach_many(node: Node, results: Any) -> None:
    """Make ``node`` the history of its floating-point outputs."""
    node.extra = None if not GLOBAL.recording else notes()
    meta: list[Any] = []
    for i, result in enumerate(results):
        if result is None or not result._t.differentiable:
            meta.append(None)
            continue
        meta.append((result._a.shape, result._t))
        result._g = Output(node, i)
        result._k |= _AUTOGRAD
    node.meta = meta


def notes() -> dict[str, Any] | None:
    """What a new node keeps besides its function: in anomaly mode, where it was recorded."""
    if not THREAD.anomaly:
        return None
    import traceback

    return {"traceback": "".join(traceback.format_stack()[:-3])}


class Saved:
    """An input kept for backward, with the version it had."""

    __slots__ = ("tensor", "version")

    def __init__(self, tensor: Any, version: int) -> None:
        self.tensor = tensor
        self.version = version

    def get(self, node: Node) -> Any:
        t = self.tensor
        s = t._s
        if s is not None and s.version != self.version:
            raise _modified(node, t, s.version, self.version)
        return t


class SavedResult:
    """An output kept for backward without a reference cycle: an alias that knows its node."""

    __slots__ = ("number", "tensor", "version")

    def __init__(self, tensor: Any, number: int) -> None:
        self.tensor: Any = alias_of(tensor)
        self.version = self.tensor._s.version
        self.number = number

    def get(self, node: Node) -> Any:
        t = self.tensor
        if t._s.version != self.version:
            raise _modified(node, t, t._s.version, self.version)
        if not THREAD.grad_enabled:
            return t
        r = alias_of(t)
        r._g = Output(node, self.number) if _is_multi(node.meta) else node
        r._k |= _AUTOGRAD
        return r


class Packed:
    """What a user's pack hook made of a saved tensor."""

    __slots__ = ("unpack", "value")

    def __init__(self, value: Any, unpack: Callable[[Any], Any]) -> None:
        self.value = value
        self.unpack = unpack

    def get(self, node: Node) -> Any:
        found = self.unpack(self.value)
        if not hasattr(found, "_k"):
            raise ArgumentError(
                "the unpack hook of saved_tensors_hooks must return a Tensor, not "
                f"{type(found).__name__}. It is given what the pack hook returned."
            )
        return found


def _modified(node: Node, t: Any, found: int, expected: int) -> AutogradError:
    return AutogradError(
        "one of the variables needed for gradient computation has been modified by an inplace "
        f"operation: [{t._t!r} {list(t.shape)}], which {node.name()} had saved, is at version "
        f"{found}; expected version {expected} instead. Use an out-of-place operator there, or "
        "clone() the tensor before it is written to."
    )


def save(tensor: Any) -> Any:
    """Keep an input tensor for backward."""
    if GLOBAL.recording and THREAD.saved_hooks:
        pack, unpack_ = THREAD.saved_hooks[-1]
        return Packed(pack(tensor), unpack_)
    s = tensor._s
    return Saved(tensor, 0 if s is None else s.version)


def save_value(value: Any) -> Any:
    """Keep an argument that may be a tensor, a number or None."""
    return value if not hasattr(value, "_k") else save(value)


def save_result(tensor: Any) -> Any:
    """Keep an output tensor for backward."""
    if GLOBAL.recording and THREAD.saved_hooks:
        pack, unpack_ = THREAD.saved_hooks[-1]
        return Packed(pack(alias_of(tensor)), unpack_)
    return SavedResult(tensor, tensor._g.number if tensor._g is not None else 0)


_SAVED = frozenset((Saved, SavedResult, Packed))


def unpack(node: Node) -> list[Any]:
    """The saved values, tensors checked for modification; AutogradError if they were freed."""
    saved = node.saved
    if saved is None:
        raise freed()
    return [
        x.get(node)
        if type(x) in _SAVED
        else (tuple(y.get(node) if type(y) in _SAVED else y for y in x) if type(x) is tuple else x)
        for x in saved
    ]


def freed() -> AutogradError:
    return AutogradError(
        "Trying to backward through the graph a second time (or to read saved tensors after they "
        "have been freed). Saved values are freed by the first backward() or grad(); pass "
        "retain_graph=True there if you need to go through the graph again."
    )
