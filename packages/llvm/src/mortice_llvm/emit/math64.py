"""Float64 functions. What is missing here is refused by name (NotAvailable)."""

from __future__ import annotations

from collections.abc import Callable

FUNCTIONS: dict[str, Callable[..., str]] = {}
