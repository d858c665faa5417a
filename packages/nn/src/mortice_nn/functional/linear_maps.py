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
    _, in1, in2 = weight.shape
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
        offsets = mortice.arange(0, bags * length, length, device=input.device)
        input = input.reshape(-1)
        if per_sample_weights is not None:
            per_sample_weights = per_sample_weights.reshape(-1)
    elif input.ndim == 1 and offsets is None:
        raise InvalidValue("embedding_bag: a 1-d input needs offsets, where each bag starts")
    elif input.ndim != 1:
        raise InvalidValue(f"embedding_bag expects a 1-d or 2-d input, found {input.ndim}-d")
    if max_norm is not None:
        _renormalize_rows(weight, input, max_norm, norm_type)
    number = EMBEDDING_BAG_MODES.index(mode)
    common = (weight, input, offsets, scale_grad_by_freq, number, sparse, per_sample_weights)
    if padding_idx is not None:
        padding_idx = _padding_index(padding_idx, weight.shape[0])
    return op.embedding_bag(*common, include_last_offset, padding_idx)[0]


def _padding_index(padding_idx: int, rows: int) -> int:
    """``padding_idx`` counted from the front."""
    if not -rows <= padding_idx < rows:
        raise InvalidValue(
            f"padding_idx must be within num_embeddings: found {padding_idx} for {rows} rows"
        )
    return padding_idx % rows


def _renormalize_rows(weight: Tensor, input: Tensor, max_norm: float, norm_type: float) -> None:
    with mortice.no_grad():
        op.embedding_renorm_(weight, input.reshape(-1).contiguous(), max_norm, norm_type)


def p_norm(x: Tensor, p: float, dim: int, keepdim: bool = False) -> Tensor:
    """||x||_p along ``dim``."""
    return op.linalg_vector_norm(x, p, [dim], keepdim)


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """Integer classes (*) -> int64 (*, num_classes); -1 infers the largest class + 1."""
    return op.one_hot(tensor, num_classes)


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
    return op.cosine_similarity(x1, x2, dim, eps)


def pairwise_distance(
    x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Tensor:
    """||x1 - x2 + eps||_p along the last dimension."""
    return op.pairwise_distance(x1, x2, p, eps, keepdim)


def pdist(input: Tensor, p: float = 2.0) -> Tensor:
    """Distances of all pairs of rows i < j of ``input`` (n, d) -> (n (n - 1) / 2)."""
    return op.pdist(input, p)
