"""Softmax: shape rules, composites and gradients."""

from __future__ import annotations

from typing import Any

from mortice._base.errors import DTypeError
from mortice._ops.formulas import call, conj
from mortice._ops.reduction import float_reduced, unreduced
from mortice._types import dtypes
from mortice._types.shapes import wrap_dim


def softmax_rule(self: Any, dim: int, half_to_float: bool) -> Any:
    wrap_dim(dim, len(self._a.shape))
    if not self._t.is_floating_point and 0 not in self._a.shape:
        raise DTypeError(f"softmax is implemented for floating-point dtypes only, not {self._t!r}.")
    if half_to_float and self._t is not dtypes.float16:
        raise DTypeError("conversion is supported for Half type only")
    return tuple(self._a.shape), dtypes.float32 if half_to_float else self._t


def safe_softmax_rule(self: Any, dim: int, dtype: Any) -> Any:
    shape, found = softmax_rule(self, dim, False)
    return shape, dtype or found


def softmax_backward_rule(grad: Any, output: Any, dim: int, input_dtype: Any) -> Any:
    wrap_dim(dim, len(grad._a.shape))
    return tuple(grad._a.shape), input_dtype


def softmax(self: Any, dim: int, dtype: Any) -> Any:
    return call("_softmax", self if dtype is None else self.to(dtype), dim, False)


def log_softmax(self: Any, dim: int, dtype: Any) -> Any:
    return call("_log_softmax", self if dtype is None else self.to(dtype), dim, False)


def safe_softmax(self: Any, dim: int, dtype: Any) -> Any:
    """As ``softmax``, but rows of nothing but -inf give 0 instead of nan."""
    hidden = (self == float("-inf")).all(dim, True)
    return softmax(self, dim, dtype).masked_fill(hidden, 0)


def softmax_grad_output(grad: Any, grad_output: Any, output: Any, dim: int) -> Any:
    """d/d output of output * (grad_output - sum(grad_output * output))."""
    total = (grad_output * output).sum(dim, True)
    return grad * grad_output - grad * total - grad_output * (grad * output).sum(dim, True)


def logsumexp_grad(grad: Any, self: Any, result: Any, dim: Any, keepdim: bool) -> Any:
    shape = self._a.shape
    top = unreduced(result, shape, dim, keepdim)
    # Where the result is -inf, every difference is nan; the weights there are 0.
    shift = top if top._t.is_complex else top.masked_fill(top == float("-inf"), 0)
    return unreduced(grad, shape, dim, keepdim) * conj((self - shift).exp())


__all__ = [name for name in dir() if not name.startswith("_")] + ["float_reduced"]
