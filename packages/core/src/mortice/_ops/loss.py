"""Losses and distances: shape rules, composites, gradients."""

from __future__ import annotations

import math
from typing import Any

from mortice._base.errors import DTypeError, InvalidValue, ShapeError
from mortice._ops.formulas import call, has_values
from mortice._types import dtypes
from mortice._types.shapes import broadcast, numel

NONE, MEAN, SUM = 0, 1, 2


def reduced(x: Any, reduction: int) -> Any:
    if reduction == MEAN:
        return x.mean()
    return x.sum() if reduction == SUM else x


# -- negative log likelihood -------------------------------------------------------------------------


def _check_nll(self: Any, target: Any, weight: Any) -> None:
    shape = tuple(self._a.shape)
    if len(shape) not in (1, 2):
        raise ShapeError(f"nll_loss: input tensor should be 1D or 2D, got {len(shape)}D")
    if len(target._a.shape) > 1:
        raise ShapeError("0D or 1D target tensor expected, multi-target not supported")
    if target._t.differentiable or target._t is dtypes.bool_:
        raise DTypeError(
            f"nll_loss: expected target of class indices, dtype int64, but found {target._t!r}. "
            "Convert with target.long()."
        )
    if len(shape) == 2 and tuple(target._a.shape) != shape[:1]:
        raise ShapeError(
            f"size mismatch (got input: {list(shape)}, target: {list(target.shape)}): there must "
            "be one class index for each row of the input."
        )
    if weight is not None and tuple(weight._a.shape) != shape[-1:]:
        raise ShapeError(
            f"weight tensor should be defined either for all {shape[-1]} classes or no classes "
            f"but got weight tensor of shape: {list(weight.shape)}"
        )


def nll_loss_forward(self: Any, target: Any, weight: Any, reduction: int, ignore: int) -> Any:
    _check_nll(self, target, weight)
    shape = tuple(self._a.shape)
    per_sample = reduction == NONE and len(shape) == 2
    return [(shape[:1] if per_sample else (), self._t), ((), self._t)]


def nll_loss_backward(grad_output: Any, self: Any, *rest: Any) -> Any:
    return tuple(self._a.shape), self._t


def nll_loss_double(
    grad: Any, self: Any, target: Any, weight: Any, reduction: int, ignore: int, total: Any
) -> Any:
    return call("nll_loss_forward", grad, target, weight, reduction, ignore)[0]


def nll_loss(self: Any, target: Any, weight: Any, reduction: int, ignore: int) -> Any:
    return call("nll_loss_forward", self, target, weight, reduction, ignore)[0]


def nll_loss_nd(self: Any, target: Any, weight: Any, reduction: int, ignore: int) -> Any:
    """Classes in dimension 1 (or 0 without batch), any number of further dimensions."""
    shape = tuple(self._a.shape)
    n = len(shape)
    if n < 1:
        raise ShapeError(f"Expected 1 or more dimensions (got {n})")
    if n <= 2:
        return nll_loss(self, target, weight, reduction, ignore)
    if tuple(target._a.shape) != (shape[0], *shape[2:]):
        raise ShapeError(f"Expected target size {[shape[0], *shape[2:]]}, got {list(target.shape)}")
    rows = self.movedim(1, -1).reshape((-1, shape[1]))
    out = nll_loss(rows, target.reshape((-1,)), weight, reduction, ignore)
    return out.view(tuple(target._a.shape)) if reduction == NONE else out


