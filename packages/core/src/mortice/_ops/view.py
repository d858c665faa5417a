"""Views: rules giving (sizes, strides, offset) in elements, and the gradients of views."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mortice._base.errors import DimensionError, ShapeError
from mortice._ops.formulas import as_strided_grad, call, sum_to, zeros
from mortice._ops.view_bodies import *  # noqa: F403  the bodies that view.yaml names
from mortice._types import shapes
from mortice._types.shapes import wrap_dim, wrap_dims

Geometry = tuple[tuple[int, ...], tuple[int, ...], int]


def _of(x: Any) -> tuple[list[int], list[int], int]:
    return list(x._a.shape), list(x.stride()), x.storage_offset()


def alias(self: Any) -> Geometry:
    shape, stride, offset = _of(self)
    return tuple(shape), tuple(stride), offset


def view(self: Any, size: Sequence[int]) -> Geometry:
    shape, stride, offset = _of(self)
    wanted = shapes.infer_size(size, shapes.numel(shape))
    steps = shapes.view_strides(shape, stride, wanted)
    if steps is None:
        raise ShapeError(
            f"view size {list(size)} is not compatible with input tensor's size {shape} and stride "
            f"{stride} (at least one dimension spans across two contiguous subspaces). Use "
            ".reshape(...) instead."
        )
    return wanted, steps, offset


def transpose(self: Any, dim0: int, dim1: int) -> Geometry:
    shape, stride, offset = _of(self)
    a, b = wrap_dim(dim0, len(shape)), wrap_dim(dim1, len(shape))
    if shape:
        shape[a], shape[b] = shape[b], shape[a]
        stride[a], stride[b] = stride[b], stride[a]
    return tuple(shape), tuple(stride), offset


def t(self: Any) -> Geometry:
    n = len(self._a.shape)
    if n > 2:
        raise ShapeError(f"t() expects a tensor with <= 2 dimensions, but self is {n}D")
    return alias(self) if n < 2 else transpose(self, 0, 1)


def permute(self: Any, dims: Sequence[int]) -> Geometry:
    shape, stride, offset = _of(self)
    if len(dims) != len(shape):
        raise ShapeError(
            "permute: number of dimensions in the tensor input does not match the length of the "
            f"desired ordering of dimensions i.e. input.dim() = {len(shape)} is not equal to "
            f"len(dims) = {len(dims)}"
        )
    order = wrap_dims(dims, len(shape)) if dims else ()
    return tuple(shape[d] for d in order), tuple(stride[d] for d in order), offset


def permute_grad(grad: Any, dims: Sequence[int]) -> Any:
    n = len(dims)
    back = [0] * n
    for i, d in enumerate(dims):
        back[d % n] = i
    return grad.permute(tuple(back))


def expand(self: Any, size: Sequence[int], implicit: bool = False) -> Geometry:
    shape, stride, offset = _of(self)
    sizes, steps = shapes.expand_strides(shape, stride, size)
    return sizes, steps, offset


def as_strided(
    self: Any, size: Sequence[int], stride: Sequence[int], storage_offset: int | None
) -> Geometry:
    if len(size) != len(stride):
        raise ShapeError(
            f"mismatch in length of strides and shape: {list(size)} and {list(stride)}"
        )
    if any(s < 0 for s in stride):
        raise ShapeError(f"as_strided: Negative strides are not supported, got {list(stride)}")
    offset = self.storage_offset() if storage_offset is None else storage_offset
    return tuple(size), tuple(stride), offset


def as_strided_backward(
    grad: Any, self: Any, size: Sequence[int], stride: Sequence[int], offset: int | None
) -> Any:
    """Gradient of a strided view; positions are relative to ``self``'s own memory."""
    start = self.storage_offset()
    first = (start if offset is None else offset) - start
    if self.is_contiguous():
        return as_strided_grad(grad, self._a.shape, size, stride, first)
    # In the coordinates of self's memory, then read back through self's own strides.
    shape, steps = tuple(self._a.shape), self.stride()
    extent = shapes.storage_extent(shape, steps, 0)
    flat = as_strided_grad(grad, (extent,), size, stride, first)
    return flat.as_strided(shape, steps, 0).clone()


def select(self: Any, dim: int, index: int) -> Geometry:
    shape, stride, offset = _of(self)
    if not shape:
        raise DimensionError("select() cannot be applied to a 0-dim tensor.")
    d = wrap_dim(dim, len(shape))
    n = shape[d]
    if not -n <= index < n:
        raise DimensionError(
            f"select(): index {index} out of range for tensor of size {shape} at dimension {d}"
        )
    offset += (index + n if index < 0 else index) * stride[d]
    return tuple(shape[:d] + shape[d + 1 :]), tuple(stride[:d] + stride[d + 1 :]), offset


