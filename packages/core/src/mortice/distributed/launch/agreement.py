"""How the nodes' supervisors keep together: through the job's store, by attempt."""

from __future__ import annotations

from mortice.errors import DistError, StoreTimeout

from ..store import PrefixStore, Store, TCPStore
from .job import Job

# How long a node waits for the others to begin an attempt, or to end.
PATIENCE = 300.0
_FAREWELL = 15.0


def serve(job: Job) -> TCPStore:
    """The job's store: served by node 0's supervisor, which outlives every attempt."""
    return TCPStore(
        job.address if job.node else "127.0.0.1",
        job.port,
        is_master=job.node == 0,
        timeout=PATIENCE,
    )


def part(store: TCPStore, job: Job) -> None:
    """Close the job's store; node 0 waits a moment for the others, who may still be asking."""
    place = f"launch/{job.run_id}/left"
    try:
        if job.node:
            store.set(f"{place}/{job.node}", "")
        elif job.nodes > 1:
            store.wait([f"{place}/{node}" for node in range(1, job.nodes)], _FAREWELL)
    except DistError:
        pass  # who has not left by now is gone, or cannot reach us any more
    store.close()


class Agreement:
    """One attempt, as the supervisors see it."""

    def __init__(self, store: Store, job: Job, attempt: int) -> None:
        self._store = PrefixStore(f"launch/{job.run_id}/{attempt}", store)
        self._nodes = job.nodes
        self._node = job.node

    def begin(self) -> None:
        """Wait until all nodes are at this attempt."""
        self._store.set(f"ready/{self._node}", "")
        self._store.wait([f"ready/{node}" for node in range(self._nodes)], PATIENCE)

    def fail(self, text: str) -> None:
        """Tell all nodes that the attempt has failed; the first text counts."""
        self._store.compare_set("failed", "", text)

    def failure(self) -> str | None:
        """What another node, or this one, said of a failure. A store that is gone is one, too."""
        try:
            return self._store.get("failed").decode() if self._store.check(["failed"]) else None
        except DistError as error:
            return f"1 node 0 has ended: {error}"

    def finish(self) -> None:
        """This node's ranks have all returned 0."""
        self._store.set(f"done/{self._node}", "")

    def all_done(self) -> bool:
        """Whether those of all nodes have."""
        try:
            return self._store.check([f"done/{node}" for node in range(self._nodes)])
        except StoreTimeout:
            return False
