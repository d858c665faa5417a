"""Normalisations: shape rules, public forms, and gradients.

Each normalises x over some dimensions to x_hat = (x - mean) * rstd and may scale and shift. The
gradient for x, where g is the gradient for x_hat and means are over the same dimensions, is
rstd * (g - mean(g) - x_hat * mean(g * x_hat)).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mortice._base.errors import InvalidValue, ShapeError
from mortice._dispatch.state import THREAD
from mortice._ops.formulas import call
from mortice._types.shapes import dense_strides_like, elementwise_strides, numel


def _sum(x: Any, dims: Sequence[int], keepdim: bool = False) -> Any:
    return call("sum.dim_IntList", x, tuple(dims), keepdim, None) if dims else x


def _mean(x: Any, dims: Sequence[int]) -> Any:
    return call("mean.dim", x, tuple(dims), True, None)


def _statistics_dtype(dtype: Any) -> Any:
    """Half types keep their statistics in float32 (on the CPU with mixed weights, as PyTorch)."""
    return dtype


def _input_grad(g: Any, x_hat: Any, rstd: Any, dims: Sequence[int]) -> Any:
    return rstd * (g - _mean(g, dims) - x_hat * _mean(g * x_hat, dims))


# -- layer norm ------------------------------------------------------------------------------------


def _check_layer(input: Any, normalized_shape: Any, weight: Any, bias: Any) -> int:
    shape = tuple(normalized_shape)
    n = len(shape)
    if n < 1:
        raise ShapeError(
            "Expected normalized_shape to be at least 1-dimensional, i.e., containing at least one "
            f"element, but got normalized_shape = {list(shape)}"
        )
    for name, x in (("weight", weight), ("bias", bias)):
        if x is not None and tuple(x._a.shape) != shape:
            raise ShapeError(
                f"Expected {name} to be of same shape as normalized_shape, but got {name} of shape "
                f"{list(x.shape)} and normalized_shape = {list(shape)}"
            )
    have = tuple(input._a.shape)
    if len(have) < n or have[len(have) - n :] != shape:
        stars = ", ".join(["*", *map(str, shape)])
        raise ShapeError(
            f"Given normalized_shape={list(shape)}, expected input with shape [{stars}], but got "
            f"input of size{list(have)}"
        )
    return len(have) - n


def native_layer_norm(input: Any, normalized_shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    axis = _check_layer(input, normalized_shape, weight, bias)
    shape = tuple(input._a.shape)
    rows = (*shape[:axis], *(1,) * (len(shape) - axis))
    stats = _statistics_dtype(input._t)
    return [(shape, input._t), (rows, stats), (rows, stats)]


def native_layer_norm_backward(
    grad_out: Any, input: Any, normalized_shape: Any, mean: Any, rstd: Any, weight: Any, bias: Any,
    output_mask: Any,
) -> Any:  # fmt: skip
    specs: list[Any] = [(tuple(input._a.shape), input._t)]
    specs += [(tuple(normalized_shape), input._t)] * 2
    return [s if m else None for s, m in zip(specs, output_mask)]


def layer_norm(
    input: Any, normalized_shape: Any, weight: Any, bias: Any, eps: float, cudnn: bool
) -> Any:
    return call("native_layer_norm", input, tuple(normalized_shape), weight, bias, eps)[0]


def layer_norm_grad(
    needs: Sequence[bool], grad: Any, input: Any, normalized_shape: Any, mean: Any, rstd: Any,
    weight: Any, bias: Any, eps: float,
) -> Any:  # fmt: skip
    if grad is None:
        return None, None, None
    if not THREAD.grad_enabled:
        return call(
            "native_layer_norm_backward", grad, input, tuple(normalized_shape), mean, rstd, weight,
            bias, tuple(needs),
        )  # fmt: skip
    n = len(input._a.shape)
    axis = n - len(normalized_shape)
    inner, outer = tuple(range(axis, n)), tuple(range(axis))
    # The saved statistics are constants: to be differentiated again they are computed again.
    rstd = (_variance(input, inner) + eps).rsqrt()
    x_hat = (input - _mean(input, inner)) * rstd
    g = grad if weight is None else grad * weight
    return (
        _input_grad(g, x_hat, rstd, inner) if needs[0] else None,
        _sum(grad * x_hat, outer) if needs[1] else None,
        _sum(grad, outer) if needs[2] else None,
    )


# -- group norm ------------------------------------------------------------------------------------


def native_group_norm(
    input: Any, weight: Any, bias: Any, n: int, c: int, hw: int, group: int, eps: float
) -> Any:
    _check_groups(c, group)
    for name, x in (("weight", weight), ("bias", bias)):
        if x is not None and tuple(x._a.shape) != (c,):
            raise ShapeError(
                f"Expected {name} to be a vector of size equal to the number of channels in input, "
                f"but got {name} of shape {list(x.shape)} and input of shape {list(input.shape)}"
            )
    stats = _statistics_dtype(input._t)
    return [(tuple(input._a.shape), input._t), ((n, group), stats), ((n, group), stats)]


def _check_groups(channels: int, group: int) -> None:
    if group <= 0:
        raise ShapeError(f"Expected num groups to be greater than 0, got {group}")
    if channels % group:
        raise ShapeError(
            "Expected number of channels in input to be divisible by num_groups, but got "
            f"{channels} channels and num_groups={group}"
        )


def native_group_norm_backward(
    grad_out: Any, input: Any, mean: Any, rstd: Any, weight: Any, n: int, c: int, hw: int,
    group: int, output_mask: Any,
) -> Any:  # fmt: skip
    specs: list[Any] = [(tuple(input._a.shape), input._t), ((c,), input._t), ((c,), input._t)]
    return [s if m else None for s, m in zip(specs, output_mask)]


def group_norm(input: Any, num_groups: int, weight: Any, bias: Any, eps: float, cudnn: bool) -> Any:
    shape = tuple(input._a.shape)
    if len(shape) < 2:
        raise ShapeError(
            f"Expected at least 2 dimensions for input tensor but received {len(shape)}"
        )
    n, c = shape[:2]
    hw = numel(shape[2:])
    return call("native_group_norm", input.contiguous(), weight, bias, n, c, hw, num_groups, eps)[0]


def group_norm_grad(
    needs: Sequence[bool], grads: Sequence[Any], input: Any, mean: Any, rstd: Any, weight: Any, n: int, c: int,
    hw: int, group: int,
) -> Any:  # fmt: skip
    grad, grad_mean, grad_rstd = grads
    if grad is None:
        grad = call("zeros_like", input, None, None, None, None, None)
    if not THREAD.grad_enabled and grad_mean is None and grad_rstd is None:
        return call(
            "native_group_norm_backward", grad.contiguous(), input, mean, rstd, weight, n, c, hw,
            group, tuple(needs),
        )  # fmt: skip
    shape = tuple(input._a.shape)
    rows = (n, group, c // group, hw)
    x_hat = (input.reshape(rows) - mean.reshape((n, group, 1, 1))) * rstd.reshape((n, group, 1, 1))
    dy = grad.reshape(rows)
    g = dy if weight is None else dy * weight.reshape((1, group, c // group, 1))
    column = rstd.reshape((n, group, 1, 1))
    dx = _input_grad(g, x_hat, column, (2, 3))
    count = max(1, c // group * hw)
    if grad_mean is not None:
        dx = dx + grad_mean.reshape((n, group, 1, 1)) / count
    if grad_rstd is not None:  # d rstd / d x = -rstd^2 * x_hat / count
        dx = dx - grad_rstd.reshape((n, group, 1, 1)) * column * column * x_hat / count
    return (
        dx.reshape(shape) if needs[0] else None,
        _sum(dy * x_hat, (0, 3)).reshape((c,)) if needs[1] else None,
        _sum(dy, (0, 3)).reshape((c,)) if needs[2] else None,
    )


# -- batch norm ------------------------------------------------------------------------------------


def _batch_specs(input: Any, parameters: Sequence[Any], training: bool) -> Any:
    """Statistics have the parameters' dtype: float32 ones may go with a half input."""
    shape = tuple(input._a.shape)
    if len(shape) < 2:
        raise ShapeError(
            f"batch_norm: expected at least 2 dimensions (N, C, ...), got shape {list(shape)}"
        )
    c = shape[1] if training else 0
    stats = next((p._t for p in parameters if p is not None), input._t)
    strides = dense_strides_like(shape, input.stride())
    return [(shape, input._t, strides), ((c,), stats), ((c,), stats)]


