"""``tensor[index]`` and ``tensor[index] = value``.

An integer or a slice goes straight to its view operator. Everything else is worked through from
left to right: integers, slices, None, Ellipsis and bools become views; tensors, lists and numpy
arrays are collected and handed to ``index`` or ``index_put_`` in one call.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mortice._base.errors import ArgumentError, DimensionError, InvalidValue, ShapeError
from mortice._dispatch import keys as K
from mortice._dispatch.call import Packet, failed, overridden
from mortice._dispatch.operator import get, table
from mortice._dispatch.state import GLOBAL, THREAD
from mortice._tensor.make import laid, lifted, storage_of, view_of
from mortice._types import dtypes

_select = table("select.int")
_slice = table("slice.Tensor")

_CPU, _VIEW = K.CPU, K.VIEW
#: dtype -> Python numbers that numpy writes to it as PyTorch does.
_PLAIN = {
    "float32": (int, float),
    "float64": (int, float),
    "int64": (int,),
    "int32": (int,),
    "bool": (bool,),
}
_INDEX_DTYPES = frozenset(("int64", "int32", "uint8", "bool"))
_SIMPLE = frozenset(("int64", "bool"))
_MASKS = frozenset(("uint8", "bool"))
_getitem_packet = Packet("__getitem__", True)
_setitem_packet = Packet("__setitem__", True)


def getitem(self: Any, index: Any) -> Any:
    """The elements that ``index`` names: a view where integers, slices, None, Ellipsis or bools
    alone are used, otherwise a copy.

    Raises DimensionError (an IndexError) for indices out of range or of the wrong kind.
    """
    kind = type(index)
    if (kind is int or kind is slice) and not GLOBAL.special:
        kernel = (_select if kind is int else _slice).get(self._k)
        if kernel is not None:
            if kind is int:
                return _selected(kernel, self, index)
            step = index.step
            start, end = index.start, index.stop
            if (
                (step is None or (type(step) is int and step > 0))
                and (start is None or type(start) is int)
                and (end is None or type(end) is int)
                and self._a.shape
            ):
                return kernel(self, 0, start, end, 1 if step is None else step)
    if hasattr(kind, "_k") and not GLOBAL.special and _is_simple(self, index):
        return _call("index.Tensor", self, (index,))
    if kind is tuple and not GLOBAL.special and self._k & ~_VIEW == _CPU and _is_basic(index):
        a = self._a
        if self._s is None and not a.size:
            a = laid(self)
        try:
            seen = a[index if Ellipsis in index else (*index, ...)]
        except IndexError:
            return _getitem(self, index)  # which says what is wrong
        if None not in index:
            return view_of(self, seen)
        if seen.flags.c_contiguous and seen.size:  # numpy gives new dimensions a stride of 0
            return view_of(self, seen.reshape(-1).reshape(seen.shape))
    return _getitem(self, index)


def _is_simple(self: Any, index: Any) -> bool:
    """Whether an index tensor can be handed to the operator as it is."""
    return bool(
        index._t.name in _SIMPLE
        and index._a.ndim
        and not (index._k | self._k) & K.OVERRIDE
        and index.is_cpu == self.is_cpu
    )


def _is_basic(index: tuple[Any, ...]) -> bool:
    """Whether numpy takes an index as it is: integers, plain slices, None and one Ellipsis."""
    ellipses = 0
    for item in index:
        kind = type(item)
        if kind is slice:
            step, start, end = item.step, item.start, item.stop
            if not (
                (step is None or (type(step) is int and step > 0))
                and (start is None or type(start) is int)
                and (end is None or type(end) is int)
            ):
                return False
        elif item is Ellipsis:
            ellipses += 1
        elif kind is not int and item is not None:
            return False
    return ellipses < 2


def _selected(kernel: Any, self: Any, index: int) -> Any:
    shape = self._a.shape
    if not shape:
        raise _zero_dimensional()
    n = shape[0]
    if not -n <= index < n:
        raise _out_of_bounds(index, 0, n)
    return kernel(self, 0, index)


def _getitem(self: Any, index: Any) -> Any:
    if _is_overridden(self, index):
        from mortice._dispatch import modes

        return modes.through_function_overrides(_getitem_packet, (self, index), {})
    result, tensors = _through_views(self, index, True)
    if tensors is None:
        return get("alias")(result) if result is self else result
    return _call("index.Tensor", result, tensors)


def setitem(self: Any, index: Any, value: Any) -> None:
    """Write ``value``, a number or a tensor that broadcasts, to the elements that ``index`` names."""
    if _is_overridden(self, index, value):
        from mortice._dispatch import modes

        modes.through_function_overrides(_setitem_packet, (self, index, value), {})
        return
    is_tensor = hasattr(value, "_k")
    if not GLOBAL.special and self._k & ~_VIEW == _CPU and _written(self, index, value, is_tensor):
        return
    if not is_tensor and not isinstance(value, (int, float, complex)):
        value = _number(self, value)
    target, tensors = _through_views(self, index, False)
    if tensors is None:
        _assign(target, value, is_tensor)
        return
    if not is_tensor:
        source: Any = get("full")((), value, self._t, None, self.device, None)
    else:
        source = value
        if source.ndim > target.ndim:
            source = _without_leading_ones(source, target.ndim)
    _call("index_put_", target, tensors, source, False)


def _written(self: Any, index: Any, value: Any, is_tensor: bool) -> bool:
    """Write through numpy where nothing is to be recorded and no conversion is subtle."""
    if GLOBAL.views_may_be_stale and self._k & _VIEW:
        return False
    if type(index) is not tuple:
        index = (index,)
    if not _is_basic(index):
        return False
    if is_tensor:
        if value._k & ~_VIEW != _CPU or value._t is not self._t or value._k & K.OVERRIDE:
            return False
        source = value._a
    else:
        if type(value) not in _PLAIN.get(self._t.name, ()) or not -1e38 < value < 1e38:
            return False
        source = value
    try:
        target = self._a[index if Ellipsis in index else (*index, ...)]
        if is_tensor and source.shape != target.shape:
            return False
        target[...] = source
    except (IndexError, OverflowError):
        return False  # the long way says what is wrong
    s = self._s
    if s is None:
        s = storage_of(self)
    s.version += 1
    return True


def _assign(target: Any, value: Any, is_tensor: bool) -> None:
    if not is_tensor:
        get("fill_.Scalar")(target, value)
        return
    if value.ndim > target.ndim:
        value = _without_leading_ones(value, target.ndim)
    _call("copy_", target, value, False)


def _number(self: Any, value: Any) -> Any:
    """A value that is not a Python number as one; symbolic numbers and numpy scalars pass."""
    if getattr(value, "_is_symbolic_int", False):
        return value
    if isinstance(value, np.generic) and value.dtype.kind in "biufc":
        return value.item()
    raise ArgumentError(
        f"can't assign a {type(value).__name__} to a tensor of {self._t!r}. Assign a number, or a "
        "tensor made with mortice.as_tensor(value)."
    )


def _call(name: str, *args: Any) -> Any:
    try:
        return get(name)(*args)
    except Exception as error:
        failed(name, error, args)
        raise


def _without_leading_ones(value: Any, ndim: int) -> Any:
    shape = value._a.shape
    first = 0
    while len(shape) - first > ndim and shape[first] == 1:
        first += 1
    return value.view(tuple(shape[first:])) if first else value


def _is_overridden(*values: Any) -> bool:
    """Whether a mode or a class's ``__mortice_function__`` is to see the call."""
    return overridden(values, {})


