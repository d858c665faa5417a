"""Loaded objects written as the JSON values of fixtures/expected.json."""

from __future__ import annotations

import base64
from collections import Counter, OrderedDict
from typing import Any

import numpy as np

from mortice._tensor.storage import Storage
from mortice._tensor.tensor import Tensor
from mortice._types.device import Device
from mortice._types.dtypes import DType
from mortice._types.layout import Layout
from mortice._types.shapes import Size
from mortice.serialization.opaque import SparseTensor
from mortice.serialization.tensors import TypedStorage, parameter_class


class Encoder:
    """Numbers storages by first sight, so that sharing shows."""

    def __init__(self) -> None:
        self._storages: dict[int, int] = {}
        self._kept: list[Any] = []

    def encode(self, obj: Any) -> Any:
        encoder = _ENCODERS.get(type(obj))
        if encoder is None:
            assert isinstance(obj, Tensor), type(obj)
            return self._tensor(obj)
        return encoder(self, obj)

    def _storage(self, storage: Storage) -> int:
        self._kept.append(storage)
        return self._storages.setdefault(id(storage), len(self._storages))

    def _tensor(self, t: Tensor) -> dict[str, Any]:
        parameter = parameter_class()
        is_parameter = parameter is not None and isinstance(t, parameter)
        value: dict[str, Any] = {
            "kind": "parameter" if is_parameter else "tensor",
            "class": type(t).__name__,
            "dtype": t.dtype.name,
            "shape": list(t.shape),
            "requires_grad": t.requires_grad,
            "layout": t.layout.name,
            "device": str(t.device),
            "stride": list(t.stride()),
            "offset": t.storage_offset(),
        }
        if not t.is_meta:
            storage = t.untyped_storage()
            value["storage"] = self._storage(storage)
            value["storage_nbytes"] = storage.nbytes()
            value["bytes_le_b64"] = _b64(np.ascontiguousarray(t._a).tobytes())
        attributes = {name: self.encode(item) for name, item in vars(t).items()}
        if attributes:
            value["attrs"] = attributes
        return value

    def _sparse(self, t: SparseTensor) -> dict[str, Any]:
        value: dict[str, Any] = {
            "kind": "tensor",
            "class": "Tensor",
            "dtype": t.dtype.name,
            "shape": list(t.shape),
            "requires_grad": t.requires_grad,
            "layout": t.layout.name,
            "device": str(t.device),
        }
        names = ("indices", "values") if t.is_sparse else ("crow", "col", "values")
        for name, part in zip(names, t.parts, strict=True):
            value[name] = self.encode(part)
        return value

    def _typed_storage(self, obj: TypedStorage) -> dict[str, Any]:
        return {
            "kind": "typed_storage",
            "dtype": obj.dtype.name,
            "storage": self._storage(obj.untyped()),
            "b64": _b64(obj.untyped().bytes().tobytes()),
        }

    def _mapping(self, obj: Any) -> dict[str, Any]:
        value: dict[str, Any] = {
            "kind": type(obj).__name__,
            "items": [[self.encode(key), self.encode(item)] for key, item in obj.items()],
        }
        attributes = getattr(obj, "__dict__", None)
        if attributes:
            value["attrs"] = {name: self.encode(item) for name, item in attributes.items()}
        return value

    def _sequence(self, obj: Any) -> dict[str, Any]:
        return {"kind": type(obj).__name__, "items": [self.encode(item) for item in obj]}


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _as_is(self: Encoder, obj: Any) -> Any:
    return obj


def _kind(name: str, value: Any) -> Any:
    return lambda self, obj: {"kind": name, "v": value(obj)}


_ENCODERS: dict[type, Any] = {
    type(None): _as_is,
    bool: _as_is,
    str: _as_is,
    int: _kind("int", str),
    float: _kind("float", lambda obj: "nan" if obj != obj else _infinite(obj)),
    complex: _kind("complex", lambda obj: [obj.real, obj.imag]),
    bytes: lambda self, obj: {"kind": "bytes", "b64": _b64(obj)},
    bytearray: lambda self, obj: {"kind": "bytearray", "b64": _b64(bytes(obj))},
    dict: Encoder._mapping,
    OrderedDict: Encoder._mapping,
    Counter: Encoder._mapping,
    list: Encoder._sequence,
    tuple: Encoder._sequence,
    set: Encoder._sequence,
    Size: _kind("Size", list),
    Device: _kind("device", str),
    DType: _kind("dtype", lambda obj: f"torch.{obj.name}"),
    Layout: _kind("layout", lambda obj: f"torch.{obj.name}"),
    SparseTensor: Encoder._sparse,
    TypedStorage: Encoder._typed_storage,
}


def _infinite(value: float) -> str:
    return str(value) if value in (float("inf"), float("-inf")) else value.hex()
