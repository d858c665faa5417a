"""Reductions: shape rules, composite bodies and gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from mortice._base.errors import DimensionError, DTypeError, ShapeError
from mortice._ops.formulas import call, conj, has_values, zeros
from mortice._types import dtypes
from mortice._types.shapes import wrap_dim, wrap_dims

# -- shape rules -----------------------------------------------------------------------------------


def reduced(shape: Sequence[int], dim: Any, keepdim: bool) -> tuple[int, ...]:
    """Sizes after reducing ``dim`` (one, several, or None or () for all)."""
    gone = wrap_dims(dim, len(shape))
    if keepdim:
        return tuple(1 if d in gone else n for d, n in enumerate(shape))
    return tuple(n for d, n in enumerate(shape) if d not in gone)


def _sum_dtype(self: Any, dtype: Any) -> Any:
    return dtype or (self._t if self._t.differentiable else dtypes.int64)


def sum_all(self: Any, dtype: Any) -> Any:
    return (), _sum_dtype(self, dtype)


def sum_dims(self: Any, dim: Any, keepdim: bool, dtype: Any) -> Any:
    return reduced(self._a.shape, dim, keepdim), _sum_dtype(self, dtype)


def _mean_dtype(self: Any, dtype: Any) -> Any:
    found = dtype or self._t
    if not found.differentiable:
        which = "Input" if dtype is None else "Optional"
        raise DTypeError(
            f"mean(): could not infer output dtype. {which} dtype must be either a floating point "
            f"or complex dtype. Got: {found!r}"
        )
    return found


def mean_all(self: Any, dtype: Any) -> Any:
    return (), _mean_dtype(self, dtype)


def mean_dims(self: Any, dim: Any, keepdim: bool, dtype: Any) -> Any:
    return reduced(self._a.shape, dim, keepdim), _mean_dtype(self, dtype)


def float_reduced(self: Any, dim: Any, keepdim: bool) -> Any:
    dtype = self._t if self._t.differentiable else dtypes.default.dtype
    return reduced(self._a.shape, dim, keepdim), dtype


def _orders(self: Any, name: str) -> None:
    if self._t.is_complex:
        raise DTypeError(
            f"{name} is not implemented for {self._t!r}: complex numbers have no order."
        )


def _not_empty(self: Any, dims: Sequence[int], name: str) -> None:
    """An extremum of nothing has no value, unless the result is empty as well."""
    shape = self._a.shape
    for d in dims:
        if shape and shape[d] == 0:
            raise DimensionError(f"{name}(): Expected reduction dim {d} to have non-zero size.")


def _over_dims(name: str) -> Any:
    def rule(self: Any, dim: Any, keepdim: bool) -> Any:
        _orders(self, name)
        if dim == () and 0 in self._a.shape:
            raise _no_dim_for_nothing(name)
        _not_empty(self, wrap_dims(dim, len(self._a.shape)), name)
        return reduced(self._a.shape, dim, keepdim), self._t

    return rule


def _no_dim_for_nothing(name: str) -> ShapeError:
    return ShapeError(
        f"{name}(): Expected reduction dim to be specified for input.numel() == 0. Specify the "
        "reduction dim with the 'dim' argument."
    )


def _over_all(name: str) -> Any:
    def rule(self: Any) -> Any:
        _orders(self, name)
        if 0 in self._a.shape:
            raise _no_dim_for_nothing(name)
        return (), self._t

    return rule


amax_dims, amin_dims = _over_dims("amax"), _over_dims("amin")
max_all, min_all = _over_all("max"), _over_all("min")


def median_all(self: Any) -> Any:
    _orders(self, "median")
    return (), self._t


def aminmax(self: Any, dim: int | None, keepdim: bool) -> Any:
    _orders(self, "aminmax")
    if dim is None and 0 in self._a.shape:
        raise ShapeError(
            "aminmax(): cannot compute aminmax over an empty dimension as the operation has no identity."
        )
    dims = None if dim is None else (dim,)
    if dims:
        _not_empty(self, wrap_dims(dims, len(self._a.shape)), "aminmax")
    return [(reduced(self._a.shape, dims, keepdim), self._t)] * 2


def selected_by(name: str) -> Any:
    """The rule of an operator that gives (values, indices) of one element per row."""

    def rule(self: Any, dim: int, keepdim: bool) -> Any:
        _orders(self, name)
        d = wrap_dim(dim, len(self._a.shape))
        _not_empty(self, (d,), name)
        shape = reduced(self._a.shape, (d,), keepdim) if self._a.shape else ()
        return [(shape, self._t), (shape, dtypes.int64)]

    return rule


max_dim, min_dim = selected_by("max"), selected_by("min")


def _arg_rule(name: str) -> Any:
    def rule(self: Any, dim: int | None, keepdim: bool) -> Any:
        _orders(self, name)
        shape = self._a.shape
        if dim is None:
            if 0 in shape:
                raise DimensionError(
                    f"{name}(): Expected reduction dim to be specified for input.numel() == 0."
                )
            return tuple(1 for _ in shape) if keepdim else (), dtypes.int64
        d = wrap_dim(dim, len(shape))
        _not_empty(self, (d,), name)
        return reduced(shape, (d,), keepdim) if shape else (), dtypes.int64

    return rule


argmax_rule, argmin_rule = _arg_rule("argmax"), _arg_rule("argmin")


def _truth_dtype(self: Any) -> Any:
    return dtypes.uint8 if self._t is dtypes.uint8 else dtypes.bool_


def truth_all(self: Any) -> Any:
    return (), _truth_dtype(self)


def truth_dim(self: Any, dim: int, keepdim: bool) -> Any:
    return reduced(self._a.shape, (dim,), keepdim), _truth_dtype(self)


def truth_dims(self: Any, dim: Any, keepdim: bool) -> Any:
    if dim is not None and not len(dim):
        return tuple(self._a.shape), _truth_dtype(self)
    return reduced(self._a.shape, dim, keepdim), _truth_dtype(self)


def _var_dtype(self: Any) -> Any:
    if not self._t.differentiable:
        raise DTypeError(
            f"std and var only support floating point and complex dtypes, not {self._t!r}."
        )
    return self._t.to_real()


def var_rule(self: Any, dim: Any, correction: Any, keepdim: bool) -> Any:
    return reduced(self._a.shape, dim, keepdim), _var_dtype(self)


def var_mean_rule(self: Any, dim: Any, correction: Any, keepdim: bool) -> Any:
    shape = reduced(self._a.shape, dim, keepdim)
    return [(shape, _var_dtype(self)), (shape, self._t)]


def vector_norm(self: Any, ord: Any, dim: Any, keepdim: bool, dtype: Any) -> Any:
    if not self._t.differentiable:
        raise DTypeError(
            "linalg.vector_norm: Expected a floating point or complex tensor as input. Got "
            f"{self._t!r}"
        )
    shape = tuple(self._a.shape)
    dims = wrap_dims(dim, len(shape))
    if 0 in (shape[d] for d in dims if shape) and (ord < 0 or ord == math.inf):
        raise ShapeError(
            f"linalg.vector_norm cannot compute the {ord} norm on an empty tensor because the "
            "operation does not have an identity"
        )
    if dtype is not None and (dtype.is_complex != self._t.is_complex or not dtype.differentiable):
        kind = "complex" if self._t.is_complex else "real"
        raise DTypeError(
            f"linalg.vector_norm: dtype should be {kind} for {kind} inputs, but got {dtype!r}"
        )
    return reduced(shape, dim, keepdim), (dtype or self._t).to_real()


def count_dims(self: Any, dim: Any) -> Any:
    dims = None if dim is None else ((dim,) if isinstance(dim, int) else dim)
    return reduced(self._a.shape, dims, False), dtypes.int64


def trace(self: Any) -> Any:
    if len(self._a.shape) != 2:
        raise ShapeError("trace: expected a matrix")
    return (), _sum_dtype(self, None)


# -- composites ------------------------------------------------------------------------------------


def nanmean(self: Any, dim: Any, keepdim: bool, dtype: Any) -> Any:
    if not self._t.differentiable:
        raise DTypeError(
            f"nanmean(): expected input to have floating point or complex dtype but got {self._t!r}"
        )
    count = self.isnan().logical_not().sum(dim, keepdim)
    return call("nansum", self, dim, keepdim, dtype) / count


def _correction(unbiased: bool) -> int:
    return 1 if unbiased else 0


def _var_form(name: str) -> tuple[Any, Any]:
    target = f"{name}.correction"

    def over_all(self: Any, unbiased: bool) -> Any:
        return call(target, self, None, _correction(unbiased), False)

    def over_dims(self: Any, dim: Any, unbiased: bool, keepdim: bool) -> Any:
        return call(target, self, dim, _correction(unbiased), keepdim)

    return over_all, over_dims


var_all, var_dims = _var_form("var")
std_all, std_dims = _var_form("std")
var_mean_all, var_mean_dims = _var_form("var_mean")
std_mean_all, std_mean_dims = _var_form("std_mean")


def norm_scalar(self: Any, p: Any) -> Any:
    return call("linalg_vector_norm", self, p, None, False, None)


def norm_dims(self: Any, p: Any, dim: Any, keepdim: bool) -> Any:
    return call("linalg_vector_norm", self, 2 if p is None else p, dim, keepdim, None)


def norm_dtype(self: Any, p: Any, dtype: Any) -> Any:
    return call("linalg_vector_norm", self, 2 if p is None else p, None, False, dtype)


def norm_dims_dtype(self: Any, p: Any, dim: Any, keepdim: bool, dtype: Any) -> Any:
    return call("linalg_vector_norm", self, 2 if p is None else p, dim, keepdim, dtype)


def maximum(self: Any, other: Any) -> Any:
    return call("maximum", self, other)


def minimum(self: Any, other: Any) -> Any:
    return call("minimum", self, other)


def renorm(self: Any, p: Any, dim: int, maxnorm: Any) -> Any:
    """Scale each slice along ``dim`` whose p-norm exceeds ``maxnorm`` down to it."""
    if not isinstance(p, (int, float)) or p <= 0:
        raise ShapeError("renorm: non-positive-norm not supported")
    if not isinstance(maxnorm, (int, float)) or maxnorm < 0:
        raise ShapeError(f"renorm: expected maxnorm to be >= 0 but got {maxnorm}")
    if self.ndim < 2:
        raise ShapeError(f"renorm: input needs at least 2 dimensions, got {self.ndim} dimensions")
    kept = wrap_dim(dim, self.ndim)
    others = tuple(d for d in range(self.ndim) if d != kept)
    norm = call("linalg_vector_norm", self, p, others, True, None)
    # 1e-7 keeps the scaled norm from rounding above the limit, as PyTorch does.
    factor = call("where.self", norm > maxnorm, maxnorm / (norm + 1e-7), 1)
    return (self * factor).to(self._t)


def dist(self: Any, other: Any, p: Any) -> Any:
    return call("linalg_vector_norm", self - other, p, None, False, None)


def cov(self: Any, correction: int, fweights: Any, aweights: Any) -> Any:
    """Covariance matrix of the rows (variables) over the columns (observations)."""
    if self.ndim > 2:
        raise ShapeError(
            f"cov(): expected input to have two or fewer dimensions but got an input with {self.ndim} dimensions"
        )
    if self._t is dtypes.bool_:
        raise DTypeError("cov(): bool dtype is not supported for input")
    _check_weights(self, fweights, "fweights", floating=False)
    _check_weights(self, aweights, "aweights", floating=True)
    x = self.reshape((1, -1)) if self.ndim < 2 else self
    observations = x.shape[1]
    weights = fweights
    if aweights is not None:
        weights = aweights if weights is None else aweights * weights
    if weights is None:
        total = observations
        mean = x.sum(1, True) / observations
        norm = max(observations - correction, 0)
        centred = x - mean
        product = centred @ conj(centred.t())
        return (product / norm).squeeze() if norm else (product / 0.0).squeeze()
    total = weights.sum()
    mean = (x * weights).sum(1, True) / total
    norm = total
    if correction:
        spread = (weights * aweights).sum() / total if aweights is not None else 1
        norm = total - spread * correction
    centred = x - mean
    return (((centred * weights) @ conj(centred.t())) / norm.clamp(min=0)).squeeze()


def _check_weights(self: Any, weights: Any, name: str, floating: bool) -> None:
    if weights is None:
        return
    if weights.ndim > 1:
        raise ShapeError(
            f"cov(): expected {name} to have one or fewer dimensions but got {name} with "
            f"{weights.ndim} dimensions"
        )
    if (
        weights._t.is_complex
        or weights._t is dtypes.bool_
        or weights._t.is_floating_point != floating
    ):
        wanted = "floating point" if floating else "integral"
        raise DTypeError(
            f"cov(): expected {name} to have {wanted} dtype but got {name} with {weights._t!r}"
        )
    observations = self.shape[-1] if self.ndim else 1
    if weights.numel() != observations:
        raise ShapeError(
            f"cov(): expected {name} to have the same numel as there are observations in the input "
            f"but got {weights.numel()} != {observations}"
        )
    if has_values(weights) and weights.numel() and bool((weights < 0).any()):
        raise ShapeError(f"cov(): {name} cannot be negative")


def corrcoef(self: Any) -> Any:
    if self.ndim > 2:
        raise ShapeError(
            f"corrcoef(): expected input to have two or fewer dimensions but got an input with {self.ndim} dimensions"
        )
    c = call("cov", self, 1, None, None)
    if c.ndim == 0:
        return c / c
    deviation = (c.diagonal().real if c._t.is_complex else c.diagonal()).sqrt()
    c = c / deviation.unsqueeze(1) / deviation.unsqueeze(0)
    return (
        call("complex", c.real.clip(-1, 1), c.imag.clip(-1, 1))
        if c._t.is_complex
        else c.clip(-1, 1)
    )


# -- gradients -------------------------------------------------------------------------------------


def unreduced(grad: Any, shape: Sequence[int], dim: Any, keepdim: bool) -> Any:
    """A reduction's result expanded back to the sizes that were reduced."""
    shape = tuple(shape)
    if not keepdim and shape:
        kept = list(shape)
        for d in wrap_dims(dim, len(shape)):
            kept[d] = 1
        grad = grad.reshape(tuple(kept))
    return grad.expand(shape)


