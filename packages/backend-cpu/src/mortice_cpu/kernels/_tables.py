"""Tables of vectors looked up by row: embeddings, bags of them, one-hot."""

from __future__ import annotations

from typing import Any

import numpy as np

import mortice
from mortice.backend import shape_rule, wrap
from mortice.errors import DimensionError, DTypeError, ShapeError
from mortice_cpu.kernels._elementwise import row_major
from mortice_cpu.kernels._places import add_rows, checked_rule, comparable


def embedding(weight: Any, indices: Any, padding_idx: int, scale: bool, sparse: bool) -> Any:
    table, at = weight._a, indices._a
    if table.ndim != 2 or at.dtype.kind != "i":
        checked_rule("embedding", weight, indices, padding_idx, scale, sparse)
    _rows_in_bounds(at, table.shape[0])
    return wrap(np.take(table, at, 0), weight._t)


def _rows_in_bounds(at: Any, n: int) -> None:
    if at.size and (at.min() < 0 or at.max() >= n):
        bad = int(at[(at < 0) | (at >= n)].flat[0])
        raise DimensionError(
            f"index out of range in self: index {bad} for a table of {n} rows. Indices must be at "
            f"least 0 and below {n}."
        )


def embedding_dense_backward(
    grad_output: Any, indices: Any, num_weights: int, padding_idx: int, scale: bool
) -> Any:
    g, at = grad_output._a, indices._a.reshape(-1)
    out = np.zeros((num_weights, g.shape[-1]), g.dtype)
    rows = g.reshape(at.shape[0], g.shape[-1])
    _rows_in_bounds(at, num_weights)
    if padding_idx >= 0:
        kept = at != padding_idx
        at, rows = at[kept], rows[kept]
    if scale and at.size:
        counts = np.bincount(at, minlength=num_weights)
        rows = (rows / counts[at][:, None]).astype(g.dtype)
    add_rows(out, at, rows)
    return wrap(out, grad_output._t)


def embedding_renorm_(self: Any, indices: Any, max_norm: float, norm_type: float) -> Any:
    table = self._a
    rows = np.unique(indices._a)
    _rows_in_bounds(rows, table.shape[0])
    picked = table[rows].astype(np.float64)
    norms = np.linalg.norm(picked, norm_type, axis=1, keepdims=True) if rows.size else picked
    scale = np.where(norms > max_norm, max_norm / (norms + 1e-7), 1.0)
    table[rows] = (picked * scale).astype(table.dtype)
    return self


def embedding_bag(
    weight: Any, indices: Any, offsets: Any, scale: bool, mode: int, sparse: bool,
    per_sample_weights: Any, include_last_offset: bool, padding_idx: int,
) -> Any:  # fmt: skip
    (shape, _), *_ = shape_rule("_embedding_bag")(
        weight,
        indices,
        offsets,
        scale,
        mode,
        sparse,
        per_sample_weights,
        include_last_offset,
        padding_idx,
    )
    table, at, starts = weight._a, indices._a, offsets._a
    _rows_in_bounds(at, table.shape[0])
    n, bags = at.shape[0], shape[0]
    _check_offsets(starts, n)
    ends = starts[1 : bags + 1] if include_last_offset else np.r_[starts[1:bags], n][:bags]
    owner = np.repeat(np.arange(bags), np.maximum(ends - starts[:bags], 0)).astype(at.dtype)
    kept = at != padding_idx if padding_idx >= 0 else np.ones(n, bool)
    sizes = np.bincount(owner[kept], minlength=bags).astype(at.dtype)
    if mode == 2:
        out, most = _bag_max(table, at, owner, kept, bags)
    else:
        rows = table[at].astype(np.float32 if table.dtype.itemsize < 4 else table.dtype)
        if per_sample_weights is not None:
            rows = rows * per_sample_weights._a[:, None]
        out = np.zeros(shape, rows.dtype)
        add_rows(out, owner[kept], rows[kept])
        if mode == 1:
            out /= np.maximum(sizes, 1)[:, None].astype(out.dtype)
        most = np.zeros(bags, at.dtype) if mode == 0 else sizes
    index_type = indices._t
    if mode == 0:
        # As PyTorch's: a sum needs neither sizes nor, on its fast path, the owners.
        sizes = np.zeros_like(sizes)
        if padding_idx < 0 and table.dtype.itemsize <= 4 and table.strides[-1] == table.itemsize:
            owner = owner[:0]
    return (
        wrap(out.astype(table.dtype, copy=False), weight._t), wrap(owner, index_type),
        wrap(sizes, index_type), wrap(most, index_type),
    )  # fmt: skip


def _check_offsets(starts: Any, n: int) -> None:
    if starts.size and starts[0] != 0:
        raise ShapeError(
            f"offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from position 0. However, got {int(starts[0])}"
        )
    if starts.size and starts[-1] > n:
        raise ShapeError(
            f"offsets[-1] can not be greater than input's length({n}) but got offsets[-1] of {int(starts[-1])}"
        )


def _bag_max(table: Any, at: Any, owner: Any, kept: Any, bags: int) -> Any:
    out = np.zeros((bags, table.shape[1]), table.dtype)
    most = np.zeros((bags, table.shape[1]), at.dtype)  # of empty bags 0, as PyTorch's
    for bag in range(bags):
        rows = at[(owner == bag) & kept]
        if rows.size:
            best = np.argmax(comparable(table[rows]), axis=0)
            most[bag] = rows[best]
            out[bag] = table[most[bag], np.arange(table.shape[1])]
    return out, most


def one_hot(self: Any, num_classes: int) -> Any:
    if self._t is not mortice.int64:
        raise DTypeError(
            f"one_hot is only applicable to index tensor of type LongTensor, not {self._t!r}."
        )
    a = self._a
    if not a.size:
        if num_classes <= 0:
            raise ShapeError("Can not infer total number of classes from empty tensor.")
        return wrap(np.empty((*a.shape, num_classes), np.int64), mortice.int64)
    if a.min() < 0:
        raise ShapeError("Class values must be non-negative.")
    top = int(a.max()) + 1
    if num_classes == -1:
        num_classes = top
    elif num_classes < 1:
        raise ShapeError("num_classes should be positive")
    elif num_classes < top:
        raise ShapeError("Class values must be smaller than num_classes.")
    return wrap((a[..., None] == np.arange(num_classes)).astype(np.int64), mortice.int64)


TABLES = {
    "embedding": embedding,
    "embedding_dense_backward": embedding_dense_backward,
    "embedding_renorm_": embedding_renorm_,
    "_embedding_bag": embedding_bag,
    "one_hot": row_major(one_hot),
}
