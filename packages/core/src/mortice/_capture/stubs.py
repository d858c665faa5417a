"""The functions behind Python's operators, by the overload that they call in line."""

from __future__ import annotations

from functools import cache
from typing import Any

from mortice import _generated


@cache
def _by_operator() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for family in _generated.FAMILIES:
        found.update(getattr(family, "OPERATORS", {}))
    return found


def operator_stubs(name: str | None = None) -> tuple[Any, ...]:
    """That of one operator, as ``Tensor.__add__`` of ``add.Tensor``, if there is one; or all."""
    found = _by_operator()
    return tuple(found.values()) if name is None else tuple(x for x in [found.get(name)] if x)
