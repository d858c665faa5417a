"""Subclasses of Tensor: the default override, and wrappers that hold no data of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mortice._base.errors import ArgumentError
from mortice._dispatch import keys as K
from mortice._dispatch.modes import no_function_subclasses
from mortice._dispatch.state import Guard
from mortice._tensor.array import DeviceArray
from mortice._tensor.construct import as_subclass, class_keys, overrides_dispatch
from mortice._tensor.tensor import Tensor
from mortice._types import dtypes
from mortice._types.device import CPU, Device
from mortice._types.shapes import contiguous_strides


def mortice_function(
    cls: type, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
) -> Any:
    """Run the function on the arguments as plain tensors, and make its results ``cls`` again."""
    if not all(issubclass(cls, t) for t in types):
        return NotImplemented
    with no_function_subclasses():
        result = func(*args, **(kwargs or {}))
    return _as_class(result, cls)


def _as_class(result: Any, cls: type) -> Any:
    if cls is Tensor:
        return result
    if isinstance(result, Tensor):
        return result if isinstance(result, cls) else as_subclass(result, cls)
    if isinstance(result, (tuple, list)):
        items = [_as_class(x, cls) for x in result]  # pyright: ignore[reportUnknownVariableType]
        if hasattr(result, "_fields"):
            return type(result)(*items)
        return type(result)(items)  # pyright: ignore[reportUnknownVariableType]
    return result


def make_wrapper_subclass(
    cls: type,
    size: Sequence[int],
    strides: Sequence[int] | None = None,
    storage_offset: int | None = None,
    memory_format: Any = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    dispatch_sizes_strides_policy: Any = None,
    dispatch_device: bool = False,
    dispatch_layout: bool = False,
) -> Any:
    """A tensor of ``cls`` with metadata but no data; its ``__mortice_dispatch__`` does the rest.

    NotImplementedError for the ``dispatch_*`` options: sizes, strides, device and layout are what is
    given here; a class may show others by properties of its own.
    """
    if dispatch_sizes_strides_policy is not None or dispatch_device or dispatch_layout:
        raise NotImplementedError(
            "_make_wrapper_subclass: sizes, strides, device and layout are not asked of "
            "__mortice_dispatch__. Leave the dispatch_ options away, and define properties on the class."
        )
    if not (isinstance(cls, type) and issubclass(cls, Tensor)):
        raise ArgumentError(f"{cls!r} must derive from mortice.Tensor")
    if not overrides_dispatch(cls):
        raise ArgumentError(f"{cls.__name__} must define __mortice_dispatch__")
    dtype = dtype or dtypes.default.dtype
    where = CPU if device is None else Device(device)
    shape = tuple(size)
    steps = contiguous_strides(shape) if strides is None else tuple(strides)
    r: Any = object.__new__(cls)
    r._a = DeviceArray(None, shape, dtype, where, steps, storage_offset or 0)
    r._k = K.device_bit(where.type) | class_keys(cls)
    r._t = dtype
    r._g = r._s = r._b = None
    if requires_grad:
        r.requires_grad_()
    return r


def is_traceable_wrapper(t: Any) -> bool:
    """Whether a subclass says how it is taken apart and put together again."""
    cls = type(t)
    return (
        isinstance(t, Tensor)
        and cls is not Tensor
        and hasattr(cls, "__tensor_flatten__")
        and hasattr(cls, "__tensor_unflatten__")
    )


def mortice_dispatch(
    cls: type, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
) -> Any:
    """Run the operator as if its arguments had no dispatch of their own; what ``super()`` gives."""
    with Guard(exclude=K.PYTHON):
        return func(*args, **(kwargs or {}))


METHODS: dict[str, Any] = {
    "__mortice_function__": classmethod(mortice_function),
    "__mortice_dispatch__": classmethod(mortice_dispatch),
    "_make_wrapper_subclass": staticmethod(make_wrapper_subclass),
}
