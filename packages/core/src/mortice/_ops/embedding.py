"""Embeddings: shape rules, bodies and gradients. Declared in ``indexing.yaml``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mortice._base.errors import DTypeError, ShapeError
from mortice._ops.formulas import call, zeros

_INTEGERS = ("int64", "int32")
SUM, MEAN, MAX = range(3)


def embedding(weight: Any, indices: Any, padding_idx: int, scale: bool, sparse: bool) -> Any:
    if weight.ndim != 2:
        raise ShapeError("'weight' must be 2-D")
    _indices(indices, "embedding")
    return (*tuple(indices._a.shape), weight._a.shape[1]), weight._t


def _indices(indices: Any, name: str) -> None:
    if indices._t.name not in _INTEGERS:
        raise DTypeError(
            f"{name}(): Expected tensor for argument 'indices' to have one of the following scalar "
            f"types: Long, Int; but got {indices._t!r} instead. Convert with .long()."
        )


def embedding_backward(
    grad: Any, indices: Any, num_weights: int, padding_idx: int, scale: bool, sparse: bool
) -> Any:
    """The dense gradient; ``sparse`` is accepted and gives the same numbers."""
    return call("embedding_dense_backward", grad, indices, num_weights, padding_idx, scale)


def embedding_dense_backward(
    grad_output: Any, indices: Any, num_weights: int, padding_idx: int, scale: bool
) -> Any:
    _indices(indices, "embedding_backward")
    return (num_weights, grad_output._a.shape[-1]), grad_output._t


def embedding_dense_double_backward(
    grad: Any, indices: Any, padding_idx: int, scale: bool, shape: Sequence[int]
) -> Any:
    if scale:
        from mortice._base.errors import AutogradError

        raise AutogradError("double backward not supported with scale_grad_by_freq")
    picked = call("index_select", grad, 0, call("reshape", indices, (-1,)))
    picked = call("reshape", picked, tuple(shape))
    if padding_idx < 0:
        return picked
    return picked.masked_fill((indices == padding_idx).unsqueeze(-1), 0)


# -- bags ------------------------------------------------------------------------------------------


def embedding_bag(
    weight: Any,
    indices: Any,
    offsets: Any,
    scale: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: Any,
    include_last_offset: bool,
    padding_idx: int,
) -> Any:
    """Shapes of output, offset2bag, bag_size and max_indices."""
    _indices(indices, "embedding_bag")
    _indices(offsets, "embedding_bag")
    if indices.ndim != 1 or offsets.ndim != 1:
        raise ShapeError("embedding_bag: indices and offsets must be 1-D tensors")
    if per_sample_weights is not None and mode != SUM:
        raise ShapeError("embedding_bag: per_sample_weights only supported with mode='sum'")
    bags = offsets._a.shape[0] - (1 if include_last_offset else 0)
    if bags < 0:
        raise ShapeError(
            "embedding_bag: include_last_offset: number of offsets should be at least 1"
        )
    width = weight._a.shape[1]
    most = (bags, width) if mode == MAX else (bags,)
    kind = indices._t
    if mode == SUM and padding_idx < 0 and weight._t.itemsize <= 4 and weight.stride()[1] == 1:
        # PyTorch's fast path for sums leaves the owners out; the gradient finds them again.
        return [((bags, width), weight._t), ((0,), kind), ((bags,), kind), (most, kind)]
    return [
        ((bags, width), weight._t),
        ((indices._a.shape[0],), kind),
        ((bags,), kind),
        (most, kind),
    ]


def embedding_bag_forward_only(*args: Any) -> Any:
    return call("_embedding_bag", *args)


def embedding_bag_public(*args: Any) -> Any:
    return call("_embedding_bag", *args, -1)


def embedding_bag_padded(
    weight: Any,
    indices: Any,
    offsets: Any,
    scale: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: Any,
    include_last_offset: bool,
    padding_idx: int | None,
) -> Any:
    n = weight._a.shape[0]
    position = -1
    if padding_idx is not None:
        if not -n <= padding_idx < n:
            raise ShapeError(
                f"padding_idx must be within the number of embeddings, -{n} through {n - 1}, but "
                f"got {padding_idx}"
            )
        position = padding_idx % n
    return call(
        "_embedding_bag", weight, indices, offsets, scale, mode, sparse, per_sample_weights,
        include_last_offset, position,
    )  # fmt: skip


def _owners(bags: Any, indices: Any, offsets: Any, count: int) -> Any:
    """The bag of each index, where the forward left that out."""
    n = indices._a.shape[0]
    if bags._a.shape[0] == n:
        return bags
    at = call("arange.start_step", 0, n, 1, offsets._t, None, offsets.device, None)
    found = call("searchsorted.Tensor", offsets, at, False, True, None, None)
    return (found - 1).clamp(0, count - 1).to(indices._t)


def embedding_bag_weight_grad(
    grad: Any, indices: Any, offsets: Any, bags: Any, sizes: Any, most: Any, num_weights: int,
    scale: bool, mode: int, per_sample_weights: Any, padding_idx: int,
) -> Any:  # fmt: skip
    if mode == MAX:
        width = grad._a.shape[1]
        kept = (sizes > 0).to(grad._t).unsqueeze(1)
        target = zeros((num_weights, width), grad._t, grad.device)
        return call("scatter_add", target, 0, most.clamp_min(0).to(_long()), grad * kept)
    bags = _owners(bags, indices, offsets, grad._a.shape[0])
    rows = call("index_select", grad, 0, bags)
    if mode == MEAN:
        count = call("index_select", sizes, 0, bags).clamp_min(1)
        rows = rows / count.unsqueeze(1)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(1)
    return call("embedding_dense_backward", rows, indices, num_weights, padding_idx, scale)


def embedding_bag_sample_grad(
    grad: Any, weight: Any, indices: Any, offsets: Any, bags: Any, mode: int, padding_idx: int
) -> Any:
    bags = _owners(bags, indices, offsets, grad._a.shape[0])
    rows = call("index_select", weight, 0, indices)
    out = (call("index_select", grad, 0, bags) * rows).sum(1)
    return out if padding_idx < 0 else out.masked_fill(indices == padding_idx, 0)


def _long() -> Any:
    from mortice._types import dtypes

    return dtypes.int64


__all__ = [name for name in dir() if not name.startswith("_")]
