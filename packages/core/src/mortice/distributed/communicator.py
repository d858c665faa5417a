"""What a distributed backend is: a class that moves tensors between the ranks of one group.

A backend over host memory derives from ``HostCommunicator`` (host.py) and writes ``send`` and
``recv``, and whatever else its library does better. One whose work is queued on a device derives
from ``Communicator`` itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from mortice.errors import DistBackendError

from .reduce_op import ReduceOp
from .store.base import Store
from .work import Work


@dataclass(frozen=True)
class Setup:
    """What a communicator is made of.

    Attributes:
        store: where the ranks meet; no other communicator sees these keys.
        rank, size: of this process in the group.
        ranks: the members, as ranks of the whole.
        timeout: seconds that an operation may take, unless it says otherwise.
        name: the group's.
        device: the device to use, or None for the backend to choose.
        options: what ``init_process_group(pg_options=...)`` was given for this backend.
        backend: the name under which it was asked for.
        gone: members of the group whose processes have ended, as far as the store knows; for
            backends whose library does not notice.
        before: called with each operation before it is done, in the thread that does it.
        explain: makes the error that users see of what an operation raised.
    """

    store: Store
    rank: int
    size: int
    ranks: tuple[int, ...]
    timeout: float
    name: str
    device: Any = None
    options: Any = None
    backend: str = ""
    gone: Callable[[], tuple[int, ...]] = tuple
    before: Callable[[Call], None] = lambda call: None
    explain: Callable[[Call, BaseException], BaseException] = lambda call, error: error

    def loss(self) -> DistBackendError | None:
        """The error that names the members that have ended; None while all are there."""
        gone = self.gone()
        return DistBackendError(f"rank {', '.join(map(str, gone))} has ended") if gone else None


class Call(NamedTuple):
    """One operation: which, in what order, on what.

    ``root`` is the group's rank of the root, or of the peer; ``counts`` are elements per rank,
    (of the output, of the input), where these are uneven. ``timeout`` is in seconds.
    """

    name: str
    sequence: int
    timeout: float
    inputs: tuple[Any, ...] = ()
    outputs: tuple[Any, ...] = ()
    op: ReduceOp | None = None
    root: int = -1
    tag: int = 0
    counts: tuple[tuple[int, ...], tuple[int, ...]] | None = None

    def __str__(self) -> str:
        return f"{self.name} #{self.sequence}"


class Communicator(ABC):
    """Base of all backends.

    ``submit`` begins an operation and returns at once. Operations of one communicator, sends and
    receives aside, are begun in the same order by all ranks and must end in that order.
    """

    #: Device types whose tensors it takes.
    devices: ClassVar[tuple[str, ...]] = ("cpu",)

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.rank = setup.rank
        self.size = setup.size

    @classmethod
    def create(cls, setup: Setup) -> Communicator:
        """Make one. Raises ``mortice.backend.Unavailable`` where hardware or a library is missing."""
        return cls(setup)

    @classmethod
    def meet(cls, timeout: float) -> tuple[Store, int, int] | None:
        """(store, rank, world size) where the library's launcher has settled who is who; else None.

        Asked when ``init_process_group`` is told no way to meet.
        """
        return None

    @abstractmethod
    def submit(self, call: Call) -> Work:
        """Begin an operation."""

    def take_turn(self, call: Call) -> bool:
        """Whether the caller, who waits anyway, is to do the operation itself, by ``run_now``."""
        return False

    def run_now(self, call: Call) -> None:
        """Do an operation in the calling thread, after ``take_turn`` has said so."""
        raise NotImplementedError

    def abort(self) -> None:  # noqa: B027 - not all can
        """End what is under way with errors; afterwards only ``close`` is called."""

    def close(self) -> None:  # noqa: B027 - not all have anything
        """Give everything back. Called once, when nothing is under way."""
