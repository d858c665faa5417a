"""Copies between the host and devices, and within a device; none of them leaves it silently."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from mortice._base.errors import DeviceError, FakeTensorError, InvalidState
from mortice._dispatch import keys as K
from mortice._dispatch.state import GLOBAL
from mortice._tensor.array import DeviceArray
from mortice._types import shapes
from mortice._types.device import CPU
from mortice._types.dtypes import DType
from mortice._types.shapes import Shape

#: A strided copy without a kernel for it is made of at most so many copies of contiguous pieces.
_PIECES = 256


def to_host(t: Any) -> np.ndarray[Any, Any]:
    """The elements of a tensor on any device as a numpy array (a copy unless it is on the host)."""
    if GLOBAL.watch:
        GLOBAL.settle(t, "to_host")
    a = t._a
    if type(a) is np.ndarray:
        return a
    if a.device.type == "meta":
        raise DeviceError(
            "a tensor on device 'meta' has no data. Make it with real data, or use "
            "mortice.empty_like(t, device='cpu') for memory of its shape."
        )
    if a.buffer is None and not t._k & K.FAKE:
        raise InvalidState(
            f"what needs the elements is not supported for tensor subclasses without data of their own, "
            f"such as {type(t).__name__}. Do it on the tensors that it is made of."
        )
    if a.buffer is None:
        raise FakeTensorError(
            f"a fake tensor of shape {tuple(a.shape)} has no data, only sizes and a dtype. Do what "
            "needs values on the real tensor, outside the FakeTensorMode."
        )
    item = a.dtype.itemsize
    extent = shapes.storage_extent(a.shape, a.strides, 0) * item
    if not extent:
        return np.empty(a.shape, a.dtype.numpy)
    data = np.empty(extent, np.uint8)
    runtime = a.buffer.reachable()
    runtime.synchronize(a.buffer.index)
    runtime.copy_out(a.buffer.value, a.offset * item, memoryview(cast("Any", data)))
    return np.ndarray(a.shape, a.dtype.numpy, data, 0, tuple(s * item for s in a.strides))


def from_host(target: Any, data: np.ndarray[Any, Any]) -> None:
    """Fill a device tensor with host data, converting the dtype."""
    a = target._a
    runtime = a.buffer.reachable()
    if runtime.features.streams:
        runtime.synchronize(a.buffer.index)  # work that still reads or writes there
    item = a.dtype.itemsize
    if shapes.is_contiguous(a.shape, a.strides):
        packed = np.ascontiguousarray(_converted(data, a.dtype)).reshape(-1).view(np.uint8)
        if packed.size:
            runtime.copy_in(a.buffer.value, a.offset * item, memoryview(cast("Any", packed)))
        return
    whole = to_host(target)
    np.copyto(whole, _converted(data, a.dtype))
    base: Any = whole.base
    if base is not None:
        runtime.copy_in(a.buffer.value, a.offset * item, memoryview(base))


def fill(target: Any, value: Any) -> None:
    """Set every element of a device tensor to a number."""
    from mortice._tensor.host import HOST
    from mortice._tensor.make import wrap

    data = wrap(np.empty(tuple(target.shape), target._t.numpy), target._t)
    from_host(target, HOST["fill_.Scalar"](data, value)._a)


def _converted(data: np.ndarray[Any, Any], dtype: DType) -> np.ndarray[Any, Any]:
    if data.dtype == dtype.numpy:
        return data
    out = np.empty(data.shape, dtype.numpy)
    from mortice._tensor.rows import host_copy

    host_copy(out, data)
    return out


def copy_between(target: Any, source: Any) -> None:
    """Copy elements between devices, or within a device that is not the host, broadcasting."""
    if type(target._a) is not np.ndarray and target._a.buffer is None:
        return  # sizes without data
    to, of = target._a, source._a
    if type(to) is DeviceArray and type(of) is DeviceArray and _within(to, of):
        return
    data = np.broadcast_to(to_host(source), tuple(target.shape))
    if target.device is CPU:
        from mortice._tensor.rows import host_copy

        host_copy(target._a, data)
        return
    from_host(target, data)


def _within(target: DeviceArray, source: DeviceArray) -> bool:
    """Copy on the device itself; False where that takes the way through the host."""
    if target.device.type != source.device.type or source.buffer is None:
        return False
    shape = target.shape
    if not target.size:
        return True
    if source.shape != shape:
        source = _broadcast(source, shape)
    runtime = target.buffer.reachable()
    source.buffer.reachable()
    item = target.dtype.itemsize
    pieces = _pieces(shape, target.strides, source.strides)
    if target.dtype is source.dtype and len(pieces[0]) == 1:
        at, there = target.offset * item, source.offset * item
        runtime.copy_device(target.buffer.value, at, source.buffer.value, there, pieces[1] * item)
        return True
    kernel = None
    apart = target.buffer is not source.buffer  # else what is read later may be written before
    if target.device is source.device and apart:
        kernel = runtime.kernel_for("copy_", (source.dtype, target.dtype))
    if kernel is not None:
        from mortice._tensor.streams import options

        kernel(source, target, **options(runtime, target.device))
        return True
    if apart and target.dtype is source.dtype and len(pieces[0]) <= _PIECES:
        for to, of in pieces[0]:
            runtime.copy_device(
                target.buffer.value, (target.offset + to) * item,
                source.buffer.value, (source.offset + of) * item, pieces[1] * item,
            )  # fmt: skip
        return True
    if target.device is source.device:
        from mortice._dispatch.operator import get
        from mortice._tensor.fallback import check_policy

        check_policy(get("copy_"), target.device.type)
    return False


def _broadcast(a: DeviceArray, shape: Shape) -> DeviceArray:
    """The array as seen through broadcasting to ``shape``."""
    new = len(shape) - len(a.shape)
    steps = tuple(0 if n == 1 else step for n, step in zip(a.shape, a.strides))
    return a.restride(shape, (0,) * new + steps, a.offset)


def _pieces(shape: Shape, to: Shape, of: Shape) -> tuple[list[tuple[int, int]], int]:
    """Where pieces begin that are contiguous in both, and how long they are, in elements.

    The list ends early, past ``_PIECES``.
    """
    dims = sorted(
        ((n, t, f) for n, t, f in zip(shape, to, of) if n != 1), key=lambda d: (d[1], d[2])
    )
    length = 1
    while dims and dims[0][1] == dims[0][2] == length:
        length *= dims.pop(0)[0]
    starts = [(0, 0)]
    for n, t, f in dims:
        if len(starts) * n > _PIECES:
            return [(0, 0)] * (_PIECES + 1), length
        starts = [(x + i * t, y + i * f) for i in range(n) for x, y in starts]
    return starts, length
