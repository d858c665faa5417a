"""Which graph value each tensor of a traced program has, through views and in-place writes.

All tensors over one storage share a ``Memory``. A write to one of them makes a new value of it and,
by the inverses of the views in between, of the tensor at the root; the others are made again from
the root when they are next read. So a graph that is recorded needs no in-place operator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from mortice._base.errors import TraceError
from mortice._ops.formulas import call
from mortice._tensor.make import storage_of
from mortice._types import dtypes
from mortice._types.shapes import dense_strides_like, numel, storage_extent
from mortice.fx.node import Node

#: Records a call: (function, args that hold nodes, the tensor that the result stands for, which of
#: several results) -> the result's node. Results that lie otherwise than the tensor are laid out anew.
Record = Callable[..., Node]


class Memory:
    """What the tensors over one storage share: the count of writes, and the value at the root."""

    __slots__ = ("epoch", "root", "storage")

    def __init__(self, storage: Any) -> None:
        self.storage = storage  # held, so that its id stays its own
        self.epoch = 0
        self.root: Value

    def check_row_major(self) -> None:
        """TraceError where, after a write, the root's value would not lie as its tensor does."""
        whole = self.root.tensor
        if self.epoch and not (whole.is_contiguous() and whole.storage_offset() == 0):
            raise TraceError(
                "a tensor that sees memory by strides (as_strided, or a change of sizes in place) is used after "
                "a write, and the memory is that of a tensor which is not contiguous, or is part of a larger "
                "one. Make such a view of a clone()."
            )


class View:
    """How a value comes from another: ``func(parent, *args)``, and of several results the ``index``-th."""

    __slots__ = ("args", "func", "index", "parent")

    @property
    def is_by_memory(self) -> bool:
        """Whether it is said by places in memory, not by the parent's elements."""
        return self.func.operator.name == "as_strided"

    def __init__(self, func: Any, parent: Value, args: tuple[Any, ...], index: int | None) -> None:
        self.func = func
        self.parent = parent
        self.args = args
        self.index = index


class Value:
    """The node that stands for a tensor now, if ``epoch`` is its memory's."""

    __slots__ = ("epoch", "handle", "memory", "node", "tensor", "view")

    def __init__(self, tensor: Any, node: Node, memory: Memory, view: View | None = None) -> None:
        self.tensor = tensor
        self.handle = tensor._a  # held, so that its id stays its own
        self.node = node
        self.memory = memory
        self.epoch = memory.epoch
        self.view = view

    def read(self, record: Record) -> Node:
        """The node of the present value, recorded now if a write through another tensor came between."""
        view = self.view
        if self.epoch != self.memory.epoch and view is not None:
            if view.is_by_memory:
                self.memory.check_row_major()
            parent = view.parent.read(record)
            self.node = record(view.func, (parent, *view.args), self.tensor, view.index)
        self.epoch = self.memory.epoch
        return self.node

    def write(self, node: Node, record: Record) -> None:
        """Make ``node`` the value, and the values of the tensors that this one is a view of."""
        path = self._path()
        current: list[Value] = [] if _may_overlap(self.tensor) else [self]
        self.node = node
        at = 0
        while at + 1 < len(path):
            # In a view that shows elements twice, a write shows at all their places: it is made again.
            end = at + 1
            while end + 1 < len(path) and _may_overlap(path[end].tensor):
                end += 1
            if any(v.view is not None and v.view.is_by_memory for v in path[at:end]):
                self.memory.check_row_major()
            parent = path[end]
            old = parent.read(record)
            parent.node = node = (
                _inverse(path[at], old, node, record)
                if end == at + 1
                else _put_back(path[at:end], old, node, record)
            )
            current.append(parent)
            at = end
        self.memory.epoch += 1
        for one in current:
            one.epoch = self.memory.epoch

    def _path(self) -> list[Value]:
        """From this value to the root's."""
        path: list[Value] = [self]
        while (view := path[-1].view) is not None:
            path.append(view.parent)
        return path


