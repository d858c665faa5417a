"""Helpers for people who extend mortice: dispatch modes, DLPack, pytrees; packages add more."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in ("dispatch", "dlpack", "pytree"):
        return import_module(f"mortice.utils.{name}")
    from mortice._plugins.modules import get

    return get(f"utils.{name}")
