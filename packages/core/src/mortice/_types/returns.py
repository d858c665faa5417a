"""Named results of operators with several outputs, such as ``max(dim)``'s values and indices."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

_MADE: dict[tuple[str, tuple[str, ...]], Any] = {}


def named_returns(operator: str, fields: tuple[str, ...]) -> Any:
    """The tuple class for an operator's results: ``named_returns("max", ("values", "indices"))``."""
    found = _MADE.get((operator, fields))
    if found is None:
        found = namedtuple(operator.strip("_"), fields)  # pyright: ignore[reportUntypedNamedTuple]
        found.__module__ = "mortice.return_types"
        found.__repr__ = _show
        found = _MADE.setdefault((operator, fields), found)
    return found


def _show(self: Any) -> str:
    lines = ",\n".join(f"{name}={value!r}" for name, value in zip(self._fields, self))
    return f"mortice.return_types.{type(self).__name__}(\n{lines})"
