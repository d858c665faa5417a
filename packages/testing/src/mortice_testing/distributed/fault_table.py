"""The faults as a table: ``python -m mortice_testing.distributed.fault_table FILE BACKEND...``."""

from __future__ import annotations

import sys
from pathlib import Path

from .faults import FAULTS, SHORT, gangs_of, happen


def table(backends: list[str]) -> str:
    """The faults as a Markdown table: what happened, and after how long."""
    lines = [
        "| fault | backend | error | after | what one survivor was told |",
        "|---|---|---|---|---|",
    ]
    for fault in FAULTS:
        for backend in backends:
            outcome = happen(fault, gangs_of(backend))
            kinds = ", ".join(sorted({one.error for one in outcome.seen}))
            text = _short(outcome.seen[0].text)
            lines.append(
                f"| {fault.name} | {backend} | {kinds} | {outcome.seconds:.2f} s | {text} |"
            )
    return "\n".join(lines) + "\n"


def _short(text: str) -> str:
    """Without what would break the table, or is the library's own long advice."""
    return text.partition(" This is typically")[0].replace("|", "\\|")


HEAD = """# What happens when a rank fails

Written by `{command}` from real runs: three processes, of which rank 1 (rank 0 for "store host")
is killed, stopped, or does something else. The group's time limit is far longer than any row took,
but for the call that waits for a silent rank, which has {limit:g} s. Every survivor gets an error that
names the operation, its number, its own rank and, where it can be known, the rank that is missing;
the next call fails at once; no process and no shared memory is left. "compared" rows run with
`MORTICE_DISTRIBUTED_DEBUG=1`.

"""


def main() -> None:
    """Write the table to a file."""
    path, *backends = sys.argv[1:]
    command = f"python -m mortice_testing.distributed.fault_table {path} {' '.join(backends)}"
    text = HEAD.format(command=command, limit=SHORT) + table(backends)
    Path(path).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
