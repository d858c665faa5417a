"""Joining, repeating and reordering: shape rules, bodies and gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mortice._base.errors import DimensionError, DTypeError, InvalidValue, ShapeError
from mortice._ops.formulas import call, real_if, zeros
from mortice._types import dtypes, shapes
from mortice._types.promotion import result_type
from mortice._types.shapes import dense_strides_like, wrap_dim, wrap_dims

# -- joining -------------------------------------------------------------------------------------


def is_skipped(t: Any) -> bool:
    """PyTorch lets ``cat`` take empty 1-d tensors beside tensors of any rank."""
    return tuple(t._a.shape) == (0,)


def cat(tensors: Sequence[Any], dim: int) -> Any:
    if not tensors:
        raise InvalidValue("cat(): expected a non-empty list of Tensors")
    for i, t in enumerate(tensors):
        if not t._a.shape:
            raise ShapeError(f"zero-dimensional tensor (at position {i}) cannot be concatenated")
    dtype = result_type(tensors)
    kept = [(i, t) for i, t in enumerate(tensors) if not is_skipped(t)]
    if not kept:
        wrap_dim(dim, 1)
        return (0,), dtype
    first = tuple(kept[0][1]._a.shape)
    d = wrap_dim(dim, len(first))
    total = 0
    for i, t in kept:
        shape = tuple(t._a.shape)
        if len(shape) != len(first):
            raise ShapeError(
                f"Tensors must have same number of dimensions: got {len(first)} and {len(shape)} "
                f"(at position {i})"
            )
        for k, (a, b) in enumerate(zip(first, shape)):
            if k != d and a != b:
                raise ShapeError(
                    f"Sizes of tensors must match except in dimension {d}. Expected size {a} but "
                    f"got size {b} for tensor number {i} in the list."
                )
        total = total + shape[d]
    sizes = (*first[:d], total, *first[d + 1 :])
    if all(shapes.is_like_channels_last(t._a.shape, t.stride()) for _, t in kept):
        return sizes, dtype, shapes.channels_last_strides(sizes)
    return sizes, dtype


def cat_grad(grad: Any, sizes: Any, kinds: Any, dim: int) -> Any:
    kept = [s for s in sizes if tuple(s) != (0,)]
    d = wrap_dim(dim, len(kept[0]) if kept else 1)
    out: list[Any] = []
    start = 0
    for shape, dtype in zip(sizes, kinds):
        if tuple(shape) == (0,):
            out.append(zeros((0,), dtype, grad.device))
            continue
        n = shape[d]
        out.append(real_if(call("slice.Tensor", grad, d, start, start + n, 1), dtype))
        start += n
    return out


def concat(tensors: Sequence[Any], dim: int) -> Any:
    return call("cat", tuple(tensors), dim)


def stack(tensors: Sequence[Any], dim: int) -> Any:
    if not tensors:
        raise ShapeError("stack expects a non-empty TensorList")
    shape = tuple(tensors[0]._a.shape)
    for i, t in enumerate(tensors):
        if tuple(t._a.shape) != shape:
            raise ShapeError(
                f"stack expects each tensor to be equal size, but got {list(shape)} at entry 0 and "
                f"{list(t.shape)} at entry {i}"
            )
    d = wrap_dim(dim, len(shape) + 1)
    return (*shape[:d], len(tensors), *shape[d:]), result_type(tensors)


def stack_grad(grad: Any, kinds: Any, dim: int) -> Any:
    return [real_if(g, t) for g, t in zip(call("unbind.int", grad, dim), kinds)]


def hstack(tensors: Sequence[Any]) -> Any:
    if not tensors:
        raise ShapeError("hstack expects a non-empty TensorList")
    raised = atleast_1d_each(tensors)
    return call("cat", raised, 0 if len(raised[0]._a.shape) == 1 else 1)


def vstack(tensors: Sequence[Any]) -> Any:
    if not tensors:
        raise ShapeError("vstack expects a non-empty TensorList")
    return call("cat", atleast_2d_each(tensors), 0)


def dstack(tensors: Sequence[Any]) -> Any:
    if not tensors:
        raise ShapeError("dstack expects a non-empty TensorList")
    return call("cat", atleast_3d_each(tensors), 2)


def column_stack(tensors: Sequence[Any]) -> Any:
    if not tensors:
        raise ShapeError("column_stack expects a non-empty TensorList")
    columns = [
        call("reshape", t, (shapes.numel(t._a.shape), 1)) if t.ndim <= 1 else t for t in tensors
    ]
    return call("cat", tuple(columns), 1)


def atleast_1d(self: Any) -> Any:
    return self if self.ndim else call("reshape", self, (1,))


def atleast_2d(self: Any) -> Any:
    if self.ndim >= 2:
        return self
    return call("unsqueeze", self, 0) if self.ndim else call("reshape", self, (1, 1))


def atleast_3d(self: Any) -> Any:
    n = self.ndim
    if n >= 3:
        return self
    if n == 2:
        return call("unsqueeze", self, -1)
    if n == 1:
        return call("unsqueeze", call("unsqueeze", self, 0), -1)
    return call("reshape", self, (1, 1, 1))


def atleast_1d_each(tensors: Sequence[Any]) -> Any:
    return tuple(atleast_1d(t) for t in tensors)


def atleast_2d_each(tensors: Sequence[Any]) -> Any:
    return tuple(atleast_2d(t) for t in tensors)


def atleast_3d_each(tensors: Sequence[Any]) -> Any:
    return tuple(atleast_3d(t) for t in tensors)


def _matrix_sizes(shape: Sequence[int], position: int) -> tuple[int, int]:
    if len(shape) > 2:
        raise ShapeError(
            f"block_diag: Input tensors must have 2 or fewer dimensions. Input {position} has "
            f"{len(shape)} dimensions"
        )
    rows = shape[0] if len(shape) == 2 else 1
    return rows, shape[-1] if shape else 1


def block_diag(tensors: Sequence[Any]) -> Any:
    rows = columns = 0
    for i, t in enumerate(tensors):
        r, c = _matrix_sizes(t._a.shape, i)
        rows, columns = rows + r, columns + c
    if not tensors:
        return (1, 0), dtypes.default.dtype
    return (rows, columns), result_type(tensors)


def block_diag_by_copies(tensors: Sequence[Any]) -> Any:
    sizes, dtype = block_diag(tensors)
    device = tensors[0].device if tensors else None
    out = zeros(sizes, dtype, device)
    row = column = 0
    for i, t in enumerate(tensors):
        r, c = _matrix_sizes(t._a.shape, i)
        part = call("slice.Tensor", out, 0, row, row + r, 1)
        part = call("slice.Tensor", part, 1, column, column + c, 1)
        call("copy_", part, call("reshape", t, (r, c)), False)
        row, column = row + r, column + c
    return out


def block_diag_grad(grad: Any, sizes: Any, kinds: Any) -> Any:
    out: list[Any] = []
    row = column = 0
    for i, (shape, dtype) in enumerate(zip(sizes, kinds)):
        r, c = _matrix_sizes(shape, i)
        part = call("slice.Tensor", grad, 0, row, row + r, 1)
        part = call("slice.Tensor", part, 1, column, column + c, 1)
        out.append(real_if(call("reshape", part, tuple(shape)), dtype))
        row, column = row + r, column + c
    return out


# -- repeating -----------------------------------------------------------------------------------


def repeat(self: Any, repeats: Sequence[int]) -> Any:
    shape = tuple(self._a.shape)
    gap = len(repeats) - len(shape)
    if gap < 0:
        raise ShapeError(
            "Number of dimensions of repeat dims can not be smaller than number of dimensions of "
            f"tensor: {len(repeats)} and {len(shape)}"
        )
    if any(r < 0 for r in repeats):
        raise ShapeError(
            f"Trying to create tensor with negative dimension: repeats {list(repeats)}"
        )
    padded = (1,) * gap + shape
    return tuple(n * r for n, r in zip(padded, repeats)), self._t


def repeat_grad(grad: Any, shape: Sequence[int], repeats: Sequence[int]) -> Any:
    gap = len(repeats) - len(shape)
    sizes: list[int] = []
    dims: list[int] = []
    for i, r in enumerate(repeats):
        dims.append(len(sizes))
        sizes += [r] if i < gap else [r, shape[i - gap]]
    if not dims:
        return grad
    if 0 in repeats:
        return zeros(shape, grad._t, grad.device)
    return call("sum.dim_IntList", call("reshape", grad, tuple(sizes)), tuple(dims), False, None)


def tile(self: Any, dims: Sequence[int]) -> Any:
    gap = self.ndim - len(dims)
    return call("repeat", self, (1,) * max(gap, 0) + tuple(dims))


def repeat_interleave_int(self: Any, repeats: int, dim: int | None, output_size: Any) -> Any:
    if dim is None:
        self, dim = call("reshape", self, (-1,)), 0
    if repeats < 0:
        raise ShapeError("Repeats must be non-negative")
    if not self.ndim:
        self = call("reshape", self, (1,))
    d = wrap_dim(dim, self.ndim)
    shape = tuple(self._a.shape)
    if output_size is not None and output_size != repeats * shape[d]:
        raise ShapeError("repeat_interleave: Invalid output_size, expected repeats * size(dim)")
    wide = call(
        "expand", call("unsqueeze", self, d + 1), (*shape[: d + 1], repeats, *shape[d + 1 :]), False
    )
    return call("clone", wide, None).reshape((*shape[:d], shape[d] * repeats, *shape[d + 1 :]))


def repeat_interleave(self: Any, repeats: Any, dim: int | None, output_size: Any) -> Any:
    if dim is None:
        self, dim = call("reshape", self, (-1,)), 0
    if not self.ndim:
        self = call("reshape", self, (1,))
    d = wrap_dim(dim, self.ndim)
    n = self._a.shape[d]
    if repeats.ndim > 1:
        raise ShapeError("repeats must be 0-dim or 1-dim tensor")
    if repeats.ndim == 0 or (repeats._a.shape[0] == 1 and n != 1):
        repeats = call("expand", call("reshape", repeats, (1,)), (n,), False)
    elif repeats._a.shape[0] != n:
        raise ShapeError(
            f"repeats must have the same size as input along dim, but got repeats.size(0) = "
            f"{repeats._a.shape[0]} and input.size({d}) = {n}"
        )
    return call("index_select", self, d, call("repeat_interleave.Tensor", repeats, output_size))


# -- reordering ----------------------------------------------------------------------------------


def _like(self: Any) -> Any:
    return tuple(self._a.shape), self._t, dense_strides_like(self._a.shape, self.stride())


def flip(self: Any, dims: Sequence[int]) -> Any:
    if dims:
        wrap_dims(dims, self.ndim)
    return _like(self)


def fliplr(self: Any) -> Any:
    if self.ndim < 2:
        raise ShapeError("Input must be >= 2-d.")
    return call("flip", self, (1,))


def flipud(self: Any) -> Any:
    if self.ndim < 1:
        raise ShapeError("Input must be >= 1-d.")
    return call("flip", self, (0,))


def roll(self: Any, shifts: Sequence[int], dims: Sequence[int]) -> Any:
    if not self.numel():
        return tuple(self._a.shape), self._t
    if not shifts:
        raise ShapeError("`shifts` required")
    if not dims and len(shifts) == 1:
        return tuple(self._a.shape), self._t
    if len(shifts) != len(dims):
        raise ShapeError(
            f"shifts and dimensions must align. shifts: {len(shifts)}, dims:{len(dims)}"
        )
    for d in dims:
        if not self.ndim:
            raise DimensionError(f"Dimension specified as {d} but tensor has no dimensions")
        wrap_dim(d, self.ndim)
    return tuple(self._a.shape), self._t


def rot90(self: Any, k: int, dims: Sequence[int]) -> Any:
    n = self.ndim
    if len(dims) != 2:
        raise ShapeError(f"expected total rotation dims == 2, but got dims = {len(dims)}")
    if n < 2:
        raise ShapeError(f"expected total dims >= 2, but got total dims = {n}")
    if dims[0] == dims[1] or abs(dims[0] - dims[1]) == n:
        raise ShapeError(
            f"expected rotation dims to be different, but got dim0 = {dims[0]} and dim1 = {dims[1]}"
        )
    for i, d in enumerate(dims):
        if not -n <= d < n:
            raise ShapeError(f"Rotation dim{i} out of range, dim{i} = {d}")
    turns = k % 4
    if turns == 1:
        return call("transpose.int", call("flip", self, (dims[1],)), dims[0], dims[1])
    if turns == 2:
        return call("flip", self, tuple(dims))
    if turns == 3:
        return call("transpose.int", call("flip", self, (dims[0],)), dims[0], dims[1])
    return call("clone", self, None)


# -- grids ---------------------------------------------------------------------------------------


def meshgrid(tensors: Sequence[Any]) -> Any:
    import warnings

    warnings.warn(
        "meshgrid: in an upcoming release, it will be required to pass the indexing argument.",
        UserWarning,
        stacklevel=4,
    )
    return meshgrid_indexing(tensors, "ij")


def meshgrid_indexing(tensors: Sequence[Any], indexing: str) -> Any:
    if not tensors:
        raise ShapeError("meshgrid expects a non-empty TensorList")
    for t in tensors:
        if t.ndim > 1:
            raise ShapeError(
                f"Expected 0D or 1D tensor in the tensor list but got: {list(t.shape)}"
            )
        if t._t is not tensors[0]._t:
            raise DTypeError("meshgrid expects all tensors to have the same dtype")
    if indexing not in ("ij", "xy"):
        raise ShapeError(
            'meshgrid: indexing must be one of "xy" or "ij", but received: ' + str(indexing)
        )
    swap = indexing == "xy" and len(tensors) >= 2
    order = [1, 0, *range(2, len(tensors))] if swap else list(range(len(tensors)))
    inputs = [tensors[i] for i in order]
    sizes = tuple(shapes.numel(t._a.shape) for t in inputs)
    grids: list[Any] = []
    for i, t in enumerate(inputs):
        ones = tuple(sizes[i] if k == i else 1 for k in range(len(sizes)))
        grids.append(call("expand", call("view", t, ones), sizes, False))
    if swap:
        grids[0], grids[1] = grids[1], grids[0]
    return tuple(grids)


def cartesian_prod(tensors: Sequence[Any]) -> Any:
    for t in tensors:
        if t.ndim != 1:
            raise ShapeError(f"Expect a 1D vector, but got shape {list(t.shape)}")
    if len(tensors) == 1:
        return tensors[0]
    grids = meshgrid_indexing(tensors, "ij")
    return call("stack", tuple(call("reshape", g, (-1,)) for g in grids), 1)


def combinations(self: Any, r: int, with_replacement: bool) -> Any:
    if self.ndim != 1:
        raise ShapeError(f"Expect a 1D vector, but got shape {list(self.shape)}")
    if r < 0:
        raise ShapeError(f"Expect a non-negative number, but got {r}")
    if r == 0:
        return call("new_empty", self, (0,), None, None, None, None)
    import itertools

    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    rows = list(choose(range(self._a.shape[0]), r))
    from mortice._ops.factory import int_tensor

    positions = int_tensor([i for row in rows for i in row], self.device)
    taken = call("index_select", self, 0, positions)
    return call("view", taken, (len(rows), r))


# -- triangles and diagonals ---------------------------------------------------------------------


def triangle(self: Any, diagonal: int) -> Any:
    if self.ndim < 2:
        raise ShapeError("tril and triu: input tensor must have at least 2 dimensions")
    return tuple(self._a.shape), self._t


def _check_triangle(row: int, col: int) -> None:
    if row < 0:
        raise ShapeError(f"row must be non-negative, got{row}")
    if col < 0:
        raise ShapeError(f"col must be non-negative, got{col}")


def triangle_indices(row: int, col: int, offset: int, dtype: Any, *rest: Any) -> Any:
    _check_triangle(row, col)
    count = sum(min(max(i + offset + 1, 0), col) for i in range(row))
    return (2, count), dtype or dtypes.int64


def triangle_indices_upper(row: int, col: int, offset: int, dtype: Any, *rest: Any) -> Any:
    _check_triangle(row, col)
    count = sum(col - min(max(i + offset, 0), col) for i in range(row))
    return (2, count), dtype or dtypes.int64


def diag(self: Any, diagonal: int) -> Any:
    if self.ndim == 1:
        return call("diag_embed", self, diagonal, 0, 1)
    if self.ndim == 2:
        return call("clone", call("diagonal", self, diagonal, 0, 1), None)
    raise ShapeError(f"diag(): Supports 1D or 2D tensors. Got {self.ndim}D")


def diag_embed(self: Any, offset: int, dim1: int, dim2: int) -> Any:
    shape = tuple(self._a.shape)
    n = len(shape) + 1
    a, b = wrap_dim(dim1, n), wrap_dim(dim2, n)
    if a == b:
        raise ShapeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    if not shape:
        raise DimensionError("diag_embed(): needs a tensor with at least one dimension")
    side = shape[-1] + abs(offset)
    sizes = list(shape[:-1])
    for d in sorted((a, b)):
        sizes.insert(d, side)
    return tuple(sizes), self._t


def diag_embed_by_copy(self: Any, offset: int, dim1: int, dim2: int) -> Any:
    sizes, dtype = diag_embed(self, offset, dim1, dim2)
    out = zeros(sizes, dtype, self.device)
    call("copy_", call("diagonal", out, offset, dim1, dim2), self, False)
    return out


def diagflat(self: Any, offset: int) -> Any:
    return call("diag_embed", call("reshape", self, (-1,)), offset, 0, 1)


def vander(x: Any, N: int | None, increasing: bool) -> Any:
    if x.ndim != 1:
        raise ShapeError("x must be a one-dimensional tensor.")
    if N is not None and N < 0:
        raise InvalidValue("N must be non-negative")
    n = x._a.shape[0] if N is None else N
    powers = call("arange", n, dtypes.int64, None, x.device, None)
    if not increasing:
        powers = call("flip", powers, (0,))
    return call("pow.Tensor_Tensor", call("unsqueeze", x, 1), powers)


__all__ = [name for name in dir() if not name.startswith("_")]
