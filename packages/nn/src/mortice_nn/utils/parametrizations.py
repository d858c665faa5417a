"""weight_norm and spectral_norm as parametrizations."""

from __future__ import annotations

from typing import Any

import mortice
from mortice import Tensor
from mortice.errors import InvalidValue
from mortice_nn import functional as F
from mortice_nn.modules.conv import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from mortice_nn.modules.module import Module
from mortice_nn.utils.parametrize import named_tensor, register_parametrization


def norm_except_dim(v: Tensor, dim: int) -> Tensor:
    """Euclidean norm over all dimensions but ``dim`` (-1: over all), which are kept as 1."""
    if dim == -1:
        return (v * v).sum().sqrt()
    others = [i for i in range(v.ndim) if i != dim % v.ndim]
    return (v * v).sum(others, keepdim=True).sqrt() if others else v.abs()


class _WeightNorm(Module):
    def __init__(self, dim: int | None = 0) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        return weight_v * (weight_g / norm_except_dim(weight_v, self.dim))

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        return norm_except_dim(weight, self.dim), weight


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Length and direction of a weight as two parameters (Salimans and Kingma 2016).

    state_dict: ``parametrizations.<name>.original0`` (length) and ``original1`` (direction).
    """
    register_parametrization(module, name, _WeightNorm(dim), unsafe=True)
    return module


class _SpectralNorm(Module):
    _u: Tensor
    _v: Tensor

    def __init__(
        self, weight: Tensor, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12
    ) -> None:
        super().__init__()
        if not -weight.ndim <= dim < weight.ndim:
            raise IndexError(f"dimension {dim} is out of range for a {weight.ndim}-d weight")
        if n_power_iterations <= 0:
            raise InvalidValue(
                f"Expected n_power_iterations to be positive, but got {n_power_iterations}"
            )
        self.dim = dim % weight.ndim
        self.eps = eps
        if weight.ndim > 1:
            self.n_power_iterations = n_power_iterations
            matrix = self._matrix(weight.detach())
            rows, columns = matrix.shape
            options: dict[str, Any] = {"dtype": matrix.dtype, "device": matrix.device}
            u = F.normalize(mortice.randn(rows, **options), dim=0, eps=eps)
            v = F.normalize(mortice.randn(columns, **options), dim=0, eps=eps)
            self.register_buffer("_u", u)
            self.register_buffer("_v", v)
            # close to the singular vectors from the start
            self._iterate(matrix, 15)

    def _matrix(self, weight: Tensor) -> Tensor:
        if self.dim:
            others = [d for d in range(weight.ndim) if d != self.dim]
            weight = weight.permute(self.dim, *others)
        return weight.flatten(1)

    def _iterate(self, matrix: Tensor, times: int) -> None:
        with mortice.no_grad():
            for _ in range(times):
                self._u.copy_(F.normalize(matrix.mv(self._v), dim=0, eps=self.eps))
                self._v.copy_(F.normalize(matrix.t().mv(self._u), dim=0, eps=self.eps))

    def forward(self, weight: Tensor) -> Tensor:
        if weight.ndim == 1:
            return F.normalize(weight, dim=0, eps=self.eps)
        matrix = self._matrix(weight)
        if self.training:
            self._iterate(matrix, self.n_power_iterations)
        # copies: the next iteration overwrites the buffers that this graph saves
        u, v = self._u.clone(), self._v.clone()
        return weight / (u * matrix.mv(v)).sum()

    def right_inverse(self, value: Tensor) -> Tensor:
        return value


def spectral_norm(
    module: Module,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> Module:
    """Divide a weight by its largest singular value (Miyato et al. 2018), found by iteration.

    ``dim`` is that of the outputs: 1 for transposed convolutions, else 0.
    """
    weight = named_tensor(module, name)
    if dim is None:
        transposed = isinstance(module, (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d))
        dim = 1 if transposed else 0
    parametrization = _SpectralNorm(weight, n_power_iterations, dim, eps)
    register_parametrization(module, name, parametrization)
    return module