def _count(shape: Sequence[int], dim: Any) -> int:
    n = 1
    for d in wrap_dims(dim, len(shape)):
        n = n * (shape[d] if shape else 1)
    return n


def mean_grad(grad: Any, shape: Sequence[int], dim: Any, keepdim: bool) -> Any:
    return unreduced(grad / max(_count(shape, dim), 1), shape, dim, keepdim)


def spread_evenly(grad: Any, self: Any, result: Any, dim: Any, keepdim: bool) -> Any:
    """grad shared evenly among the elements that equal the result."""
    shape = self._a.shape
    mask = self == unreduced(result, shape, dim, keepdim)
    if self._t.is_floating_point:
        mask = mask.logical_or(
            self.isnan().logical_and(unreduced(result, shape, dim, keepdim).isnan())
        )
    share = unreduced(grad, shape, dim, keepdim) * mask
    return share / mask.sum(wrap_dims(dim, len(shape)) if shape else None, True)


def aminmax_grad(grads: Any, self: Any, low: Any, high: Any, dim: int | None, keepdim: bool) -> Any:
    total = None
    dims = () if dim is None else (dim,)
    for grad, result in zip(grads, (low, high)):
        if grad is not None:
            part = spread_evenly(grad, self, result, dims, keepdim)
            total = part if total is None else total + part
    return total


