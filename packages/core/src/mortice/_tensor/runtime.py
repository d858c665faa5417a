"""Devices other than the host: the class their authors write, and what core makes of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np

from mortice._base.errors import ArgumentError, DeviceError, FakeTensorError, InvalidState
from mortice._dispatch import backends
from mortice._dispatch.operator import Kernel, Operator
from mortice._tensor import host
from mortice._tensor.array import DeviceArray
from mortice._tensor.make import wrap, wrap_device
from mortice._types import device as device_types
from mortice._types import shapes
from mortice._types.device import CPU, Device
from mortice._types.dtypes import DType
from mortice._types.layout import preserve_format
from mortice._types.shapes import Shape


class Features:
    """What a device can do; every answer has a safe default."""

    #: Do kernels take inputs with any strides? Otherwise core makes them contiguous first.
    strided = False
    #: Dtypes that kernels may be asked for; None means all.
    dtypes: tuple[DType, ...] | None = None


class DeviceRuntime:
    """Base class of a device. A plug-in's ``mortice_device`` hook returns a subclass.

    ``count``, ``allocate``, ``copy_in`` and ``copy_out`` are to be written; the other methods have
    defaults. Buffers are whatever ``allocate`` returns. Sizes are in bytes, offsets too.
    """

    features: type[Features] = Features

    def count(self) -> int:
        """Number of devices of this type present."""
        raise _unwritten(self, "count")

    def allocate(self, nbytes: int, index: int) -> Any:
        """A buffer of ``nbytes`` on device ``index``."""
        raise _unwritten(self, "allocate")

    def free(self, buffer: Any) -> None:
        """Give a buffer back. Called when no tensor refers to it any more."""

    def copy_in(self, buffer: Any, offset: int, data: memoryview) -> None:
        """Copy bytes from host memory into a buffer."""
        raise _unwritten(self, "copy_in")

    def copy_out(self, buffer: Any, offset: int, data: memoryview) -> None:
        """Copy bytes of a buffer to writable host memory."""
        raise _unwritten(self, "copy_out")

    def copy_device(
        self, target: Any, target_offset: int, source: Any, source_offset: int, nbytes: int
    ) -> None:
        """Copy between two buffers of this device type."""
        data = bytearray(nbytes)
        self.copy_out(source, source_offset, memoryview(data))
        self.copy_in(target, target_offset, memoryview(data))

    def synchronize(self, index: int) -> None:
        """Wait until all work on a device is done."""

    def kernel(self, op: str, dtypes: tuple[DType, ...]) -> Callable[..., Any] | None:
        """A kernel for an operator ("add.Tensor") and its tensors' dtypes, or None.

        It is called with DeviceArrays in place of tensors, the other arguments as they are, and
        then the output arrays to fill.
        """
        return None


def _unwritten(runtime: DeviceRuntime, method: str) -> NotImplementedError:
    cls = type(runtime)
    return NotImplementedError(
        f"{cls.__module__}.{cls.__qualname__} has no method {method}, which core needs of every "
        f"device. mortice.backend.DeviceRuntime.{method} says what it is to do."
    )


def runtime_of(device: Device) -> DeviceRuntime:
    return backends.runtime(device.type)


class _Buffer:
    """Owns one allocation and gives it back when the last tensor over it is gone."""

    __slots__ = ("__weakref__", "index", "nbytes", "runtime", "value")

    def __init__(self, runtime: DeviceRuntime, nbytes: int, index: int) -> None:
        self.runtime = runtime
        self.nbytes = nbytes
        self.index = index
        self.value = runtime.allocate(nbytes, index)

    @property
    def address(self) -> int:
        return int(getattr(self.value, "address", id(self.value)))

    def __del__(self) -> None:
        value = getattr(self, "value", None)
        if value is not None:
            self.runtime.free(value)


def allocate(shape: Shape, dtype: DType, device: Device, strides: Shape | None = None) -> Any:
    """An uninitialised tensor on a plug-in's device."""
    runtime = runtime_of(device)
    index = device.index or 0
    n = runtime.count()
    if index >= n:
        raise DeviceError(
            f"{device}: there {'is' if n == 1 else 'are'} {n} device(s) of type "
            f"{device.type!r}, numbered from 0."
        )
    steps = shapes.contiguous_strides(shape) if strides is None else strides
    nbytes = shapes.storage_extent(shape, steps, 0) * dtype.itemsize
    buffer = _Buffer(runtime, nbytes, index)
    return wrap_device(DeviceArray(buffer, shape, dtype, Device(device.type, index), steps))


