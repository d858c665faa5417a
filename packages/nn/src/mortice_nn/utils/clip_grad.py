"""Gradient clipping, in place."""

from __future__ import annotations

from collections.abc import Iterable

import mortice
from mortice import Tensor
from mortice.errors import InvalidState

Tensors = Tensor | Iterable[Tensor]


def _list(tensors: Tensors) -> list[Tensor]:
    return [tensors] if isinstance(tensors, Tensor) else list(tensors)


def _gradients(parameters: Tensors) -> list[Tensor]:
    return [p.grad for p in _list(parameters) if p.grad is not None]


def get_total_norm(
    tensors: Tensors,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """The norm of all elements together, as one 0-d tensor. ``foreach`` changes nothing."""
    grads = [tensor.detach() for tensor in _list(tensors)]
    norm_type = float(norm_type)
    if not grads:
        return mortice.tensor(0.0)
    device = grads[0].device
    if norm_type == float("inf"):
        parts = [grad.abs().max().to(device) for grad in grads]
        total = mortice.stack(parts).max()
    elif norm_type == 2.0:
        parts = [(grad * grad).sum().to(device) for grad in grads]
        total = mortice.stack(parts).sum().sqrt()
    else:
        parts = [grad.abs().pow(norm_type).sum().to(device) for grad in grads]
        total = mortice.stack(parts).sum().pow(1.0 / norm_type)
    if error_if_nonfinite and not bool(total.isfinite()):
        raise InvalidState(
            f"the total norm of order {norm_type} of the gradients is {total.item()}, so it cannot "
            "be clipped; pass error_if_nonfinite=False to scale by it anyway"
        )
    return total


def clip_grads_with_norm_(
    parameters: Tensors, max_norm: float, total_norm: Tensor, foreach: bool | None = None
) -> None:
    """Scale all gradients by max_norm / total_norm where that is less than 1."""
    # Without reading the value: multiplying by 1 is cheaper than waiting for a device.
    scale = (float(max_norm) / (total_norm + 1e-6)).clamp(max=1.0)
    for grad in _gradients(parameters):
        grad.detach().mul_(scale.to(grad.device))


def clip_grad_norm_(
    parameters: Tensors,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scale all gradients so that their total norm is at most ``max_norm``; returns that norm.

    ``norm_type`` may be inf. ``foreach`` is accepted and changes nothing.
    """
    with mortice.no_grad():
        parameters = _list(parameters)
        total = get_total_norm(_gradients(parameters), norm_type, error_if_nonfinite)
        clip_grads_with_norm_(parameters, max_norm, total)
        return total


def clip_grad_value_(parameters: Tensors, clip_value: float, foreach: bool | None = None) -> None:
    """Clamp every gradient to [-clip_value, clip_value]."""
    limit = float(clip_value)
    with mortice.no_grad():
        for grad in _gradients(parameters):
            grad.clamp_(-limit, limit)
