"""Scans, sorting, selection and searching: shape rules, bodies and gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mortice._base.errors import DTypeError, ShapeError
from mortice._ops.formulas import call, conj, has_values, zeros
from mortice._ops.pointwise import shape_of, tensor_like
from mortice._ops.reduction import at_indices, median_all, selected_by, spread_evenly
from mortice._types import dtypes
from mortice._types.shapes import wrap_dim

# -- shape rules -----------------------------------------------------------------------------------


def scanned(self: Any, dim: int, dtype: Any) -> Any:
    wrap_dim(dim, len(self._a.shape))
    return tuple(self._a.shape), dtype or (self._t if self._t.differentiable else dtypes.int64)


def scanned_float(self: Any, dim: int) -> Any:
    wrap_dim(dim, len(self._a.shape))
    if not self._t.differentiable:
        raise DTypeError(f"logcumsumexp is implemented for floating-point dtypes, not {self._t!r}.")
    return tuple(self._a.shape), self._t


def scanned_pair(self: Any, dim: int) -> Any:
    wrap_dim(dim, len(self._a.shape))
    shape = tuple(self._a.shape)
    return [(shape, self._t), (shape, dtypes.int64)]


def same_pair(self: Any, dim: int, *rest: Any) -> Any:
    if self._t.is_complex:
        raise DTypeError(f"Sort does not support complex dtypes on CPU, found {self._t!r}")
    return scanned_pair(self, dim)


def sort_stable(self: Any, stable: Any, dim: int, descending: bool) -> Any:
    return same_pair(self, dim)


def topk(self: Any, k: int, dim: int, largest: bool, sorted: bool) -> Any:
    shape = list(self._a.shape)
    d = wrap_dim(dim, len(shape))
    if self._t.is_complex or self._t is dtypes.bool_:
        raise DTypeError(f"topk is not implemented for {self._t!r}.")
    if k < 0 or k > (shape[d] if shape else 1):
        raise ShapeError(
            f"topk(): selected index k out of range: k is {k}, and dimension {d} has size "
            f"{shape[d] if shape else 1}"
        )
    if shape:
        shape[d] = k
    return [(tuple(shape), self._t), (tuple(shape), dtypes.int64)]


def kthvalue(self: Any, k: int, dim: int, keepdim: bool) -> Any:
    shape = self._a.shape
    d = wrap_dim(dim, len(shape))
    if k < 1 or k > (shape[d] if shape else 1):
        raise ShapeError("selected number k out of range for dimension " + str(d))
    return _kth(self, dim, keepdim)


_kth = selected_by("kthvalue")
median_dim, nanmedian_dim = selected_by("median"), selected_by("nanmedian")
mode_dim = selected_by("mode")


def histc(self: Any, bins: int, low: Any, high: Any) -> Any:
    if bins <= 0:
        raise ShapeError(f"histc(): bins must be > 0, but got {bins}")
    return (bins,), self._t


def bucketize(self: Any, boundaries: Any, out_int32: bool, right: bool) -> Any:
    if len(boundaries._a.shape) != 1:
        raise ShapeError(
            "bucketize(): boundaries tensor must be 1 dimension, but got dim("
            f"{len(boundaries._a.shape)})"
        )
    return tuple(self._a.shape), dtypes.int32 if out_int32 else dtypes.int64


def searchsorted(
    sequence: Any, self: Any, out_int32: bool, right: bool, side: str | None, sorter: Any
) -> Any:
    if side is not None:
        if side not in ("left", "right"):
            raise ShapeError(f"searchsorted(): side can only be 'left' or 'right' but got {side}")
        if side == "left" and right:
            raise ShapeError(
                "searchsorted(): side and right can't be set to opposites, got side of left while "
                "right was True"
            )
    edges, values = tuple(sequence._a.shape), shape_of(self)
    if len(edges) != 1 and (len(edges) != len(values) or edges[:-1] != values[:-1]):
        raise ShapeError(
            "searchsorted(): boundaries tensor should be 1 dimension or the first N-1 dimensions of "
            f"boundaries tensor and input value tensor must match, but we got boundaries tensor "
            f"{list(edges)} and input value tensor {list(values)}"
        )
    if sorter is not None and (tuple(sorter._a.shape) != edges or sorter._t is not dtypes.int64):
        raise ShapeError(
            "searchsorted(): boundary and sorter must have the same size and sorter be int64, but "
            f"got boundary tensor {list(edges)} and sorter tensor {list(sorter._a.shape)}"
        )
    return values, dtypes.int32 if out_int32 else dtypes.int64


# -- composites ------------------------------------------------------------------------------------


def diff(self: Any, n: int, dim: int, prepend: Any, append: Any) -> Any:
    if self.ndim == 0:
        raise ShapeError("diff expects input to be at least one-dimensional")
    if n < 0:
        raise ShapeError(f"order must be non-negative but got {n}")
    if n == 0:
        return self.clone()
    parts = [x for x in (prepend, self, append) if x is not None]
    x = call("cat", tuple(parts), dim) if len(parts) > 1 else self
    size = x.shape[wrap_dim(dim, x.ndim)]
    if n >= size:
        return x.narrow(dim, 0, 0).clone()
    for _ in range(n):
        size -= 1
        late, early = x.narrow(dim, 1, size), x.narrow(dim, 0, size)
        x = late.logical_xor(early) if x._t is dtypes.bool_ else late - early
    return x


def argsort(self: Any, dim: int, descending: bool) -> Any:
    return call("sort", self, dim, descending)[1]


def argsort_stable(self: Any, stable: bool, dim: int, descending: bool) -> Any:
    return call("sort.stable", self, stable, dim, descending)[1]


def msort(self: Any) -> Any:
    return call("sort", self, 0, False)[0]


def bucketize_scalar(value: Any, boundaries: Any, out_int32: bool, right: bool) -> Any:
    value = tensor_like(value, boundaries)
    return call("bucketize.Tensor", value, boundaries, out_int32, right)


def searchsorted_scalar(
    sequence: Any, value: Any, out_int32: bool, right: bool, side: Any, sorter: Any
) -> Any:
    if sequence.ndim != 1:
        raise ShapeError(
            "searchsorted(): input value can be a scalar only when boundaries tensor dimension is 1"
        )
    value = tensor_like(value, sequence)
    return call("searchsorted.Tensor", sequence, value, out_int32, right, side, sorter)


def _pair(y: Any, dim: int) -> tuple[Any, Any]:
    n = y.shape[wrap_dim(dim, y.ndim)]
    if n == 0:
        return y, y
    return y.narrow(dim, 1, n - 1), y.narrow(dim, 0, n - 1)


def _spacing(y: Any, x: Any, dim: int) -> Any:
    """Differences of sample points, shaped to multiply along ``dim`` of y."""
    if x.ndim == 1 and y.ndim > 1:
        steps = call("diff", x, 1, -1, None, None)
        d = wrap_dim(dim, y.ndim)
        return steps.reshape(tuple(-1 if i == d else 1 for i in range(y.ndim)))
    return call("diff", x, 1, dim, None, None)


def trapezoid_x(y: Any, x: Any, dim: int) -> Any:
    late, early = _pair(y, dim)
    if y.shape[wrap_dim(dim, y.ndim)] == 0:
        return y.sum(dim)
    return ((late + early) * _spacing(y, x, dim)).sum(dim) / 2.0


def trapezoid_dx(y: Any, dx: Any, dim: int) -> Any:
    late, early = _pair(y, dim)
    if y.shape[wrap_dim(dim, y.ndim)] == 0:
        return y.sum(dim)
    return (late + early).sum(dim) * (dx / 2.0)


def cumulative_trapezoid_x(y: Any, x: Any, dim: int) -> Any:
    late, early = _pair(y, dim)
    return ((late + early) * _spacing(y, x, dim)).cumsum(dim) / 2.0


def cumulative_trapezoid_dx(y: Any, dx: Any, dim: int) -> Any:
    late, early = _pair(y, dim)
    return (late + early).cumsum(dim) * (dx / 2.0)


def quantile(self: Any, q: Any, dim: int | None, keepdim: bool, interpolation: str) -> Any:
    return _quantile(self, q, dim, keepdim, interpolation, False)


def nanquantile(self: Any, q: Any, dim: int | None, keepdim: bool, interpolation: str) -> Any:
    return _quantile(self, q, dim, keepdim, interpolation, True)


_INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")


def _quantile(
    self: Any, q: Any, dim: int | None, keepdim: bool, interpolation: str, skip_nan: bool
) -> Any:
    """Of a float32 or float64 tensor; the dimension of a 1-d ``q`` comes first."""
    q = _checked_quantiles(self, q, interpolation)
    shape = tuple(self._a.shape)
    d = wrap_dim(dim or 0, len(shape))
    if dim is None:
        rows = self.reshape(-1)
    else:
        rows = self.movedim(d, -1) if shape else self.reshape(1)
    n = rows._a.shape[-1]
    if not n:
        raise ShapeError("quantile() input tensor must be non-empty")
    ordered = call("sort", rows, -1, False)[0]
    nans = rows.isnan()
    if skip_nan:
        last = (nans.logical_not().sum(-1, True) - 1).clamp(min=0)
        ranks = last.to(q._t) * q.reshape(-1)
    else:
        ranks = (q.reshape(-1) * (n - 1)).expand((*rows._a.shape[:-1], q.numel()))
        ranks = ranks.masked_fill(nans.any(-1, True), n - 1)
    result = _at_ranks(ordered, ranks, interpolation)
    if keepdim and shape:
        kept = tuple(1 if dim is None or i == d else s for i, s in enumerate(shape))
        result = result.movedim(-1, 0).reshape((q.numel(), *kept))
    else:
        result = result.movedim(-1, 0)
    return result if q.ndim else result.squeeze(0)


def _checked_quantiles(self: Any, q: Any, interpolation: str) -> Any:
    if self._t not in (dtypes.float32, dtypes.float64):
        raise DTypeError("quantile() input tensor must be either float or double dtype")
    if interpolation not in _INTERPOLATIONS:
        raise ShapeError(
            f"quantile() interpolation must be one of {', '.join(_INTERPOLATIONS)}, but got "
            f"{interpolation}"
        )
    if type(q) is float:
        if not 0 <= q <= 1:
            raise ShapeError(f"quantile() q must be in the range [0, 1] but got {q}")
        return call("full", (), q, self._t, None, self.device, None)
    if q.ndim > 1:
        raise ShapeError("quantile() q must be a scalar or 1D tensor")
    if q._t is not self._t:
        raise DTypeError("quantile() q tensor must be same dtype as the input tensor")
    if q.device.type != "cpu" or not has_values(q):
        return q
    if not bool(((q >= 0).logical_and(q <= 1)).all()):
        raise ShapeError("quantile() q values must be in the range [0, 1]")
    return q


def _at_ranks(ordered: Any, ranks: Any, interpolation: str) -> Any:
    """Values at fractional positions of sorted rows."""
    if interpolation in ("lower", "higher", "nearest"):
        chosen = {"lower": ranks.floor, "higher": ranks.ceil, "nearest": ranks.round}[
            interpolation
        ]()
        return ordered.gather(-1, chosen.to(dtypes.int64))
    below = ranks.floor()
    low = ordered.gather(-1, below.to(dtypes.int64))
    high = ordered.gather(-1, ranks.ceil().to(dtypes.int64))
    if interpolation == "midpoint":
        return call("lerp.Tensor", low, high, 0.5)
    return call("lerp.Tensor", low, high, ranks - below)


# -- gradients -------------------------------------------------------------------------------------


def _reversed_cumsum(x: Any, dim: int) -> Any:
    return x.flip((dim,)).cumsum(dim).flip((dim,))


def cumsum_grad(grad: Any, dim: int) -> Any:
    return grad if not grad._a.shape else _reversed_cumsum(grad, dim)


def cumprod_grad(grad: Any, self: Any, result: Any, dim: int, dtype: Any) -> Any:
    """Sum over k >= i of grad_k * result_k / self_i, exact where zeros occur."""
    if not self._a.shape or self.numel() == 0:
        return grad
    self = self.to(result._t)
    from mortice._dispatch.state import THREAD

    if THREAD.grad_enabled:
        return _cumprod_grad_by_scans(grad, self, dim)
    # Before the first zero the quotient holds, since later results are 0. At it, the product goes
    # on as if it were 1. Behind it, every product holds the zero.
    zero = self == 0
    count = zero.cumsum(dim)
    first = zero.logical_and(count == 1)
    before = _reversed_cumsum(grad * conj(result), dim) / conj(self.masked_fill(zero, 1))
    beyond = self.masked_fill(first, 1).cumprod(dim)
    at = _reversed_cumsum(grad * conj(beyond), dim)
    return call("where.self", count == 0, before, call("where.self", first, at, 0))


def _cumprod_grad_by_scans(grad: Any, self: Any, dim: int) -> Any:
    """Differentiable again: each input's derivative from the scan that leaves it out."""
    d = wrap_dim(dim, self.ndim)
    n = self._a.shape[d]
    slopes: list[Any] = []
    edge = tuple(1 if i == d else s for i, s in enumerate(self._a.shape))
    one = call("full", edge, 1, self._t, None, self.device, None)
    for i in range(n):
        before = self.narrow(d, 0, i).prod(d, True) if i else one
        after = call("cat", (one, self.narrow(d, i + 1, n - 1 - i)), d).cumprod(d)
        slopes.append((grad.narrow(d, i, n - i) * conj(before * after)).sum(d, True))
    return call("cat", tuple(slopes), d)


def logcumsumexp_grad(grad: Any, self: Any, result: Any, dim: int) -> Any:
    """exp(self) * reversed cumsum of grad * exp(-result), in logarithms, by sign of grad."""
    if not self._a.shape or self.numel() == 0:
        return grad
    if grad._t.is_complex:
        part = (grad.conj().log() - result).flip((dim,)).logcumsumexp(dim).flip((dim,))
        return (part + self).exp().conj()
    tiny = float("-inf")
    size = grad.abs().log()
    total = None
    for sign in (1, -1):
        side = grad > 0 if sign > 0 else grad < 0
        logs = (size - result).masked_fill(side.logical_not(), tiny)
        part = (logs.flip((dim,)).logcumsumexp(dim).flip((dim,)) + self).exp()
        total = part if total is None else total - part
    return total


def cumextremum_grad(grad: Any, shape: Sequence[int], indices: Any, dim: int) -> Any:
    if not len(shape):
        return grad
    return call("scatter_add", zeros(shape, grad._t, grad.device), dim, indices, grad)


#: With what the stanzas take from other families.
__all__ = [name for name in dir() if not name.startswith("_")] + [
    "at_indices",
    "median_all",
    "spread_evenly",
]
