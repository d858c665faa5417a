"""Dropout in its variants; nothing happens unless ``training``."""

from __future__ import annotations

import mortice
from mortice import Tensor
from mortice.errors import InvalidValue, ShapeError
from mortice_nn import operators as op


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Each element zero with probability ``p``, the others divided by 1 - p."""
    _check_probability(p)
    result = op.dropout(input, p, training)
    return input.copy_(result) if inplace and training else result


def dropout1d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Whole channels of (N, C, L) or (C, L)."""
    return _channels(input, p, training, inplace, batched=3)


def dropout2d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Whole channels of (N, C, H, W); a 3-d input counts as (N, C, L)."""
    _check_probability(p)
    if input.ndim not in (3, 4):
        raise ShapeError(f"dropout2d expects a 3-d or 4-d input, found {tuple(input.shape)}")
    return _feature(input, p, training, inplace)


def dropout3d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Whole channels of (N, C, D, H, W) or (C, D, H, W)."""
    return _channels(input, p, training, inplace, batched=5)


def alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """Keeps mean and variance of SELU activations (Klambauer et al. 2017)."""
    return _alpha(input, p, training, inplace, tuple(input.shape))


def feature_alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """alpha_dropout of whole channels."""
    return _alpha(input, p, training, inplace, _channel_shape(input))


def _check_probability(p: float) -> None:
    if not 0.0 <= p <= 1.0:
        raise InvalidValue(f"dropout probability has to be between 0 and 1, but got {p}")


def _channel_shape(input: Tensor) -> tuple[int, ...]:
    return (*input.shape[:2], *([1] * (input.ndim - 2)))


def _channels(input: Tensor, p: float, training: bool, inplace: bool, batched: int) -> Tensor:
    _check_probability(p)
    if input.ndim not in (batched - 1, batched):
        raise ShapeError(
            f"dropout{batched - 2}d expects a {batched - 1}-d or {batched}-d input, found "
            f"{tuple(input.shape)}"
        )
    if input.ndim == batched:
        return _feature(input, p, training, inplace)
    result = _feature(input.unsqueeze(0), p, training, False).squeeze(0)
    return input.copy_(result) if inplace else result


def _keep(shape: tuple[int, ...], input: Tensor, p: float) -> Tensor:
    """1 with probability 1 - p, else 0."""
    return mortice.empty(shape, dtype=input.dtype, device=input.device).bernoulli_(1 - p)


def _feature(input: Tensor, p: float, training: bool, inplace: bool) -> Tensor:
    if not training or p == 0:
        return input
    keep = _keep(_channel_shape(input), input, p)
    if p < 1:
        keep = keep / (1 - p)
    return input.mul_(keep) if inplace else input * keep


def _alpha(
    input: Tensor, p: float, training: bool, inplace: bool, shape: tuple[int, ...]
) -> Tensor:
    _check_probability(p)
    if not training or p == 0:
        return input
    if p == 1:
        return input.mul_(0.0) if inplace else input * 0.0
    saturation = -1.7580993408473766  # limit of selu at minus infinity: -alpha * scale
    keep = _keep(shape, input, p)
    a = ((1 - p) * (1 + p * saturation**2)) ** -0.5
    shift = ((1 - keep) * saturation - p * saturation) * a
    if inplace:
        return input.mul_(keep * a).add_(shift)
    return input * (keep * a) + shift
