"""Pooling: shape rules, public forms and gradients. Spatial dimensions are the last n."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mortice._base.errors import RangeError, ShapeError
from mortice._ops.formulas import call
from mortice._types import dtypes
from mortice._types.shapes import numel

Ints = Sequence[int]


def spread(values: Ints, n: int) -> tuple[int, ...]:
    return tuple(values) * n if len(values) == 1 else tuple(values)


def pooled_size(size: int, kernel: int, pad: int, stride: int, dilation: int, ceil: bool) -> int:
    """Windows along one dimension; in ceil mode the last must start inside the padded input."""
    span = size + 2 * pad - dilation * (kernel - 1) - 1
    count = (span + (stride - 1 if ceil else 0)) // stride + 1
    if ceil and (count - 1) * stride >= size + pad:
        count -= 1
    return count


def _windowed(
    self: Any, name: str, n: int, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints,
    ceil: bool,
) -> tuple[int, ...]:  # fmt: skip
    shape = tuple(self._a.shape)
    if len(shape) not in (n + 1, n + 2):
        raise ShapeError(
            f"{name}: Expected {n + 1}D or {n + 2}D tensor, but got {len(shape)}D of shape "
            f"{list(shape)}"
        )
    k = spread(kernel, n)
    s = spread(stride, n) if stride else k
    p, d = spread(padding, n), spread(dilation, n)
    for what, values in (("kernel_size", k), ("stride", s), ("dilation", d)):
        if any(v <= 0 for v in values):
            raise RangeError(f"{name}: {what} should be greater than zero, but got {list(values)}")
    for i in range(n):
        if p[i] < 0 or p[i] > ((k[i] - 1) * d[i] + 1) // 2:
            raise ShapeError(
                f"{name}: pad should be at most half of effective kernel size, but got "
                f"pad={p[i]}, kernel_size={k[i]} and dilation={d[i]}"
            )
    if any(m == 0 for m in shape[-n - 1 :]):
        raise ShapeError(
            f"{name}: Expected {n + 1}D or {n + 2}D tensor with optional 0 dim batch size for "
            f"input, but got: {list(shape)}"
        )
    out = tuple(pooled_size(shape[i - n], k[i], p[i], s[i], d[i], ceil) for i in range(n))
    if any(m < 1 for m in out):
        raise ShapeError(
            f"{name}: Given input size: {list(shape)}. Calculated output size: "
            f"{[*shape[:-n], *out]}. Output size is too small"
        )
    return (*shape[:-n], *out)


def _max_pool(n: int) -> Any:
    def rule(
        self: Any, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil: bool
    ) -> Any:
        shape = _windowed(self, f"max_pool{n}d", n, kernel, stride, padding, dilation, ceil)
        return [(shape, self._t), (shape, dtypes.int64)]

    return rule


max_pool2d = _max_pool(2)
max_pool3d = _max_pool(3)


def _avg_pool(n: int) -> Any:
    def rule(
        self: Any,
        kernel: Ints,
        stride: Ints,
        padding: Ints,
        ceil: bool,
        include: bool,
        divisor: Any,
    ) -> Any:
        if divisor == 0:
            raise RangeError("divisor must be not zero")
        name = f"avg_pool{n}d"
        return _windowed(self, name, n, kernel, stride, padding, (1,), ceil), self._t

    return rule


avg_pool2d = _avg_pool(2)
avg_pool3d = _avg_pool(3)


def avg_pool_backward(grad_output: Any, self: Any, *rest: Any) -> Any:
    return tuple(self._a.shape), self._t


def _adaptive(self: Any, n: int, output_size: Ints, name: str) -> tuple[int, ...]:
    shape = tuple(self._a.shape)
    if len(shape) not in (n + 1, n + 2):
        raise ShapeError(f"{name}(): Expected {n + 1}D or {n + 2}D tensor, but got {list(shape)}")
    if any(m == 0 for m in shape[-n:]):
        raise ShapeError(
            f"{name}(): Expected input to have non-zero size for non-batch dimensions, but input "
            f"has sizes {list(shape)}"
        )
    if any(m < 0 for m in output_size):
        raise ShapeError(
            f"{name}(): elements of output_size must be greater than or equal to 0 but received "
            f"{list(output_size)}"
        )
    return (*shape[:-n], *spread(output_size, n))


def adaptive_avg_pool2d(self: Any, output_size: Ints) -> Any:
    return _adaptive(self, 2, output_size, "adaptive_avg_pool2d"), self._t


def adaptive_avg_pool3d(self: Any, output_size: Ints) -> Any:
    return _adaptive(self, 3, output_size, "adaptive_avg_pool3d"), self._t


def adaptive_backward(grad_output: Any, self: Any) -> Any:
    return tuple(self._a.shape), self._t


def adaptive_max_pool2d(self: Any, output_size: Ints) -> Any:
    shape = _adaptive(self, 2, output_size, "adaptive_max_pool2d")
    return [(shape, self._t), (shape, dtypes.int64)]


def adaptive_max_pool3d(self: Any, output_size: Ints) -> Any:
    shape = _adaptive(self, 3, output_size, "adaptive_max_pool3d")
    return [(shape, self._t), (shape, dtypes.int64)]


def pool_scatter(self: Any, indices: Any, count: int) -> Any:
    return (*self._a.shape[:-1], count), self._t


# -- public forms ----------------------------------------------------------------------------------


def max_pool1d_with_indices(
    self: Any, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil: bool
) -> Any:
    k = kernel[0]
    s = stride[0] if stride else k
    values, indices = call(
        "max_pool2d_with_indices", self.unsqueeze(-2), (1, k), (1, s), (0, padding[0]),
        (1, dilation[0]), ceil,
    )  # fmt: skip
    return values.squeeze(-2), indices.squeeze(-2)


def max_pool1d(
    self: Any, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil: bool
) -> Any:
    return max_pool1d_with_indices(self, kernel, stride, padding, dilation, ceil)[0]


def max_pool2d_values(
    self: Any, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil: bool
) -> Any:
    return call("max_pool2d_with_indices", self, kernel, stride, padding, dilation, ceil)[0]


def max_pool3d_values(
    self: Any, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil: bool
) -> Any:
    return call("max_pool3d_with_indices", self, kernel, stride, padding, dilation, ceil)[0]


def max_unpool2d(self: Any, indices: Any, output_size: Ints) -> Any:
    shape = (*self._a.shape[:-2], *output_size)
    flat = (*self._a.shape[:-2], -1)
    count = numel(output_size)
    return call("_pool_scatter", self.reshape(flat), indices.reshape(flat), count).view(shape)


def max_pool2d_backward(
    grad_output: Any, self: Any, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints,
    ceil: bool, indices: Any,
) -> Any:  # fmt: skip
    return max_pool_grad(grad_output, tuple(self._a.shape), indices, 2)


def avg_pool1d(
    self: Any, kernel: Ints, stride: Ints, padding: Ints, ceil: bool, include: bool
) -> Any:
    k = kernel[0]
    s = stride[0] if stride else k
    return call(
        "avg_pool2d", self.unsqueeze(-2), (1, k), (1, s), (0, padding[0]), ceil, include, None
    ).squeeze(-2)


def adaptive_avg_pool1d(self: Any, output_size: Ints) -> Any:
    return call("_adaptive_avg_pool2d", self.unsqueeze(-2), (1, output_size[0])).squeeze(-2)


def adaptive_avg_pool2d_public(self: Any, output_size: Ints) -> Any:
    if tuple(output_size) == (1, 1) and self._a.shape[-1] and self._a.shape[-2]:
        return call("mean.dim", self, (-1, -2), True, None)
    return call("_adaptive_avg_pool2d", self, tuple(output_size))


def adaptive_avg_pool3d_public(self: Any, output_size: Ints) -> Any:
    return call("_adaptive_avg_pool3d", self, tuple(output_size))


def adaptive_max_pool1d(self: Any, output_size: Ints) -> Any:
    values, indices = call("adaptive_max_pool2d", self.unsqueeze(-2), (1, output_size[0]))
    return values.squeeze(-2), indices.squeeze(-2)


# -- gradients -------------------------------------------------------------------------------------


def max_pool_grad(grad: Any, shape: Ints, indices: Any, n: int) -> Any:
    """Each window's gradient goes to the element that won; windows may share one."""
    if grad is None:
        return None
    flat = (*shape[:-n], -1)
    count = numel(shape[-n:])
    out = call("_pool_scatter", grad.reshape(flat), indices.reshape(flat), count)
    return out.view(tuple(shape))


def pool_gather(grad: Any, indices: Any) -> Any:
    return call("gather", grad, -1, indices, False)


def avg_pool2d_grad(grad: Any, self: Any, *geometry: Any) -> Any:
    return call("avg_pool2d_backward", grad, self, *geometry)


def avg_pool3d_grad(grad: Any, self: Any, *geometry: Any) -> Any:
    return call("avg_pool3d_backward", grad, self, *geometry)


__all__ = [name for name in dir() if not name.startswith("_")]