def select_grad(grad: Any, shape: Sequence[int], dim: int, index: int) -> Any:
    out = zeros(shape, grad._t, grad.device)
    return call("select_scatter", out, grad, dim, index)


def slice_range(n: int, start: int | None, end: int | None, step: int) -> tuple[int, int]:
    """(first index, length) of a slice over a dimension of size ``n``, clamped as Python does."""
    if step <= 0:
        raise ShapeError(f"slice step must be positive, got {step}")
    first = 0 if start is None else start
    last = n if end is None else end
    first = max(first + n, 0) if first < 0 else min(first, n)
    last = max(last + n, 0) if last < 0 else min(last, n)
    return first, max((last - first + step - 1) // step, 0)


def slice_(self: Any, dim: int, start: int | None, end: int | None, step: int) -> Geometry:
    shape, stride, offset = _of(self)
    if not shape:
        raise DimensionError("slice() cannot be applied to a 0-dim tensor.")
    d = wrap_dim(dim, len(shape))
    first, length = slice_range(shape[d], start, end, step)
    shape[d] = length
    offset += first * stride[d]
    stride[d] *= step
    return tuple(shape), tuple(stride), offset


def slice_grad(
    grad: Any, shape: Sequence[int], dim: int, start: int | None, end: int | None, step: int
) -> Any:
    out = zeros(shape, grad._t, grad.device)
    return call("slice_scatter", out, grad, dim, start, end, step)


def unsqueeze(self: Any, dim: int) -> Geometry:
    shape, stride, offset = _of(self)
    d = wrap_dim(dim, len(shape) + 1)
    step = shape[d] * stride[d] if d < len(shape) else 1
    shape.insert(d, 1)
    stride.insert(d, step)
    return tuple(shape), tuple(stride), offset


def squeeze_all(self: Any) -> Geometry:
    return _squeezed(self, range(len(self._a.shape)))


def squeeze(self: Any, dim: Any) -> Geometry:
    n = len(self._a.shape)
    dims = (dim,) if isinstance(dim, int) else tuple(dim)
    return _squeezed(self, [wrap_dim(d, n) for d in dims])


def _squeezed(self: Any, dims: Any) -> Geometry:
    shape, stride, offset = _of(self)
    gone = {d for d in dims if d < len(shape) and shape[d] == 1}
    kept = [d for d in range(len(shape)) if d not in gone]
    return tuple(shape[d] for d in kept), tuple(stride[d] for d in kept), offset


def diagonal(self: Any, offset: int, dim1: int, dim2: int) -> Geometry:
    shape, stride, start = _of(self)
    a, b = wrap_dim(dim1, len(shape)), wrap_dim(dim2, len(shape))
    if a == b:
        raise ShapeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    rows, columns = shape[a], shape[b]
    if offset >= 0:
        length = max(min(rows, columns - offset), 0)
        shift = offset * stride[b]
    else:
        length = max(min(rows + offset, columns), 0)
        shift = -offset * stride[a]
    step = stride[a] + stride[b]
    kept = [d for d in range(len(shape)) if d not in (a, b)]
    sizes = (*(shape[d] for d in kept), length)
    steps = (*(stride[d] for d in kept), step)
    return sizes, steps, start + (shift if length else 0)


def diagonal_grad(grad: Any, shape: Sequence[int], offset: int, dim1: int, dim2: int) -> Any:
    out = zeros(shape, grad._t, grad.device)
    return call("diagonal_scatter", out, grad, offset, dim1, dim2)


def unfold(self: Any, dimension: int, size: int, step: int) -> Geometry:
    shape, stride, offset = _of(self)
    d = wrap_dim(dimension, len(shape))
    extent = shape[d] if shape else 1
    if size < 0 or size > extent:
        raise ShapeError(f"maximum size for tensor at dimension {d} is {extent} but size is {size}")
    if step <= 0:
        raise ShapeError(f"step is {step} but must be > 0")
    last = stride[d] if stride else 1
    if shape:
        shape[d] = (extent - size) // step + 1
        stride[d] *= step
    return (*shape, size), (*stride, last), offset


def unfold_geometry(self: Any, dimension: int, size: int, step: int) -> Geometry:
    return unfold(self, dimension, size, step)


def split_with_sizes(self: Any, split_sizes: Sequence[int], dim: int) -> list[Geometry]:
    shape, _, _ = _of(self)
    d = wrap_dim(dim, len(shape))
    if not shape or sum(split_sizes) != shape[d] or any(n < 0 for n in split_sizes):
        have = shape[d] if shape else 1
        raise ShapeError(
            "split_with_sizes expects split_sizes to sum exactly to "
            f"{have} (input tensor's size at dimension {d}), but got split_sizes={list(split_sizes)}"
        )
    found: list[Geometry] = []
    start = 0
    for n in split_sizes:
        found.append(slice_(self, d, start, start + n, 1))
        start += n
    return found


def split_grad(
    grads: Any, shape: Sequence[int], dtype: Any, device: Any, sizes: Sequence[int], dim: int
) -> Any:
    d = wrap_dim(dim, len(shape))
    parts: list[Any] = []
    for g, n in zip(grads, sizes):
        part = tuple(n if i == d else s for i, s in enumerate(shape))
        parts.append(zeros(part, dtype, device) if g is None else g)
    return call("cat", tuple(parts), d)


def unbind(self: Any, dim: int) -> list[Geometry]:
    shape = self._a.shape
    if not shape:
        raise DimensionError("Dimension specified as 0 but tensor has no dimensions")
    d = wrap_dim(dim, len(shape))
    return [select(self, d, i) for i in range(shape[d])]


def unbind_grad(grads: Any, shape: Sequence[int], dtype: Any, device: Any, dim: int) -> Any:
    d = wrap_dim(dim, len(shape))
    part = tuple(s for i, s in enumerate(shape) if i != d)
    parts = [zeros(part, dtype, device) if g is None else g for g in grads]
    return call("stack", tuple(parts), d)


def split(self: Any, split_size: int, dim: int) -> list[Geometry]:
    shape = tuple(self._a.shape)
    if not shape:
        raise ShapeError("split expects at least a 1-dimensional tensor")
    return split_with_sizes(self, even_sizes(shape, split_size, dim), dim)


def even_sizes(shape: Sequence[int], size: int, dim: int) -> tuple[int, ...]:
    """Sizes of the parts of ``split``: all ``size``, the last smaller."""
    n = shape[wrap_dim(dim, len(shape))]
    if size < 0:
        raise ShapeError(f"split expects split_size be non-negative, but got split_size={size}")
    if not size:
        if n:
            raise ShapeError(
                f"split_size can only be 0 if dimension size is 0, but got dimension size of {n}"
            )
        return (0,)
    count = max((n + size - 1) // size, 1)
    return (*(size for _ in range(count - 1)), n - size * (count - 1))


def reshape_alias(self: Any, size: Sequence[int], stride: Sequence[int]) -> Geometry:
    return tuple(size), tuple(stride), self.storage_offset()


def view_dtype(self: Any, dtype: Any) -> Any:
    """The same bytes as elements of another size: the last dimension shrinks or grows."""
    shape, stride, offset = _of(self)
    old, new = self._t.itemsize, dtype.itemsize
    if old == new:
        return tuple(shape), tuple(stride), offset, dtype
    if not shape:
        raise ShapeError(
            f"self.dim() cannot be 0 to view {self._t!r} as {dtype!r} (different element sizes)"
        )
    if old > new:
        ratio = old // new
        if stride[-1] != 1:
            raise ShapeError(
                f"self.stride(-1) must be 1 to view {self._t!r} as {dtype!r} (different element "
                f"sizes), but got {stride[-1]}"
            )
        sizes = (*shape[:-1], shape[-1] * ratio)
        return sizes, (*(s * ratio for s in stride[:-1]), 1), offset * ratio, dtype
    return _view_wider(self, dtype, new // old)


def _view_wider(self: Any, dtype: Any, ratio: int) -> Any:
    shape, stride, offset = _of(self)
    said = f"to view {self._t!r} as {dtype!r} (different element sizes), but got"
    if shape[-1] % ratio:
        raise ShapeError(f"self.size(-1) must be divisible by {ratio} {said} {shape[-1]}")
    if offset % ratio:
        raise ShapeError(f"self.storage_offset() must be divisible by {ratio} {said} {offset}")
    if stride[-1] != 1:
        raise ShapeError(f"self.stride(-1) must be 1 {said} {stride[-1]}")
    for d, step in enumerate(stride[:-1]):
        if step % ratio:
            raise ShapeError(f"self.stride({d}) must be divisible by {ratio} {said} {step}")
    sizes = (*shape[:-1], shape[-1] // ratio)
    return sizes, (*(s // ratio for s in stride[:-1]), 1), offset // ratio, dtype


__all__ = [name for name in dir() if not name.startswith("_")] + ["sum_to"]