# -- from left to right --------------------------------------------------------------------------


def _through_views(self: Any, index: Any, reading: bool) -> tuple[Any, Any]:
    """The view that the plain parts of an index make, and the tensors that are left (or None)."""
    if self._k & K.FAKE and not THREAD.fake_modes:
        with self._a.mode:  # lists become index tensors, fake like the tensor
            return _through_views(self, index, reading)
    items = _as_tuple(index)
    ndim = len(self._a.shape)
    items = tuple(_prepared(item) for item in items)
    used = sum(_consumed(item) for item in items)
    if used > ndim:
        if not ndim and len(items) == 1:
            raise _zero_dimensional()
        raise DimensionError(
            f"too many indices for tensor of dimension {ndim}: {used} dimensions are indexed"
        )
    result, dim, place = self, 0, 0  # place: dimension of ``self`` that comes next
    tensors: list[Any] = []
    for position, item in enumerate(items):
        kind = type(item)
        if item is None:
            result = get("unsqueeze")(result, dim)
            tensors.append(None)
            dim += 1
        elif kind is int or getattr(item, "_is_symbolic_int", False):
            result = _select_at(result, dim, item, place)
            place += 1
        elif kind is slice:
            result = _slice_at(result, dim, item)
            tensors.append(None)
            dim += 1
            place += 1
        elif item is Ellipsis:
            skipped = ndim - used if position == _first_ellipsis(items) else 0
            tensors += [None] * skipped
            dim += skipped
            place += skipped
        elif kind is bool:
            result = get("unsqueeze")(result, dim)
            tensors.append(_bool_index(item, self.device))
            dim += 1
        else:
            tensors.append(item)
            dim += _consumed(item)
            place += _consumed(item)
    if all(t is None for t in tensors):
        return result, None
    while tensors[-1] is None:
        tensors.pop()
    device = self.device
    if device.type != "cpu":  # indices on the host may name places on a device
        tensors = [t.to(device) if t is not None and t.is_cpu else t for t in tensors]
    return result, tuple(tensors)


def _first_ellipsis(items: tuple[Any, ...]) -> int:
    return next(i for i, item in enumerate(items) if item is Ellipsis)


