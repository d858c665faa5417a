"""Making Tensor objects: the few constructors that every kernel uses.

They write slots directly, since object creation is most of the cost of a small operator
(about 110 ns of 650).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mortice._base.errors import DTypeError
from mortice._dispatch import keys as K
from mortice._dispatch.state import THREAD
from mortice._tensor.array import DeviceArray, PendingArray
from mortice._tensor.storage import Storage, device_storage, host_storage
from mortice._tensor.tensor import Tensor
from mortice._types import dtypes
from mortice._types.device import CPU, META, Device
from mortice._types.dtypes import DType
from mortice._types.shapes import Shape, contiguous_strides, storage_extent

_new = object.__new__
_ndarray = np.ndarray
KEY_CPU = K.CPU
KEY_CPU_VIEW = K.CPU_VIEW


def wrap(array: Any, dtype: DType) -> Tensor:
    """A new tensor on the host that owns ``array`` (or takes a numpy scalar as 0-d)."""
    r = _new(Tensor)
    r._a = array if type(array) is _ndarray else np.asarray(array)
    r._k = KEY_CPU
    r._t = dtype
    r._g = None
    r._s = None
    r._b = None
    return r


def lifted(t: Tensor) -> Tensor:
    """A tensor just made of Python's or numpy's data; its fake inside a FakeTensorMode."""
    modes = THREAD.fake_modes
    return modes[-1].constant(t) if modes else t


def wrap_array(array: np.ndarray[Any, Any]) -> Tensor:
    """As ``wrap``, with the dtype read from the array."""
    dtype = dtypes.from_numpy(array.dtype)
    if dtype is None:
        raise DTypeError(
            f"can't convert a numpy array of type {array.dtype}. The dtypes are: "
            f"{', '.join(n for n, d in dtypes.ALL.items() if not d.storage_only)}."
        )
    return wrap(array, dtype)


def wrap_device(array: DeviceArray) -> Tensor:
    """A new tensor on another device than the host."""
    r = _new(Tensor)
    r._a = array
    r._k = K.device_bit(array.device.type)
    r._t = array.dtype
    r._g = None
    r._s = None
    r._b = None
    return r


def meta(shape: Sequence[int], dtype: DType, strides: Shape | None = None) -> Tensor:
    """A tensor on device ``meta``: sizes, strides and dtype without data."""
    return wrap_device(DeviceArray(None, tuple(shape), dtype, META, strides))


def storage_of(t: Tensor) -> Storage:
    """The tensor's storage, made now if it had none."""
    s = t._s
    if s is None:
        a = t._a
        if type(a) is _ndarray:
            s = host_storage(a if a.size else laid(t))
        elif type(a) is PendingArray:
            extent = storage_extent(a.shape, a.strides, a.offset)
            s = device_storage(None, extent * a.dtype.itemsize, a.device)
            s.pending = a.home.recorder
        else:
            extent = storage_extent(a.shape, a.strides, a.offset)
            s = device_storage(a.buffer, extent * a.dtype.itemsize, a.device)
        t._s = s
    return s


def laid(t: Tensor) -> np.ndarray[Any, Any]:
    """The array of a host tensor without elements, with strides from which views follow.

    numpy makes such arrays with strides of 0, where PyTorch counts a size of 0 as 1. They are set
    when the first view or storage is asked for: no operator has to look at the sizes of its result.
    """
    a = t._a
    if t._s is None and 0 in a.strides:
        steps = tuple(s * a.itemsize for s in contiguous_strides(a.shape))
        t._a = a = np.ndarray(a.shape, a.dtype, np.empty(0, np.uint8), 0, steps)
    return a


def view_of(base: Tensor, handle: Any) -> Tensor:
    """A tensor that sees ``base``'s memory through another handle, as a differentiable view."""
    r = _new(Tensor)
    s = base._s
    if s is None:
        s = storage_of(base)
    b = base._b
    if b is None:
        b = base if not s.epoch else ViewInfo(base, s.epoch)
    r._a = handle
    r._k = (base._k & ~K.FUNCTIONALITY_MASK) | K.VIEW
    r._t = base._t
    r._g = None
    r._s = s
    r._b = b
    return r


class ViewInfo:
    """Base of a view, and the storage's epoch for which the view's grad_fn holds.

    Views of storages that never got a new history in place keep the base alone in ``_b``.
    """

    __slots__ = ("base", "epoch")

    def __init__(self, base: Tensor, epoch: int) -> None:
        self.base = base
        self.epoch = epoch


def base_of(view: Tensor) -> Tensor | None:
    """The tensor that ``view`` is a view of, or None."""
    b = view._b
    return b.base if b.__class__ is ViewInfo else b


def alias_of(t: Tensor) -> Tensor:
    """Another tensor object over the same memory and version counter, without history."""
    r = _new(Tensor)
    s = t._s
    if s is None:
        s = storage_of(t)
    r._a = t._a
    r._k = t._k & ~K.FUNCTIONALITY_MASK
    r._t = t._t
    r._g = None
    r._s = s
    r._b = None
    return r


def restride(
    t: Tensor, shape: Shape, strides: Shape, offset: int, dtype: DType | None = None
) -> Any:
    """A handle on ``t``'s storage with other sizes, strides and offset (in elements)."""
    a = t._a
    if type(a) is not _ndarray:
        return a.restride(shape, strides, offset, dtype)
    return host_array(storage_of(t), dtype or t._t, shape, strides, offset)


def host_array(storage: Storage, dtype: DType, shape: Shape, strides: Shape, offset: int) -> Any:
    """A numpy array over a host storage; ShapeError if it would reach outside."""
    size = dtype.itemsize
    extent = storage_extent(shape, strides, offset) * size
    data = storage.host_bytes()
    if extent > data.nbytes or offset < 0:
        from mortice._base.errors import ShapeError

        raise ShapeError(
            f"setStorage: sizes {list(shape)}, strides {list(strides)}, storage offset {offset}, "
            f"and itemsize {size} requiring a storage size of {extent} are out of bounds for "
            f"storage of size {data.nbytes}"
        )
    steps = tuple(s * size for s in strides)
    if not extent:
        return np.ndarray(shape, dtype.numpy, np.empty(0, np.uint8), 0, steps)
    return np.ndarray(shape, dtype.numpy, data, offset * size, steps)


def from_storage(
    storage: Storage,
    dtype: DType,
    shape: Sequence[int],
    strides: Sequence[int] | None = None,
    offset: int = 0,
) -> Tensor:
    """A tensor over an existing storage; strides and offset in elements.

    Raises ShapeError if sizes, strides and offset reach outside the storage.
    """
    shape = tuple(shape)
    steps = contiguous_strides(shape) if strides is None else tuple(strides)
    if storage.device is CPU:
        r = wrap(host_array(storage, dtype, shape, steps, offset), dtype)
    else:
        r = wrap_device(DeviceArray(storage.root, shape, dtype, storage.device, steps, offset))
    r._s = storage
    return r


def empty(
    shape: Sequence[int], dtype: DType, device: Device = CPU, strides: Shape | None = None
) -> Tensor:
    """A tensor with uninitialised elements, on any device."""
    shape = tuple(shape)
    if device is CPU:
        if strides is None:
            return wrap(np.empty(shape, dtype.numpy), dtype)
        data = np.empty(storage_extent(shape, strides, 0) * dtype.itemsize, np.uint8)
        return from_storage(host_storage(data), dtype, shape, strides)
    if device.type == "meta":
        return meta(shape, dtype, strides)
    from mortice._tensor.memory import allocate

    return allocate(shape, dtype, device, strides)
