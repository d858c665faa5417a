"""Checks of what collectives are given, before anything is sent."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from mortice._tensor.tensor import Tensor
from mortice._types.shapes import numel
from mortice.errors import ArgumentError, DeviceError, DTypeError, InvalidValue, ShapeError

from .group import ProcessGroup
from .store.base import seconds


def tensor(value: Any, where: str, name: str) -> Tensor:
    """``value`` if it is a tensor with elements."""
    if not isinstance(value, Tensor):
        raise ArgumentError(f"{where}: {name} is a {type(value).__name__}; expected a Tensor.")
    if value.device.type == "meta":
        raise DeviceError(f"{where}: {name} is on device meta, and has no elements to send.")
    return value


def tensors(
    value: Any, where: str, name: str, like: Tensor, count: int, why: str = ""
) -> list[Tensor]:
    """A list of ``count`` tensors with the dtype and device of ``like``.

    With ``why``, which says the reason, each has as many elements as ``like``, too.
    """
    if not isinstance(value, (list, tuple)):
        raise ArgumentError(
            f"{where}: {name} is a {type(value).__name__}; expected a list of {count} tensors."
        )
    if len(value) != count:
        raise InvalidValue(
            f"{where}: {name} has {len(value)} tensors; expected {count}, one for each rank."
        )
    found = [tensor(one, where, f"{name}[{k}]") for k, one in enumerate(value)]
    for k, one in enumerate(found):
        same(one, like, where, f"{name}[{k}]")
        if why:
            sized(one, like.numel(), where, f"{name}[{k}]", why)
    return found


def of_the_root(value: Any, where: str, role: str, like: Tensor, group: ProcessGroup, root: int,
                why: str) -> list[Tensor]:  # fmt: skip
    """The list that the root alone gives, one tensor for each rank; empty on the others."""
    name = f"{where}_list"
    if group.rank() == root:
        return tensors(value, where, name, like, group.size(), why)
    if value:
        raise InvalidValue(f"{where}: {name} is for the rank {role} alone.")
    return []


def same(value: Tensor, like: Tensor, where: str, name: str) -> None:
    """Raise unless two tensors agree in dtype and device."""
    if value.dtype is not like.dtype:
        raise DTypeError(
            f"{where}: {name} is {value.dtype!r}, another one {like.dtype!r}; they must agree."
        )
    if value.device != like.device:
        raise DeviceError(
            f"{where}: {name} is on {value.device}, another one on {like.device}; they must agree."
        )


def sized(value: Tensor, count: int, where: str, name: str, why: str) -> None:
    """Raise unless a tensor has ``count`` elements."""
    if value.numel() != count:
        raise ShapeError(
            f"{where}: {name} has {value.numel()} elements ({list(value.shape)}); "
            f"expected {count}: {why}."
        )


def root(
    group: ProcessGroup, rank: int | None, group_rank: int | None, where: str, name: str
) -> int:
    """The rank in the group of ``src=`` or ``group_src=``."""
    if (rank is None) == (group_rank is None):
        if rank is None:
            raise InvalidValue(f"{where}: give {name} or group_{name}.")
        raise InvalidValue(f"{where}: give {name} or group_{name}, not both.")
    if group_rank is not None:
        group.global_rank(group_rank)  # checks it
        return group_rank
    assert rank is not None
    return group.group_rank(rank)


def limit(timeout: timedelta | float | None) -> float | None:
    return None if timeout is None else seconds(timeout)


def splits(
    given: Sequence[int] | None, value: Tensor, size: int, where: str, name: str
) -> tuple[int, ...]:
    """Elements per rank, from rows of the first dimension per rank; equal parts if not given."""
    rows = value.shape[0] if value.ndim else 1
    row = numel(tuple(value.shape)[1:])
    if not given:
        if rows % size:
            raise ShapeError(
                f"{where}: {name} has {rows} rows, which {size} ranks cannot share equally. Give "
                f"{name}_split_sizes."
            )
        return (rows // size * row,) * size
    if len(given) != size or any(n < 0 for n in given) or sum(given) != rows:
        raise ShapeError(
            f"{where}: {name}_split_sizes is {list(given)}; expected {size} numbers that add up "
            f"to the {rows} rows of {name}."
        )
    return tuple(n * row for n in given)
