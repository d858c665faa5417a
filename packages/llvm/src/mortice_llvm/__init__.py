"""Compiled kernels without a toolchain: loop IR, vector math, threads, an object cache.

A library on its own: it knows nothing of mortice's tensors. Memory is given as addresses.
llvmlite is imported only when a kernel is not in the cache yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._version import __version__

if TYPE_CHECKING:
    from . import kernels
    from .runtime.threads import get_num_threads, set_num_threads

__all__ = ["__version__", "get_num_threads", "kernels", "set_num_threads"]


def __getattr__(name: str) -> Any:
    if name == "kernels":
        from importlib import import_module

        return import_module(".kernels", __name__)
    if name in ("get_num_threads", "set_num_threads"):
        from .runtime import threads

        return getattr(threads, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
