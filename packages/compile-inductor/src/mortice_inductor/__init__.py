"""mortice's compile backend inductor: graphs become fused machine code, without a toolchain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._version import __version__ as __version__

if TYPE_CHECKING:
    from .devices import register_backend_for_device
    from .front import compile_fx, compile_fx_inner
    from .lowering.registry import Fallback
    from .lowering.user import make_fallback, register_lowering
    from .options import ConfigModule, Option, UnknownOption
    from .passes.custom import CustomGraphPass

_HOMES = {
    "ConfigModule": "options",
    "CustomGraphPass": "passes.custom",
    "Fallback": "lowering.registry",
    "Option": "options",
    "UnknownOption": "options",
    "compile_fx": "front",
    "compile_fx_inner": "front",
    "make_fallback": "lowering.user",
    "register_backend_for_device": "devices",
    "register_lowering": "lowering.user",
}

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _HOMES:
        return getattr(import_module(f".{_HOMES[name]}", __name__), name)
    if name == "config":
        return import_module(".config", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
