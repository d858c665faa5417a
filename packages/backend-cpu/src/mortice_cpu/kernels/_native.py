"""Fused kernels of mortice_llvm, where they are there and the array is large enough to pay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mortice import config

#: From this many elements a native kernel, whose call costs 3 us, beats one pass of numpy,
LARGE = 16384
#: several passes,
COSTLY = 4096
#: and a Python function called element by element.
SLOW = 256

_FOUND: dict[tuple[str, str, np.dtype[Any]], Callable[..., None] | None] = {}


def native_kernels() -> Any:
    """``mortice_llvm.kernels``, whose code is kept where the configuration has it; ModuleNotFoundError
    where mortice_llvm is not installed.
    """
    from mortice_llvm import kernels
    from mortice_llvm.runtime import cache

    cache.follow(lambda: config.cache_dir)
    return kernels


def pointwise(name: str, dtype: np.dtype[Any]) -> Callable[..., None] | None:
    return _FOUND.get(("pointwise", name, dtype)) or _find("pointwise", name, dtype)


def row(name: str, dtype: np.dtype[Any]) -> Callable[..., None] | None:
    return _FOUND.get(("row", name, dtype)) or _find("row", name, dtype)


def _find(family: str, name: str, dtype: np.dtype[Any]) -> Callable[..., None] | None:
    key = (family, name, dtype)
    if key in _FOUND:
        return None
    try:
        kernels = native_kernels()
        from mortice_llvm.errors import NotAvailable
    except ModuleNotFoundError:
        _FOUND[key] = None
        return None
    try:
        _FOUND[key] = getattr(kernels, family)(name, dtype.name)
    except (NotAvailable, OSError):
        _FOUND[key] = None
    return _FOUND[key]


def address(array: np.ndarray[Any, Any]) -> int:
    return array.__array_interface__["data"][0]


def apply(name: str, *arrays: Any, numbers: tuple[float, ...] = ()) -> Any:
    """A one-output pointwise kernel on equal-shaped contiguous arrays; None where it cannot run."""
    kernel = _fitting(name, arrays)
    if kernel is None:
        return None
    out = np.empty_like(arrays[0])
    kernel(address(out), *map(address, arrays), out.size, *numbers)
    return out


def apply_in_place(name: str, *arrays: Any, numbers: tuple[float, ...] = ()) -> bool:
    """As ``apply``, into the first of the arrays; False where it cannot run."""
    kernel = _fitting(name, arrays)
    if kernel is None:
        return False
    places = [address(a) for a in arrays]
    kernel(places[0], *places, arrays[0].size, *numbers)
    return True


def _fitting(name: str, arrays: tuple[Any, ...]) -> Callable[..., None] | None:
    first = arrays[0]
    for a in arrays:
        if a.dtype != first.dtype or a.shape != first.shape or not a.flags.c_contiguous:
            return None
    return pointwise(name, first.dtype)
