"""DLPack, both ways: host memory shared with numpy, torch, jax and others without a copy.

The structures are those of dlpack.h (DLTensor, DLManagedTensor, DLManagedTensorVersioned), written
and read with ctypes, since numpy's own exporter knows neither bfloat16 nor float8.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from mortice._base.errors import AutogradError, DeviceError, DTypeError, InvalidValue
from mortice._dispatch.state import GLOBAL
from mortice._tensor import make
from mortice._tensor.storage import _Memory  # pyright: ignore[reportPrivateUsage]
from mortice._tensor.transfer import to_host
from mortice._types import dtypes
from mortice._types.device import CPU, Device

CPU_DEVICE = 1  # kDLCPU
_READ_ONLY = 1
_IS_COPIED = 2

# kDLInt, kDLUInt, kDLFloat, kDLBfloat, kDLComplex, kDLBool; float8 formats by name.
_CODES = {"int": 0, "uint": 1, "float": 2, "bfloat": 4, "complex": 5, "bool": 6}
_FLOAT8 = {
    "float8_e4m3fn": 10, "float8_e4m3fnuz": 11, "float8_e5m2": 12, "float8_e5m2fnuz": 13,
    "float8_e8m0fnu": 14,
}  # fmt: skip


_ONLY_OURS = frozenset(("bfloat16", *_FLOAT8))


class _DLDevice(ctypes.Structure):
    _fields_ = (("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32))


class _DLDataType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _DLDevice),
        ("ndim", ctypes.c_int32),
        ("dtype", _DLDataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    _fields_ = (
        ("dl_tensor", _DLTensor),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    )


class _Version(ctypes.Structure):
    _fields_ = (("major", ctypes.c_uint32), ("minor", ctypes.c_uint32))


class _ManagedVersioned(ctypes.Structure):
    _fields_ = (
        ("version", _Version),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("dl_tensor", _DLTensor),
    )


_api = ctypes.pythonapi
_api.PyCapsule_New.restype = ctypes.py_object
_api.PyCapsule_New.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_api.PyCapsule_IsValid.restype = ctypes.c_int
_api.PyCapsule_IsValid.argtypes = (ctypes.py_object, ctypes.c_char_p)
_api.PyCapsule_GetPointer.restype = ctypes.c_void_p
_api.PyCapsule_GetPointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
_api.PyCapsule_SetName.restype = ctypes.c_int
_api.PyCapsule_SetName.argtypes = (ctypes.py_object, ctypes.c_char_p)

# Names outlive the capsules that point at them.
_NAME, _USED = b"dltensor", b"used_dltensor"
_NAME_V, _USED_V = b"dltensor_versioned", b"used_dltensor_versioned"


# -- giving --------------------------------------------------------------------------------------

_lent: dict[int, Any] = {}  # address of a managed tensor -> what must live as long as it


def _free(address: int) -> None:
    _lent.pop(address, None)


_free_callback = _Deleter(_free)
_FREE = ctypes.cast(_free_callback, ctypes.c_void_p).value


def _destroy(capsule_address: int) -> None:
    """A capsule that nobody consumed takes its tensor with it."""
    capsule = ctypes.cast(capsule_address, ctypes.py_object)
    for name in (_NAME, _NAME_V):
        if _api.PyCapsule_IsValid(capsule, name):
            _free(_api.PyCapsule_GetPointer(capsule, name) or 0)


_destroy_callback = _Deleter(_destroy)
_DESTROY = ctypes.cast(_destroy_callback, ctypes.c_void_p)


def data_type(dtype: dtypes.DType) -> tuple[int, int]:
    """(code, bits) of a dtype; DTypeError if DLPack has none such."""
    if dtype.storage_only:
        raise DTypeError(f"{dtype!r} has no DLPack type. Convert with .to(dtype) first.")
    if dtype.name in _FLOAT8:
        return _FLOAT8[dtype.name], 8
    return _CODES[dtype.name.rstrip("0123456789")], dtype.itemsize * 8


def export(
    self: Any,
    *,
    stream: Any = None,
    max_version: tuple[int, int] | None = None,
    dl_device: tuple[int, int] | None = None,
    copy: bool | None = None,
) -> Any:
    """A capsule over the tensor's memory (``__dlpack__`` of the array API).

    AutogradError if the tensor requires grad, DeviceError if it is not on the host.
    """
    if GLOBAL.watch:
        GLOBAL.settle(self, "dlpack")
    if self.requires_grad:
        raise AutogradError("Can't export tensors that require gradient, use tensor.detach()")
    if type(self._a) is not np.ndarray:
        if self._a.buffer is None:
            to_host(self)  # raises: it says why there is no data
        raise DeviceError(
            f"DLPack: a tensor on {self.device} cannot be shared. Copy it with .cpu() first."
        )
    if stream is not None:
        raise InvalidValue("DLPack: host memory has no streams; stream must be None.")
    if dl_device is not None and tuple(dl_device) != (CPU_DEVICE, 0):
        raise BufferError(f"DLPack: cannot move host memory to device {tuple(dl_device)}.")
    source = self.clone() if copy else self
    if source._t.name not in _ONLY_OURS:  # numpy's exporter outlives the interpreter's end
        make.storage_of(source).exported = True
        return source._a.__dlpack__(max_version=max_version)
    versioned = max_version is not None and max_version[0] >= 1
    return _capsule(source, versioned, bool(copy))


def _capsule(t: Any, versioned: bool, copied: bool) -> Any:
    managed: Any = _ManagedVersioned() if versioned else _Managed()
    n = t.ndim
    shape = (ctypes.c_int64 * max(n, 1))(*t.shape)
    strides = (ctypes.c_int64 * max(n, 1))(*t.stride())
    code, bits = data_type(t._t)
    d = managed.dl_tensor
    d.data = t._a.__array_interface__["data"][0] if t._a.size else None
    d.device.device_type, d.device.device_id = CPU_DEVICE, 0
    d.ndim = n
    d.dtype.code, d.dtype.bits, d.dtype.lanes = code, bits, 1
    d.shape, d.strides = shape, strides
    managed.deleter = _FREE
    if versioned:
        managed.version.major, managed.version.minor = 1, 0
        managed.flags = (_IS_COPIED if copied else 0) | (0 if t._a.flags.writeable else _READ_ONLY)
    address = ctypes.addressof(managed)
    make.storage_of(t).exported = True
    _lent[address] = (managed, shape, strides, t._a)
    return _api.PyCapsule_New(address, _NAME_V if versioned else _NAME, _DESTROY)


def device_of(self: Any) -> tuple[int, int]:
    """(device type, index) as DLPack numbers them."""
    if not self.is_cpu:
        raise DeviceError(f"DLPack: a tensor on {self.device} cannot be shared.")
    return CPU_DEVICE, 0


# -- taking --------------------------------------------------------------------------------------


class _Borrowed:
    """Keeps a foreign tensor alive and calls its deleter at the end."""

    __slots__ = ("address", "deleter")

    def __init__(self, address: int, deleter: int | None) -> None:
        self.address = address
        self.deleter = deleter

    def __del__(self, call: Any = _Deleter) -> None:  # a default outlives the module
        if self.deleter:
            call(self.deleter)(self.address)


def from_dlpack(ext_tensor: Any, *, device: Any = None, copy: bool | None = None) -> Any:
    """A tensor that shares the memory of an object with ``__dlpack__``, or of a capsule.

    ``copy=True`` copies; ``copy=False`` refuses to. DeviceError if the memory is not on the host,
    BufferError if its type is none of mortice's.
    """
    if device is not None and Device(device) is not CPU:
        raise DeviceError(
            f"from_dlpack(): memory cannot be moved to {device}; use .to() afterwards."
        )
    capsule = _capsule_of(ext_tensor) if hasattr(ext_tensor, "__dlpack__") else ext_tensor
    for name, used, kind in ((_NAME_V, _USED_V, _ManagedVersioned), (_NAME, _USED, _Managed)):
        if type(capsule).__name__ == "PyCapsule" and _api.PyCapsule_IsValid(capsule, name):
            address = _api.PyCapsule_GetPointer(capsule, name)
            managed = kind.from_address(address)
            made = _tensor(managed, address)
            _api.PyCapsule_SetName(capsule, used)
            return made.clone() if copy else made
    raise InvalidValue(
        "from_dlpack(): expected an object with __dlpack__ or a capsule that has not been consumed, "
        f"found {type(ext_tensor).__name__}."
    )


def _capsule_of(source: Any) -> Any:
    kind, index = source.__dlpack_device__()
    if kind != CPU_DEVICE:
        raise DeviceError(
            f"from_dlpack(): the memory is on DLPack device ({int(kind)}, {index}); only host memory "
            "can be shared. Copy it to the host first."
        )
    try:
        return source.__dlpack__(max_version=(1, 0))
    except TypeError:  # a producer that knows no versions
        return source.__dlpack__()


def _tensor(managed: Any, address: int) -> Any:
    d = managed.dl_tensor
    if d.device.device_type != CPU_DEVICE:
        raise DeviceError(
            f"from_dlpack(): DLPack device type {d.device.device_type} is not the host."
        )
    dtype = _dtype(d.dtype)
    n = d.ndim
    shape = tuple(d.shape[i] for i in range(n))
    strides = tuple(d.strides[i] for i in range(n)) if d.strides else None
    owner = _Borrowed(address, managed.deleter)
    read_only = bool(getattr(managed, "flags", 0) & _READ_ONLY)
    array = _array(d, dtype, shape, strides, owner, read_only)
    made = make.wrap(array, dtype)
    make.storage_of(made).exported = True
    return made


def _array(d: Any, dtype: Any, shape: Any, strides: Any, owner: Any, read_only: bool) -> Any:
    item = dtype.itemsize
    if 0 in shape or not d.data:
        return np.empty(shape, dtype.numpy)
    from mortice._types.shapes import contiguous_strides

    steps = contiguous_strides(shape) if strides is None else strides
    low = sum((n - 1) * s for n, s in zip(shape, steps) if s < 0)
    if low:
        raise InvalidValue(
            "from_dlpack(): memory with negative strides cannot be a tensor; copy it."
        )
    extent = (sum((n - 1) * s for n, s in zip(shape, steps)) + 1) * item
    memory = _Memory(d.data + d.byte_offset, extent, read_only, owner)
    return np.ndarray(shape, dtype.numpy, np.asarray(memory), 0, tuple(s * item for s in steps))


def _dtype(found: Any) -> dtypes.DType:
    names = {v: k for k, v in _FLOAT8.items()}
    if found.lanes == 1 and found.code in names:
        return dtypes.ALL[names[found.code]]
    kind = next((k for k, v in _CODES.items() if v == found.code), "")
    name = "bool" if kind == "bool" else f"{kind}{found.bits}"
    dtype = dtypes.ALL.get(name)
    if dtype is None or dtype.storage_only or found.lanes != 1:
        raise BufferError(
            f"from_dlpack(): no dtype for DLPack type code {found.code}, {found.bits} bits, "
            f"{found.lanes} lanes."
        )
    return dtype


def to_dlpack(tensor: Any) -> Any:
    """A capsule over a tensor's memory, to be consumed once."""
    return export(tensor)
