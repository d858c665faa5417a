"""Losses. ``reduction`` is "none" (elementwise), "mean" or "sum"."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mortice
from mortice import Tensor
from mortice.errors import InvalidValue, RangeError, ShapeError
from mortice_nn import operators as op
from mortice_nn.functional.linear_maps import pairwise_distance

REDUCTIONS = {"none": 0, "mean": 1, "sum": 2}


def reduction_number(reduction: str) -> int:
    """The operators' number for ``reduction``."""
    try:
        return REDUCTIONS[reduction]
    except KeyError:
        raise InvalidValue(
            f"{reduction!r} is not a valid value for reduction; use none, mean or sum"
        ) from None


def _reduce(loss: Tensor, reduction: str) -> Tensor:
    if reduction == "mean":
        return loss.mean()
    if reduction == "sum":
        return loss.sum()
    if reduction == "none":
        return loss
    reduction_number(reduction)
    return loss


def legacy_reduction(reduction: str, size_average: bool | None, reduce: bool | None) -> str:
    """The ``reduction`` that the older pair of flags stands for; they win where given."""
    if size_average is None and reduce is None:
        return reduction
    import warnings

    chosen = "none" if reduce is False else ("sum" if size_average is False else "mean")
    warnings.warn(
        f"size_average and reduce are deprecated; pass reduction={chosen!r}", stacklevel=3
    )
    return chosen