def cross_entropy_loss(
    self: Any, target: Any, weight: Any, reduction: int, ignore: int, smoothing: float
) -> Any:
    shape = tuple(self._a.shape)
    axis = 0 if len(shape) == 1 else 1
    if not 0.0 <= smoothing <= 1.0:
        raise InvalidValue(f"label_smoothing must be between 0.0 and 1.0. Got: {smoothing}")
    log_probabilities = self.log_softmax(axis)
    if tuple(target._a.shape) == shape and target._t.differentiable:
        return _probabilities(log_probabilities, target, weight, reduction, smoothing, axis)
    if target._t.differentiable:
        raise DTypeError(
            f"cross_entropy: expected floating point targets to have the input's shape "
            f"{list(shape)} (probabilities), or integer class indices; got {target._t!r} of shape "
            f"{list(target.shape)}."
        )
    loss = nll_loss_nd(log_probabilities, target, weight, reduction, ignore)
    if not smoothing:
        return loss
    return _smoothed(loss, log_probabilities, target, weight, reduction, ignore, smoothing, axis)


def _probabilities(
    logp: Any, target: Any, weight: Any, reduction: int, smoothing: float, axis: int
) -> Any:
    classes = logp._a.shape[axis]
    if smoothing:
        target = target * (1 - smoothing) + smoothing / classes
    product = logp * target
    if weight is not None:
        shape = [1] * len(logp._a.shape)
        shape[axis] = classes
        product = product * weight.reshape(tuple(shape))
    loss = -product.sum(axis)
    if reduction == MEAN:
        count = numel(logp._a.shape) // classes
        return loss.sum() / count
    return reduced(loss, reduction)


def _smoothed(
    loss: Any, logp: Any, target: Any, weight: Any, reduction: int, ignore: int, smoothing: float,
    axis: int,
) -> Any:  # fmt: skip
    classes = logp._a.shape[axis]
    weighted = logp
    if weight is not None:
        shape = [1] * len(logp._a.shape)
        shape[axis] = classes
        weighted = logp * weight.reshape(tuple(shape))
    smooth = -weighted.sum(axis)
    ignored = target == ignore
    smooth = smooth.masked_fill(ignored, 0.0)
    if reduction == MEAN:
        if weight is not None:
            counted = weight.gather(0, target.masked_fill(ignored, 0).flatten())
            total = counted.masked_fill(ignored.flatten(), 0.0).sum()
        else:
            total = (~ignored).sum()
        smooth = smooth.sum() / total
    elif reduction == SUM:
        smooth = smooth.sum()
    return loss * (1 - smoothing) + smooth * (smoothing / classes)


# -- regression ----------------------------------------------------------------------------------


def mse_loss(self: Any, target: Any, reduction: int) -> Any:
    d = self - target
    return reduced(d * d, reduction)


def l1_loss(self: Any, target: Any, reduction: int) -> Any:
    return reduced((self - target).abs(), reduction)


def smooth_l1_loss(self: Any, target: Any, reduction: int, beta: float) -> Any:
    if beta < 0:
        raise InvalidValue("smooth_l1_loss does not support negative values for beta.")
    if beta == 0:
        return l1_loss(self, target, reduction)
    z = (self - target).abs()
    return reduced(call("where.self", z < beta, z * z * (0.5 / beta), z - 0.5 * beta), reduction)


def huber_loss(self: Any, target: Any, reduction: int, delta: float) -> Any:
    if delta <= 0:
        raise InvalidValue("huber_loss does not support non-positive values for delta.")
    z = (self - target).abs()
    small = z * z * 0.5
    return reduced(call("where.self", z <= delta, small, (z - 0.5 * delta) * delta), reduction)


# -- binary --------------------------------------------------------------------------------------


def binary_cross_entropy(self: Any, target: Any, weight: Any, reduction: int) -> Any:
    if tuple(self._a.shape) != tuple(target._a.shape):
        raise InvalidValue(
            f"Using a target size ({target.shape}) that is different to the input size "
            f"({self.shape}) is not supported. Please ensure they have the same size."
        )
    if self.device.type == "cpu" and has_values(self) and bool(((self < 0) | (self > 1)).any()):
        raise ShapeError(
            "all elements of input should be between 0 and 1; apply a sigmoid, or use "
            "binary_cross_entropy_with_logits"
        )
    loss = (target - 1) * (1 - self).log().clamp(min=-100) - target * self.log().clamp(min=-100)
    return reduced(loss if weight is None else loss * weight, reduction)


