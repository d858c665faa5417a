"""Helpers for people who extend mortice: dispatch modes, DLPack, pytrees, names of devices;
packages add more.
"""

from __future__ import annotations

from typing import Any

_FUNCTIONS = ("generate_methods_for_privateuse1_backend", "rename_privateuse1_backend")
__all__ = [*_FUNCTIONS]  # pyright: ignore[reportUnsupportedDunderAll]  brought in late


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in ("backend_registration", "dispatch", "dlpack", "pytree"):
        return import_module(f"mortice.utils.{name}")
    if name in _FUNCTIONS:
        return getattr(import_module("mortice.utils.backend_registration"), name)
    from mortice._plugins.modules import get

    return get(f"utils.{name}")
