"""Reductions, products of matrices and vectors, losses."""

from __future__ import annotations

import math
from typing import Any

from mortice._ops.decomposed.steps import (
    all_dims,
    full,
    in_float32,
    mean,
    shape_of,
    total,
    where,
)
from mortice._ops.formulas import call
from mortice._types import dtypes


def sum_of_all(self: Any, dtype: Any) -> Any:
    return total(self, all_dims(self), False, dtype)


def nansum(self: Any, dim: Any, keepdim: bool, dtype: Any) -> Any:
    x = where(self != self, 0, self) if self._t.differentiable else self
    return total(x, dim or all_dims(self), keepdim, dtype)


def amax_of_all(self: Any) -> Any:
    return call("amax", self, all_dims(self), False)


def amin_of_all(self: Any) -> Any:
    return call("amin", self, all_dims(self), False)


def aminmax(self: Any, dim: int | None, keepdim: bool) -> Any:
    dims = all_dims(self) if dim is None else (dim,)
    return call("amin", self, dims, keepdim), call("amax", self, dims, keepdim)


def _bool_like(x: Any, like: Any) -> Any:
    """``all`` of bytes gives bytes."""
    return x.to(dtypes.uint8) if like._t is dtypes.uint8 else x


def all_of_all(self: Any) -> Any:
    return all_dims_(self, None, False)


def all_dim(self: Any, dim: int, keepdim: bool) -> Any:
    return all_dims_(self, (dim,), keepdim)


def all_dims_(self: Any, dim: Any, keepdim: bool) -> Any:
    wrong = call("logical_not", self)
    dims = all_dims(self) if dim is None else tuple(dim)
    return _bool_like(call("logical_not", call("any.dims", wrong, dims, keepdim)), self)


def var_mean(self: Any, dim: Any, correction: Any, keepdim: bool) -> Any:
    dims = tuple(dim) if dim else all_dims(self)
    return call("var.correction", self, dim, correction, keepdim), mean(self, dims, keepdim)


@in_float32
def std(self: Any, dim: Any, correction: Any, keepdim: bool) -> Any:
    return call("var.correction", self, dim, correction, keepdim).sqrt()


def std_mean(self: Any, dim: Any, correction: Any, keepdim: bool) -> Any:
    dims = tuple(dim) if dim else all_dims(self)
    return std(self, dim, correction, keepdim), mean(self, dims, keepdim)


def count_nonzero(self: Any, dim: int | None) -> Any:
    return total(self != 0, all_dims(self) if dim is None else (dim,))


def count_nonzero_dims(self: Any, dim: Any) -> Any:
    return total(self != 0, tuple(dim) or all_dims(self))


def trace(self: Any) -> Any:
    return sum_of_all(call("diagonal", self, 0, 0, 1), None)


def vector_norm(self: Any, order: Any, dim: Any, keepdim: bool, dtype: Any) -> Any:
    dims = tuple(dim) if dim else all_dims(self)
    kind = dtype or self._t
    x = self.to(dtypes.float32 if kind in (dtypes.float16, dtypes.bfloat16) else kind)
    x = x.abs()
    kind = kind.to_real()
    order = float(order)
    if order == 0:
        result = total((x != 0).to(x._t), dims, keepdim)
    elif order == math.inf:
        result = call("amax", x, dims, keepdim)
    elif order == -math.inf:
        result = call("amin", x, dims, keepdim)
    elif order == 1:
        result = total(x, dims, keepdim)
    elif order == 2:
        result = total(x * x, dims, keepdim).sqrt()
    else:
        result = (total(x**order, dims, keepdim)) ** (1 / order)
    return result.to(kind)


# -- matrices and vectors --------------------------------------------------------------------------


def mv(self: Any, vec: Any) -> Any:
    return call("mm", self, vec.unsqueeze(1)).squeeze(1)


def dot(self: Any, other: Any) -> Any:
    return sum_of_all(self * other, self._t)  # sums of integers stay of their dtype here


def baddbmm(self: Any, a: Any, b: Any, beta: Any, alpha: Any) -> Any:
    product = call("bmm", a, b)
    if not self._t.differentiable:
        alpha, beta = int(alpha), int(beta)  # of integers, whole factors
    if alpha != 1:
        product = product * alpha
    if beta == 0:
        return product
    return (self if beta == 1 else self * beta) + product