def _as_tuple(index: Any) -> tuple[Any, ...]:
    """The index as a tuple; a short list of tensors, lists or slices counts as one, as in PyTorch."""
    if isinstance(index, tuple):
        return index
    if isinstance(index, list) and len(index) < 32 and any(_is_compound(x) for x in index):
        from mortice._base.warning import warn

        warn(
            "Using a non-tuple sequence for multidimensional indexing is deprecated; use "
            "x[tuple(seq)] instead of x[seq]."
        )
        return tuple(index)
    return (index,)


def _is_compound(item: Any) -> bool:
    return (
        item is None
        or item is Ellipsis
        or isinstance(item, (slice, list, tuple))
        or hasattr(item, "_k")
    )


def _prepared(item: Any) -> Any:
    """An item as int, bool, slice, None, Ellipsis or an index tensor."""
    kind = type(item)
    if kind is int or kind is bool or kind is slice or item is None or item is Ellipsis:
        return item
    if hasattr(item, "_k"):
        return _prepared_tensor(item)
    if isinstance(item, np.ndarray):
        from mortice._tensor.construct import as_tensor

        return _prepared_tensor(as_tensor(item))
    if isinstance(item, np.bool_):
        return bool(item)
    if isinstance(item, (list, tuple, range)):
        return _from_sequence(item)
    if getattr(item, "_is_symbolic_int", False):
        return item
    if hasattr(kind, "__index__"):
        return int(item.__index__())
    if isinstance(item, str):
        raise ArgumentError(
            "only integers, slices, None, ... and tensors are valid indices (got str)"
        )
    raise DimensionError(
        "only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid "
        f"indices (got {kind.__name__})"
    )


def _prepared_tensor(item: Any) -> Any:
    name = item._t.name
    integral = item._t.kind in (dtypes.BOOL, dtypes.UNSIGNED, dtypes.SIGNED)
    if item.ndim == 0 and integral and not item.is_meta:
        value = item.item()
        return bool(value) if name in _MASKS else value
    if name not in _INDEX_DTYPES:
        raise DimensionError(
            "tensors used as indices must be long, int, byte or bool tensors, not "
            f"{item._t!r}. Convert with .long()."
        )
    if name == "uint8":
        from mortice._base.warning import warn

        warn(
            "indexing with dtype mortice.uint8 is deprecated, please use a dtype mortice.bool "
            "instead."
        )
    return item


def _from_sequence(item: Any) -> Any:
    from mortice._tensor.construct import wrap_data

    if not len(item):
        return lifted(wrap_data(np.empty(0, np.int64), None, copy=False))
    made = lifted(wrap_data(list(item), None, copy=True))
    if made._t.name not in _INDEX_DTYPES:
        raise DimensionError(
            "tensors used as indices must be long, int, byte or bool tensors, but the list holds "
            f"{made._t!r}."
        )
    return made


def _consumed(item: Any) -> int:
    """Dimensions of the tensor that an item uses up."""
    if item is None or item is Ellipsis or type(item) is bool:
        return 0
    t = getattr(item, "_t", None)
    return item.ndim if t is not None and t.name in _MASKS else 1


def _bool_index(value: bool, device: Any) -> Any:
    return get("full")((1 if value else 0,), 0, dtypes.int64, None, device, None)


def _select_at(result: Any, dim: int, index: int, place: int) -> Any:
    n = result._a.shape[dim]
    if not -n <= index < n:
        raise _out_of_bounds(index, place, n)
    return get("select.int")(result, dim, index)


def _slice_at(result: Any, dim: int, item: slice) -> Any:
    start, end, step = (_bound(x) for x in (item.start, item.stop, item.step))
    if step is None:
        step = 1
    if step <= 0:
        raise InvalidValue(
            f"step must be greater than zero, not {step}. Use mortice.flip for reversed order."
        )
    if start is None and end is None and step == 1:
        return result
    return get("slice.Tensor")(result, dim, start, end, step)


def _bound(value: Any) -> Any:
    if value is None or type(value) is int or getattr(value, "_is_symbolic_int", False):
        return value
    if not hasattr(type(value), "__index__"):
        raise ArgumentError(
            "slice indices must be integers or None or have an __index__ method, not "
            f"{type(value).__name__}."
        )
    return int(value.__index__())


# -- errors --------------------------------------------------------------------------------------


def _out_of_bounds(index: int, dim: int, size: int) -> DimensionError:
    return DimensionError(f"index {index} is out of bounds for dimension {dim} with size {size}")


def _zero_dimensional() -> DimensionError:
    return DimensionError(
        "invalid index of a 0-dim tensor. Use `tensor.item()` to convert a 0-dim tensor to a number"
    )


_getitem_packet.public = getitem
_setitem_packet.public = setitem

METHODS: dict[str, Any] = {"__getitem__": getitem, "__setitem__": setitem}

__all__ = ["METHODS", "ShapeError", "getitem", "setitem"]
