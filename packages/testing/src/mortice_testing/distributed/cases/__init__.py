"""What every backend does, as functions ``case(rank, size)`` that all ranks call together.

A case asserts on its own rank. ``CASES`` has them all, by name.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

Case = Callable[[int, int], Any]

_MODULES = ("movements", "reductions", "messages", "groups", "objects", "asynchronous", "meshes")


def needs(*capabilities: str) -> Callable[[Case], Case]:
    """Mark a case that only backends with these capabilities can pass."""

    def mark(case: Case) -> Case:
        case.__dict__["needs"] = capabilities
        return case

    return mark


def _cases() -> dict[str, Case]:
    found: dict[str, Case] = {}
    for name in _MODULES:
        module = import_module(f"{__name__}.{name}")
        for attribute, value in vars(module).items():
            if attribute.startswith("case_"):
                found[f"{name}:{attribute.removeprefix('case_')}"] = value
    return found


def all_cases() -> dict[str, Case]:
    """Every case by ``module:name``."""
    return _cases()
