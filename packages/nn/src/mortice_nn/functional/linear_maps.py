"""Linear maps, embeddings and distances."""

from __future__ import annotations

import mortice
from mortice import Tensor
from mortice.errors import InvalidValue, ShapeError
from mortice_nn import operators as op

EMBEDDING_BAG_MODES = ("sum", "mean", "max")


def linear(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, *, out: Tensor | None = None
) -> Tensor:
    """input (*, in) @ weight (out, in).T + bias (out) -> (*, out)."""
    if out is not None:
        return op.linear(input, weight, bias, out=out)
    return op.linear(input, weight, bias)


def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """y[k] = x1 (*, in1) @ weight[k] (out, in1, in2) @ x2 (*, in2) + bias[k] -> (*, out)."""
    if input1.shape[:-1] != input2.shape[:-1]:
        raise ShapeError(
            "bilinear expects equal sizes in all but the last dimension, found "
            f"{tuple(input1.shape)} and {tuple(input2.shape)}"
        )
    out, in1, in2 = weight.shape
    if input1.shape[-1] != in1 or input2.shape[-1] != in2:
        raise ShapeError(
            f"bilinear with weight {tuple(weight.shape)} expects last dimensions {in1} and {in2}, "
            f"found {input1.shape[-1]} and {input2.shape[-1]}"
        )
    return op.bilinear(input1, input2, weight, bias)


