"""default_collate and default_convert: from samples to tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import mortice
from mortice import Tensor
from mortice.errors import ArgumentError, ShapeError


def default_collate(batch: Any) -> Any:
    """Samples to one batch: tensors, arrays and numbers gain a first dimension.

    Mappings, tuples and sequences are collated entry by entry (tuples to lists, named tuples to
    their own type); strings and bytes stay a list, or a tuple where the samples are sequences.
    """
    first = batch[0]
    if isinstance(first, Tensor):
        return mortice.stack(list(batch), 0)
    if isinstance(first, np.ndarray):
        _check_array(first)
        return mortice.stack([mortice.as_tensor(sample) for sample in batch], 0)
    if isinstance(first, np.generic):
        return mortice.as_tensor(np.stack(batch))
    if isinstance(first, bool):
        return mortice.tensor(batch)
    if isinstance(first, float):
        return mortice.tensor(batch, dtype=mortice.float64)
    if isinstance(first, int):
        return mortice.tensor(batch)
    if isinstance(first, (str, bytes)):
        return batch
    if isinstance(first, Mapping):
        keys: Any = first.keys()  # pyright: ignore[reportUnknownMemberType]
        collated = {key: default_collate([sample[key] for sample in batch]) for key in keys}
        return _rebuild_mapping(first, collated)
    if isinstance(first, Sequence):
        lengths = {len(sample) for sample in batch}
        if len(lengths) > 1:
            raise ShapeError(
                f"each element in list of batch should be of equal size; found {sorted(lengths)}"
            )
        columns = [
            column if isinstance(column[0], (str, bytes)) else default_collate(list(column))
            for column in zip(*batch, strict=True)
        ]
        return _rebuild_sequence(first, columns)  # pyright: ignore[reportUnknownArgumentType]
    raise ArgumentError(
        "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found "
        f"{type(first).__name__}; pass a collate_fn"
    )


def default_convert(data: Any) -> Any:
    """Arrays to tensors, through mappings and sequences; anything else as it is."""
    if isinstance(data, Tensor):
        return data
    if isinstance(data, np.ndarray) and data.dtype.kind not in "USO":
        return mortice.as_tensor(data)
    if isinstance(data, np.generic) and data.dtype.kind not in "USO":
        return mortice.as_tensor(np.asarray(data))
    if isinstance(data, Mapping):
        items: Any = data.items()  # pyright: ignore[reportUnknownMemberType]
        return _rebuild_mapping(data, {key: default_convert(value) for key, value in items})
    if isinstance(data, tuple) and not hasattr(data, "_fields"):
        return [default_convert(value) for value in data]  # pyright: ignore
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        values: Any = data
        return _rebuild_sequence(data, [default_convert(value) for value in values])
    return data


def _rebuild_mapping(like: Any, values: dict[Any, Any]) -> Any:
    if type(like) is dict:
        return values
    try:
        copy: Callable[..., Any] = type(like)
        return copy(values)
    except TypeError:
        # a mapping whose constructor takes something else
        return values


def _rebuild_sequence(like: Any, values: list[Any]) -> Any:
    if isinstance(like, tuple):
        fields = hasattr(like, "_fields")
        return type(like)(*values) if fields else values  # pyright: ignore
    if type(like) is list:
        return values
    try:
        return type(like)(values)
    except TypeError:
        # range and its like cannot be made of values
        return values


def _check_array(array: Any) -> None:
    if array.dtype.kind in "USO":
        raise ArgumentError(
            f"default_collate: numpy arrays of dtype {array.dtype} have no tensor; pass a collate_fn"
        )
