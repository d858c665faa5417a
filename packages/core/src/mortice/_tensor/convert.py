"""Tensors to numpy and Python, between devices and dtypes."""

from __future__ import annotations

from typing import Any

import numpy as np

from mortice._base.errors import ArgumentError, AutogradError, DeviceError, InvalidValue
from mortice._dispatch import keys as K
from mortice._dispatch.operator import get
from mortice._dispatch.state import GLOBAL, THREAD
from mortice._tensor.tensor import Tensor
from mortice._types import dtypes, layout
from mortice._types.device import BUILT_IN, CPU, Device, indexed
from mortice._types.dtypes import DType


def numpy(self: Tensor, *, force: bool = False) -> np.ndarray[Any, Any]:
    """A numpy array sharing the tensor's memory; ``force`` detaches and copies to the host."""
    if force:
        return numpy(self.detach().cpu())
    if GLOBAL.watch:
        GLOBAL.settle(self, "numpy")
    for mode in THREAD.dispatch_modes:
        mode.reads(self, "numpy")
    if self.requires_grad and THREAD.grad_enabled:
        raise AutogradError(
            "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead."
        )
    if type(self._a) is not np.ndarray:
        if self.device is CPU:
            from mortice._tensor.transfer import to_host

            to_host(self)  # says that there is no data
        raise DeviceError(
            f"can't convert {self.device} device type tensor to numpy. Use Tensor.cpu() to copy "
            "the tensor to host memory first."
        )
    from mortice._tensor.make import storage_of

    storage_of(self).exported = True
    return self._a.view()


def array_protocol(self: Tensor, dtype: Any = None, copy: Any = None) -> np.ndarray[Any, Any]:
    """numpy's conversion protocol: ``np.asarray(tensor)``."""
    a = numpy(self)
    if dtype is not None and a.dtype != dtype:
        if copy is False:
            raise InvalidValue(
                f"__array__(): elements of {a.dtype} cannot be seen as {dtype} without a copy."
            )
        return a.astype(dtype)
    return a.copy() if copy else a