# -- losses ----------------------------------------------------------------------------------------

NONE, MEAN = 0, 1


def _class_weights(self: Any, target: Any, weight: Any, ignore: int) -> tuple[Any, Any]:
    """(weight of each sample, 0 where it is ignored; its class, 0 there)."""
    kept = target != ignore
    classes = where(kept, target, 0)
    if weight is None:
        weights = kept.to(self._t)
    else:
        weights = where(kept, call("index.Tensor", weight, (classes,)), 0)
    return weights, classes


def nll_loss_forward(self: Any, target: Any, weight: Any, reduction: int, ignore: int) -> Any:
    weights, classes = _class_weights(self, target, weight, ignore)
    dim = len(shape_of(self)) - 1
    picked = call("gather", self, dim, classes.unsqueeze(dim), False).squeeze(dim)
    loss = where(target != ignore, -picked * weights, 0)
    all_weights = sum_of_all(weights, None)
    if reduction == NONE:
        return loss, full(self, 0)
    value = sum_of_all(loss, None)
    return (value / all_weights if reduction == MEAN else value), all_weights


def nll_loss_backward(
    grad: Any, self: Any, target: Any, weight: Any, reduction: int, ignore: int, total_weight: Any
) -> Any:
    weights, classes = _class_weights(self, target, weight, ignore)
    dim = len(shape_of(self)) - 1
    if reduction == MEAN:
        grad = grad / total_weight
    if reduction != NONE or len(shape_of(self)) == 1:
        grad = grad.expand(shape_of(target))
    value = where(target != ignore, -grad * weights, 0).unsqueeze(dim)
    zeros = call("full_like", self, 0, None, None, None, None, None)
    return call("scatter.src", zeros, dim, classes.unsqueeze(dim), value)


# -- normalisations --------------------------------------------------------------------------------


def _normalized(x: Any, dims: tuple[int, ...], eps: float) -> tuple[Any, Any, Any]:
    """(x_hat, mean, reciprocal deviation)."""
    mu = mean(x, dims)
    centred = x - mu
    rstd = (mean(centred * centred, dims) + eps).rsqrt()
    return centred * rstd, mu, rstd


def _scaled(x: Any, weight: Any, bias: Any) -> Any:
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


def _input_grad(g: Any, x_hat: Any, rstd: Any, dims: tuple[int, ...]) -> Any:
    return rstd * (g - mean(g, dims) - x_hat * mean(g * x_hat, dims))


