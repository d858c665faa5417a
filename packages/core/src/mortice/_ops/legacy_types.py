"""PyTorch's old names for tensors of one dtype: ``FloatTensor([1, 2])``, ``isinstance`` checks."""

from __future__ import annotations

from typing import Any

from mortice._tensor.tensor import Tensor
from mortice._types import dtypes
from mortice._types.dtypes import DType

NAMES = {
    "FloatTensor": "float32",
    "DoubleTensor": "float64",
    "HalfTensor": "float16",
    "BFloat16Tensor": "bfloat16",
    "LongTensor": "int64",
    "IntTensor": "int32",
    "ShortTensor": "int16",
    "CharTensor": "int8",
    "ByteTensor": "uint8",
    "BoolTensor": "bool",
}


class _OfDType(type):
    """Makes ``isinstance`` ask for dtype and device."""

    dtype: DType

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Tensor) and instance.dtype is cls.dtype and instance.is_cpu

    def __call__(cls, *args: Any) -> Any:
        """Uninitialised memory of the given sizes, or a copy of the data, in the class's dtype."""
        from mortice._ops.factory_functions import new
        from mortice._tensor.make import empty

        return new(empty((0,), cls.dtype), *args)


def __getattr__(name: str) -> Any:
    if name not in NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    dtype = dtypes.by_name(NAMES[name])
    return _OfDType(name, (), {"dtype": dtype, "__doc__": f"Tensors of {dtype!r} on the CPU."})
