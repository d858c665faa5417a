"""The child's side of a probe: load one entry and write down its state."""

from __future__ import annotations

import faulthandler
import json
import os
from typing import Any


def run(job: dict[str, Any]) -> None:
    """Load the job's entry, write ``{state, reason, fix}`` to its result file, and end."""
    faulthandler.enable()
    import mortice  # noqa: F401  # pyright: ignore[reportUnusedImport]  it may rely on it

    from . import catalog, manager
    from .groups import GROUPS

    group = GROUPS[job["group"]]
    entry = next(
        one
        for one in catalog.candidates(group, job["name"])
        if one.distribution.name == job["distribution"]
    )
    status = manager.attempt(entry)
    told = {"state": status.state, "reason": status.reason, "fix": status.fix}
    temporary = job["result"] + ".tmp"
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(told, file)
    os.replace(temporary, job["result"])
    # Threads that the plug-in started must not keep the probe alive; nothing here needs clean-up.
    os._exit(0)
