"""Tensors of every dtype whose elements tell which rank made them, and their comparison."""

from __future__ import annotations

from typing import Any

import numpy as np

import mortice

#: Every dtype that operators compute with.
DTYPES = (
    "bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64",
    "float16", "bfloat16", "float32", "float64", "complex64", "complex128",
    "float8_e4m3fn", "float8_e5m2",
)  # fmt: skip


def dtype(name: str) -> Any:
    return getattr(mortice, name)


def made(rank: int, count: int, name: str, step: int = 3) -> Any:
    """``count`` elements that depend on rank and place; small whole numbers."""
    values = (np.arange(count) * step + rank) % 7
    if name == "bool":
        array = values % 2 == 1
    elif name.startswith("complex"):
        array = values + 1j * ((values + rank) % 3)
    else:
        array = values
    return tensor(array, name)


def tensor(array: Any, name: str) -> Any:
    """A tensor of a dtype from numpy's numbers."""
    return mortice.from_numpy(np.ascontiguousarray(np.asarray(array).astype(dtype(name).numpy)))


def array(t: Any) -> Any:
    """The elements in a dtype that numpy compares well."""
    a = mortice.backend.array(t.detach().cpu())
    if a.dtype.kind in "biufc" and a.dtype.itemsize > 2:
        return a
    return a if a.dtype.kind == "b" else a.astype(np.float64)


def equal(found: Any, expected: Any, what: str = "") -> None:
    """Assert that two tensors have the same elements."""
    a, b = array(found), array(expected)
    assert found.dtype is expected.dtype, f"{what}: {found.dtype} and {expected.dtype}"
    assert a.shape == b.shape, f"{what}: {a.shape} and {b.shape}"
    assert np.array_equal(a, b), f"{what}: found {a.ravel()[:8]}, expected {b.ravel()[:8]}"


def close(found: Any, expected: Any, relative: float, what: str = "") -> None:
    """Assert that elements agree to a relative error."""
    a, b = array(found), np.asarray(expected)
    assert np.allclose(a, b, rtol=relative, atol=relative), (
        f"{what}: found {a.ravel()[:8]}, expected {b.ravel()[:8]}"
    )
