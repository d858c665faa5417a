"""Collectives of Python objects, by pickle. Unpickling runs code: only among ranks you trust.

Objects travel on the CPU's backend if the group has one.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np

from mortice._tensor.make import wrap_array
from mortice._tensor.tensor import Tensor
from mortice.errors import ArgumentError, InvalidValue

from . import collectives, point_to_point
from .group import ProcessGroup, is_outside, resolved


def _dumped(value: Any) -> Tensor:
    data = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    return wrap_array(np.frombuffer(bytearray(data), np.uint8))


def _loaded(tensor: Tensor, nbytes: int) -> Any:
    return pickle.loads(memoryview(tensor.cpu()._a)[:nbytes])


def _sizes(values: Sequence[int]) -> Tensor:
    return wrap_array(np.asarray(values, np.int64))


def _room(nbytes: int) -> Tensor:
    return wrap_array(np.zeros(nbytes, np.uint8))


def _placed(group: ProcessGroup, tensor: Tensor) -> Tensor:
    """The tensor where the group has a backend."""
    device = "cpu" if "cpu" in group.backends else next(iter(group.backends))
    return tensor if device == "cpu" else tensor.to(device)


def _everyones(data: Tensor, group: Any) -> tuple[list[int], Tensor]:
    """All ranks' sizes, and this rank's data made as large as the largest."""
    found = resolved(group)
    mine = _placed(found, _sizes([data.numel()]))
    every = _placed(found, _sizes([0] * found.size()))
    collectives.all_gather_into_tensor(every, mine, group)
    sizes = [int(n) for n in every.tolist()]
    padded = _room(max(sizes))
    padded._a[: data.numel()] = data._a
    return sizes, _placed(found, padded)


def all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
    """Put rank k's ``obj`` into ``object_list[k]`` of everybody."""
    if is_outside(group):
        return
    found = resolved(group)
    _check_list(object_list, found.size(), "all_gather_object", "object_list")
    sizes, data = _everyones(_dumped(obj), group)
    longest = max(sizes)
    every = _placed(found, _room(longest * found.size()))
    collectives.all_gather_into_tensor(every, data, group)
    whole = every.cpu()
    for rank, nbytes in enumerate(sizes):
        object_list[rank] = _loaded(whole[rank * longest : (rank + 1) * longest], nbytes)


def gather_object(
    obj: Any, object_gather_list: list[Any] | None = None, dst: int | None = None,
    group: Any = None, group_dst: int | None = None,
) -> None:  # fmt: skip
    """Put rank k's ``obj`` into ``object_gather_list[k]`` of ``dst`` (rank 0 unless given)."""
    if is_outside(group):
        return
    found = resolved(group)
    dst = found.ranks[0] if dst is None and group_dst is None else dst
    here = (found.group_rank(dst) if group_dst is None and dst is not None else group_dst) == (
        found.rank()
    )
    if here:
        _check_list(object_gather_list, found.size(), "gather_object", "object_gather_list")
    sizes, data = _everyones(_dumped(obj), group)
    rooms = [_placed(found, _room(max(sizes))) for _ in sizes] if here else None
    collectives.gather(data, rooms, dst, group, group_dst=group_dst)
    if rooms is not None and object_gather_list is not None:
        object_gather_list[:] = [_loaded(room, size) for room, size in zip(rooms, sizes)]


def broadcast_object_list(
    object_list: list[Any], src: int | None = None, group: Any = None, device: Any = None,
    group_src: int | None = None,
) -> None:  # fmt: skip
    """Give everybody the objects of ``src`` (rank 0 unless given), in lists of equal lengths."""
    if is_outside(group):
        return
    found = resolved(group)
    src = found.ranks[0] if src is None and group_src is None else src
    here = (found.group_rank(src) if group_src is None and src is not None else group_src) == (
        found.rank()
    )
    parts = [_dumped(value) for value in object_list] if here else []
    sizes = _placed(found, _sizes([t.numel() for t in parts] if here else [0] * len(object_list)))
    collectives.broadcast(sizes, src, group, group_src=group_src)
    lengths = [int(n) for n in sizes.tolist()]
    data = _room(sum(lengths))
    if here and parts:
        data._a[...] = np.concatenate([t._a for t in parts])
    data = _placed(found, data)
    collectives.broadcast(data, src, group, group_src=group_src)
    if here:
        return
    whole, at = data.cpu(), 0
    for k, nbytes in enumerate(lengths):
        object_list[k] = _loaded(whole[at : at + nbytes], nbytes)
        at += nbytes


