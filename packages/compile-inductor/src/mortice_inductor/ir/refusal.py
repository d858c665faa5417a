"""Errors about indices, raised after a graph has run as eager raises them before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from mortice import errors

from .values import Value


class Refusal(NamedTuple):
    """What is wrong with an index that is not in ``low`` .. ``high`` - 1; plain data.

    ``error`` names the class. ``complaint`` has ``{high}`` for that bound and ``{}`` for the index, which
    is found where it is one of the graph's inputs (number ``source``); else it is spoken of as
    ``unknown``. ``ignored`` is an index that stands for none.
    """

    error: str
    complaint: str
    unknown: str
    source: int | None
    low: int
    high: int
    ignored: int | None = None

    def raised(self, given: Sequence[Any]) -> Exception:
        """The error, given the graph's inputs and constants."""
        found = self._first(given)
        said = self.unknown if found is None else f"{self.unknown.split()[-1]} {found}"
        text = self.complaint.format(said, high=self.high)
        return getattr(errors, self.error)(text)

    def _first(self, given: Sequence[Any]) -> int | None:
        if self.source is None:
            return None
        for index in given[self.source].detach().flatten().tolist():
            if index != self.ignored and not self.low <= index < self.high:
                return index
        return None  # it was written to since


def source_of(index: Value) -> int | None:
    """The number of the input whose elements an index has."""
    if index.op == "view" and index.args[0].numel == index.numel:
        index = index.args[0]
    return index.attr if index.op == "input" else None


__all__ = ["Refusal", "source_of"]
