"""Beginning, dividing and ending: ``init_process_group``, ``new_group``, and questions about them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from mortice._plugins import emit
from mortice._types.device import Device
from mortice.errors import InvalidState, InvalidValue, StoreTimeout

from . import registry
from .group import GroupMember, ProcessGroup, default_group, is_outside, resolved, world
from .rendezvous import check_rank, meet
from .store import PrefixStore, Store
from .store.base import seconds
from .watch import Watch, named

default_pg_timeout = timedelta(minutes=30)
_WORLD = "default"


def init_process_group(
    backend: str | None = None,
    init_method: str | None = None,
    timeout: timedelta | float | None = None,
    world_size: int = -1,
    rank: int = -1,
    store: Store | None = None,
    group_name: str = "",
    pg_options: Any = None,
    device_id: Any = None,
) -> None:
    """Make the group of all ranks; every rank calls it.

    ``backend`` is ``"gloo"``, ``"cpu:gloo,cuda:nccl"``, or None for what is installed for each
    device. Ranks meet by ``init_method`` (``env://``, ``tcp://host:port``, ``file:///path``), or in
    ``store``, which needs ``rank`` and ``world_size``; told nothing, by a library whose launcher
    started them (mpi), else ``env://``. ``timeout`` (a timedelta, or seconds) holds
    for meeting and for every operation; 30 minutes if not given. ``device_id`` is the device of
    this rank.

    Raises InvalidValue or ArgumentError for what cannot be meant, PluginNotFound for a backend
    that is not installed, DistBackendError for one that cannot be used, StoreTimeout where others
    do not come.
    """
    if world.default is not None:
        raise InvalidState(
            "there is a process group already. Call destroy_process_group() before another init."
        )
    limit = seconds(default_pg_timeout if timeout is None else timeout)
    backends = registry.defaults() if backend is None else registry.parse(str(backend))
    # Before waiting for others.
    classes = [registry.backend_class(name) for name in dict.fromkeys(backends.values())]
    device = None if device_id is None else Device(device_id)
    if store is not None:
        if init_method is not None:
            raise InvalidValue("init_process_group: give init_method or store, not both.")
        if rank == -1 or world_size == -1:
            raise InvalidValue("init_process_group: a store needs rank and world_size, too.")
        meeting = (store, rank, world_size)
    else:
        own = None
        if init_method is None and rank < 0 and world_size < 0 and "RANK" not in os.environ:
            own = next((met for cls in classes if (met := cls.meet(limit)) is not None), None)
        meeting = own or meet(init_method or "env://", rank, world_size, limit)
    base, rank, world_size = meeting
    try:
        check_rank(rank, world_size)
        _begin(base, rank, world_size, limit, backends, group_name, device, pg_options)
    except BaseException:
        if store is None:
            base.close()
        raise
    if store is None:
        world.own_base = base


def _begin(
    base: Store,
    rank: int,
    world_size: int,
    limit: float,
    backends: dict[str, str],
    name: str,
    device: Device | None,
    options: Any,
) -> None:
    # A store may see several inits, one after the other; each has keys of its own.
    place = f"mortice/{name or _WORLD}"
    generation = base.add(f"{place}/made/{rank}", 1)
    shared = PrefixStore(f"{place}/{generation}", base)
    shared.set_timeout(limit)
    watch = Watch(shared, rank)
    group = ProcessGroup(
        name or _WORLD,
        tuple(range(world_size)),
        backends,
        shared,
        watch,
        limit,
        device=device,
        options=options,
    )
    try:
        _agree(group)
        group.connect()
    except BaseException:
        group.close()
        watch.leave()
        raise
    world.default, world.store, world.watch = group, shared, watch
    world.groups[group.group_name] = group
    emit("group_created", backend=group.backend_string(), ranks=group.ranks)


def _agree(group: ProcessGroup) -> None:
    """Let all ranks find out here, and not in a hang, that they were told different things."""
    mine = f"{group.backend_string()} {group.size()}"
    key = f"agree/{group.rank()}"
    group.store.set(key, mine)
    keys = [f"agree/{rank}" for rank in range(group.size())]
    try:
        group.store.wait(keys, group.timeout)
    except StoreTimeout as error:
        absent = [group.ranks[keys.index(key)] for key in error.keys]
        raise StoreTimeout(
            f"group {group.group_name} cannot be made on rank {group.watch.rank}: after "
            f"{group.timeout:g} s, {named(absent)} of {group.size()} have not come. Are they running, "
            "and do they meet at the same place?",
            error.keys,
        ) from error
    for rank, theirs in enumerate(group.store.multi_get(keys)):
        if theirs.decode() != mine:
            raise InvalidValue(
                f"group {group.group_name}: rank {group.ranks[rank]} has backend and size "
                f"{theirs.decode()!r}, rank {group.watch.rank} {mine!r}; they must agree."
            )


def new_group(
    ranks: Sequence[int] | None = None,
    timeout: timedelta | float | None = None,
    backend: str | None = None,
    pg_options: Any = None,
    use_local_synchronization: bool = False,
    group_desc: str | None = None,
    device_id: Any = None,
) -> Any:
    """Make a group of some ranks; every rank of the whole calls it, in the same order.

    With ``use_local_synchronization`` only the members do. Returns the ProcessGroup, or
    ``GroupMember.NON_GROUP_MEMBER`` on other ranks.
    """
    whole = default_group()
    members = whole.ranks if ranks is None else tuple(int(rank) for rank in ranks)
    wrong = [rank for rank in members if rank not in whole.ranks]
    if wrong or not members:
        raise InvalidValue(
            f"new_group: ranks are {list(members)}; expected some of 0 to {whole.size() - 1}."
        )
    if len(set(members)) != len(members):
        raise InvalidValue(f"new_group: a rank is named twice in {list(members)}.")
    if ranks is not None:
        members = tuple(sorted(members))
    name = _group_name(members, local=use_local_synchronization)
    if whole.rank() not in members:
        if use_local_synchronization:
            raise InvalidValue(
                f"new_group: rank {whole.rank()} is not one of {list(members)}; with "
                "use_local_synchronization only members call it."
            )
        return GroupMember.NON_GROUP_MEMBER
    assert world.store is not None
    assert world.watch is not None
    backends = whole.backends if backend is None else registry.parse(str(backend))
    group = ProcessGroup(
        name,
        members,
        backends,
        world.store,
        world.watch,
        whole.timeout if timeout is None else seconds(timeout),
        description=group_desc or "",
        device=None if device_id is None else Device(device_id),
        options=pg_options,
    )
    try:
        _agree(group)
        group.connect()
    except BaseException:
        group.close()
        raise
    world.groups[name] = group
    emit("group_created", backend=group.backend_string(), ranks=group.ranks)
    return group


def _group_name(members: tuple[int, ...], *, local: bool) -> str:
    """A name on which the members agree without talking."""
    if not local:
        world.made += 1
        return f"{world.made}"
    digest = hashlib.sha1(repr(members).encode(), usedforsecurity=False).hexdigest()[:10]
    count = sum(name.startswith(f"local-{digest}") for name in world.groups)
    return f"local-{digest}-{count}"


def new_subgroups(
    group_size: int | None = None, group: Any = None, timeout: timedelta | float | None = None,
    backend: str | None = None, pg_options: Any = None, group_desc: str | None = None,
) -> tuple[Any, list[Any]]:  # fmt: skip
    """Divide the whole into groups of ``group_size`` neighbours; returns (mine, all)."""
    size = get_world_size(group)
    if group_size is None or group_size < 1 or size % group_size:
        raise InvalidValue(
            f"new_subgroups: group_size is {group_size}; expected a divisor of {size}."
        )
    whole = resolved(group)
    lists = [
        [whole.ranks[k] for k in range(at, at + group_size)] for at in range(0, size, group_size)
    ]
    return new_subgroups_by_enumeration(lists, timeout, backend, pg_options, group_desc)


def new_subgroups_by_enumeration(
    ranks_per_subgroup_list: Sequence[Sequence[int]], timeout: timedelta | float | None = None,
    backend: str | None = None, pg_options: Any = None, group_desc: str | None = None,
) -> tuple[Any, list[Any]]:  # fmt: skip
    """Make one group per list of ranks, which must not overlap; returns (mine or None, all)."""
    flat = [rank for ranks in ranks_per_subgroup_list for rank in ranks]
    if not flat or len(set(flat)) != len(flat):
        raise InvalidValue("new_subgroups_by_enumeration: the lists are empty or overlap.")
    mine, every = None, []
    for ranks in ranks_per_subgroup_list:
        made = new_group(ranks, timeout, backend, pg_options, group_desc=group_desc)
        every.append(made)
        if get_rank() in ranks:
            mine = made
    return mine, every


def destroy_process_group(group: Any = None) -> None:
    """End a group, or, without one, all groups and the connection of the ranks."""
    if group is None:
        default_group()  # raises if there is none
        assert world.watch is not None
        world.watch.say_left(world.groups)
        for one in reversed(list(world.groups.values())):
            one.close()
        world.watch.leave()
        if world.own_base is not None:
            world.own_base.close()
        world.reset()
        return
    if is_outside(group):
        return
    found = resolved(group)
    if found is world.default:
        destroy_process_group()
        return
    if world.groups.pop(found.group_name, None) is None:
        raise InvalidState(f"group {found.group_name} was destroyed already.")
    found.watch.say_left([found.group_name])
    found.close()


# -- questions ----------------------------------------------------------------------------------


def is_available() -> bool:
    """Always: stores and launchers need nothing; ``list_backends()`` says which backends there are."""
    return True


def is_initialized() -> bool:
    """Whether ``init_process_group`` has been called."""
    return world.default is not None


def get_rank(group: Any = None) -> int:
    """This process's rank in the group; -1 outside it."""
    return -1 if is_outside(group) else resolved(group).rank()


def get_world_size(group: Any = None) -> int:
    """The group's number of ranks; -1 outside it."""
    return -1 if is_outside(group) else resolved(group).size()


def get_backend(group: Any = None) -> str:
    """The backend's name for the CPU, or for the group's first device."""
    backends = resolved(group).backends
    return registry.Backend(backends.get("cpu") or next(iter(backends.values())))


def get_backend_config(group: Any = None) -> str:
    """The backends of all devices: ``cpu:gloo,cuda:nccl``."""
    return resolved(group).backend_string()


def get_process_group_ranks(group: Any = None) -> list[int]:
    """The members as ranks of the whole."""
    return list(resolved(group).ranks)


def get_global_rank(group: Any, group_rank: int) -> int:
    return resolved(group).global_rank(group_rank)


def get_group_rank(group: Any, global_rank: int) -> int:
    return resolved(group).group_rank(global_rank)


def get_node_local_rank(fallback_rank: int | None = None) -> int:
    """LOCAL_RANK, as the launcher set it."""
    text = os.environ.get("LOCAL_RANK")
    if text is not None:
        return int(text)
    if fallback_rank is not None:
        return fallback_rank
    raise InvalidState("LOCAL_RANK is not set. `mortice run` sets it; or pass fallback_rank.")


def is_backend_available(backend: str) -> bool:
    """Whether a backend is installed and can be used as far as metadata tells."""
    return registry.Backend(backend) in registry.Backend.backend_list()


def is_torchelastic_launched() -> bool:
    """Whether this process was started by ``mortice run``, or by torchrun."""
    return "TORCHELASTIC_RUN_ID" in os.environ