def at_indices(grad: Any, shape: Sequence[int], dim: int, indices: Any, keepdim: bool) -> Any:
    """grad put at the positions that were selected along ``dim``, zero elsewhere."""
    if not len(shape):
        return grad
    if not keepdim:
        grad, indices = grad.unsqueeze(dim), indices.unsqueeze(dim)
    return call("scatter.src", zeros(shape, grad._t, grad.device), dim, indices, grad)


def prod_all_grad(grad: Any, self: Any, result: Any) -> Any:
    if self.ndim == 0:
        return grad
    flat = self.reshape(-1)
    return prod_grad(grad.reshape(1), flat, result.reshape(1), 0, True).reshape(self._a.shape)


def prod_grad(grad: Any, self: Any, result: Any, dim: int, keepdim: bool) -> Any:
    """grad times the product of all other elements.

    That is result / self where no element is 0, the product of the others at a lone 0, and 0 beside
    one. Where it is to be differentiated again, products before and after each element are formed
    by scans instead, which are right for zeros, too.
    """
    if self.ndim == 0:
        return grad
    if not keepdim:
        grad, result = grad.unsqueeze(dim), result.unsqueeze(dim)
    from mortice._dispatch.state import THREAD

    if not THREAD.grad_enabled:
        zero = self == 0
        zeros_in_row = zero.sum(dim, True)
        others = self.masked_fill(zero, 1)
        at_zero = call("where.self", zero.logical_and(zeros_in_row == 1), others.prod(dim, True), 0)
        return grad * conj(call("where.self", zeros_in_row == 0, result / others, at_zero))
    n = self._a.shape[wrap_dim(dim, self.ndim)]
    if n == 0:
        return grad.expand(self._a.shape)
    edge = list(self._a.shape)
    edge[wrap_dim(dim, self.ndim)] = 1
    one = call("full", tuple(edge), 1, self._t, None, self.device, None)
    before = call("cat", (one, self.narrow(dim, 0, n - 1)), dim).cumprod(dim)
    after = call("cat", (one, self.narrow(dim, 1, n - 1).flip((dim,))), dim)
    return grad * conj(before * after.cumprod(dim).flip((dim,)))


