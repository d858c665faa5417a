"""The verdict on a compiled function: whether its calls can be replayed, and why not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Verdict:
    """What is known so far, for reports.

    Attributes:
        always_runs: no call is replayed (any more): the function itself runs each time.
        reasons: why, each with the line (``observer.Reason``).
        observed, kept, replayed, resumed: calls observed, plans that an earlier process has kept and
            that answered a call, calls answered without running the function
            (``by_python`` of them without native code), calls whose replay had to give up on the
            way.
        misses: why calls were not replayed: the guard that failed, with what was found.
    """

    always_runs: bool = False
    reasons: list[Any] = field(default_factory=list)
    observed: int = 0
    kept: int = 0
    by_python: int = 0
    resumed: int = 0
    misses: list[str] = field(default_factory=list)
    #: Native entries' counts of the calls that they answered.
    native: list[Callable[[], int]] = field(default_factory=list)

    @property
    def replayed(self) -> int:
        return self.by_python + sum(answered() for answered in self.native)

    def add_reasons(self, reasons: Any) -> None:
        """Note reasons that are not known yet."""
        self.reasons += [r for r in reasons if r not in self.reasons]

    @property
    def name(self) -> str:
        """``"replay"``, ``"always run"``, or ``"not called yet"``."""
        if self.always_runs:
            return "always run"
        return "replay" if self.observed or self.kept else "not called yet"

    @property
    def calls(self) -> dict[str, int]:
        """What became of calls, by kind; plans from disk stand before them, if there were any."""
        found = {"found": self.kept} if self.kept else {}
        return {
            **found,
            "observed": self.observed,
            "replayed": self.replayed,
            "resumed": self.resumed,
        }

    def lines(self) -> list[str]:
        """As a report shows it."""
        counts = ", ".join(f"{kind} {count}" for kind, count in self.calls.items())
        text = [f"verdict: {self.name}; {counts}"]
        text += [f"  {reason}" for reason in self.reasons]
        text += [f"  missed: {miss}" for miss in self.misses]
        return text