def binary_cross_entropy_with_logits(
    self: Any, target: Any, weight: Any, pos_weight: Any, reduction: int
) -> Any:
    if tuple(self._a.shape) != tuple(target._a.shape):
        raise InvalidValue(
            f"Target size ({target.shape}) must be the same as input size ({self.shape})"
        )
    log_sigmoid = call("log_sigmoid", self)
    if pos_weight is None:
        loss = (1 - target) * self - log_sigmoid
    else:
        loss = (1 - target) * self - ((pos_weight - 1) * target + 1) * log_sigmoid
    return reduced(loss if weight is None else loss * weight, reduction)


def kl_div(self: Any, target: Any, reduction: int, log_target: bool) -> Any:
    if log_target:
        return reduced(target.exp() * (target - self), reduction)
    return reduced(call("xlogy.Tensor", target, target) - target * self, reduction)


def poisson_nll_loss(
    input: Any, target: Any, log_input: bool, full: bool, eps: float, reduction: int
) -> Any:
    loss = input.exp() - target * input if log_input else input - target * (input + eps).log()
    if full:
        stirling = target * target.log() - target + 0.5 * (2 * math.pi * target).log()
        loss = loss + stirling.masked_fill(target <= 1, 0.0)
    return reduced(loss, reduction)


def hinge_embedding_loss(self: Any, target: Any, margin: float, reduction: int) -> Any:
    margin_part = (margin - self).clamp(min=0)
    zero = self * 0
    loss = call("where.self", target != 1, margin_part, zero) + call(
        "where.self", target != -1, self, zero
    )
    return reduced(loss, reduction)


def margin_ranking_loss(a: Any, b: Any, target: Any, margin: float, reduction: int) -> Any:
    return reduced((-target * (a - b) + margin).clamp(min=0), reduction)


def soft_margin_loss(self: Any, target: Any, reduction: int) -> Any:
    return reduced((-target * self).exp().log1p(), reduction)


def cosine_embedding_loss(a: Any, b: Any, target: Any, margin: float, reduction: int) -> Any:
    eps = 1e-12
    product = (a * b).sum(-1)
    cosine = product / (((a * a).sum(-1) + eps) * ((b * b).sum(-1) + eps)).sqrt()
    zero = cosine * 0
    loss = call("where.self", target == 1, 1 - cosine, zero) + call(
        "where.self", target == -1, (cosine - margin).clamp(min=0), zero
    )
    return reduced(loss, reduction)


def triplet_margin_loss(
    anchor: Any, positive: Any, negative: Any, margin: float, p: float, eps: float, swap: bool,
    reduction: int,
) -> Any:  # fmt: skip
    near = pairwise_distance(anchor, positive, p, eps, False)
    far = pairwise_distance(anchor, negative, p, eps, False)
    if swap:
        far = call("minimum", far, pairwise_distance(positive, negative, p, eps, False))
    return reduced((near - far + margin).clamp(min=0), reduction)


def multi_margin_loss(
    self: Any, target: Any, p: Any, margin: Any, weight: Any, reduction: int
) -> Any:
    if p not in (1, 2):
        raise InvalidValue("only p == 1 and p == 2 supported")
    x = self if len(self._a.shape) == 2 else self.reshape((1, -1))
    t = target.reshape((-1, 1))
    z = (margin - x.gather(1, t) + x).clamp(min=0)
    if p == 2:
        z = z * z
    if weight is not None:
        z = z * weight.gather(0, t.reshape((-1,))).unsqueeze(1)
    loss = z.scatter(1, t, 0).sum(1) / x._a.shape[1]
    if len(self._a.shape) < 2:
        loss = loss.squeeze(0)
    return reduced(loss, reduction)


# -- distances -------------------------------------------------------------------------------------


