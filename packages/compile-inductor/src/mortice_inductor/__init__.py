"""mortice's compile backend inductor: graphs become fused machine code, without a toolchain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._version import __version__ as __version__

if TYPE_CHECKING:
    from .front import compile_fx, compile_fx_inner

_HOMES = {"compile_fx": "front", "compile_fx_inner": "front"}

__all__ = ["__version__", "compile_fx", "compile_fx_inner"]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _HOMES:
        return getattr(import_module(f".{_HOMES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
