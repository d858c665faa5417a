"""Making and copying tensors: shape rules, decompositions and gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from mortice._base.errors import RangeError, ShapeError
from mortice._dispatch.bind import is_int
from mortice._dispatch.operator import get
from mortice._ops.formulas import call
from mortice._ops.windows import *  # noqa: F403  the bodies of windows
from mortice._tensor import host, make
from mortice._types import dtypes, layout, shapes
from mortice._types.device import CPU, Device, current_default
from mortice._types.shapes import dense_strides_like, strides_for

# -- shape rules ---------------------------------------------------------------------------------


def check_size(size: Sequence[int]) -> None:
    for n in size:
        if n < 0:
            raise ShapeError(f"Trying to create tensor with negative dimension {n}: {list(size)}")


def sized_format(size: Any, dtype: Any, layout_: Any, device: Any, pin: Any, fmt: Any) -> Any:
    check_size(size)
    return tuple(size), dtype or dtypes.default.dtype, strides_for(size, fmt)


def strided(size: Any, stride: Any, dtype: Any, *rest: Any) -> Any:
    check_size(size)
    if len(size) != len(stride):
        raise ShapeError(
            f"dimensionality of sizes ({len(size)}) must match dimensionality of strides "
            f"({len(stride)})"
        )
    return tuple(size), dtype or dtypes.default.dtype, tuple(stride)


def sized(size: Any, dtype: Any, *rest: Any) -> Any:
    check_size(size)
    return tuple(size), dtype or dtypes.default.dtype


def filled(size: Any, value: Any, dtype: Any, *rest: Any) -> Any:
    check_size(size)
    return tuple(size), dtype or dtypes.of_number(value)


def scalar(s: Any, dtype: Any, *rest: Any) -> Any:
    return (), dtype or dtypes.default.dtype


def like(self: Any, memory_format: Any) -> Any:
    return tuple(self._a.shape), self._t, strides_like(self, memory_format)


def copied(self: Any, dtype: Any, layout_: Any, device: Any, pin: Any, nb: Any, fmt: Any) -> Any:
    return tuple(self._a.shape), dtype or self._t, strides_like(self, fmt)


def like_options(self: Any, dtype: Any, layout_: Any, device: Any, pin: Any, fmt: Any) -> Any:
    return tuple(self._a.shape), dtype or self._t, strides_like(self, fmt)


def full_like(self: Any, value: Any, dtype: Any, *rest: Any) -> Any:
    return like_options(self, dtype, *rest)


def copied_onto(self: Any, src: Any, non_blocking: bool) -> Any:
    shapes.expand_strides(src._a.shape, src.stride(), tuple(self._a.shape))
    return tuple(self._a.shape), self._t, strides_like(self, None)


def strides_like(self: Any, memory_format: Any) -> Any:
    if memory_format is None or memory_format is layout.preserve_format:
        return dense_strides_like(self._a.shape, self.stride())
    return strides_for(self._a.shape, memory_format)


def to_like(grad: Any, dtype: Any, device: Any) -> Any:
    """A gradient back in its input's dtype and on its device."""
    if dtype.kind != dtypes.COMPLEX and grad._t.is_complex:
        grad = grad.real
    return call("_to_copy", grad, dtype, None, device, None, False, None)


def int_tensor(values: Sequence[int], device: Any) -> Any:
    """A 1-d int64 tensor of Python integers on a device."""
    made = make.lifted(make.wrap(np.array(values, np.int64), dtypes.int64))
    return made if device is None or device.type == "cpu" else made.to(device)


# -- uninitialised memory and fills ----------------------------------------------------------------


def _device(device: Any) -> Device:
    return current_default() if device is None else Device(device)


def empty_on_device(size: Any, dtype: Any, layout_: Any, device: Any, pin: Any, fmt: Any) -> Any:
    sizes, kind, strides = sized_format(size, dtype, layout_, device, pin, fmt)
    return make.empty(sizes, kind, _device(device), strides)