def scatter_object_list(
    scatter_object_output_list: list[Any], scatter_object_input_list: Sequence[Any] | None = None,
    src: int | None = None, group: Any = None, group_src: int | None = None,
) -> None:  # fmt: skip
    """Put ``scatter_object_input_list[k]`` of ``src`` into rank k's ``scatter_object_output_list[0]``."""
    if is_outside(group):
        return
    found = resolved(group)
    if not isinstance(scatter_object_output_list, list) or not scatter_object_output_list:
        raise ArgumentError(
            "scatter_object_list: scatter_object_output_list must be a list with room for one."
        )
    src = found.ranks[0] if src is None and group_src is None else src
    here = (found.group_rank(src) if group_src is None and src is not None else group_src) == (
        found.rank()
    )
    parts: list[Tensor] = []
    if here:
        given = list(scatter_object_input_list or [])
        _check_list(given, found.size(), "scatter_object_list", "scatter_object_input_list")
        parts = [_dumped(value) for value in given]
    sizes = _placed(found, _sizes([t.numel() for t in parts] if here else [0] * found.size()))
    collectives.broadcast(sizes, src, group, group_src=group_src)
    lengths = [int(n) for n in sizes.tolist()]
    rooms = [_room(max(lengths)) for _ in parts]
    for room, part in zip(rooms, parts):
        room._a[: part.numel()] = part._a
    mine = _placed(found, _room(max(lengths)))
    sources = [_placed(found, room) for room in rooms] if here else None
    collectives.scatter(mine, sources, src, group, group_src=group_src)
    scatter_object_output_list[0] = _loaded(mine, lengths[found.rank()])


def send_object_list(
    object_list: list[Any], dst: int | None = None, group: Any = None, device: Any = None,
    group_dst: int | None = None,
) -> None:  # fmt: skip
    """Send objects to ``dst``, which receives a list of as many."""
    if is_outside(group):
        return
    found = resolved(group)
    parts = [_dumped(value) for value in object_list]
    sizes = _placed(found, _sizes([t.numel() for t in parts]))
    point_to_point.send(sizes, dst, group, group_dst=group_dst)
    data = wrap_array(np.concatenate([t._a for t in parts]))
    point_to_point.send(_placed(found, data), dst, group, group_dst=group_dst)


def recv_object_list(
    object_list: list[Any], src: int | None = None, group: Any = None, device: Any = None,
    group_src: int | None = None,
) -> int:  # fmt: skip
    """Receive as many objects as the list has places; returns the sender's rank."""
    if is_outside(group):
        return -1
    found = resolved(group)
    sizes = _placed(found, _sizes([0] * len(object_list)))
    source = point_to_point.recv(sizes, src, group, group_src=group_src)
    lengths = [int(n) for n in sizes.tolist()]
    data = _placed(found, _room(sum(lengths)))
    point_to_point.recv(data, source, group)
    whole, at = data.cpu(), 0
    for k, nbytes in enumerate(lengths):
        object_list[k] = _loaded(whole[at : at + nbytes], nbytes)
        at += nbytes
    return source


def _check_list(value: Any, count: int, where: str, name: str) -> None:
    if not isinstance(value, list) or len(value) != count:
        found = f"{len(value)} places" if isinstance(value, list) else type(value).__name__
        raise InvalidValue(f"{where}: {name} is to be a list with {count} places, found {found}.")
