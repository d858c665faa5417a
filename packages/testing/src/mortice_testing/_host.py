"""Values of a tensor as a numpy array that numpy can compute with, whatever the dtype."""

from __future__ import annotations

from typing import Any

import numpy as np

import mortice

# numpy computes with these; everything else (bfloat16, the float8 kinds) is widened first, exactly.
_NATIVE = frozenset(
    [
        "bool",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "int8",
        "int16",
        "int32",
        "int64",
        "float16",
        "float32",
        "float64",
        "complex64",
        "complex128",
    ]
)


def dtype_name(dtype: object) -> str:
    """Return ``float32`` for ``mortice.float32``."""
    return str(dtype).rpartition(".")[2]


def to_numpy(tensor: Any) -> np.ndarray[Any, Any]:
    """Return a private copy of the tensor's values on the host, detached."""
    plain = tensor.detach().cpu()
    if dtype_name(plain.dtype) not in _NATIVE:
        plain = plain.to(mortice.float32)
    return np.array(plain.numpy(), copy=True)


def is_tensor(value: object) -> bool:
    """Say whether ``value`` is a tensor of mortice."""
    return isinstance(value, mortice.Tensor)
