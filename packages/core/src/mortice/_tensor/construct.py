"""Tensors from Python and numpy data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mortice._base.errors import ArgumentError, InvalidValue, ShapeError
from mortice._dispatch import keys as K
from mortice._dispatch.operator import get
from mortice._dispatch.state import GLOBAL
from mortice._tensor import make
from mortice._tensor.make import wrap, wrap_array
from mortice._tensor.rows import host_copy
from mortice._tensor.tensor import Tensor
from mortice._types import dtypes
from mortice._types.device import CPU, Device, current_default
from mortice._types.dtypes import DType


def tensor(
    data: Any,
    *,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """A new tensor that copies ``data``: numbers, nested sequences, numpy arrays, tensors.

    The dtype is inferred if not given: bool, int64, the default floating dtype, or complex.
    ShapeError if a nested sequence is ragged.
    """
    if hasattr(data, "_k"):
        import warnings

        warnings.warn(
            "To copy construct from a tensor, it is recommended to use "
            "sourceTensor.detach().clone() or sourceTensor.detach().clone().requires_grad_(True), "
            "rather than mortice.tensor(sourceTensor).",
            UserWarning,
            stacklevel=2,
        )
        r = data.detach().clone()
        if dtype is not None or device is not None:
            r = r.to(device=device or r.device, dtype=dtype or r.dtype)
    else:
        r = _place(wrap_data(data, dtype, copy=True), device)
    if requires_grad:
        r.requires_grad_(True)
    return r


def _place(t: Tensor, device: Any) -> Tensor:
    t = make.lifted(t)
    target = current_default() if device is None else Device(device)
    return t if target is CPU else t.to(target)


def wrap_data(data: Any, dtype: DType | None, copy: bool) -> Tensor:
    """A host tensor of any data, sharing numpy's memory unless ``copy``."""
    dtype = _as_dtype(dtype)
    kind = type(data)
    if kind is float or kind is int or kind is bool or kind is complex:
        dtype = dtype or dtypes.of_number(data)
        return _from_number(data, dtype)
    if isinstance(data, np.ndarray):
        source = wrap_array(np.array(data) if copy else data)
        if not copy:
            make.storage_of(source).exported = True
        return source if dtype is None or dtype is source._t else _cast(source, dtype)
    if isinstance(data, np.generic):
        return wrap_data(np.asarray(data), dtype, copy=True)
    if hasattr(data, "__array_interface__") or hasattr(data, "__array__"):
        return wrap_data(np.asarray(data), dtype, copy)
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        return _from_sequence(data, dtype)
    if hasattr(data, "__dlpack__"):
        return wrap_data(np.from_dlpack(data), dtype, copy)  # pyright: ignore[reportArgumentType]
    if hasattr(kind, "__index__"):
        return _from_number(int(data), dtype or dtypes.int64)
    if hasattr(kind, "__float__"):
        return _from_number(float(data), dtype or dtypes.default.dtype)
    raise ArgumentError(
        f"tensor(): could not infer dtype of {kind.__name__}. Pass numbers, nested sequences of "
        "numbers, a numpy array or a tensor."
    )


def _as_dtype(dtype: Any) -> DType | None:
    if dtype is None or dtype.__class__ is DType:
        return dtype
    from mortice._dispatch.bind import _to_dtype  # pyright: ignore[reportPrivateUsage]

    found = _to_dtype(dtype)
    if found.__class__ is not DType:
        raise ArgumentError(f"dtype must be a mortice.dtype such as mortice.float32, not {dtype!r}")
    return found


def _from_number(value: Any, dtype: DType) -> Tensor:
    from mortice._tensor.host import _filled  # pyright: ignore[reportPrivateUsage]

    if dtype.kind in (dtypes.UNSIGNED, dtypes.SIGNED) and isinstance(value, int):
        bits = dtype.itemsize * 8
        low = 0 if dtype.kind == dtypes.UNSIGNED else -(1 << (bits - 1))
        if not low <= value < low + (1 << bits):
            raise InvalidValue(
                f"value {value} cannot be converted to type {dtype.name} without overflow"
            )
    return wrap(_filled(np.empty((), dtype.numpy), value, dtype), dtype)