def empty_strided_on_device(
    size: Any, stride: Any, dtype: Any, layout_: Any, device: Any, pin: Any
) -> Any:
    sizes, kind, strides = strided(size, stride, dtype)
    return make.empty(sizes, kind, _device(device), strides)


def empty_permuted(
    size: Any, physical_layout: Any, dtype: Any, layout_: Any, device: Any, pin: Any
) -> Any:
    if len(size) != len(physical_layout):
        raise ShapeError(
            "Number of dimensions in size does not match the length of the physical_layout; i.e. "
            f"len(size) = {len(size)} is not equal to len(physical_layout) = {len(physical_layout)}"
        )
    if sorted(physical_layout) != list(range(len(size))):
        raise ShapeError(
            f"Dimensions of physical_layout {list(physical_layout)} are not a permutation"
        )
    strides = shapes.strides_in_order(size, physical_layout)
    return call("empty_strided", tuple(size), strides, dtype, layout_, device, pin)


def full_by_fill(size: Any, value: Any, dtype: Any, layout_: Any, device: Any, pin: Any) -> Any:
    dtype = dtype or dtypes.of_number(value)
    made = call("empty.memory_format", size, dtype, layout_, device, pin, None)
    return call("fill_.Scalar", made, value)


def zeros_by_fill(size: Any, dtype: Any, layout_: Any, device: Any, pin: Any) -> Any:
    return call("full", size, 0, dtype or dtypes.default.dtype, layout_, device, pin)


def ones_by_fill(size: Any, dtype: Any, layout_: Any, device: Any, pin: Any) -> Any:
    return call("full", size, 1, dtype or dtypes.default.dtype, layout_, device, pin)


def scalar_by_fill(s: Any, dtype: Any, layout_: Any, device: Any, pin: Any) -> Any:
    return call("full", (), s, dtype or dtypes.default.dtype, layout_, device, pin)


def empty_like(self: Any, dtype: Any, layout_: Any, device: Any, pin: Any, fmt: Any) -> Any:
    target = self.device if device is None else Device(device)
    return make.empty(tuple(self._a.shape), dtype or self._t, target, strides_like(self, fmt))


def full_like_by_fill(
    self: Any, value: Any, dtype: Any, layout_: Any, device: Any, pin: Any, fmt: Any
) -> Any:
    made = call("empty_like", self, dtype, layout_, device, pin, fmt)
    return call("fill_.Scalar", made, value)


def zeros_like_by_fill(self: Any, *options: Any) -> Any:
    return call("full_like", self, 0, *options)


def ones_like_by_fill(self: Any, *options: Any) -> Any:
    return call("full_like", self, 1, *options)


def new_empty(self: Any, size: Any, dtype: Any, layout_: Any, device: Any, pin: Any) -> Any:
    device = self.device if device is None else device
    return call("empty.memory_format", size, dtype or self._t, layout_, device, pin, None)


def new_empty_strided(
    self: Any, size: Any, stride: Any, dtype: Any, layout_: Any, device: Any, pin: Any
) -> Any:
    device = self.device if device is None else device
    return call("empty_strided", size, stride, dtype or self._t, layout_, device, pin)


def new_full(
    self: Any, size: Any, value: Any, dtype: Any, layout_: Any, device: Any, pin: Any
) -> Any:
    device = self.device if device is None else device
    return call("full", size, value, dtype or self._t, layout_, device, pin)


def new_zeros(self: Any, size: Any, dtype: Any, layout_: Any, device: Any, pin: Any) -> Any:
    device = self.device if device is None else device
    return call("zeros", size, dtype or self._t, layout_, device, pin)


def new_ones(self: Any, size: Any, dtype: Any, layout_: Any, device: Any, pin: Any) -> Any:
    device = self.device if device is None else device
    return call("ones", size, dtype or self._t, layout_, device, pin)


# -- sequences -------------------------------------------------------------------------------------


def _sequence_dtype(numbers: Sequence[Any], dtype: Any) -> Any:
    """int64 if all are integers, else the default floating dtype."""
    if dtype is not None:
        return dtype
    return (
        dtypes.int64
        if all(is_int(x) or x.__class__ is bool for x in numbers)
        else dtypes.default.dtype
    )