class Values:
    """The values of a trace's tensors, by the identity of their handles."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._values: dict[int, Value] = {}
        self._memories: dict[int, Memory] = {}

    def find(self, tensor: Any) -> Value | None:
        """The value of a tensor; one over known memory that came about unseen is a view of its root."""
        value = self._values.get(id(tensor._a))
        if value is not None:
            return value
        memory = self._memories.get(id(storage_of(tensor)))
        if memory is None:
            return None
        return self.add_view(tensor, as_strided_view(tensor, memory.root), None)

    def add(self, tensor: Any, node: Node) -> Value:
        """A tensor with memory of its own."""
        storage = storage_of(tensor)
        memory = Memory(storage)
        value = Value(tensor, node, memory)
        memory.root = value
        self._memories[id(storage)] = memory
        self._values[id(tensor._a)] = value
        return value

    def add_view(self, tensor: Any, view: View, node: Node | None) -> Value:
        """A tensor over the memory of ``view.parent``; without a node it is recorded when it is read."""
        parent = view.parent
        value = Value(tensor, parent.node if node is None else node, parent.memory, view)
        if node is None:
            value.epoch = -1
        self._values[id(tensor._a)] = value
        return value

    def memory_of(self, tensor: Any) -> Memory | None:
        return self._memories.get(id(storage_of(tensor)))


def as_strided_view(tensor: Any, root: Value) -> View:
    """Any tensor over a root's memory, by its geometry."""
    if tensor._t is not root.tensor._t:
        raise TraceError(
            f"a tensor of {tensor._t!r} sees the memory of one of {root.tensor._t!r} that was made while the "
            "program was traced. Use Tensor.view(dtype)."
        )
    geometry = (tuple(tensor._a.shape), tensor.stride(), tensor.storage_offset())
    whole = root.tensor
    if storage_extent(*geometry) > storage_extent(
        whole._a.shape, whole.stride(), whole.storage_offset()
    ):
        raise TraceError(
            f"a tensor of shape {list(geometry[0])} sees more memory than the traced program has seen: that of a "
            f"tensor of shape {list(whole.shape)}. Make a new tensor instead of resizing one."
        )
    return View(_aten("as_strided", "default"), root, geometry, None)


# -- inverses ------------------------------------------------------------------------------------


def _aten(name: str, overload: str) -> Any:
    return getattr(getattr(import_module("mortice.ops").aten, name), overload)


def _shape(value: Value) -> tuple[Any, ...]:
    return tuple(value.tensor._a.shape)


def _reshaped(value: Value, parent: Value, old: Node, new: Node, record: Record) -> Node:
    return record(_aten("view", "default"), (new, _shape(parent)), parent.tensor)


def _same_view(value: Value, parent: Value, old: Node, new: Node, record: Record) -> Node:
    """A transposition is its own inverse."""
    assert value.view is not None
    return record(value.view.func, (new, *value.view.args), parent.tensor)


def _permuted(value: Value, parent: Value, old: Node, new: Node, record: Record) -> Node:
    assert value.view is not None
    dims = [d % len(_shape(parent)) for d in value.view.args[0]]
    back = tuple(dims.index(i) for i in range(len(dims)))
    return record(value.view.func, (new, back), parent.tensor)


def _scattered(name: str) -> Any:
    def inverse(value: Value, parent: Value, old: Node, new: Node, record: Record) -> Node:
        assert value.view is not None
        return record(_aten(name, "default"), (old, new, *value.view.args), parent.tensor)

    return inverse


def _as_complex(value: Value, parent: Value, old: Node, new: Node, record: Record) -> Node:
    return record(_aten("view_as_complex", "default"), (new,), parent.tensor)


def _as_real(value: Value, parent: Value, old: Node, new: Node, record: Record) -> Node:
    return record(_aten("view_as_real", "default"), (new,), parent.tensor)


def _seen_as_before(value: Value, parent: Value, old: Node, new: Node, record: Record) -> Node:
    return record(_aten("view", "dtype"), (new, parent.tensor._t), parent.tensor)


