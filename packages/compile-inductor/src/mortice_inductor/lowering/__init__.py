"""From operators to values, by tables."""

from __future__ import annotations

from . import pointwise as _pointwise
from .registry import LOWERINGS, Fallback, lowers

__all__ = ["LOWERINGS", "Fallback", "lowers"]
