"""Sizes of register tiles."""

from __future__ import annotations

from typing import NamedTuple


class Shape(NamedTuple):
    """A tile: bytes of a register, rows, and vectors per row (all in registers at once)."""

    register: int
    rows: int
    vectors: int


#: 24 sums, 3 vectors of B and a number of A fit 32 registers; 12 + 2 + 1, or 8 + 2 + 1, fit 16.
SHAPES = {
    "avx512": Shape(64, 8, 3),
    "avx2": Shape(32, 6, 2),
    "sse2": Shape(16, 4, 2),
    "neon": Shape(16, 8, 2),
}
