"""What the kernels that read and write by position share."""

from __future__ import annotations

from typing import Any

import numpy as np

from mortice.backend import shape_rule
from mortice.errors import DimensionError

_LONG_ROW = 64


def explain(shape: Any, key: Any) -> None:
    """DimensionError for the first position out of bounds."""
    for d, index in enumerate(key):
        if isinstance(index, np.ndarray) and index.size:
            bad = index[(index < -shape[d]) | (index >= shape[d])]
            if bad.size:
                raise DimensionError(
                    f"index {int(bad.flat[0])} is out of bounds for dimension {d} with size {shape[d]}"
                ) from None


def checked_rule(name: str, *args: Any) -> None:
    """The shape rule's error, if the arguments deserve one."""
    shape_rule(name)(*args)


def add_at(target: Any, key: Any, values: Any) -> None:
    """``np.add.at``, in float32 for the dtypes that lack it."""
    if target.dtype.kind == "V" or target.dtype == np.float16:
        wide = target.astype(np.float32)
        np.add.at(wide, key, values.astype(np.float32))
        target[...] = wide.astype(target.dtype)
    else:
        np.add.at(target, key, values)


def add_rows(target: Any, rows: Any, values: Any) -> None:
    """``target[rows[i]] += values[i]`` for repeating rows.

    Row by row where rows are long (1 us a row, and 0.5 ns an element); short rows through flat
    positions, since ``np.add.at`` is quick (6 ns an element) on one dimension alone.
    """
    n = target.shape[0]
    if not rows.size or not values.size:
        return
    if rows.min() < -n or rows.max() >= n:
        explain(target.shape, (rows,))
    if target.dtype.kind == "b":
        np.logical_or.at(target, rows, values)
        return
    if rows.min() < 0:
        rows = np.where(rows < 0, rows + n, rows)
    small = target.dtype.kind == "V" or target.dtype == np.float16
    work = target.astype(np.float32) if small else target
    if small:
        values = values.astype(np.float32)
    with np.errstate(all="ignore"):
        if work[0].size >= _LONG_ROW:
            for row, value in zip(rows.tolist(), values):
                into = work[row]
                np.add(into, value, out=into)
        elif work.flags.c_contiguous:
            width = work[0].size
            places = (rows[:, None] * width + np.arange(width)).reshape(-1)
            np.add.at(work.reshape(-1), places, values.reshape(-1))
        else:
            np.add.at(work, rows, values)
    if small:
        target[...] = work.astype(target.dtype)


def comparable(a: Any) -> Any:
    """An array that numpy sorts: ml_dtypes widened."""
    return a.astype(np.float32) if a.dtype.kind == "V" else a


def wrapped_dim(dim: int, ndim: int) -> int:
    n = ndim or 1
    if not -n <= dim < n:
        raise DimensionError(
            f"Dimension out of range (expected to be in range of [{-n}, {n - 1}], but got {dim})"
        )
    return dim % n