def _same_shape(name: str, input: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Both broadcast to one shape, with a warning, for that is most often a mistake."""
    if input.shape == target.shape:
        return input, target
    import warnings

    warnings.warn(
        f"{name}: target size {tuple(target.shape)} differs from input size "
        f"{tuple(input.shape)}; broadcasting them likely gives wrong results",
        stacklevel=4,
    )
    first, second = mortice.broadcast_tensors(input, target)
    return first, second


def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Cross entropy of logits ``input`` (N, C, ...) or (C) with ``target``.

    ``target`` holds int64 classes (N, ...), or probabilities of input's shape and a floating
    dtype. ``weight`` (C) scales each class; targets equal to ``ignore_index`` do not count.
    """
    if size_average is not None or reduce is not None:
        reduction = legacy_reduction(reduction, size_average, reduce)
    number = REDUCTIONS.get(reduction)
    if number is None:
        number = reduction_number(reduction)
    return op.cross_entropy_loss(input, target, weight, number, ignore_index, label_smoothing)


def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Negative log likelihood: -input[n, target[n]] of log probabilities (N, C, ...) or (C)."""
    reduction = legacy_reduction(reduction, size_average, reduce)
    return op.nll_loss_nd(input, target, weight, reduction_number(reduction), ignore_index)


def mse_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """(input - target)^2; with ``weight`` the mean is the weighted one."""
    reduction = legacy_reduction(reduction, size_average, reduce)
    input, target = _same_shape("mse_loss", input, target)
    if weight is not None:
        return _weighted(op.mse_loss(input, target, 0), weight, reduction)
    return op.mse_loss(input, target, reduction_number(reduction))


def l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """|input - target|; with ``weight`` the mean is the weighted one."""
    reduction = legacy_reduction(reduction, size_average, reduce)
    input, target = _same_shape("l1_loss", input, target)
    if weight is not None:
        return _weighted(op.l1_loss(input, target, 0), weight, reduction)
    return op.l1_loss(input, target, reduction_number(reduction))


def _weighted(loss: Tensor, weight: Tensor, reduction: str) -> Tensor:
    if weight.shape != loss.shape:
        raise InvalidValue(
            f"the loss expects weight of input's shape {tuple(loss.shape)}, found "
            f"{tuple(weight.shape)}"
        )
    if reduction == "mean":
        return (loss * weight).sum() / weight.sum()
    return _reduce(loss * weight, reduction)


def smooth_l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    beta: float = 1.0,
) -> Tensor:
    """d^2 / (2 beta) where d = |input - target| < beta, else d - beta / 2."""
    reduction = legacy_reduction(reduction, size_average, reduce)
    input, target = _same_shape("smooth_l1_loss", input, target)
    number = reduction_number(reduction)
    if beta == 0.0:
        return op.l1_loss(input, target, number)
    return op.smooth_l1_loss(input, target, number, beta)


def huber_loss(
    input: Tensor,
    target: Tensor,
    reduction: str = "mean",
    delta: float = 1.0,
    weight: Tensor | None = None,
) -> Tensor:
    """d^2 / 2 where d = |input - target| <= delta, else delta (d - delta / 2)."""
    if delta <= 0:
        raise RangeError(f"huber_loss does not support non-positive values for delta: {delta}")
    input, target = _same_shape("huber_loss", input, target)
    if weight is not None:
        return _weighted(op.huber_loss(input, target, 0, delta), weight, reduction)
    return op.huber_loss(input, target, reduction_number(reduction), delta)


def binary_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """-(y log p + (1 - y) log(1 - p)) of probabilities p in [0, 1], each log at least -100."""
    reduction = legacy_reduction(reduction, size_average, reduce)
    if input.shape != target.shape:
        raise InvalidValue(
            f"binary_cross_entropy: a target of size {tuple(target.shape)} is different to the "
            f"input size {tuple(input.shape)}"
        )
    if weight is not None:
        weight = weight.expand(target.shape)
    return op.binary_cross_entropy(input, target, weight, reduction_number(reduction))


def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """Binary cross entropy of sigmoid(input), without overflow; ``pos_weight`` scales y = 1."""
    reduction = legacy_reduction(reduction, size_average, reduce)
    if input.shape != target.shape:
        raise InvalidValue(
            f"Target size ({tuple(target.shape)}) must be the same as input size "
            f"({tuple(input.shape)})"
        )
    number = reduction_number(reduction)
    return op.binary_cross_entropy_with_logits(input, target, weight, pos_weight, number)


def kl_div(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> Tensor:
    """target (log target - input), input being log probabilities.

    "batchmean" divides the sum by the first size, which is the mathematical definition.
    """
    if reduction == "batchmean":
        total = op.kl_div(input, target, REDUCTIONS["sum"], log_target=log_target)
        return total / input.shape[0] if input.ndim else total
    reduction = legacy_reduction(reduction, size_average, reduce)
    return op.kl_div(input, target, reduction_number(reduction), log_target=log_target)


def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    size_average: bool | None = None,
    eps: float = 1e-8,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """exp(x) - y x, or x - y log(x + eps); ``full`` adds Stirling's term for y > 1."""
    reduction = legacy_reduction(reduction, size_average, reduce)
    number = reduction_number(reduction)
    return op.poisson_nll_loss(input, target, log_input, full, eps, number)


def gaussian_nll_loss(
    input: Tensor,
    target: Tensor,
    var: Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """(log var + (input - target)^2 / var) / 2, var at least ``eps``.

    ``var`` has input's shape, or lacks its last dimension or has 1 there.
    """
    spread = mortice.full_like(input, var) if not isinstance(var, Tensor) else var
    if spread.shape != input.shape:
        if input.shape[:-1] == spread.shape:
            spread = spread.unsqueeze(-1)
        elif not (input.shape[:-1] == spread.shape[:-1] and spread.shape[-1] == 1):
            raise InvalidValue(
                f"gaussian_nll_loss: var of size {tuple(spread.shape)} does not fit input "
                f"{tuple(input.shape)}"
            )
    from mortice.backend import has_values  # for this one check, not on the way of importing nn

    if has_values(spread) and bool((spread < 0).any()):
        raise InvalidValue("gaussian_nll_loss: var has negative entries")
    reduction_number(reduction)
    # The floor is not part of the function being differentiated.
    clamped = spread + (spread.detach().clamp(min=eps) - spread.detach())
    loss = 0.5 * (clamped.log() + (input - target).square() / clamped)
    if full:
        loss = loss + 0.9189385332046727  # log(2 pi) / 2
    return _reduce(loss, reduction)


def hinge_embedding_loss(
    input: Tensor,
    target: Tensor,
    margin: float = 1.0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """x where y = 1, max(0, margin - x) where y = -1."""
    reduction = legacy_reduction(reduction, size_average, reduce)
    return op.hinge_embedding_loss(input, target, margin, reduction_number(reduction))


def margin_ranking_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """max(0, -y (x1 - x2) + margin)."""
    reduction = legacy_reduction(reduction, size_average, reduce)
    return op.margin_ranking_loss(input1, input2, target, margin, reduction_number(reduction))


def soft_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """log(1 + exp(-y x))."""
    reduction = legacy_reduction(reduction, size_average, reduce)
    return op.soft_margin_loss(input, target, reduction_number(reduction))


def cosine_embedding_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """1 - cos(x1, x2) where y = 1, max(0, cos - margin) where y = -1."""
    reduction = legacy_reduction(reduction, size_average, reduce)
    return op.cosine_embedding_loss(input1, input2, target, margin, reduction_number(reduction))


def multi_margin_loss(
    input: Tensor,
    target: Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Mean over classes i != y of max(0, margin - x[y] + x[i])^p, scaled by weight[y]."""
    reduction = legacy_reduction(reduction, size_average, reduce)
    reduction_number(reduction)
    if p not in (1, 2):
        raise InvalidValue(f"multi_margin_loss: only p == 1 and p == 2 supported, found {p}")
    if weight is not None and weight.ndim != 1:
        raise InvalidValue(
            f"multi_margin_loss: weight must be one-dimensional, found {tuple(weight.shape)}"
        )
    if weight is not None and weight.numel() != input.shape[-1]:
        raise ShapeError(
            f"multi_margin_loss: inconsistent weight size, expected {input.shape[-1]} entries, one per "
            f"class, found {weight.numel()}"
        )
    return op.multi_margin_loss(input, target, p, margin, weight, reduction_number(reduction))


def multilabel_soft_margin_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Mean over classes of binary cross entropy with logits."""
    reduction = legacy_reduction(reduction, size_average, reduce)
    loss = binary_cross_entropy_with_logits(input, target, reduction="none")
    if weight is not None:
        loss = loss * weight
    return _reduce(loss.mean(-1), reduction)


def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    swap: bool = False,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """max(0, d(a, p) - d(a, n) + margin) of p-norm distances; ``swap``: n may be nearer to p."""
    reduction = legacy_reduction(reduction, size_average, reduce)
    if margin <= 0:
        raise InvalidValue(f"triplet loss: margin must be greater than 0, got {margin}")
    number = reduction_number(reduction)
    return op.triplet_margin_loss(anchor, positive, negative, margin, p, eps, swap, number)


def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """As triplet_margin_loss with any distance (pairwise_distance by default)."""
    distance: Any = pairwise_distance if distance_function is None else distance_function
    return _triplet(anchor, positive, negative, distance, margin, swap, reduction)


def _triplet(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    distance: Callable[[Tensor, Tensor], Tensor],
    margin: float,
    swap: bool,
    reduction: str,
) -> Tensor:
    if margin <= 0:
        raise InvalidValue(f"triplet loss: margin must be greater than 0, got {margin}")
    near = distance(anchor, positive)
    far = distance(anchor, negative)
    if swap:
        far = mortice.minimum(far, distance(positive, negative))
    return _reduce((near - far + margin).clamp(min=0), reduction)


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """Connectionist temporal classification (Graves et al. 2006).

    ``log_probs`` (T, N, C) or (T, C); ``targets`` (N, S) or all targets concatenated; lengths (N).
    """
    from mortice_nn.functional.ctc import ctc

    loss, lengths = ctc(log_probs, targets, input_lengths, target_lengths, blank)
    if zero_infinity:
        loss = mortice.where(loss == float("inf"), mortice.zeros_like(loss), loss)
    if reduction == "mean":
        return (loss / lengths.clamp(min=1).to(loss.dtype)).mean()
    return _reduce(loss, reduction)