def var_grad(grad: Any, self: Any, dim: Any, correction: Any, keepdim: bool) -> Any:
    shape = self._a.shape
    n = _count(shape, dim) - (1 if correction is None else correction)
    scale = 2.0 / n if n > 0 else (math.nan if n == 0 else 0.0)
    if n < 0:
        scale = math.inf
    dims = wrap_dims(dim, len(shape)) if shape else None
    return unreduced(grad * scale, shape, dim, keepdim) * (self - self.mean(dims, True))


def std_grad(grad: Any, self: Any, result: Any, dim: Any, correction: Any, keepdim: bool) -> Any:
    through = (grad / (result * 2)).masked_fill(result == 0, 0)
    return var_grad(through, self, dim, correction, keepdim)


def var_mean_grad(grads: Any, self: Any, dim: Any, correction: Any, keepdim: bool) -> Any:
    total = None
    if grads[0] is not None:
        total = var_grad(grads[0], self, dim, correction, keepdim)
    if grads[1] is not None:
        part = mean_grad(grads[1], self._a.shape, dim, keepdim)
        total = part if total is None else total + part
    return total


def std_mean_grad(grads: Any, self: Any, std: Any, dim: Any, correction: Any, keepdim: bool) -> Any:
    through = None
    if grads[0] is not None:
        through = (grads[0] / (std * 2)).masked_fill(std == 0, 0)
    return var_mean_grad((through, grads[1]), self, dim, correction, keepdim)


