"""Matrix products in code of our own, for the sizes at which it is faster than numpy's BLAS.

The code is compiled once per machine and element type; who only runs it has ``blas.routine``, and reads
nothing here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .choice import prefers_blas

__all__ = ["prefers_blas"]


def __getattr__(name: str) -> Any:
    """What only who compiles asks for."""
    if name != "prefers_blas":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .choice import prefers_blas

    return prefers_blas
