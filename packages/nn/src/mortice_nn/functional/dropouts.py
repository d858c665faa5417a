"""Dropout in its variants; nothing happens unless ``training``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mortice.errors import InvalidValue, ShapeError
from mortice_nn import operators as op

if TYPE_CHECKING:
    from mortice import Tensor


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Each element zero with probability ``p``, the others divided by 1 - p."""
    _check_probability(p)
    return op.dropout_(input, p, training) if inplace else op.dropout(input, p, training)


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
    function: Any = op.feature_dropout_ if inplace else op.feature_dropout
    return function(input, p, training)


def dropout3d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Whole channels of (N, C, D, H, W) or (C, D, H, W)."""
    return _channels(input, p, training, inplace, batched=5)


def alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """Keeps mean and variance of SELU activations (Klambauer et al. 2017)."""
    _check_probability(p)
    function: Any = op.alpha_dropout_ if inplace else op.alpha_dropout
    return function(input, p, training)


def feature_alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """alpha_dropout of whole channels."""
    _check_probability(p)
    function: Any = op.feature_alpha_dropout_ if inplace else op.feature_alpha_dropout
    return function(input, p, training)


def _check_probability(p: float) -> None:
    if not 0.0 <= p <= 1.0:
        raise InvalidValue(f"dropout probability has to be between 0 and 1, but got {p}")


def _channels(input: Tensor, p: float, training: bool, inplace: bool, batched: int) -> Tensor:
    _check_probability(p)
    if input.ndim not in (batched - 1, batched):
        raise ShapeError(
            f"dropout{batched - 2}d expects a {batched - 1}-d or {batched}-d input, found "
            f"{tuple(input.shape)}"
        )
    function: Any = op.feature_dropout_ if inplace else op.feature_dropout
    if input.ndim == batched:
        return function(input, p, training)
    # unsqueeze is a view: writing to it in place writes to the input
    out = function(input.unsqueeze(0), p, training)
    return input if inplace else out.squeeze(0)