def cosine_similarity(x1: Any, x2: Any, dim: int, eps: float) -> Any:
    for name, x in (("x1", x1), ("x2", x2)):
        if not x._t.is_floating_point:
            raise DTypeError(
                f"cosine_similarity: expected {name} to be floating point, got {x._t!r}"
            )
    shape = tuple(broadcast(x1._a.shape, x2._a.shape))
    x1, x2 = x1.expand(shape), x2.expand(shape)
    n1 = (x1 * x1).sum(dim, True).sqrt().clamp(min=eps)
    n2 = (x2 * x2).sum(dim, True).sqrt().clamp(min=eps)
    return ((x1 / n1) * (x2 / n2)).sum(dim)


def pairwise_distance(x1: Any, x2: Any, p: float, eps: float, keepdim: bool) -> Any:
    return call("linalg_vector_norm", x1 - x2 + eps, p, (-1,), keepdim, None)


def cdist(x1: Any, x2: Any, p: float, compute_mode: int | None) -> Any:
    a, b = tuple(x1._a.shape), tuple(x2._a.shape)
    if len(a) < 2 or len(b) < 2:
        raise ShapeError(f"cdist only supports at least 2D tensors, got {len(a)}D and {len(b)}D")
    if a[-1] != b[-1]:
        raise ShapeError(f"X1 and X2 must have the same number of columns. X1: {a[-1]} X2: {b[-1]}")
    if p < 0:
        raise InvalidValue("cdist only supports non-negative p values")
    if not x1._t.is_floating_point or not x2._t.is_floating_point:
        raise DTypeError(f"cdist only supports floating-point dtypes, got {x1._t!r} and {x2._t!r}")
    return (*broadcast(a[:-2], b[:-2]), a[-2], b[-2]), x1._t


def cdist_public(x1: Any, x2: Any, p: float, compute_mode: int | None) -> Any:
    return call("_cdist_forward", x1, x2, p, compute_mode)


def _norm_grad(grad: Any, diff: Any, p: float, norm: Any) -> Any:
    """Gradient of the p-norm of ``diff`` (last dimension) for ``diff``; 0 where the norm is 0."""
    if p == 0:
        return diff * 0
    if p == 1:
        return grad * diff.sign()
    if p == math.inf:
        return grad * diff.sign() * (diff.abs() == norm).to(diff._t)
    zero = norm == 0
    if p == 2:
        return grad * (diff / norm.masked_fill(zero, 1.0)).masked_fill(zero, 0.0)
    power = diff.sign() * diff.abs().pow(p - 1)
    return grad * (power / norm.masked_fill(zero, 1.0).pow(p - 1)).masked_fill(zero, 0.0)


def cdist_grad(grad: Any, x1: Any, x2: Any, p: float, result: Any) -> Any:
    diff = x1.unsqueeze(-2) - x2.unsqueeze(-3)
    return _norm_grad(grad.unsqueeze(-1), diff, p, result.unsqueeze(-1)).sum(-2)


def pdist(self: Any, p: float) -> Any:
    if len(self._a.shape) != 2:
        raise ShapeError(f"pdist only supports 2D tensors, got: {len(self._a.shape)}D")
    if p < 0:
        raise InvalidValue("pdist only supports non-negative p values")
    n = self._a.shape[0]
    return (n * (n - 1) // 2,), self._t


def pdist_public(self: Any, p: float) -> Any:
    return call("_pdist_forward", self, p)


def pdist_grad(grad: Any, self: Any, p: float, result: Any) -> Any:
    n = self._a.shape[0]
    pairs = call("triu_indices", n, n, 1, dtypes.int64, None, self.device, None)
    i, j = pairs.select(0, 0), pairs.select(0, 1)
    diff = self.index_select(0, i) - self.index_select(0, j)
    g = _norm_grad(grad.unsqueeze(-1), diff, p, result.unsqueeze(-1))
    zero = call("full", tuple(self._a.shape), 0, self._t, None, self.device, None)
    return zero.index_add(0, i, g) - zero.index_add(0, j, g)


__all__ = [name for name in dir() if not name.startswith("_")]