def norm_grad(grad: Any, self: Any, result: Any, ord: Any, dim: Any, keepdim: bool) -> Any:
    """Of the p-norm; a subgradient of 0 where the norm is 0."""
    shape = self._a.shape
    if ord == 0:
        return zeros(shape, grad._t, grad.device)
    grad = unreduced(grad, shape, dim, keepdim)
    norm = unreduced(result, shape, dim, keepdim)
    if ord == 1:
        return self.sgn() * grad
    if ord in (math.inf, -math.inf):
        size = self.abs()
        mask = (size == norm).logical_or(size.isnan().logical_and(norm.isnan()))
        dims = wrap_dims(dim, len(shape)) if shape else None
        return self.sgn() * (grad * mask / mask.sum(dims, True))
    if ord == 2:
        return (self * (grad / norm)).masked_fill(norm == 0, 0)
    if ord < 1:
        return (self.sgn() * self.abs().pow(ord - 1) * (grad * norm.pow(1 - ord))).masked_fill(
            self == 0, 0
        )
    if ord < 2:
        slope = self.sgn() * self.abs().pow(ord - 1) * grad / norm.pow(ord - 1)
        return slope.masked_fill(norm == 0, 0)
    slope = self * self.abs().pow(ord - 2) * grad / norm.pow(ord - 1)
    return slope.masked_fill(norm == 0, 0)


def trace_grad(grad: Any, shape: Sequence[int]) -> Any:
    n = min(shape)
    zero = zeros(shape, grad._t, grad.device)
    return call("diagonal_scatter", zero, grad.expand((n,)), 0, 0, 1)


__all__ = [name for name in dir() if not name.startswith("_")]