def set_num_threads(n: int) -> None:
    """Threads that one operator on the CPU may use; at least 1. Needs mortice-cpu."""
    if not isinstance(n, int) or isinstance(n, bool):
        raise ArgumentError(f"set_num_threads expects an int, but got {type(n).__name__}")
    if n < 1:
        raise InvalidState(f"set_num_threads expects a positive integer, but got {n}")
    backends.runtime("cpu").set_num_threads(n)


def get_num_threads() -> int:
    """Threads that one operator on the CPU may use. Needs mortice-cpu."""
    return backends.runtime("cpu").get_num_threads()


# -- copies --------------------------------------------------------------------------------------


def to_host(t: Any) -> np.ndarray[Any, Any]:
    """The elements of a tensor on any device as a numpy array (a copy unless it is on the host)."""
    a = t._a
    if type(a) is np.ndarray:
        return a
    if a.device.type == "meta":
        raise DeviceError(
            "a tensor on device 'meta' has no data. Make it with real data, or use "
            "mortice.empty_like(t, device='cpu') for memory of its shape."
        )
    if a.buffer is None:
        raise FakeTensorError(
            f"a fake tensor of shape {tuple(a.shape)} has no data, only sizes and a dtype. Do what "
            "needs values on the real tensor, outside the FakeTensorMode."
        )
    extent = shapes.storage_extent(a.shape, a.strides, 0) * a.dtype.itemsize
    data = np.empty(extent, np.uint8)
    if extent:
        runtime = a.buffer.runtime
        runtime.synchronize(a.buffer.index)
        runtime.copy_out(a.buffer.value, a.offset * a.dtype.itemsize, memoryview(cast("Any", data)))
    item = a.dtype.itemsize
    if not extent:
        return np.empty(a.shape, a.dtype.numpy)
    return np.ndarray(a.shape, a.dtype.numpy, data, 0, tuple(s * item for s in a.strides))


def copy_between(target: Any, source: Any) -> None:
    """Copy elements between devices, or within a device that is not the host."""
    if type(target._a) is not np.ndarray and target._a.buffer is None:
        return  # sizes without data
    data = np.broadcast_to(to_host(source), tuple(target.shape))
    if target.device is CPU:
        from mortice._tensor.rows import host_copy

        host_copy(target._a, data)
        return
    from_host(target, data)


def from_host(target: Any, data: np.ndarray[Any, Any]) -> None:
    """Fill a device tensor with host data, converting the dtype."""
    a = target._a
    runtime = a.buffer.runtime
    item = a.dtype.itemsize
    if shapes.is_contiguous(a.shape, a.strides):
        packed = np.ascontiguousarray(_converted(data, a.dtype)).reshape(-1).view(np.uint8)
        if packed.size:
            runtime.copy_in(a.buffer.value, a.offset * item, memoryview(cast("Any", packed)))
        return
    whole = to_host(target)
    np.copyto(whole, _converted(data, a.dtype))
    base: Any = whole.base
    runtime.copy_in(a.buffer.value, a.offset * item, memoryview(base))


def _converted(data: np.ndarray[Any, Any], dtype: DType) -> np.ndarray[Any, Any]:
    if data.dtype == dtype.numpy:
        return data
    out = np.empty(data.shape, dtype.numpy)
    from mortice._tensor.rows import host_copy

    host_copy(out, data)
    return out


# -- kernels -------------------------------------------------------------------------------------


