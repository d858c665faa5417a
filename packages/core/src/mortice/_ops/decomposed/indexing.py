"""Gathering and scattering by index."""

from __future__ import annotations

from typing import Any

from mortice._ops.decomposed.steps import arange, full, shape_of, total, where
from mortice._ops.formulas import call
from mortice._types import dtypes
from mortice._types.shapes import broadcast, storage_extent, wrap_dim


def _at(self: Any, dim: int, index: Any) -> tuple[Any, ...]:
    """Indices that select along one dimension: None for the others in front of it."""
    ndim = len(shape_of(self))
    return (*(None,) * wrap_dim(dim, ndim), index.reshape((-1,)))


def _put(self: Any, dim: int, index: Any, values: Any, accumulate: bool) -> Any:
    if not shape_of(self):
        # A scalar is a vector of one.
        row = _put(self.reshape((1,)), 0, index, values.reshape((-1,)), accumulate)
        return row.reshape(())
    return call("index_put", self, _at(self, dim, index), values.to(self._t), accumulate)


def index_add(self: Any, dim: int, index: Any, source: Any, alpha: Any) -> Any:
    return _put(self, dim, index, source if alpha == 1 else source * alpha, True)


def index_copy(self: Any, dim: int, index: Any, source: Any) -> Any:
    return _put(self, dim, index, source, False)


def index_fill(self: Any, dim: int, index: Any, value: Any) -> Any:
    return _put(self, dim, index, full(self, value), False)


def index_fill_tensor(self: Any, dim: int, index: Any, value: Any) -> Any:
    return _put(self, dim, index, value, False)


_REDUCTIONS = {"add": "sum", "multiply": "prod"}


def scatter_reduce(self: Any, dim: int, index: Any, src: Any, reduce: str) -> Any:
    name = _REDUCTIONS[reduce]
    return call("scatter_reduce.two", self, dim, index, src, name, True)


def scatter_value_reduce(self: Any, dim: int, index: Any, value: Any, reduce: str) -> Any:
    return scatter_reduce(self, dim, index, full(self, value, shape_of(index)), reduce)


def masked_select(self: Any, mask: Any) -> Any:
    shape = broadcast(shape_of(self), shape_of(mask))
    if not shape:
        self, mask, shape = self.reshape((1,)), mask.reshape((1,)), (1,)
    return call("index.Tensor", self.expand(shape), (mask.expand(shape),))


def take(self: Any, index: Any) -> Any:
    return call("index.Tensor", self.reshape((-1,)), (index,))


def put(self: Any, index: Any, source: Any, accumulate: bool) -> Any:
    flat = self.reshape((-1,))
    values = source.reshape(shape_of(index))
    return call("index_put", flat, (index,), values, accumulate).reshape(shape_of(self))


def one_hot(self: Any, num_classes: int) -> Any:
    if num_classes == -1:
        num_classes = int(call("amax", self.reshape((-1,)), (0,), False).item()) + 1
    classes = arange(self, num_classes)
    return (self.unsqueeze(-1) == classes).to(dtypes.int64)


def pool_scatter(self: Any, indices: Any, count: Any) -> Any:
    zeros = full(self, 0, (*shape_of(self)[:-1], count))
    return call("scatter_add", zeros, -1, indices, self)


def diagonal_scatter(self: Any, src: Any, offset: int, dim1: int, dim2: int) -> Any:
    ndim = len(shape_of(self))
    a, b = wrap_dim(dim1, ndim), wrap_dim(dim2, ndim)
    order = (a, b, *(d for d in range(ndim) if d not in (a, b)))
    i = arange(self, shape_of(src)[-1])
    index = (i + max(-offset, 0), i + max(offset, 0))
    values = call("permute", src, (ndim - 2, *range(ndim - 2)))
    put = call("index_put", call("permute", self, order), index, values.to(self._t), False)
    return call("permute", put, tuple(order.index(d) for d in range(ndim)))


def as_strided_scatter(self: Any, src: Any, size: Any, stride: Any, offset: Any) -> Any:
    """Into the memory seen as one row, by the positions that the view reads."""
    start = self.storage_offset() if offset is None else offset
    extent = storage_extent(shape_of(self), self.stride(), self.storage_offset())
    memory = call("as_strided", self, (extent,), (1,), 0)
    places = call("as_strided", arange(self, extent), size, stride, start).reshape((-1,))
    values = src.to(self._t).reshape((-1,))
    put = call("index_put", memory, (places,), values, False)
    return call("as_strided", put, shape_of(self), self.stride(), self.storage_offset())


# -- shapes ----------------------------------------------------------------------------------------


def stack(tensors: Any, dim: int) -> Any:
    dim = wrap_dim(dim, len(shape_of(tensors[0])) + 1)
    return call("cat", tuple(call("unsqueeze", t, dim) for t in tensors), dim)


def roll(self: Any, shifts: Any, dims: Any) -> Any:
    if not dims:
        return roll(self.reshape((-1,)), shifts, (0,)).reshape(shape_of(self))
    for shift, dim in zip(shifts, dims):
        n = shape_of(self)[wrap_dim(dim, len(shape_of(self)))]
        if n == 0:
            return self.clone()
        start = (n - shift) % n
        index = (arange(self, n) + start).remainder(n)
        self = call("index_select", self, dim, index)
    return self