def batch_norm_legit(
    input: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, m: float, eps: float
) -> Any:
    specs = _batch_specs(input, (weight, bias, mean, var), training)
    _check_channels(input, running_mean=mean, running_var=var, weight=weight, bias=bias)
    return specs


def _check_channels(input: Any, **vectors: Any) -> None:
    c = input._a.shape[1]
    for name, x in vectors.items():
        if x is not None and x.numel() != c:
            raise ShapeError(f"{name} should contain {c} elements not {x.numel()}")


def batch_norm_no_stats(
    input: Any, weight: Any, bias: Any, training: bool, momentum: float, eps: float
) -> Any:
    _check_channels(input, weight=weight, bias=bias)
    return _batch_specs(input, (weight, bias), True)


def batch_norm_no_training(
    input: Any, weight: Any, bias: Any, mean: Any, var: Any, momentum: float, eps: float
) -> Any:
    specs = _batch_specs(input, (weight, bias, mean, var), False)
    _check_channels(input, running_mean=mean, running_var=var, weight=weight, bias=bias)
    return specs


def native_batch_norm_backward(
    grad_out: Any, input: Any, weight: Any, mean: Any, var: Any, save_mean: Any, save_invstd: Any,
    train: bool, eps: float, output_mask: Any,
) -> Any:  # fmt: skip
    c = input._a.shape[1]
    stats = input._t if weight is None else weight._t
    shape = tuple(input._a.shape)
    order = (shape, grad_out.stride()), (shape, input.stride())
    specs: list[Any] = [
        (shape, input._t, elementwise_strides(shape, order)), ((c,), stats), ((c,), stats),
    ]  # fmt: skip
    return [s if m else None for s, m in zip(specs, output_mask)]


