"""Elementwise operators: shape rules, number forms and gradients."""

from __future__ import annotations

from typing import Any

from mortice._ops.formulas import call, conj, scaled
from mortice._types import dtypes
from mortice._types.promotion import result_type
from mortice._types.shapes import broadcast, dense_strides_like

# -- shape rules: (sizes, dtype[, strides]) ------------------------------------------------------


def unary(self: Any, *rest: Any) -> Any:
    """Same sizes, dtype and (if dense) strides."""
    return tuple(self._a.shape), self._t, dense_strides_like(self._a.shape, self.stride())


def unary_float(self: Any, *rest: Any) -> Any:
    """As ``unary``; integers become the default floating dtype."""
    dtype = self._t if self._t.differentiable else dtypes.default.dtype
    return tuple(self._a.shape), dtype, dense_strides_like(self._a.shape, self.stride())


def binary(self: Any, other: Any, *rest: Any) -> Any:
    """Broadcast sizes, promoted dtype. Either operand may be a Python number."""
    shape = broadcast(getattr(self, "shape", ()), getattr(other, "shape", ()))
    return shape, result_type((self, other))


def add(self: Any, other: Any, alpha: Any) -> Any:
    return binary(self, other)


# -- number forms ----------------------------------------------------------------------------------


def add_scalar(self: Any, other: Any, alpha: Any) -> Any:
    return call("add.Tensor", self, other, alpha)


def mul_scalar(self: Any, other: Any) -> Any:
    return call("mul.Tensor", self, other)


# -- gradients -------------------------------------------------------------------------------------


def threshold_grad(grad: Any, result: Any, threshold: float) -> Any:
    """The gradient where the output is above the threshold, else 0."""
    return call("threshold_backward", grad, result, threshold)


__all__ = [name for name in dir() if not name.startswith("_")] + ["scaled"]
