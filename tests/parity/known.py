"""The committed list of failing checks. For an operator already in it, it may only shrink."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

PATH = Path(__file__).with_name("known_failures.json")

Failures = dict[str, dict[str, str]]  # operator -> check -> reason


class Known:
    def __init__(self, path: Path = PATH) -> None:
        self.path = path
        self.failures: Failures = json.loads(path.read_text()) if path.exists() else {}

    def unexpected(self, operator: str, failing: dict[str, str]) -> dict[str, str]:
        """Failing checks of an operator in the file that the file does not list."""
        listed = self.failures.get(operator)
        if listed is None:
            return {}
        return {key: why for key, why in failing.items() if key not in listed}

    def mended(self, operator: str, ran: set[str], failing: dict[str, str]) -> set[str]:
        """Checks that the file lists, that ran, and passed."""
        return {key for key in self.failures.get(operator, {}) if key in ran and key not in failing}

    def update(self, operator: str, ran: set[str], failing: dict[str, str]) -> None:
        """Adds an operator that was not there; takes mended checks out of one that was."""
        if operator not in self.failures:
            self.failures[operator] = dict(failing)
            return
        for key in self.mended(operator, ran, failing):
            del self.failures[operator][key]

    def save(self) -> None:
        ordered = {op: dict(sorted(checks.items())) for op, checks in sorted(self.failures.items())}
        self.path.write_text(json.dumps(ordered, indent=1, ensure_ascii=False) + "\n")

    def summary(self) -> dict[str, Any]:
        return {
            "operators": len(self.failures),
            "checks": sum(len(checks) for checks in self.failures.values()),
        }
