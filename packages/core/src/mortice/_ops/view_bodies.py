"""Views made of other views: the bodies that ``view.yaml`` names.

Each calls public operators only, so gradients flow and every device has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from mortice._base.errors import AutogradError, DimensionError, ShapeError
from mortice._ops.formulas import call, conj
from mortice._types import layout, shapes
from mortice._types.shapes import wrap_dim

# -- reshaping -----------------------------------------------------------------------------------


def reshape(self: Any, shape: Sequence[int]) -> Any:
    """A view where the strides allow it, else a copy."""
    have = self._a.shape
    size = shapes.infer_size(shape, shapes.numel(have))
    if self.is_contiguous():
        return call("view", self, size)
    if shapes.view_strides(have, self.stride(), size) is not None:
        return call("view", self, size)
    copied = call("clone", self, layout.contiguous_format)
    return call("_unsafe_view", copied, size)


def reshape_as(self: Any, other: Any) -> Any:
    return call("reshape", self, tuple(other._a.shape))


def view_as(self: Any, other: Any) -> Any:
    return call("view", self, tuple(other._a.shape))


def flatten(self: Any, start_dim: int, end_dim: int) -> Any:
    shape = tuple(self._a.shape)
    n = len(shape)
    first, last = wrap_dim(start_dim, n), wrap_dim(end_dim, n)
    if first > last:
        raise ShapeError("flatten() has invalid args: start_dim cannot come after end_dim")
    if not n:
        return call("reshape", self, (1,))
    if first == last:
        return self
    middle = shapes.numel(shape[first : last + 1])
    return call("reshape", self, (*shape[:first], middle, *shape[last + 1 :]))


def unflatten(self: Any, dim: int, sizes: Sequence[int]) -> Any:
    shape = tuple(self._a.shape)
    if not shape:
        raise DimensionError("Dimension specified as 0 but tensor has no dimensions")
    d = wrap_dim(dim, len(shape))
    if not len(sizes):
        raise ShapeError("unflatten: sizes must be non-empty")
    try:
        inner = shapes.infer_size(sizes, shape[d])
    except ShapeError as error:
        raise ShapeError(
            f"unflatten: Provided sizes {list(sizes)} don't multiply up to the size of dim {d} "
            f"({shape[d]}) in the input tensor"
        ) from error
    return call("view", self, (*shape[:d], *inner, *shape[d + 1 :]))


def ravel(self: Any) -> Any:
    return (
        call("reshape", self, (-1,))
        if self.is_contiguous()
        else call("view", call("clone", self, layout.contiguous_format), (-1,))
    )


def contiguous(self: Any, memory_format: Any) -> Any:
    if memory_format is layout.preserve_format:
        raise ShapeError(
            "preserve memory format is unsupported by the contiguous operator. Name the format."
        )
    return self if self.is_contiguous(memory_format) else call("clone", self, memory_format)


# -- order of dimensions -------------------------------------------------------------------------


def movedim(self: Any, source: Any, destination: Any) -> Any:
    n = len(self._a.shape)
    source = (source,) if isinstance(source, int) else tuple(source)
    destination = (destination,) if isinstance(destination, int) else tuple(destination)
    if len(source) != len(destination):
        raise ShapeError(
            f"movedim: Invalid source or destination dims: source ({list(source)} dims) should "
            f"contain the same number of dims as destination ({list(destination)} dims)"
        )
    if not source:
        return call("alias", self)
    src = tuple(wrap_dim(d, n) for d in source)
    dst = tuple(wrap_dim(d, n) for d in destination)
    for wrapped, given, what in ((src, source, "source"), (dst, destination, "destination")):
        if len(set(wrapped)) != len(wrapped):
            raise ShapeError(f"movedim: repeated dim in `{what}` ({list(given)})")
    if not n:
        return call("alias", self)
    order: list[int] = [-1] * n
    for s, d in zip(src, dst):
        order[d] = s
    rest = iter(d for d in range(n) if d not in src)
    return call("permute", self, tuple(next(rest) if d < 0 else d for d in order))


def swapdims(self: Any, dim0: int, dim1: int) -> Any:
    return call("transpose.int", self, dim0, dim1)


def numpy_T(self: Any) -> Any:
    n = len(self._a.shape)
    if n not in (0, 2):
        from mortice._base.warning import warn

        warn(
            f"The use of `x.T` on tensors of dimension other than 2 is deprecated (this one has "
            f"{n}). Consider `x.mT` to transpose batches of matrices or `x.permute("
            "*mortice.arange(x.ndim - 1, -1, -1))` to reverse the dimensions of a tensor."
        )
    return call("permute", self, tuple(range(n - 1, -1, -1)))


def mT(self: Any) -> Any:
    _needs_matrix(self, "mT")
    return call("transpose.int", self, -2, -1)


def mH(self: Any) -> Any:
    _needs_matrix(self, "mH")
    return adjoint(self)


def matrix_H(self: Any) -> Any:
    n = len(self._a.shape)
    if n not in (0, 2):
        raise ShapeError(
            f"tensor.H is only supported on matrices (2-D tensors). Got {n}-D tensor. For batches "
            "of matrices, consider using tensor.mH"
        )
    return self if not n else adjoint(self)


def adjoint(self: Any) -> Any:
    n = len(self._a.shape)
    if n < 2:
        raise ShapeError(
            f"tensor.adjoint() is only supported on matrices or batches of matrices. Got {n}-D tensor."
        )
    return conj(call("transpose.int", self, -2, -1))


def _needs_matrix(self: Any, name: str) -> None:
    n = len(self._a.shape)
    if n < 2:
        raise ShapeError(
            f"tensor.{name} is only supported on matrices or batches of matrices. Got {n}-D tensor."
        )


# -- parts ---------------------------------------------------------------------------------------


def narrow(self: Any, dim: int, start: int, length: int) -> Any:
    shape = self._a.shape
    if not shape:
        raise ShapeError("narrow() cannot be applied to a 0-dim tensor.")
    if length < 0:
        raise ShapeError("narrow(): length must be non-negative.")
    n = shape[wrap_dim(dim, len(shape))]
    if not -n <= start <= n:
        raise DimensionError(
            f"start out of range (expected to be in range of [{-n}, {n}], but got {start})"
        )
    first = start + n if start < 0 else start
    if first + length > n:
        raise ShapeError(f"start ({first}) + length ({length}) exceeds dimension size ({n}).")
    return call("slice.Tensor", self, dim, first, first + length, 1)


def narrow_tensor(self: Any, dim: int, start: Any, length: int) -> Any:
    if start.ndim or start._t.differentiable or start._t.name == "bool":
        raise ShapeError("start must be an 0-dim integral Tensor.")
    return call("narrow", self, dim, start.item(), length)


def narrow_copy(self: Any, dim: int, start: int, length: int) -> Any:
    return call("clone", narrow(self, dim, start, length), layout.contiguous_format)


def split_sizes(self: Any, split_size: Sequence[int], dim: int) -> Any:
    return call("split_with_sizes", self, tuple(split_size), dim)


def unsafe_split(self: Any, split_size: int, dim: int) -> Any:
    return call("split.Tensor", self, split_size, dim)


def unsafe_split_with_sizes(self: Any, split_sizes: Sequence[int], dim: int) -> Any:
    return call("split_with_sizes", self, tuple(split_sizes), dim)


def chunk(self: Any, chunks: int, dim: int) -> Any:
    shape = self._a.shape
    if not shape:
        raise ShapeError("chunk expects at least a 1-dimensional tensor")
    if chunks <= 0:
        raise ShapeError(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
    n = shape[wrap_dim(dim, len(shape))]
    size = (n + chunks - 1) // chunks
    if not size:
        return call("split_with_sizes", self, (0,) * chunks, dim)
    return call("split.Tensor", self, size, dim)


unsafe_chunk = chunk


def tensor_split_sections(self: Any, sections: int, dim: int) -> Any:
    shape = self._a.shape
    if not shape:
        raise ShapeError(
            "tensor_split expected at least a 1-dimensional tensor, but got a tensor with 0 dims"
        )
    d = wrap_dim(dim, len(shape))
    if sections <= 0:
        raise ShapeError(f"number of sections must be larger than 0, got {sections}")
    least, more = divmod(shape[d], sections)
    return call(
        "split_with_sizes",
        self,
        tuple(least + 1 if i < more else least for i in range(sections)),
        d,
    )


def tensor_split_indices(self: Any, indices: Sequence[int], dim: int) -> Any:
    shape = self._a.shape
    if not shape:
        raise ShapeError(
            "tensor_split expected at least a 1-dimensional tensor, but got a tensor with 0 dims"
        )
    d = wrap_dim(dim, len(shape))
    bounds = [0, *indices, shape[d]]
    return tuple(call("slice.Tensor", self, d, first, last, 1) for first, last in pairwise(bounds))


def tensor_split_tensor(self: Any, indices: Any, dim: int) -> Any:
    if indices._t.name != "int64":
        raise ShapeError(
            "tensor_split expected tensor_indices_or_sections to have dtype of long, but got "
            f"{indices._t.name}"
        )
    if indices.ndim > 1:
        raise ShapeError(
            "tensor_split expected tensor_indices_or_sections to be a zero-dimensional or "
            f"one-dimensional tensor, but got a tensor with {indices.ndim} dims"
        )
    if indices.device.type != "cpu":
        raise ShapeError("tensor_split expected tensor_indices_or_sections to be on cpu.")
    if not indices.ndim:
        return call("tensor_split.sections", self, int(indices.item()), dim)
    return call("tensor_split.indices", self, tuple(indices.tolist()), dim)


def hsplit(self: Any, how: Any) -> Any:
    n = len(self._a.shape)
    if n < 1:
        raise ShapeError(
            f"hsplit requires a tensor with at least 1 dimension, but got a tensor with {n} dimensions!"
        )
    return _numpy_split(self, how, 0 if n == 1 else 1, "hsplit")


def vsplit(self: Any, how: Any) -> Any:
    n = len(self._a.shape)
    if n < 2:
        raise ShapeError(
            f"vsplit requires a tensor with at least 2 dimension, but got a tensor with {n} dimensions!"
        )
    return _numpy_split(self, how, 0, "vsplit")


def dsplit(self: Any, how: Any) -> Any:
    n = len(self._a.shape)
    if n < 3:
        raise ShapeError(
            f"dsplit requires a tensor with at least 3 dimension, but got a tensor with {n} dimensions!"
        )
    return _numpy_split(self, how, 2, "dsplit")


def _numpy_split(self: Any, how: Any, dim: int, name: str) -> Any:
    if not isinstance(how, int):
        return call("tensor_split.indices", self, tuple(how), dim)
    size = self._a.shape[dim]
    if how <= 0 or size % how:
        raise ShapeError(
            f"{name} attempted to split along dimension {dim}, but the size of the dimension "
            f"{size} is not divisible by the split_size {how}!"
        )
    return call("tensor_split.sections", self, how, dim)


# -- broadcasting --------------------------------------------------------------------------------


def expand_as(self: Any, other: Any) -> Any:
    return call("expand", self, tuple(other._a.shape), False)


def broadcast_to(self: Any, size: Sequence[int]) -> Any:
    return call("expand", self, tuple(size), False)


def broadcast_tensors(tensors: Sequence[Any]) -> Any:
    shape = shapes.broadcast_all([tuple(t._a.shape) for t in tensors])
    return tuple(call("expand", t, shape, False) for t in tensors)


def linalg_diagonal(A: Any, offset: int, dim1: int, dim2: int) -> Any:
    return call("diagonal", A, offset, dim1, dim2)


# -- in place ------------------------------------------------------------------------------------


def _become(self: Any, view: Any, name: str) -> Any:
    """Give ``self`` the sizes, strides and history of a view of it."""
    from mortice._dispatch import keys as K
    from mortice._dispatch.state import THREAD
    from mortice._tensor.rows import bump

    if THREAD.grad_enabled and self.is_leaf and self.requires_grad:
        raise AutogradError(
            f"{name}: a leaf Variable that requires grad is being used in an in-place operation. "
            "Use an out-of-place operator, or write inside `with mortice.no_grad():`."
        )
    if THREAD.grad_enabled and self._k & K.AUTOGRAD:
        bump(self)  # a body that autograd follows is not counted as a kernel is
    self._a = view._a
    self._g = view._g
    if view._k & K.AUTOGRAD:
        self._k |= K.AUTOGRAD
    return self


def transpose_(self: Any, dim0: int, dim1: int) -> Any:
    return _become(self, call("transpose.int", self, dim0, dim1), "transpose_")


def t_(self: Any) -> Any:
    return _become(self, call("t", self), "t_")


def squeeze_(self: Any) -> Any:
    return _become(self, call("squeeze", self), "squeeze_")


def squeeze_dim_(self: Any, dim: int) -> Any:
    return _become(self, call("squeeze.dim", self, dim), "squeeze_")


def squeeze_dims_(self: Any, dim: Sequence[int]) -> Any:
    return _become(self, call("squeeze.dims", self, tuple(dim)), "squeeze_")


def unsqueeze_(self: Any, dim: int) -> Any:
    return _become(self, call("unsqueeze", self, dim), "unsqueeze_")


def as_strided_(self: Any, size: Any, stride: Any, storage_offset: Any) -> Any:
    return _become(self, call("as_strided", self, size, stride, storage_offset), "as_strided_")


def detach_(self: Any) -> Any:
    """Forget the history; the tensor becomes a leaf that requires no grad."""
    from mortice._dispatch import keys as K

    if self._b is not None:
        raise ShapeError(
            "Can't detach views in-place. Use detach() instead. If you are using "
            "DistributedDataParallel (DDP) for training, and gradients_as_bucket_view is set as "
            "True, gradients are views of DDP buckets, and hence detach_() cannot be called on "
            "these gradients."
        )
    self._g = None
    self._k &= ~K.AUTOGRAD
    return self


# -- copies --------------------------------------------------------------------------------------


def _copy_of(name: str) -> Any:
    def copied(*args: Any) -> Any:
        return call("clone", call(name, *args), layout.contiguous_format)

    return copied


def _copies_of(name: str) -> Any:
    def copied(*args: Any) -> Any:
        return tuple(call("clone", part, layout.contiguous_format) for part in call(name, *args))

    return copied


alias_copy = _copy_of("alias")
as_strided_copy = _copy_of("as_strided")
detach_copy = _copy_of("detach")
diagonal_copy = _copy_of("diagonal")
expand_copy = _copy_of("expand")
permute_copy = _copy_of("permute")
select_int_copy = _copy_of("select.int")
slice_Tensor_copy = _copy_of("slice.Tensor")
squeeze_copy = _copy_of("squeeze")
squeeze_dim_copy = _copy_of("squeeze.dim")
squeeze_dims_copy = _copy_of("squeeze.dims")
t_copy = _copy_of("t")
transpose_int_copy = _copy_of("transpose.int")
unfold_copy = _copy_of("unfold")
unsqueeze_copy = _copy_of("unsqueeze")
view_copy = _copy_of("view")
view_dtype_copy = _copy_of("view.dtype")
view_as_real_copy = _copy_of("view_as_real")
view_as_complex_copy = _copy_of("view_as_complex")
reshape_alias_copy = _copy_of("_reshape_alias")
split_copy = _copies_of("split.Tensor")
split_with_sizes_copy = _copies_of("split_with_sizes")
unbind_copy = _copies_of("unbind.int")


__all__ = [name for name in dir() if not name.startswith("_")]
