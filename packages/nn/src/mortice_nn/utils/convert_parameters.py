"""All parameters as one vector and back."""

from __future__ import annotations

from collections.abc import Iterable

import mortice
from mortice import Tensor
from mortice.errors import ArgumentError, ShapeError


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """Every element in order, as one 1-d tensor, differentiable."""
    return mortice.cat([parameter.reshape(-1) for parameter in parameters])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Make each parameter's data the next slice of ``vec``."""
    if not isinstance(vec, Tensor):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ArgumentError(f"expected mortice.Tensor, but got: {type(vec).__name__}")
    targets = list(parameters)
    total = sum(parameter.numel() for parameter in targets)
    if vec.numel() < total:
        raise ShapeError(f"vector_to_parameters needs {total} elements, found {vec.numel()}")
    at = 0
    for parameter in targets:
        n = parameter.numel()
        parameter.data = vec[at : at + n].reshape(parameter.shape).detach()
        at += n