@in_float32
def layer_norm(input: Any, normalized_shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    n = len(shape_of(input))
    dims = tuple(range(n - len(normalized_shape), n))
    x_hat, mu, rstd = _normalized(input, dims, eps)
    return _scaled(x_hat, weight, bias), mu, rstd


@in_float32
def layer_norm_backward(
    grad: Any,
    input: Any,
    normalized_shape: Any,
    mu: Any,
    rstd: Any,
    weight: Any,
    bias: Any,
    mask: Any,
) -> Any:
    n = len(shape_of(input))
    axis = n - len(normalized_shape)
    inner, outer = tuple(range(axis, n)), tuple(range(axis))
    x_hat = (input - mu) * rstd
    g = grad if weight is None else grad * weight
    return (
        _input_grad(g, x_hat, rstd, inner) if mask[0] else None,
        _over(grad * x_hat, outer) if mask[1] else None,
        _over(grad, outer) if mask[2] else None,
    )


def _over(x: Any, dims: tuple[int, ...]) -> Any:
    return total(x, dims) if dims else x


def _column(x: Any, n: int) -> Any:
    """A value per channel, beside an input of n dimensions."""
    return None if x is None else x.reshape((1, -1, *(1,) * (n - 2)))


def _wide(*values: Any) -> list[Any]:
    half = (dtypes.float16, dtypes.bfloat16)
    return [x.to(dtypes.float32) if x is not None and x._t in half else x for x in values]


def _statistics_dtype(input: Any, *parameters: Any) -> Any:
    """That of the parameters: float32 ones may go with a half input."""
    return next((p._t for p in parameters if p is not None), input._t)


def batch_norm_no_stats(
    input: Any, weight: Any, bias: Any, training: bool, momentum: float, eps: float
) -> Any:
    n = len(shape_of(input))
    dims = (0, *range(2, n))
    x, w, b = _wide(input, weight, bias)
    x_hat, mu, rstd = _normalized(x, dims, eps)
    out = _scaled(x_hat, _column(w, n), _column(b, n)).to(input._t)
    stats = _statistics_dtype(input, weight, bias)
    return out, mu.reshape((-1,)).to(stats), rstd.reshape((-1,)).to(stats)


def batch_norm(
    input: Any,
    weight: Any,
    bias: Any,
    mu: Any,
    var: Any,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    """With running statistics, which it writes to."""
    if not training:
        return batch_norm_no_training(input, weight, bias, mu, var, momentum, eps)
    results = batch_norm_no_stats(input, weight, bias, True, momentum, eps)
    dims = (0, *range(2, len(shape_of(input))))
    (x,) = _wide(input)
    for running, now in (
        (mu, mean(x, dims, False)),
        (var, call("var.correction", x, dims, 1, False)),
    ):
        call("copy_", running, running * (1 - momentum) + now * momentum, False)
    return results


def batch_norm_no_training(
    input: Any, weight: Any, bias: Any, mu: Any, var: Any, momentum: float, eps: float
) -> Any:
    n = len(shape_of(input))
    x, w, b, m, v = _wide(input, weight, bias, mu, var)
    rstd = (_column(v, n) + eps).rsqrt()
    out = _scaled((x - _column(m, n)) * rstd, _column(w, n), _column(b, n)).to(input._t)
    empty = full(mu, 0, (0,), _statistics_dtype(input, weight, bias, mu, var))
    return out, empty, empty.clone()


def batch_norm_backward(
    grad: Any, input: Any, weight: Any, running_mean: Any, running_var: Any, mu: Any, rstd: Any,
    train: bool, eps: float, mask: Any,
) -> Any:  # fmt: skip
    n = len(shape_of(input))
    dims = (0, *range(2, n))
    stats = input._t if weight is None else weight._t
    dy, x, w, m, r, v = _wide(grad, input, weight, mu, rstd, running_var)
    if not train:
        (m,) = _wide(running_mean)
        r = (v + eps).rsqrt()
    spread = _column(r, n)
    x_hat = (x - _column(m, n)) * spread
    g = dy if w is None else dy * _column(w, n)
    dx = None
    if mask[0]:
        dx = (_input_grad(g, x_hat, spread, dims) if train else g * spread).to(input._t)
    return (
        dx,
        total(dy * x_hat, dims).to(stats) if mask[1] else None,
        total(dy, dims).to(stats) if mask[2] else None,
    )


@in_float32
def group_norm(
    input: Any, weight: Any, bias: Any, n: Any, c: Any, hw: Any, group: int, eps: float
) -> Any:
    rows = input.reshape((n, group, c // group, hw))
    x_hat, mu, rstd = _normalized(rows, (2, 3), eps)
    dims = len(shape_of(input))
    out = _scaled(x_hat.reshape(shape_of(input)), _column(weight, dims), _column(bias, dims))
    return out, mu.reshape((n, group)), rstd.reshape((n, group))


@in_float32
def group_norm_backward(
    grad: Any,
    input: Any,
    mu: Any,
    rstd: Any,
    weight: Any,
    n: Any,
    c: Any,
    hw: Any,
    group: int,
    mask: Any,
) -> Any:
    rows = (n, group, c // group, hw)
    spread = rstd.reshape((n, group, 1, 1))
    x_hat = (input.reshape(rows) - mu.reshape((n, group, 1, 1))) * spread
    dy = grad.reshape(rows)
    g = dy if weight is None else dy * weight.reshape((1, group, c // group, 1))
    return (
        _input_grad(g, x_hat, spread, (2, 3)).reshape(shape_of(input)) if mask[0] else None,
        total(dy * x_hat, (0, 3)).reshape((c,)) if mask[1] else None,
        total(dy, (0, 3)).reshape((c,)) if mask[2] else None,
    )
