"""Matrix products in code of our own, for the sizes at which it is faster than numpy's BLAS.

The code is compiled once per machine and element type; who only runs it reads this file alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import NotAvailable
from ..runtime.library import Library, load
from ..target import Target

if TYPE_CHECKING:
    from .choice import prefers_blas

__all__ = ["address", "prefers_blas"]

#: Of the function, in each type's code.
NAME = "mortice_tile"
_loaded: dict[str, Library] = {}


def __getattr__(name: str) -> Any:
    """What only who compiles asks for."""
    if name != "prefers_blas":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .choice import prefers_blas

    return prefers_blas


def address(dtype: str) -> int:
    """The address of the product for ``dtype``: see ``tile.PARAMETERS`` for how to call it.

    Raises NotAvailable for a dtype other than ``f32`` and ``f64``.
    """
    if dtype not in ("f32", "f64"):
        raise NotAvailable(f"products by tiles are for f32 and f64, but got {dtype!r}")

    def text(target: Target) -> str:
        from .tile import module_text

        return module_text(target, dtype, NAME)

    if dtype not in _loaded:
        _loaded[dtype] = load(f"tile {dtype}".encode(), text, uses_pool=False)
    return _loaded[dtype].address(NAME)