def array_wrap(self: Tensor, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
    """What numpy's own functions on tensors return: a tensor over their result."""
    from mortice._tensor.construct import from_numpy

    return from_numpy(np.asarray(array))


def tolist(self: Tensor) -> Any:
    """Nested lists of Python numbers; a number for a 0-d tensor."""
    from mortice._tensor.transfer import to_host

    if GLOBAL.watch:
        GLOBAL.settle(self, "tolist")
    for mode in THREAD.dispatch_modes:
        mode.reads(self, "tolist")
    if self._k & K.FAKE:  # numbers that depend on data, where the mode can name them
        return [tolist(x) for x in self.unbind(0)] if self.ndim else self.item()
    a = to_host(self)
    if a.dtype.kind in "biufc":
        return a.tolist()
    if a.dtype.names:  # complex32
        return (a["real"].astype(np.complex64) + a["imag"] * np.complex64(1j)).tolist()
    return a.astype(np.float64).tolist()  # ml_dtypes' own tolist gives its scalars


def to(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Another dtype, device or memory format; the tensor itself if nothing changes.

    ``to(dtype)``, ``to(device)``, ``to(device, dtype)``, ``to(other)``; then ``non_blocking``,
    ``copy``, ``memory_format``.
    """
    if len(args) == 1 and not kwargs:
        wanted = args[0]
        if wanted.__class__ is DType:
            if wanted is self._t:
                return self
            return get("_to_copy")(self, wanted, None, None, None, False, None)
    device, dtype, copy, fmt = _to_arguments(args, kwargs)
    same = (
        (dtype is None or dtype is self._t)
        and (device is None or _is_on(self, device))
        and (fmt is None or fmt is layout.preserve_format or self.is_contiguous(fmt))
    )
    if same and not copy:
        return self
    return get("_to_copy")(self, dtype, None, device, None, False, fmt)


def _is_on(t: Tensor, device: Device) -> bool:
    have = t.device
    return have.type == device.type and (have is indexed(device) or device.type in BUILT_IN)


def _to_arguments(args: Any, kwargs: dict[str, Any]) -> tuple[Any, Any, bool, Any]:
    from mortice._dispatch.bind import _to_dtype  # pyright: ignore[reportPrivateUsage]

    device = kwargs.pop("device", None)
    dtype = kwargs.pop("dtype", None)
    copy = kwargs.pop("copy", False)
    fmt = kwargs.pop("memory_format", None)
    other = kwargs.pop("other", None)
    kwargs.pop("non_blocking", None)
    if kwargs:
        from mortice._base.errors import nearest

        name = next(iter(kwargs))
        known = ("device", "dtype", "non_blocking", "copy", "memory_format", "other")
        raise ArgumentError(f"to(): unexpected keyword argument {name!r}.{nearest(name, known)}")
    rest = list(args)
    if rest and hasattr(rest[0], "_k"):
        other = rest.pop(0)
    if other is not None:
        device, dtype = other.device, other.dtype
    for value in rest[:2]:
        if value.__class__ is DType or value in (float, int, bool, complex):
            dtype = _to_dtype(value)
        elif isinstance(value, (str, int, Device)) and not isinstance(value, bool):
            device = value
        elif value is not None and not isinstance(value, bool):
            raise ArgumentError(
                "to() received an invalid combination of arguments: expected a dtype, a device or "
                f"a tensor, not {type(value).__name__}."
            )
    bools = [x for x in rest if isinstance(x, bool)]
    if len(bools) > 1:
        copy = bools[1]
    return None if device is None else Device(device), dtype, bool(copy), fmt


def cpu(self: Tensor, memory_format: Any = None) -> Tensor:
    """On the host; the tensor itself if it is there."""
    return self if type(self._a) is np.ndarray else to(self, CPU)


def type_(self: Tensor, dtype: Any = None, non_blocking: bool = False) -> Any:
    """The type's name, or the tensor converted to ``dtype``."""
    if dtype is None:
        return f"mortice.{_TYPE_NAMES.get(self._t.name, self._t.name)}"
    if isinstance(dtype, str):
        name = dtype.rpartition(".")[2]
        for short, long in _TYPE_NAMES.items():
            if long == name:
                return to(self, dtypes.by_name(short))
        return to(self, dtypes.by_name(name))
    return to(self, dtype)


def type_as(self: Tensor, other: Tensor) -> Tensor:
    return to(self, other.dtype)


_TYPE_NAMES = {
    "float32": "FloatTensor",
    "float64": "DoubleTensor",
    "float16": "HalfTensor",
    "bfloat16": "BFloat16Tensor",
    "int64": "LongTensor",
    "int32": "IntTensor",
    "int16": "ShortTensor",
    "int8": "CharTensor",
    "uint8": "ByteTensor",
    "bool": "BoolTensor",
    "complex64": "ComplexFloatTensor",
    "complex128": "ComplexDoubleTensor",
}


def _caster(name: str) -> Any:
    dtype = dtypes.by_name(name)

    def cast(self: Tensor, memory_format: Any = None) -> Tensor:
        return (
            self
            if self._t is dtype
            else get("_to_copy")(self, dtype, None, None, None, False, memory_format)
        )

    cast.__doc__ = f"Converted to {dtype!r}; the tensor itself if it has that dtype."
    return cast


def dlpack(self: Tensor, **options: Any) -> Any:
    """A DLPack capsule over the tensor's memory; see the array API's ``__dlpack__``."""
    from mortice._tensor.dlpack import export

    return export(self, **options)


def dlpack_device(self: Tensor) -> tuple[int, int]:
    """(device type, index) as DLPack numbers them."""
    from mortice._tensor.dlpack import device_of

    return device_of(self)


def share_memory_(self: Tensor) -> Tensor:
    """Move the storage into memory that forked and spawned workers see too."""
    from mortice._tensor.sharing import share

    share(self.untyped_storage())
    return self


def is_shared(self: Tensor) -> bool:
    """Whether the storage is in shared memory."""
    from mortice._tensor.sharing import shared_fd

    return self.device is not CPU or shared_fd(self.untyped_storage()) is not None


def apply_(self: Tensor, callable: Any) -> Tensor:
    """Replace each element by ``callable`` of it; slow, on the host, without gradients."""
    return _elementwise(self, callable, ())


def map_(self: Tensor, tensor: Tensor, callable: Any) -> Tensor:
    """Replace each element by ``callable(element, element of tensor)``."""
    return _elementwise(self, callable, (tensor,))


def _elementwise(self: Tensor, function: Any, others: Any) -> Tensor:
    if GLOBAL.watch:
        for t in (self, *others):
            GLOBAL.settle(t, "apply_")
    if type(self._a) is not np.ndarray:
        raise DeviceError(f"apply_() and map_() work on the host, not on {self.device}.")
    if self.requires_grad:
        raise AutogradError(
            "Can't call apply_() on Variable that requires grad. Use var.detach().apply_()"
        )
    inputs = [np.broadcast_to(x._a, self._a.shape).reshape(-1).tolist() for x in (self, *others)]
    values = np.array([function(*row) for row in zip(*inputs)]).reshape(self._a.shape)
    with np.errstate(all="ignore"):
        self._a[...] = values.astype(self._a.dtype)
    from mortice._tensor.rows import bump

    bump(self)
    return self


METHODS: dict[str, Any] = {
    "__dlpack__": dlpack,
    "__dlpack_device__": dlpack_device,
    "share_memory_": share_memory_,
    "is_shared": is_shared,
    "apply_": apply_,
    "map_": map_,
    "numpy": numpy,
    "__array__": array_protocol,
    "__array_wrap__": array_wrap,
    "tolist": tolist,
    "to": to,
    "cpu": cpu,
    "type": type_,
    "type_as": type_as,
    **{
        name: _caster("bool" if name == "bool" else name)
        for name in (
            "float", "double", "half", "bfloat16", "int", "long", "short", "bool", "cfloat",
            "cdouble",
        )
    },
    "char": _caster("int8"),
    "byte": _caster("uint8"),
}  # fmt: skip

__all__ = ["METHODS", "K"]
