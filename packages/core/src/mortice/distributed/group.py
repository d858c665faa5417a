"""ProcessGroup: some ranks, their communicators by device, and the order of their operations."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from typing import Any

from mortice._base import config
from mortice.errors import DistBackendError, InvalidState, InvalidValue, NotAGroup

from . import registry
from .communicator import Call, Communicator, Setup
from .store.base import Store
from .store.prefix import PrefixStore
from .watch import Explainer, Watch
from .work import Work


class _NonMember:
    """What ``new_group`` gives to ranks that are not in it."""

    def __repr__(self) -> str:
        return "GroupMember.NON_GROUP_MEMBER"


class GroupMember:
    """``NON_GROUP_MEMBER`` is what ``new_group`` returns on ranks outside the group."""

    NON_GROUP_MEMBER = _NonMember()


class ProcessGroup:
    """Ranks that work together. Made by ``init_process_group`` and ``new_group``.

    ``ranks`` are the members as ranks of the whole, in the group's own order.
    """

    def __init__(
        self,
        name: str,
        ranks: tuple[int, ...],
        backends: dict[str, str],
        store: Store,
        watch: Watch,
        timeout: float,
        *,
        description: str = "",
        device: Any = None,
        options: Any = None,
    ) -> None:
        self.group_name = name
        self.group_desc = description or name
        self.ranks = ranks
        self.timeout = timeout
        self.backends = backends
        self.store = PrefixStore(f"group/{name}", store)
        self.watch = watch
        self._rank = ranks.index(watch.rank)
        self._device = device
        self._options = options
        # Messages are between two ranks; only collectives have the same number on all.
        self._collectives, self._messages = itertools.count(1), itertools.count(1)
        self._communicators: dict[str, Communicator] = {}
        self._lock = threading.RLock()
        self._closed = False

    def rank(self) -> int:
        """This process's rank in the group."""
        return self._rank

    def size(self) -> int:
        return len(self.ranks)

    def name(self) -> str:
        return self.group_name

    def global_rank(self, rank: int) -> int:
        """The rank of the whole of a rank of the group."""
        if not 0 <= rank < len(self.ranks):
            raise InvalidValue(
                f"rank {rank} is not in group {self.group_name} of {len(self.ranks)} ranks."
            )
        return self.ranks[rank]

    def group_rank(self, rank: int) -> int:
        """The rank in the group of a rank of the whole."""
        try:
            return self.ranks.index(rank)
        except ValueError:
            raise InvalidValue(
                f"rank {rank} is not in group {self.group_name}, whose ranks are "
                f"{', '.join(map(str, self.ranks))}."
            ) from None

    def backend_string(self) -> str:
        return registry.canonical(self.backends)

    # -- communicators -------------------------------------------------------------------------

    def connect(self) -> None:
        """Make the communicators now, in the same order on all ranks.

        One that serves several devices is made once.
        """
        for device in self.backends:
            self.communicator(device)

    def communicator(self, device: str) -> Communicator:
        """The communicator for tensors of a device type."""
        found = self._communicators.get(device)
        if found is None:
            with self._lock:
                found = self._communicators.get(device) or self._made(device)
        return found

    def _made(self, device: str) -> Communicator:
        if self._closed:
            raise InvalidState(f"group {self.group_name} was destroyed.")
        name = self.backends.get(device)
        if name is None:
            raise DistBackendError(
                f"group {self.group_name} has no backend for tensors on {device}: it has "
                f"{self.backend_string()}. Name one in init_process_group or new_group, as in "
                f'backend="{self.backend_string()},{device}:NAME".'
            )
        for other, made in self._communicators.items():
            if self.backends[other] == name:
                self._communicators[device] = made
                return made
        explain = Explainer(self.watch, self.group_name, self.ranks, name, self.group_desc)
        setup = Setup(
            store=PrefixStore(f"backend/{name}", self.store),
            rank=self._rank,
            size=len(self.ranks),
            ranks=self.ranks,
            timeout=self.timeout,
            name=self.group_name,
            device=self._device,
            options=self._options,
            backend=name,
            gone=explain.gone,
            explain=explain,
            **self._comparison(name),
        )
        made = registry.create(name, setup)
        self._communicators[device] = made
        return made

    def _comparison(self, name: str) -> dict[str, Any]:
        """The debug mode's part of a Setup, if it is on."""
        if not config.distributed_debug:
            return {}
        from .comparison import Comparison

        place = PrefixStore(f"compare/{name}", self.store)
        return {"before": Comparison(place, self._rank, self.ranks)}

    def _each(self) -> Iterator[Communicator]:
        seen: list[Communicator] = []
        for made in self._communicators.values():
            if not any(made is one for one in seen):
                seen.append(made)
                yield made

    # -- operations ----------------------------------------------------------------------------

    def submit(
        self, name: str, device: str, timeout: float | None, wait: bool, parts: tuple[Any, ...]
    ) -> Work | None:
        """Begin an operation on the communicator of a device type; with ``wait``, do it.

        ``parts`` are the fields of its Call from ``inputs`` on.
        """
        numbers = self._messages if name in ("send", "recv") else self._collectives
        limit = self.timeout if timeout is None else timeout
        with self._lock:  # the order of numbers is the order of beginning
            communicator = self._communicators.get(device) or self.communicator(device)
            call = Call(name, next(numbers), limit, *parts)
            now = wait and communicator.take_turn(call)
            work = None if now else communicator.submit(call)
        if now:
            communicator.run_now(call)
        elif wait and work is not None:
            work.wait()
        return None if wait else work

    def abort(self) -> None:
        """End what is under way with errors."""
        for made in self._each():
            made.abort()

    def close(self) -> None:
        """Close the communicators; later operations raise."""
        with self._lock:
            self._closed = True
            for made in self._each():
                made.close()
            self._communicators.clear()

    def __repr__(self) -> str:
        ranks = ", ".join(map(str, self.ranks))
        return f"<ProcessGroup {self.group_name} of ranks {ranks}, {self.backend_string()}>"


class World:
    """The state of this process: the whole's group, the others, and what they stand on."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self.default: ProcessGroup | None = None
        self.groups: dict[str, ProcessGroup] = {}
        self.store: Store | None = None
        self.own_base: Store | None = None  # the store that init made, and destroy closes
        self.watch: Watch | None = None
        self.made = 0  # groups so far, members or not: names agree on all ranks


world = World()


def default_group() -> ProcessGroup:
    """The group of all ranks; NotAGroup before ``init_process_group``."""
    if world.default is None:
        raise NotAGroup(
            "there is no process group yet. Call mortice.distributed.init_process_group() first."
        )
    return world.default


def resolved(group: Any) -> ProcessGroup:
    """The group meant by an argument, None being the whole; NotAGroup on ranks outside it."""
    if group is None:
        return default_group()
    if group is GroupMember.NON_GROUP_MEMBER:
        raise NotAGroup("this rank is not a member of the group given.")
    if not isinstance(group, ProcessGroup):
        raise InvalidValue(f"group: expected a ProcessGroup, found {type(group).__name__}.")
    return group


def is_outside(group: Any) -> bool:
    """Whether this rank has nothing to do in the group; collectives then return None."""
    return group is GroupMember.NON_GROUP_MEMBER


def __getattr__(name: str) -> Any:
    if name == "WORLD":  # as ``mortice.distributed.group.WORLD``
        return default_group()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