def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Rows of ``weight`` (n, d) at the integer indices ``input`` (*) -> (*, d).

    The row ``padding_idx`` gets no gradient. With ``max_norm``, rows that are looked up and longer
    than it are shortened in place first.
    """
    index = -1 if padding_idx is None else _padding_index(padding_idx, weight.shape[0])
    if max_norm is not None:
        _renormalize_rows(weight, input, max_norm, norm_type)
    return op.embedding(weight, input, index, scale_grad_by_freq, sparse)


def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """Sum, mean or max over bags of rows of ``weight``.

    ``input`` (bags, length), or (n) with ``offsets`` (bags) where each bag starts. Rows equal to
    ``padding_idx`` do not count. ``per_sample_weights``, of input's shape, go with "sum" only.
    Returns (bags, d).
    """
    if mode not in EMBEDDING_BAG_MODES:
        raise InvalidValue(f"embedding_bag: mode must be sum, mean or max, found {mode!r}")
    if per_sample_weights is not None and mode != "sum":
        raise NotImplementedError(
            f"embedding_bag: per_sample_weights is only supported for mode='sum', found {mode!r}"
        )
    if per_sample_weights is not None and per_sample_weights.shape != input.shape:
        raise InvalidValue(
            f"embedding_bag expects per_sample_weights of the input's shape {tuple(input.shape)}, "
            f"found {tuple(per_sample_weights.shape)}"
        )
    if input.ndim == 2:
        if offsets is not None:
            raise InvalidValue("embedding_bag: a 2-d input has its bags as rows; omit offsets")
        bags, length = input.shape
        bag_of = mortice.arange(bags, device=input.device).unsqueeze(1).expand(bags, length)
        bag_of = bag_of.reshape(-1)
        input = input.reshape(-1)
        if per_sample_weights is not None:
            per_sample_weights = per_sample_weights.reshape(-1)
    elif input.ndim == 1:
        if offsets is None:
            raise InvalidValue("embedding_bag: a 1-d input needs offsets, where each bag starts")
        bags = offsets.shape[0] - (1 if include_last_offset else 0)
        bag_of = _bag_numbers(input, offsets[:bags])
    else:
        raise InvalidValue(f"embedding_bag expects a 1-d or 2-d input, found {input.ndim}-d")
    if max_norm is not None:
        _renormalize_rows(weight, input, max_norm, norm_type)
    if padding_idx is not None:
        kept = (input != _padding_index(padding_idx, weight.shape[0])).nonzero().squeeze(1)
        input, bag_of = input[kept], bag_of[kept]
        if per_sample_weights is not None:
            per_sample_weights = per_sample_weights[kept]
    rows = op.embedding(weight, input, -1, scale_grad_by_freq, sparse)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(1)
    return _reduce_bags(rows, bag_of, bags, mode)


def _bag_numbers(input: Tensor, offsets: Tensor) -> Tensor:
    """For each index the number of its bag: how many bags have started by then, minus 1."""
    starts = mortice.zeros(input.shape[0] + 1, dtype=mortice.int64, device=input.device)
    ones = mortice.ones(offsets.shape[0], dtype=mortice.int64, device=input.device)
    starts = starts.scatter_add(0, offsets.to(mortice.int64), ones)
    return starts[:-1].cumsum(0) - 1


def _reduce_bags(rows: Tensor, bag_of: Tensor, bags: int, mode: str) -> Tensor:
    zeros = mortice.zeros(bags, rows.shape[1], dtype=rows.dtype, device=rows.device)
    index = bag_of.unsqueeze(1).expand(-1, rows.shape[1])
    if mode == "max":
        return zeros.scatter_reduce(0, index, rows, "amax", include_self=False)
    total = zeros.scatter_add(0, index, rows)
    if mode == "sum":
        return total
    ones = mortice.ones(rows.shape[0], dtype=rows.dtype, device=rows.device)
    count = mortice.zeros(bags, dtype=rows.dtype, device=rows.device).scatter_add(0, bag_of, ones)
    return total / count.clamp(min=1).unsqueeze(1)


def _padding_index(padding_idx: int, rows: int) -> int:
    """``padding_idx`` counted from the front."""
    if not -rows <= padding_idx < rows:
        raise InvalidValue(
            f"padding_idx must be within num_embeddings: found {padding_idx} for {rows} rows"
        )
    return padding_idx % rows


def _renormalize_rows(weight: Tensor, input: Tensor, max_norm: float, norm_type: float) -> None:
    with mortice.no_grad():
        # A row that is looked up twice is written twice with the same values.
        index = input.reshape(-1)
        rows = weight.index_select(0, index)
        norms = p_norm(rows, norm_type, 1, keepdim=True)
        # 1e-7 is the reference's guard against division by zero; it shows in the last bits.
        scale = mortice.where(norms > max_norm, max_norm / (norms + 1e-7), mortice.ones_like(norms))
        weight[index] = rows * scale


def p_norm(x: Tensor, p: float, dim: int, keepdim: bool = False) -> Tensor:
    """||x||_p along ``dim``."""
    return op.linalg_vector_norm(x, p, [dim], keepdim)


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """Integer classes (*) -> int64 (*, num_classes); -1 infers the largest class + 1."""
    if tensor.dtype != mortice.int64:
        raise InvalidValue(f"one_hot is only applicable to int64 index tensors, not {tensor.dtype}")
    if tensor.numel():
        low, high = int(tensor.min().item()), int(tensor.max().item())
        if num_classes == -1:
            num_classes = high + 1
        if low < 0 or high >= num_classes:
            raise InvalidValue(
                f"one_hot: class values must be from 0 to {num_classes - 1}, found {low} to {high}"
            )
    elif num_classes <= 0:
        raise InvalidValue("one_hot cannot infer num_classes from an empty tensor; pass it")
    result = mortice.zeros(*tensor.shape, num_classes, dtype=mortice.int64, device=tensor.device)
    return result.scatter_(-1, tensor.unsqueeze(-1), 1)


def normalize(
    input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: Tensor | None = None
) -> Tensor:
    """x / max(||x||_p, eps) along ``dim``."""
    norm = p_norm(input, p, dim, keepdim=True).clamp(min=eps)
    if out is None:
        return input / norm
    return mortice.div(input, norm, out=out)


def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """x1 . x2 / (||x1|| ||x2||) along ``dim``, each norm at least ``eps``."""
    norm1 = p_norm(x1, 2, dim, keepdim=True).clamp(min=eps)
    norm2 = p_norm(x2, 2, dim, keepdim=True).clamp(min=eps)
    return ((x1 / norm1) * (x2 / norm2)).sum(dim)


def pairwise_distance(
    x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Tensor:
    """||x1 - x2 + eps||_p along the last dimension."""
    return p_norm(x1 - x2 + eps, p, -1, keepdim)


def pdist(input: Tensor, p: float = 2.0) -> Tensor:
    """Distances of all pairs of rows i < j of ``input`` (n, d) -> (n (n - 1) / 2)."""
    n = input.shape[0]
    number = mortice.arange(n, device=input.device)
    pairs = (number.unsqueeze(1) < number).nonzero()
    return p_norm(input[pairs[:, 0]] - input[pairs[:, 1]], p, -1)