def _cast(source: Tensor, dtype: DType) -> Tensor:
    out = np.empty(source._a.shape, dtype.numpy)
    host_copy(out, source._a)
    return wrap(out, dtype)


def _from_sequence(data: Any, dtype: DType | None) -> Tensor:
    first = data
    while isinstance(first, (list, tuple)) and first:
        first = first[0]  # pyright: ignore[reportUnknownVariableType]
    if hasattr(first, "_k") or isinstance(first, np.ndarray):
        data = _unwrapped(data)
    try:
        array = np.array(data)
    except (ValueError, TypeError, OverflowError) as error:
        raise _bad_sequence(data, error) from None
    if array.dtype == object:
        raise _bad_sequence(data, None)
    if array.dtype.kind in "US":
        raise ArgumentError("tensor(): too many dimensions 'str': strings cannot be elements.")
    if dtype is None:
        keeps = isinstance(first, (np.generic, np.ndarray)) or hasattr(first, "_k")
        dtype = dtypes.from_numpy(array.dtype) if keeps else _inferred(array)
        dtype = dtype or _inferred(array)
    if dtypes.from_numpy(array.dtype) is dtype:
        return wrap(array, dtype)
    out = np.empty(array.shape, dtype.numpy)
    host_copy(out, array)
    return wrap(out, dtype)


def _unwrapped(data: Any) -> Any:
    if hasattr(data, "_k"):
        from mortice._tensor.transfer import to_host

        return to_host(data.detach())
    if isinstance(data, (list, tuple)):
        return [_unwrapped(x) for x in data]  # pyright: ignore[reportUnknownVariableType]
    return data


def _inferred(array: np.ndarray[Any, Any]) -> DType:
    """Python floats become the default dtype."""
    if array.dtype == np.float64:
        return dtypes.default.dtype
    if array.dtype == np.complex128:
        return dtypes.default.dtype.to_complex()
    return dtypes.from_numpy(array.dtype) or dtypes.default.dtype


def _bad_sequence(data: Any, error: Exception | None) -> Exception:
    if isinstance(error, OverflowError):
        return InvalidValue(f"tensor(): {error}: an integer does not fit int64.")
    lengths = _ragged(data, 0)
    if lengths is not None:
        depth, expected, found = lengths
        return ShapeError(
            f"expected sequence of length {expected} at dim {depth} (got {found}). All rows of a "
            "nested sequence must have the same length."
        )
    return ArgumentError(
        f"tensor(): elements must be numbers; could not convert {_first_odd(data)!r} to a number."
    )


def _ragged(data: Any, depth: int) -> tuple[int, int, int] | None:
    rows = [x for x in data if isinstance(x, (list, tuple))]
    if not rows:
        return None
    if len(rows) != len(data):
        return depth + 1, len(rows[0]), 0
    for row in rows:
        if len(row) != len(rows[0]):  # pyright: ignore[reportUnknownArgumentType]
            return depth + 1, len(rows[0]), len(row)  # pyright: ignore[reportUnknownArgumentType]
    for row in rows:
        found = _ragged(row, depth + 1)
        if found is not None:
            return found
    return None


def _first_odd(data: Any) -> Any:
    for x in data:
        if isinstance(x, (list, tuple)):
            found = _first_odd(x)
            if found is not None:
                return found
        elif not isinstance(x, (int, float, complex)):
            return x
    return None


def as_tensor(data: Any, dtype: DType | None = None, device: Any = None) -> Tensor:
    """``data`` as a tensor, sharing memory with numpy arrays and returning tensors themselves."""
    if hasattr(data, "_k"):
        if dtype is None and device is None:
            return data
        return data.to(device=data.device if device is None else device, dtype=dtype or data.dtype)
    return _place(wrap_data(data, dtype, copy=False), device)


