"""Selection, clamping, interpolation and filling: shape rules, bodies and gradients."""

from __future__ import annotations

from typing import Any

from mortice._base.errors import DTypeError, ShapeError
from mortice._ops.formulas import call, conj, scaled, sum_to, zeros_like
from mortice._ops.pointwise import shape_of, tensor_like
from mortice._types import dtypes
from mortice._types.promotion import NUMBERS, result_type
from mortice._types.shapes import broadcast, broadcast_all, dense_strides_like

# -- shape rules -----------------------------------------------------------------------------------


def unary_strict(self: Any, *rest: Any) -> Any:
    if rest and hasattr(rest[0], "_a") and len(rest[0]._a.shape):
        raise ShapeError(
            "fill_ only supports 0-dimension value tensor but got tensor with "
            f"{len(rest[0]._a.shape)} dimensions."
        )
    return tuple(self._a.shape), self._t, dense_strides_like(self._a.shape, self.stride())


def ternary(self: Any, a: Any, b: Any, *rest: Any) -> Any:
    """Broadcast sizes and promoted dtype of three operands, numbers among them."""
    shape = broadcast_all((shape_of(self), shape_of(a), shape_of(b)))
    return shape, result_type((self, a, b))


def addcdiv(self: Any, tensor1: Any, tensor2: Any, value: Any) -> Any:
    if not tensor1._t.differentiable and not tensor2._t.differentiable:
        raise DTypeError(
            "Integer division with addcdiv is no longer supported, and in a future release addcdiv "
            "will perform a true division of tensor1 and tensor2. Convert them to a floating-point "
            "dtype first."
        )
    return ternary(self, tensor1, tensor2)


def lerp(self: Any, end: Any, weight: Any) -> Any:
    for name, x in (("end", end), ("weight", weight)):
        if hasattr(x, "_t") and x._t is not self._t:
            raise DTypeError(f"expected dtype {self._t!r} for `{name}` but got dtype {x._t!r}")
    if not self._t.differentiable:
        raise DTypeError(f"lerp is implemented for floating-point dtypes only, not {self._t!r}.")
    return ternary(self, end, weight if hasattr(weight, "_k") else self)  # a number has no say


def where(condition: Any, self: Any, other: Any) -> Any:
    if condition._t not in (dtypes.bool_, dtypes.uint8):
        raise DTypeError(
            f"where expected condition to be a boolean tensor, but got a tensor with dtype "
            f"{condition._t!r}"
        )
    shape = broadcast_all((shape_of(condition), shape_of(self), shape_of(other)))
    return shape, result_type((self, other))


def clamp(self: Any, low: Any, high: Any) -> Any:
    if low is None and high is None:
        raise ShapeError("clamp: At least one of 'min' or 'max' must not be None")
    shape = broadcast_all((shape_of(self), shape_of(low), shape_of(high)))
    dtype = result_type((self, low, high))
    if dtype.is_complex:
        raise DTypeError("clamp is not supported for complex types")
    if len(shape) == len(self._a.shape) and shape == tuple(self._a.shape):
        return shape, dtype, dense_strides_like(shape, self.stride())
    return shape, dtype


def clamp_min(self: Any, low: Any) -> Any:
    return clamp(self, low, None)


def clamp_max(self: Any, high: Any) -> Any:
    return clamp(self, None, high)


def masked_fill(self: Any, mask: Any, value: Any) -> Any:
    if mask._t is not dtypes.bool_:
        raise DTypeError(
            f"masked_fill_ only supports boolean masks, but got mask with dtype {mask._t!r}"
        )
    if hasattr(value, "_a") and len(value._a.shape):
        raise ShapeError(
            "masked_fill_ only supports a 0-dimensional value tensor, but got tensor with "
            f"{len(value._a.shape)} dimension(s)."
        )
    return broadcast(tuple(self._a.shape), tuple(mask._a.shape)), self._t


# -- composites ------------------------------------------------------------------------------------


def lerp_scalar(self: Any, end: Any, weight: Any) -> Any:
    return call("lerp.Tensor", self, end, weight)


def where_numbers(condition: Any, self: Any, other: Any) -> Any:
    return call("where.self", condition, self, other)


def where_indices(condition: Any) -> Any:
    """Coordinates of the elements that are true, one tensor per dimension."""
    found = condition.nonzero()
    if condition.ndim == 0:
        return (found.reshape(-1),) if found.ndim else (found,)
    return found.unbind(1)


def clip(self: Any, low: Any, high: Any) -> Any:
    tensors = hasattr(low, "_k") or hasattr(high, "_k")
    return call("clamp.Tensor" if tensors else "clamp", self, low, high)


# -- gradients -------------------------------------------------------------------------------------


def lerp_grad_self(grad: Any, weight: Any) -> Any:
    return grad * (conj(-weight + 1) if hasattr(weight, "_k") else 1 - conj(weight))


def where_grad(grad: Any, condition: Any, chosen: bool) -> Any:
    if chosen:
        return call("where.self", condition, grad, 0)
    return call("where.self", condition, 0, grad)


def clamp_grad(grad: Any, self: Any, low: Any, high: Any) -> Any:
    """grad where ``self`` was inside the bounds, bounds included."""
    inside = None
    if low is not None:
        inside = self >= low
    if high is not None:
        below = self <= high
        inside = below if inside is None else inside.logical_and(below)
    return grad if inside is None else call("where.self", inside, grad, 0)


def clamp_tensor_grad(grad: Any, self: Any, low: Any, high: Any, needs: Any) -> Any:
    """To self where it is inside, to a bound where it is chosen; min > max leaves max."""
    to_self = clamp_grad(grad, self, low, high) if needs[0] else None
    to_low = to_high = None
    if needs[1]:
        chosen = self < low
        if high is not None:
            chosen = chosen.logical_and(low < high)
        to_low = call("where.self", chosen, grad, 0)
    if needs[2]:
        chosen = self > high
        if low is not None:
            chosen = chosen.logical_or(high < low)
        to_high = call("where.self", chosen, grad, 0)
    return to_self, to_low, to_high


def clamp_min_grad(grad: Any, self: Any, low: Any, needs: Any) -> Any:
    return (
        call("where.self", self >= low, grad, 0) if needs[0] else None,
        call("where.self", self < low, grad, 0) if needs[1] else None,
    )


def clamp_max_grad(grad: Any, self: Any, high: Any, needs: Any) -> Any:
    return (
        call("where.self", self <= high, grad, 0) if needs[0] else None,
        call("where.self", self > high, grad, 0) if needs[1] else None,
    )


def masked_fill_grad_value(grad: Any, mask: Any) -> Any:
    return call("where.self", mask, grad, 0).sum()


__all__ = [name for name in dir() if not name.startswith("_")] + [
    "NUMBERS", "scaled", "sum_to", "tensor_like", "zeros_like",
]  # fmt: skip
