"""Normalisations."""

from __future__ import annotations

from collections.abc import Sequence

from mortice import Tensor
from mortice.errors import InvalidValue
from mortice_nn import operators as op


def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Per channel (dim 1) over batch and space, by batch statistics in training, else running.

    In training the running statistics, if given, are updated in place with ``momentum``
    (the variance unbiased).
    """
    if training:
        _check_values_per_channel(input.shape)
    return op.batch_norm(
        input, weight, bias, running_mean, running_var, training, momentum, eps, False
    )


def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Per sample and channel of (N, C, ...) over space: batch_norm with N * C channels."""
    if use_input_stats:
        _check_values_per_channel((1, *input.shape[1:]))
    return op.instance_norm(
        input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps, False
    )


def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Over the last ``len(normalized_shape)`` dimensions, whose sizes it states."""
    return op.layer_norm(input, normalized_shape, weight, bias, eps)


def rms_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    """x / sqrt(mean(x^2) + eps) over the last dimensions; ``eps`` None is the dtype's epsilon."""
    return op.rms_norm(input, normalized_shape, weight, eps)


def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Over each of ``num_groups`` groups of channels of (N, C, ...)."""
    return op.group_norm(input, num_groups, weight, bias, eps)


def local_response_norm(
    input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Tensor:
    """x / (k + alpha * mean of x^2 over ``size`` neighbouring channels) ** beta."""
    if input.ndim < 3:
        raise InvalidValue(f"local_response_norm expects 3 or more dimensions, found {input.ndim}")
    if input.numel() == 0:
        return input
    # A mean over a window of channels is an average pool with channels as rows.
    n, c = input.shape[:2]
    squares = (input * input).reshape(n, 1, c, -1)
    padded = op.constant_pad_nd(squares, [0, 0, size // 2, (size - 1) // 2], 0.0)
    mean = op.avg_pool2d(padded, [size, 1], [1, 1]).reshape(input.shape)
    return input / (mean * alpha + k).pow(beta)


def _check_values_per_channel(shape: Sequence[int]) -> None:
    count = shape[0]
    for size in shape[2:]:
        count *= size
    if count == 1:
        raise InvalidValue(
            f"Expected more than 1 value per channel when training, got input size {list(shape)}"
        )
