"""Matrix products in code of our own, for the sizes at which it is faster than numpy's BLAS."""

from __future__ import annotations

from .choice import prefers_blas
from .load import address

__all__ = ["address", "prefers_blas"]