def _part(value: Value, parent: Value, old: Node, new: Node, record: Record) -> Node:
    """One of the pieces that a tensor was split into: where it lies, its geometry says."""
    view = value.view
    assert view is not None
    assert view.index is not None
    sizes, dim, *_ = (*view.args, 0)
    dim = dim % len(_shape(parent))
    if isinstance(sizes, tuple):
        start = sum(sizes[: view.index])
    else:
        start = sizes * view.index
    end = start + _shape(value)[dim]
    return record(_aten("slice_scatter", "default"), (old, new, dim, start, end), parent.tensor)


def _one_of(value: Value, parent: Value, old: Node, new: Node, record: Record) -> Node:
    view = value.view
    assert view is not None
    dim = view.args[0] if view.args else 0
    return record(_aten("select_scatter", "default"), (old, new, dim, view.index), parent.tensor)


def _by_strides(value: Value, parent: Value, old: Node, new: Node, record: Record) -> Node:
    assert value.view is not None
    return record(
        _aten("as_strided_scatter", "default"), (old, new, *value.view.args), parent.tensor
    )


def _by_places(value: Value, parent: Value, old: Node, new: Node, record: Record) -> Node:
    return _put_back([value], old, new, record)


def _put_back(path: Sequence[Value], old: Node, new: Node, record: Record) -> Node:
    """Any views: where each element of the first is in the last one's parent, the views of places say."""
    views = [value.view for value in reversed(path)]
    last = views[0]
    assert last is not None

    def put(old: Any, new: Any) -> Any:
        shape = tuple(old._a.shape)
        count = numel(shape)
        places = call("arange.start_step", 0, count, 1, dtypes.int64, None, old.device, None)
        seen = places.view(shape)
        for view in views:
            assert view is not None
            seen = view.func(seen, *view.args)
            seen = seen if view.index is None else seen[view.index]
        flat = old.reshape((-1,))
        put = call("index_put", flat, (seen.reshape((-1,)),), new.reshape((-1,)), False)
        return put.view(shape)

    return record(put, (old, new), last.parent.tensor)


def _may_overlap(t: Any) -> bool:
    """Whether two indices may name one element; False only if they surely do not."""
    reach: Any = 0
    pairs = [(s, n) for n, s in zip(t._a.shape, t.stride()) if (n == 1) is not True]
    for stride, size in sorted(pairs, key=lambda pair: _guess(pair[0])):
        if (stride > reach) is not True:
            return True
        reach = reach + (size - 1) * stride
    return False


_INVERSES: dict[str, Any] = {
    **dict.fromkeys(
        (
            "view", "_unsafe_view", "_reshape_alias", "unsqueeze", "squeeze", "squeeze.dim", "squeeze.dims",
            "alias", "detach",
        ),
        _reshaped,
    ),
    "transpose.int": _same_view,
    "t": _same_view,
    "permute": _permuted,
    "select.int": _scattered("select_scatter"),
    "slice.Tensor": _scattered("slice_scatter"),
    "diagonal": _scattered("diagonal_scatter"),
    "view_as_real": _as_complex,
    "view_as_complex": _as_real,
    "view.dtype": _seen_as_before,
    "split.Tensor": _part,
    "split_with_sizes": _part,
    "unbind.int": _one_of,
    "as_strided": _by_strides,
}  # fmt: skip


def _inverse(value: Value, old: Node, new: Node, record: Record) -> Node:
    """The parent's value where ``value``'s part of it is ``new`` and the rest as in ``old``."""
    assert value.view is not None
    make = _INVERSES.get(value.view.func.operator.name, _by_places)
    return make(value, value.view.parent, old, new, record)


def laid_out(t: Any, like: Any) -> Any:
    """``t`` with its dimensions in the order in memory that those of ``like`` have, without gaps."""
    shape = tuple(like._a.shape)
    wanted = dense_strides_like(shape, like.stride())
    pairs = zip(shape, t.stride(), wanted)
    if all((n == 1) is True or (have == want) is True for n, have, want in pairs):
        return t
    order = sorted(range(len(shape)), key=lambda d: _guess(wanted[d]), reverse=True)
    back = tuple(order.index(d) for d in range(len(shape)))
    return t.permute(tuple(order)).contiguous().permute(back)


def _guess(size: Any) -> Any:
    return size if type(size) is int else size.hint or 0
