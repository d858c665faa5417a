"""Tile or BLAS, from measured limits."""

from __future__ import annotations

from typing import NamedTuple

from ..dtypes import DTYPES
from ..target import Target, host
from .shape import SHAPES


class Limits(NamedTuple):
    """Where tiles are the faster: products of at least so many rows and columns, and of ``ragged``
    columns where the last ones do not fill a register.
    """

    rows: int
    columns: int
    ragged: int


#: By target and element type. Made by timing both on one thread of an AMD EPYC (Zen 5, numpy
#: 2.4's OpenBLAS with its kernels SkylakeX for avx512 and Haswell for avx2) for products of 1 to
#: 2048 rows, columns and k's in all four orders. No entry: not measured, and BLAS is taken.
MEASURED: dict[tuple[str, str], Limits] = {
    ("avx512", "f32"): Limits(4, 16, 128),
    ("avx512", "f64"): Limits(3, 8, 128),
    ("avx2", "f32"): Limits(3, 8, 1),
    ("avx2", "f64"): Limits(3, 8, 1),
}


def prefers_blas(dtype: str, m: int, n: int, k: int, target: Target | None = None) -> str | None:
    """Why BLAS should do a product of (m, k) and (k, n); None if tiles should."""
    target = target or host()
    limits = MEASURED.get((target.name, dtype))
    if limits is None:
        return f"tiles were not measured for {dtype} on {target.name}"
    if m < limits.rows:
        return f"{m} rows do not fill a tile"
    if n < limits.columns:
        return f"{n} columns do not fill a tile"
    register = SHAPES[target.name].register // DTYPES[dtype].size
    if n < limits.ragged and n % register:
        return f"{n} columns do not fill registers"
    return None