def asarray(
    obj: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    copy: bool | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """As ``as_tensor``, with ``copy=True`` to force and ``copy=False`` to forbid a copy."""
    r = as_tensor(obj, dtype, device)
    if copy:
        r = r.clone() if r is obj or not hasattr(obj, "_k") else r
    elif copy is False and r is not obj and not _shares(r, obj):
        raise InvalidValue("asarray(): copy=False, but a copy is needed. Leave copy away.")
    if requires_grad:
        r = r.detach().requires_grad_(True)
    return r


def _shares(r: Tensor, obj: Any) -> bool:
    return isinstance(obj, np.ndarray) and np.may_share_memory(r._a, obj)


def from_numpy(array: Any) -> Tensor:
    """A tensor that shares ``array``'s memory: writes on one side are seen on the other."""
    if not isinstance(array, np.ndarray):
        raise ArgumentError(
            f"from_numpy(): expected np.ndarray (got {type(array).__name__}). mortice.tensor() takes "
            "lists and numbers."
        )
    if any(s < 0 for s in array.strides):
        raise InvalidValue(
            "At least one stride in the given numpy array is negative, and tensors with negative "
            "strides are not supported. Make a copy with array.copy()."
        )
    if array.itemsize and any(s % array.itemsize for s in array.strides):
        raise InvalidValue(
            "given numpy array strides are not a multiple of the element byte size. Make a copy "
            "with array.copy()."
        )
    if not array.dtype.isnative:
        raise InvalidValue(
            "given numpy array has byte order different from the native byte order. Convert it "
            "with array.astype(array.dtype.newbyteorder('='))."
        )
    if not array.flags.writeable:
        import warnings

        warnings.warn(
            "The given NumPy array is not writable. Writing to the tensor is an error; copy the "
            "array first if you want to write.",
            UserWarning,
            stacklevel=2,
        )
    made = wrap_array(array)
    make.storage_of(made).exported = True
    return made


def legacy(cls: Any, *args: Any, **kwargs: Any) -> Tensor:
    """PyTorch's ``Tensor(...)`` constructor: sizes, data, or nothing."""
    device = kwargs.pop("device", None)
    if kwargs:
        raise ArgumentError(f"Tensor(): unexpected keyword argument {next(iter(kwargs))!r}")
    dtype = dtypes.default.dtype
    if not args:
        r = make.empty((0,), dtype)
    elif len(args) == 1 and hasattr(args[0], "_k"):
        r = args[0] if cls is Tensor else make.alias_of(args[0])
    elif len(args) == 1 and not isinstance(args[0], int):
        r = (
            make.lifted(wrap_data(args[0], dtype, copy=True))
            if not hasattr(args[0], "numel")
            else make.empty(tuple(args[0]), dtype)
        )
    else:
        r = get("empty.memory_format")(tuple(args), dtype, None, device, None, None)
    if cls is not Tensor:
        r = as_subclass(r, cls)
    return r


def as_subclass(t: Tensor, cls: type) -> Any:
    """Another tensor object of class ``cls`` over the same memory and history."""
    if GLOBAL.watch:
        GLOBAL.settle(t, "as_subclass")
    r = object.__new__(cls)
    r._a, r._k, r._t, r._g, r._b = t._a, t._k, t._t, t._g, t._b
    r._s = make.storage_of(t)
    r._k = (r._k & ~(K.OVERRIDE | K.PYTHON)) | class_keys(cls)
    return r


def overrides_dispatch(cls: type) -> bool:
    """Whether a subclass of Tensor has a ``__mortice_dispatch__`` of its own."""
    found = getattr(cls, "__mortice_dispatch__", None)
    return getattr(found, "__func__", found) is not Tensor.__dict__["__mortice_dispatch__"].__func__


_CLASS_KEYS: dict[type, int] = {}


def class_keys(cls: type) -> int:
    """Key bits that instances of a tensor subclass carry: function and dispatch overrides."""
    found = _CLASS_KEYS.get(cls)
    if found is None:
        from mortice._dispatch.modes import overrides_functions

        found = K.OVERRIDE if overrides_functions(cls) else 0
        if overrides_dispatch(cls):
            found |= K.PYTHON
        _CLASS_KEYS[cls] = found
    return found