def arange_end(end: Any, *options: Any) -> Any:
    return call("arange.start_step", 0, end, 1, *options)


def arange_start(start: Any, end: Any, *options: Any) -> Any:
    return call("arange.start_step", start, end, 1, *options)


def arange(start: Any, end: Any, step: Any, dtype: Any, *rest: Any) -> Any:
    dtype = _sequence_dtype((start, end, step), dtype)
    if dtype is dtypes.int64:  # narrower integers count in float64, as PyTorch does
        start, end, step = (x if is_int(x) else int(x) for x in (start, end, step))
    return (_count(start, end, step),), dtype


def _count(start: Any, end: Any, step: Any) -> int:
    if step == 0:
        raise RangeError("arange(): step must be nonzero")
    if not all(is_int(x) or math.isfinite(x) for x in (start, end)):
        raise ShapeError(f"unsupported range: {start} -> {end}")
    if (step > 0 and end < start) or (step < 0 and end > start):
        raise ShapeError(
            "arange(): upper bound and lower bound inconsistent with step sign: from "
            f"{start} to {end} by {step}. Turn the sign of step, or swap the bounds."
        )
    if is_int(start) and is_int(end) and is_int(step):
        return -((start - end) // step) if step > 0 else -((end - start) // -step)
    return math.ceil((end - start) / step)


def range_step(start: Any, end: Any, step: Any, dtype: Any, *rest: Any) -> Any:
    _count(start, end, step)
    return (math.floor((end - start) / step) + 1,), dtype or dtypes.default.dtype


def linspace(start: Any, end: Any, steps: int, dtype: Any, *rest: Any) -> Any:
    if steps < 0:
        raise ShapeError("number of steps must be non-negative")
    is_complex = isinstance(start, complex) or isinstance(end, complex)
    if dtype is None:
        dtype = dtypes.default.dtype.to_complex() if is_complex else dtypes.default.dtype
    elif is_complex and not dtype.is_complex:
        raise ShapeError(f"linspace(): inferred dtype complex can't be safely cast to {dtype!r}")
    return (steps,), dtype


def logspace(start: Any, end: Any, steps: int, base: float, dtype: Any, *rest: Any) -> Any:
    return linspace(start, end, steps, dtype)


def _number(x: Any) -> Any:
    if not hasattr(x, "_k"):
        return x
    if x.ndim:
        raise ShapeError(
            f"linspace only supports 0-dimensional start and end tensors, but got {x.ndim} dimension(s)"
        )
    return x.item()


def linspace_of_tensors(
    start: Any, end: Any, steps: int, dtype: Any, lay: Any, device: Any, pin: Any
) -> Any:
    where = next(x.device for x in (start, end) if hasattr(x, "_k")) if device is None else device
    return call("linspace", _number(start), _number(end), steps, dtype, lay, where, pin)


def logspace_of_tensors(
    start: Any, end: Any, steps: int, base: float, dtype: Any, lay: Any, device: Any, pin: Any
) -> Any:
    where = next(x.device for x in (start, end) if hasattr(x, "_k")) if device is None else device
    return call("logspace", _number(start), _number(end), steps, base, dtype, lay, where, pin)


def eye(n: int, m: int, dtype: Any, *rest: Any) -> Any:
    if n < 0:
        raise ShapeError(f"n must be greater or equal to 0, got {n}")
    if m < 0:
        raise ShapeError(f"m must be greater or equal to 0, got {m}")
    return (n, m), dtype or dtypes.default.dtype


def eye_square(n: int, *options: Any) -> Any:
    if n < 0:
        raise ShapeError(f"n must be greater or equal to 0, got {n}")
    return call("eye.m", n, n, *options)


# -- copies and storage ----------------------------------------------------------------------------


def copy_by_copy_(self: Any, src: Any, non_blocking: bool) -> Any:
    sizes, dtype, strides = copied_onto(self, src, non_blocking)
    made = make.empty(sizes, dtype, self.device, strides)
    return call("copy_", made, src, non_blocking)


def resize_(self: Any, size: Any, memory_format: Any) -> Any:
    if type(self._a) is np.ndarray:  # where a mode takes composites apart
        return host.HOST["resize_"](self, size, memory_format)
    check_size(size)
    strides = strides_for(size, memory_format)
    if self.device.type != "meta":
        extent = shapes.storage_extent(size, strides, self.storage_offset()) * self._t.itemsize
        storage = self.untyped_storage()
        if extent > storage.nbytes():
            storage.resize_(extent)
    self._a = self._a.restride(tuple(size), strides, self._a.offset)
    return self


def resize_as_(self: Any, the_template: Any, memory_format: Any) -> Any:
    size = tuple(the_template._a.shape)
    return call(
        "resize_", self, size, None if memory_format is layout.preserve_format else memory_format
    )


def _share(self: Any, other: Any) -> Any:
    """Let ``self`` be what ``other`` is: its storage, sizes, strides and dtype."""
    self._s = make.storage_of(other)
    self._a = other._a
    return self


def set_source(self: Any, source: Any) -> Any:
    if source._t is not self._t:
        raise ShapeError(
            f"set_: the source has dtype {source._t!r}, but the tensor has {self._t!r}. Make a new "
            "tensor, or use view(dtype) first."
        )
    return _share(self, source)


def set_source_geometry(self: Any, source: Any, offset: int, size: Any, stride: Any) -> Any:
    return set_storage_geometry(self, source.untyped_storage(), offset, size, stride)


def set_storage(self: Any, source: Any) -> Any:
    n = source.nbytes() // self._t.itemsize
    return set_storage_geometry(self, source, 0, (n,), (1,))


def set_storage_geometry(self: Any, source: Any, offset: int, size: Any, stride: Any) -> Any:
    storage = getattr(source, "_untyped_storage", source)
    steps = tuple(stride) if len(stride) else None
    return _share(self, make.from_storage(storage, self._t, tuple(size), steps, offset))


def set_nothing(self: Any) -> Any:
    return _share(self, make.empty((0,), self._t, self.device))


def fill_diagonal_(self: Any, fill_value: Any, wrap: bool) -> Any:
    """Fill the main diagonal; with ``wrap`` it starts again below the square of a tall matrix."""
    shape = tuple(self._a.shape)
    if len(shape) < 2:
        raise ShapeError("dimensions must larger than 1")
    if len(shape) > 2 and len(set(shape)) > 1:
        raise ShapeError("all dimensions of input must be of equal length")
    strides = self.stride()
    side = min(shape)
    call("fill_.Scalar", call("as_strided", self, (side,), (sum(strides),), None), fill_value)
    if wrap and len(shape) == 2 and shape[0] > shape[1] + 1:
        below = call("slice.Tensor", self, 0, shape[1] + 1, None, 1)
        fill_diagonal_(below, fill_value, True)
    return self


def lift(self: Any) -> Any:
    return self


def on_host(name: str) -> Any:
    """Decomposition for a device without a kernel: computed on the host, then copied there.

    For operators that take ``dtype, layout, device, pin_memory`` last.
    """

    def made(*args: Any) -> Any:
        target = _device(args[-2])
        op = get(name)
        if target.type == "cpu":
            say_that_kernels_are_missing(op)
        return op(*args[:-2], CPU, args[-1]).to(target)

    return made


def say_that_kernels_are_missing(op: Any) -> None:
    from mortice._base.errors import PluginError
    from mortice._dispatch import backends

    try:
        backends.device_kernel(op, "cpu")
    except PluginError as error:
        raise backends.no_kernel(op, "cpu", error) from error
    raise backends.no_kernel(op, "cpu")


arange_on_host = on_host("arange.start_step")
range_on_host = on_host("range.step")
linspace_on_host = on_host("linspace")
logspace_on_host = on_host("logspace")
eye_on_host = on_host("eye.m")

__all__ = [name for name in dir() if not name.startswith("_")] + ["get"]
