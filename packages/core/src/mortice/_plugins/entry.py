"""An entry (one name in one group, from one distribution) and its state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .groups import Group
from .metadata import Distribution

STATES = (
    "disabled",
    "incompatible",
    "conflict",
    "crashed",
    "broken",
    "unavailable",
    "ready",
    "not loaded",
)
USABLE = ("ready", "not loaded")

_no_row: Mapping[str, Any] = {}


class Entry:
    """What provides ``name`` in ``group``.

    ``value`` is ``module[:object]``, or empty where ``target`` holds the object itself.
    ``source`` says where it was found: ``installed``, ``registered`` (in this process) or
    ``built in``.
    """

    __slots__ = (
        "distribution", "group", "manifest", "name", "problem", "row", "source", "target", "value",
    )  # fmt: skip

    def __init__(
        self,
        group: Group,
        name: str,
        value: str,
        distribution: Distribution,
        *,
        source: str = "installed",
        target: Any = None,
        manifest: Mapping[str, Any] | None = None,
        problem: str = "",
    ) -> None:
        self.group = group
        self.name = name
        self.value = value
        self.distribution = distribution
        self.source = source
        self.target = target
        self.manifest = manifest
        rows = manifest["entries"] if manifest else _no_row
        self.row: Mapping[str, Any] = rows.get(f"{group.kind}:{name}", _no_row)
        self.problem = problem  # what makes its metadata unusable; empty if it is fine

    @property
    def selector(self) -> str:
        """``kind:name``, as policy writes it."""
        return f"{self.group.kind}:{self.name}"

    @property
    def key(self) -> tuple[str, str, str]:
        return self.group.name, self.name, self.distribution.name

    @property
    def tags(self) -> tuple[str, ...]:
        return tuple(self.row.get("tags", ()))

    @property
    def summary(self) -> str:
        return self.row.get("summary", "")

    def described(self) -> str:
        """``acme-npu 1.2 (npu = acme_npu.plugin in mortice.devices)``, for messages."""
        if self.source == "installed":
            return f"{self.distribution} ({self.name} = {self.value} in {self.group.name})"
        how = "registered in this process" if self.source == "registered" else self.source
        return f"{self.selector} ({how}{' as ' if self.value else ''}{self.value})"

    def __repr__(self) -> str:
        return f"<Entry {self.described()}>"


class Status:
    """The state of an entry: the state's name, why, and what to type."""

    __slots__ = ("fix", "reason", "state")

    def __init__(self, state: str, reason: str = "", fix: str = "") -> None:
        self.state = state
        self.reason = reason
        self.fix = fix

    @property
    def usable(self) -> bool:
        return self.state in USABLE

    def __repr__(self) -> str:
        return f"<Status {self.state}{': ' if self.reason else ''}{self.reason}>"