def adapt(runtime: DeviceRuntime, op: Operator, device: str) -> Kernel | None:
    """Core's calling convention around a runtime's kernels: outputs made, inputs contiguous."""
    rule = op.shape_rule()
    if rule is None or op.row.kind in ("inplace", "out") or not op.schema.tensor_positions:
        return None
    if op.schema.mutated:
        return None
    found: dict[tuple[DType, ...], Callable[..., Any] | None] = {}
    fallback: list[Kernel] = []

    def on_device(*args: Any) -> Any:
        tensors = [x for x in _flat(args) if hasattr(x, "_k")]
        key = tuple(t._t for t in tensors)
        if key not in found:
            found[key] = runtime.kernel(op.name, key)
        kernel = found[key]
        if kernel is None:
            if not fallback:
                fallback.append(_otherwise(op, device))
            return fallback[0](*args)
        where = next(t.device for t in tensors if t.device.type == device)
        specs = rule(*args)
        # None stands for an output that nobody asked for, as an output_mask says.
        outs = [
            None if s is None else allocate(tuple(s[0]), s[1], where)
            for s in (specs if type(specs) is list else [specs])
        ]
        kernel(*[_handle(x, runtime) for x in args], *[None if o is None else o._a for o in outs])
        return tuple(outs) if type(specs) is list else outs[0]

    return on_device


def _otherwise(op: Operator, device: str) -> Kernel:
    """What runs where the device has no kernel: decomposition, then the CPU."""
    found = ANY_DEVICE.get(op.name)
    if found is not None:
        return found
    found = op.decomposition() or op.body()
    if found is not None:
        from mortice._dispatch.operator import mark_composite

        return mark_composite(found)
    from mortice._tensor.fallback import through_cpu

    return through_cpu(op, device)


def _flat(args: Any) -> list[Any]:
    out: list[Any] = []
    for x in args:
        out.extend(x) if isinstance(x, (list, tuple)) else out.append(x)
    return out


def _handle(x: Any, runtime: DeviceRuntime) -> Any:
    if isinstance(x, (list, tuple)) and x and hasattr(x[0], "_k"):
        return [_handle(y, runtime) for y in x]  # pyright: ignore[reportUnknownVariableType]
    if not hasattr(x, "_k"):
        return x
    t: Any = x
    if not runtime.features.strided and not t.is_contiguous():
        t = contiguous_copy(t)
    return t._a


def contiguous_copy(x: Any) -> Any:
    r = allocate(tuple(x.shape), x._t, x.device)
    copy_between(r, x)
    return r


# -- what core does for every device -------------------------------------------------------------


def clone(self: Any, memory_format: Any) -> Any:
    if memory_format is None or memory_format is preserve_format:
        strides = shapes.dense_strides_like(tuple(self.shape), self.stride())
    else:
        strides = shapes.strides_for(tuple(self.shape), memory_format)
    r = allocate(tuple(self.shape), self._t, self.device, strides)
    copy_between(r, self)
    return r


def fill_(self: Any, value: Any) -> Any:
    data = np.empty(tuple(self.shape), self._t.numpy)
    from_host(self, host.HOST["fill_.Scalar"](wrap(data, self._t), value)._a)
    return self


def zero_(self: Any) -> Any:
    from_host(self, np.zeros(tuple(self.shape), self._t.numpy))
    return self


def local_scalar_dense(self: Any) -> Any:
    return host.HOST["_local_scalar_dense"](wrap(to_host(self), self._t))


#: The host's own where they ask for the device themselves, else from the runtime's copies.
ANY_DEVICE: dict[str, Callable[..., Any]] = {
    **{
        name: host.HOST[name]
        for name in ("copy_", "_to_copy", "empty.memory_format", "empty_strided")
    },
    "clone": clone,
    "fill_.Scalar": fill_,
    "fill_.Tensor": fill_,
    "zero_": zero_,
    "_local_scalar_dense": local_scalar_dense,
}

backends.any_device_kernel = ANY_DEVICE.get
backends.adapt_runtime = adapt
device_types.check_installed = lambda name: _check_installed(name)


def _check_installed(name: str) -> None:
    """DeviceError where no installed package provides a device type; loads nothing."""
    if name in backends._RUNTIMES:  # pyright: ignore[reportPrivateUsage]
        return
    from mortice._base.errors import nearest
    from mortice._plugins import find

    known = {"cpu", "meta", *(entry.name for entry in find("mortice.devices"))}
    if name not in known:
        raise DeviceError(
            f"no installed package provides a device of type {name!r}; there are: "
            f"{', '.join(sorted(known))}.{nearest(name, known)} `mortice list-backends --kind "
            "device` shows them with their states."
        )
