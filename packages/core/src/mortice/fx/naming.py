"""Names for nodes: Python identifiers, each used once."""

from __future__ import annotations

import builtins
import keyword
import re
from typing import Any

_ILLEGAL = re.compile(r"\W")
#: Symbols of sizes, which generated code assigns too.
_SYMBOL = re.compile(r"[sufz]+\d+$")
_SUFFIX = re.compile(r"(.*?)_(\d+)$")
#: Names that generated code uses itself.
_TAKEN = frozenset(
    (*keyword.kwlist, *dir(builtins), "self", "mortice", "device", "operator", "math")
)


class Namespace:
    """Gives out identifiers; ``add``, then ``add_1``, ``add_2``, ..."""

    def __init__(self) -> None:
        self.used: set[str] = set()
        self._next: dict[str, int] = {}

    def create_name(self, candidate: str) -> str:
        """An unused identifier like ``candidate``."""
        name = _ILLEGAL.sub("_", candidate) or "_unnamed"
        if name[0].isdigit():
            name = f"_{name}"
        if name not in self.used and name not in _TAKEN and not _SYMBOL.match(name):
            self.used.add(name)
            return name
        match = _SUFFIX.match(name)
        base = match.group(1) if match else name
        number = self._next.get(base, 1)
        while f"{base}_{number}" in self.used:
            number += 1
        self._next[base] = number + 1
        name = f"{base}_{number}"
        self.used.add(name)
        return name


def target_name(target: Any) -> str:
    """What to call the result of a target: ``add`` of ``aten.add.Tensor``, ``relu`` of ``F.relu``."""
    if isinstance(target, str):
        return target
    packet = getattr(target, "overloadpacket", None)
    if packet is not None:
        return packet.__name__
    name = getattr(target, "__name__", None) or type(target).__name__
    return _snake(str(name))


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()
