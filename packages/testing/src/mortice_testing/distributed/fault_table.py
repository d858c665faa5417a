"""The faults as a table: ``python -m mortice_testing.distributed.fault_table FILE BACKEND...``.

Rows that the file has of other backends stay: not all libraries live in one environment.
"""

from __future__ import annotations

import sys
from pathlib import Path

from .faults import FAULTS, SHORT, Fault, gangs_of, happen

HEADING = """\
| fault | backend | error | after | what one survivor was told |
|---|---|---|---|---|
"""


def table(backends: list[str], known: dict[tuple[str, str], str]) -> str:
    """The faults as a Markdown table: what happened, and after how long.

    ``known`` are the rows of other backends, by fault and backend, which stay.
    """
    rows = {at: row for at, row in known.items() if at[1] not in backends}
    for fault in FAULTS:
        for backend in backends:
            if not set(fault.needs) & set(LACKS.get(backend, ())):
                rows[fault.name, backend] = _row(fault, backend)
    order = [fault.name for fault in FAULTS]
    kept = sorted((at for at in rows if at[0] in order), key=lambda at: (order.index(at[0]), at[1]))
    return HEADING + "".join(f"{rows[at]}\n" for at in kept)


#: What a backend's library has not, and faults need.
LACKS: dict[str, tuple[str, ...]] = {"xccl": ("messages", "broken_connections")}


def _row(fault: Fault, backend: str) -> str:
    outcome = happen(fault, gangs_of(backend))
    kinds = ", ".join(sorted({one.error for one in outcome.seen}))
    text = _short(outcome.seen[0].text)
    return f"| {fault.name} | {backend} | {kinds} | {outcome.seconds:.2f} s | {text} |"


def read(path: Path) -> dict[tuple[str, str], str]:
    """The rows of a table that was written before, by fault and backend."""
    if not path.exists():
        return {}
    rows = [line for line in path.read_text(encoding="utf-8").splitlines() if line[:2] == "| "]
    cells = [[cell.strip() for cell in row.split("|")] for row in rows]
    return {(cell[1], cell[2]): row for row, cell in zip(rows, cells)}


def _short(text: str) -> str:
    """Without what would break the table, or is the library's own long advice."""
    return text.partition(" This is typically")[0].replace("|", "\\|")


HEAD = """# What happens when a rank fails

Written by `python -m mortice_testing.distributed.fault_table FILE BACKEND...` from real runs, for
each backend where its library is (for `xccl`, an environment without MPICH): three processes, of
which rank 1 (rank 0 for "store host") is killed, stopped, or does something else. The group's time
limit is far longer than any row took, but for the call that waits for a silent rank, which has
{limit:g} s. Every survivor gets an error that names the operation, its number, its own rank and, where
it can be known, the rank that is missing; the next call fails at once; no process and no shared
memory is left. "compared" rows run with `MORTICE_DISTRIBUTED_DEBUG=1`. `xccl` has no messages, and its
library ends survivors (SIGABRT) where one is "killed when it has given".

"""


def main() -> None:
    """Write the rows of some backends to a file, beside those of others that it has."""
    path, backends = Path(sys.argv[1]), sys.argv[2:]
    path.write_text(HEAD.format(limit=SHORT) + table(backends, read(path)), encoding="utf-8")


if __name__ == "__main__":
    main()