def native_batch_norm(
    input: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float,
    eps: float,
) -> Any:  # fmt: skip
    if mean is None or var is None:
        if not training:
            raise InvalidValue(
                "batch_norm: evaluation needs running_mean and running_var. Pass them, or "
                "training=True."
            )
        return call("_native_batch_norm_legit.no_stats", input, weight, bias, True, momentum, eps)
    if training:
        return call("_native_batch_norm_legit", input, weight, bias, mean, var, True, momentum, eps)
    return call(
        "_native_batch_norm_legit_no_training", input, weight, bias, mean, var, momentum, eps
    )


def batch_norm(
    input: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float,
    eps: float, cudnn: bool,
) -> Any:  # fmt: skip
    if not input.numel():
        out = input.clone()
        if weight is not None and weight.numel():
            out = out * weight[0]
        return out if bias is None or not bias.numel() else out + bias[0]
    return native_batch_norm(input, weight, bias, mean, var, training, momentum, eps)[0]


def batch_norm_grad(
    needs: Sequence[bool], grad: Any, input: Any, weight: Any, mean: Any, var: Any,
    save_mean: Any, save_invstd: Any, train: bool, eps: float,
) -> Any:  # fmt: skip
    if grad is None:
        return None, None, None
    if not THREAD.grad_enabled:
        return call(
            "native_batch_norm_backward", grad, input, weight, mean, var, save_mean, save_invstd,
            train, eps, tuple(needs),
        )  # fmt: skip
    n = len(input._a.shape)
    dims = (0, *range(2, n))
    column = (1, input._a.shape[1], *(1,) * (n - 2))
    if train:
        mu, rstd = _mean(input, dims), (_variance(input, dims) + eps).rsqrt()
    else:
        mu, rstd = mean.reshape(column), (var.reshape(column) + eps).rsqrt()
    x_hat = (input - mu) * rstd
    g = grad if weight is None else grad * weight.reshape(column)
    dx = None
    if needs[0]:
        dx = _input_grad(g, x_hat, rstd, dims) if train else g * rstd
    return (
        dx,
        _sum(grad * x_hat, dims) if needs[1] else None,
        _sum(grad, dims) if needs[2] else None,
    )


def _variance(x: Any, dims: Sequence[int]) -> Any:
    centred = x - _mean(x, dims)
    return _mean(centred * centred, dims)


def instance_norm(
    input: Any, weight: Any, bias: Any, mean: Any, var: Any, use_input_stats: bool,
    momentum: float, eps: float, cudnn: bool,
) -> Any:  # fmt: skip
    """Batch norm with every (sample, channel) as a channel of its own."""
    shape = tuple(input._a.shape)
    n, c = shape[:2]

    def repeated(x: Any) -> Any:
        return None if x is None else x.repeat((n,))

    running_mean, running_var = repeated(mean), repeated(var)
    out = batch_norm(
        input.contiguous().view((1, n * c, *shape[2:])), repeated(weight), repeated(bias),
        running_mean, running_var, use_input_stats or mean is None, momentum, eps, cudnn,
    )  # fmt: skip
    if mean is not None and use_input_stats:
        mean.copy_(running_mean.view((n, c)).mean(0))
        var.copy_(running_var.view((n, c)).mean(0))
    return out.view(shape)


def rms_norm(input: Any, normalized_shape: Any, weight: Any, eps: float | None) -> Any:
    axis = _check_layer(input, normalized_shape, weight, None)
    dims = tuple(range(axis, len(input._a.shape)))
    if eps is None:
        eps = {
            "float64": 2.220446049250313e-16,
            "bfloat16": 0.0078125,
            "float16": 0.0009765625,
        }.get(input._t.name, 1.1920928955078125e-07)
    x = input.float() if input._t.itemsize == 2 else input
    out = (x * (_mean(x * x, dims) + eps).rsqrt()).to(input._t)
    return out if weight is None else out * weight


__all__ = [name for name in dir() if not name.startswith("_")]
