"""Connectionist temporal classification by the forward recursion in log space."""

from __future__ import annotations

from typing import Any

import mortice
from mortice import Tensor
from mortice.errors import ShapeError

# Stands for log 0: low enough to vanish, finite so that differences and gradients are.
LOG_ZERO = -1e30


def ctc(
    log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any, blank: int
) -> tuple[Tensor, Tensor]:
    """Loss of each sample (N, or 0-d unbatched) and the target lengths.

    Graves et al. 2006, equations 5 to 8: alpha over the target with blanks between its labels.
    """
    batched = log_probs.ndim == 3
    logp = log_probs if batched else log_probs.unsqueeze(1)
    steps, n, _ = logp.shape
    in_lengths = _lengths(input_lengths, n)
    out_lengths = _lengths(target_lengths, n)
    labels = _padded(targets, out_lengths, n, blank)
    width = 2 * labels.shape[1] + 1
    extended = mortice.full((n, width), blank, dtype=mortice.int64, device=logp.device)
    extended[:, 1::2] = labels
    # A label may be reached over the blank before it unless it repeats the label before that.
    skip = mortice.zeros(n, width, dtype=mortice.bool, device=logp.device)
    skip[:, 2:] = (extended[:, 2:] != blank) & (extended[:, 2:] != extended[:, :-2])
    low = mortice.full((n, 2), LOG_ZERO, dtype=logp.dtype, device=logp.device)
    emit = logp[0].gather(1, extended)
    start = mortice.arange(width, device=logp.device) < 2
    alpha = mortice.where(start, emit, mortice.full_like(emit, LOG_ZERO))
    history = [alpha]
    for step in range(1, steps):
        one = mortice.cat([low[:, :1], alpha[:, :-1]], 1)
        two = mortice.cat([low, alpha[:, :-2]], 1)[:, :width]
        two = mortice.where(skip, two, mortice.full_like(two, LOG_ZERO))
        alpha = _logaddexp3(alpha, one, two) + logp[step].gather(1, extended)
        history.append(alpha)
    stacked = mortice.stack(history, 1)  # (N, T, width)
    losses = [
        _sample_loss(stacked[i, in_lengths[i] - 1], out_lengths[i], in_lengths[i]) for i in range(n)
    ]
    total = _softmax_part(logp, in_lengths)
    losses = [loss + total[i] for i, loss in enumerate(losses)]
    lengths = mortice.tensor(out_lengths, dtype=mortice.int64, device=logp.device)
    if not batched:
        return losses[0], lengths[0]
    return mortice.stack(losses), lengths


def _softmax_part(logp: Tensor, lengths: list[int]) -> Tensor:
    """Zeros (N,) whose gradient is exp(logp) within each sample's length.

    The usual CTC gradient, which PyTorch gives, is that for the logits before a log_softmax: it has
    this term beside the derivative proper, and the log_softmax's own backward cancels it.
    """
    steps, _, _ = logp.shape
    within = mortice.arange(steps, device=logp.device).unsqueeze(1) < mortice.tensor(
        lengths, device=logp.device
    )
    part = (logp.exp() * within.unsqueeze(-1).to(logp.dtype)).sum(-1).sum(0)
    return part - part.detach()


def _sample_loss(alpha: Tensor, length: int, steps: int) -> Tensor:
    """-log of the two ends: the last label, and the blank after it."""
    end = alpha[2 * length]
    if length:
        other = alpha[2 * length - 1]
        high = mortice.maximum(end, other).detach()
        end = high + ((end - high).exp() + (other - high).exp()).log()
    loss = -end
    # Nothing but LOG_ZERO can be this large: no alignment exists.
    return mortice.where(loss > 1e20, mortice.full_like(loss, float("inf")), loss)


def _logaddexp3(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    high = mortice.maximum(mortice.maximum(a, b), c).detach()
    return high + ((a - high).exp() + (b - high).exp() + (c - high).exp()).log()


def _lengths(lengths: Any, n: int) -> list[int]:
    values = lengths.reshape(-1).tolist() if isinstance(lengths, Tensor) else lengths
    values = [int(values)] if isinstance(values, int) else [int(value) for value in values]
    if len(values) != n:
        raise ShapeError(f"ctc_loss expects {n} lengths, one per sample, found {len(values)}")
    return values


def _padded(targets: Tensor, lengths: list[int], n: int, blank: int) -> Tensor:
    """Targets as (N, longest), whether they came so or concatenated."""
    longest = max(lengths, default=0)
    if targets.ndim == 2:
        return targets[:, :longest].to(mortice.int64)
    if targets.shape[0] != sum(lengths):
        raise ShapeError(
            f"ctc_loss expects concatenated targets of {sum(lengths)} entries, the sum of "
            f"target_lengths, found {targets.shape[0]}"
        )
    rows = mortice.full((n, longest), blank, dtype=mortice.int64, device=targets.device)
    at = 0
    for i, length in enumerate(lengths):
        rows[i, :length] = targets[at : at + length]
        at += length
    return rows
