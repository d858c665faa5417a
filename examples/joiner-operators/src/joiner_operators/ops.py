"""Shape rules, bodies and gradients of the operators declared in ops.yaml."""

from __future__ import annotations

import mortice
from mortice import Tensor
from mortice.errors import ShapeError


def same(self: Tensor, limit: float) -> tuple:
    return tuple(self.shape), self.dtype


def softclip_grad(grad: Tensor, x: Tensor, limit: float) -> Tensor:
    """d/dx of x / (1 + |x| / limit) is 1 / (1 + |x| / limit) ** 2."""
    return grad / (1 + x.abs() / limit) ** 2


def nearest_code(self: Tensor, codebook: Tensor) -> list:
    if self.ndim != 2 or codebook.ndim != 2 or self.shape[1] != codebook.shape[1]:
        raise ShapeError(
            f"nearest_code: expected rows (N, D) and a codebook (K, D), got {list(self.shape)} and "
            f"{list(codebook.shape)}"
        )
    return [((self.shape[0],), self.dtype), ((self.shape[0],), mortice.int64)]


def distance_grad(
    grad: Tensor | None, x: Tensor, codebook: Tensor, distance: Tensor, index: Tensor
) -> Tensor | None:
    """The distance grows along the unit vector from the code to the row."""
    if grad is None:
        return None
    away = x - codebook.index_select(0, index)
    return grad.unsqueeze(1) * away / distance.clamp(min=1e-12).unsqueeze(1)


def quantize(self: Tensor, codebook: Tensor) -> Tensor:
    """Each row replaced by its nearest code; gradients go straight through to the rows."""
    _, index = mortice.ops.joiner.nearest_code(self.detach(), codebook)
    code = codebook.index_select(0, index)
    return self + (code - self).detach()