def _triangle(self: Any, diagonal: Any, upper: bool) -> Any:
    rows, columns = shape_of(self)[-2:]
    offset = arange(self, columns).unsqueeze(0) - arange(self, rows).unsqueeze(1)
    return offset >= diagonal if upper else offset <= diagonal


def tril(self: Any, diagonal: Any) -> Any:
    return where(_triangle(self, diagonal, False), self, 0)


def triu(self: Any, diagonal: Any) -> Any:
    return where(_triangle(self, diagonal, True), self, 0)


def transpose(self: Any, dim0: int, dim1: int) -> Any:
    ndim = len(shape_of(self))
    dims = list(range(ndim))
    if not ndim:
        return call("alias", self)
    a, b = wrap_dim(dim0, ndim), wrap_dim(dim1, ndim)
    dims[a], dims[b] = b, a
    return call("permute", self, tuple(dims))


def t(self: Any) -> Any:
    return transpose(self, 0, 1) if len(shape_of(self)) == 2 else call("alias", self)


def squeeze(self: Any) -> Any:
    dims = tuple(i for i, n in enumerate(shape_of(self)) if n == 1)
    return call("squeeze.dims", self, dims)


def unbind(self: Any, dim: int) -> Any:
    return tuple(call("select.int", self, dim, i) for i in range(int(self.shape[dim])))


def split(self: Any, size: Any, dim: int) -> Any:
    n = self.shape[dim]
    if size == 0 or n <= size:
        return (call("alias", self),)
    starts = range(0, int(n), int(size))
    sizes = tuple(min(int(size), int(n) - s) for s in starts)
    return call("split_with_sizes", self, sizes, dim)


def unfold(self: Any, dimension: int, size: Any, step: Any) -> Any:
    shape, strides = shape_of(self), self.stride()
    if not shape:
        return call("as_strided", self, (size,), (1,), None)
    d = wrap_dim(dimension, len(shape))
    count = (shape[d] - size) // step + 1
    return call(
        "as_strided",
        self,
        (*shape[:d], count, *shape[d + 1 :], size),
        (*strides[:d], strides[d] * step, *strides[d + 1 :], strides[d]),
        None,
    )


def alias(self: Any) -> Any:
    return call("alias", self)


def view(self: Any, size: Any, stride: Any = None) -> Any:
    return call("view", self, size)


# -- patches and padding ---------------------------------------------------------------------------


def _clamped(self: Any, dim: int, before: Any, after: Any) -> Any:
    n = shape_of(self)[dim]
    index = (arange(self, n + before + after) - before).clamp(0, n - 1)
    return call("index_select", self, dim, index)


def replication_pad1d(self: Any, padding: Any) -> Any:
    return _clamped(self, len(shape_of(self)) - 1, padding[0], padding[1])


def im2col(self: Any, kernel: Any, dilation: Any, padding: Any, stride: Any) -> Any:
    """Each tap of the kernel reads its rows and columns of the padded input."""
    batched = len(shape_of(self)) == 4
    x = self if batched else self.unsqueeze(0)
    x = call("constant_pad_nd", x, (padding[1], padding[1], padding[0], padding[0]), 0)
    n, c, height, width = shape_of(x)
    spans = [(height, 0), (width, 1)]
    counts = [(m - dilation[i] * (kernel[i] - 1) - 1) // stride[i] + 1 for m, i in spans]
    rows, columns = (
        arange(x, kernel[i]).unsqueeze(1) * dilation[i] + arange(x, counts[i]) * stride[i]
        for i in range(2)
    )
    patches = call(
        "index.Tensor", x, (None, None, rows.unsqueeze(2).unsqueeze(3), columns)
    )  # (n, c, kernel rows, rows, kernel columns, columns)
    patches = call("permute", patches, (0, 1, 2, 4, 3, 5))
    out = patches.reshape((n, c * kernel[0] * kernel[1], counts[0] * counts[1]))
    return out if batched else out.squeeze(0)


def adaptive_avg_pool3d_backward(grad: Any, self: Any) -> Any:
    """Each output's gradient, over the size of its window, goes to the elements of the window."""
    result = grad
    for i in (3, 2, 1):
        dim = len(shape_of(self)) - i
        n, m = shape_of(self)[dim], shape_of(grad)[dim]
        result = _spread(result, dim, n, m)
    return result


def _spread(grad: Any, dim: int, n: Any, m: Any) -> Any:
    """The product with the (m, n) matrix whose rows are the windows' means."""
    i = arange(grad, m)
    starts = (i * n).floor_divide(m)
    ends = ((i + 1) * n + (m - 1)).floor_divide(m)
    places = arange(grad, n)
    inside = (places >= starts.unsqueeze(1)) & (places < ends.unsqueeze(1))
    weights = inside.to(grad._t) / (ends - starts).unsqueeze(1).to(grad._t)
    moved = call("unsqueeze", grad, -1).transpose(dim, -1)  # (..., 1 at dim, ..., m)
    return total(moved.unsqueeze(-1) * weights, (-2,)).transpose(dim, -1).squeeze(-1)
