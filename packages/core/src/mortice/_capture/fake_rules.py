"""Fakes of operators whose rows do not say it all: memory, scalars, and shapes that values decide."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mortice._base.errors import DataDependentOutput, ShapeError
from mortice._capture.fake_array import constant_of
from mortice._dispatch.state import THREAD
from mortice._tensor import host, make
from mortice._types import dtypes, shapes

if TYPE_CHECKING:
    from mortice._capture.fake import FakeTensorMode


def _mode() -> FakeTensorMode:
    return THREAD.fake_modes[-1]


def _like(self: Any, shape: Any, dtype: Any = None) -> Any:
    return _mode().empty(shape, dtype or self._t, self.device)


# -- memory ----------------------------------------------------------------------------------------


def detach(self: Any) -> Any:
    return make.alias_of(self)


def returns_self(self: Any, *args: Any) -> Any:
    return self


def copy_(self: Any, src: Any, non_blocking: bool) -> Any:
    shapes.expand_strides(src._a.shape, src.stride(), tuple(self._a.shape))
    return self


def resize_(self: Any, size: Any, memory_format: Any) -> Any:
    size = tuple(size)
    if self._a.shape != size or memory_format is not None:
        self._a = self._a.restride(size, shapes.strides_for(size, memory_format), self._a.offset)
        storage = make.storage_of(self)
        needed = shapes.storage_extent(size, self._a.strides, self._a.offset) * self._t.itemsize
        have = storage.nbytes()
        if type(needed) is not int or type(have) is not int or needed > have:
            storage._nbytes = needed  # pyright: ignore[reportPrivateUsage]
    return self


# -- values ----------------------------------------------------------------------------------------


def local_scalar_dense(self: Any) -> Any:
    known = constant_of(self)
    if known is not None:
        return host.local_scalar_dense(known)
    env = _mode().shape_env
    if env is None:
        raise _needs_values("aten::_local_scalar_dense", "the value of an element")
    if self._t.is_floating_point:
        return env.unbacked_float()
    if self._t.is_complex:
        raise _needs_values("aten::_local_scalar_dense", "a complex value")
    if self._t.kind == dtypes.BOOL:
        return env.unbacked(0, 1) == 1
    return env.unbacked(None)


def equal(self: Any, other: Any) -> Any:
    if tuple(self._a.shape) != tuple(other._a.shape):
        return False
    raise _needs_values("aten::equal", "whether elements are equal")


def _needs_values(name: str, what: str) -> DataDependentOutput:
    error = DataDependentOutput(
        f"{name}: {what} is asked for, and fake tensors have no values. Do it on real tensors, or "
        "give the mode a ShapeEnv, where a number will do."
    )
    error.operator = name
    return error


# -- shapes that values decide ---------------------------------------------------------------------


def _known_count(self: Any) -> int | None:
    n = shapes.numel(self._a.shape)
    return n if type(n) is int else None


def nonzero(self: Any) -> Any:
    count = _mode().new_size(0, _known_count(self))
    # Column by column, as the real kernel's transposed result lies in memory.
    return _mode().empty((count, self.ndim), dtypes.int64, self.device, (1, count))


def masked_select(self: Any, mask: Any) -> Any:
    shape = shapes.broadcast(self._a.shape, mask._a.shape)
    n = shapes.numel(shape)
    return _like(self, (_mode().new_size(0, n if type(n) is int else None),))


def _unique(self: Any, shape: Any, count: Any, inverse_shape: Any) -> Any:
    """(values, inverse, counts), the last two empty where nobody asked."""
    return (
        _like(self, shape),
        _like(self, inverse_shape, dtypes.int64),
        _like(self, (count,), dtypes.int64),
    )


def unique2(self: Any, is_sorted: bool, inverse: bool, counts: bool) -> Any:
    n = _mode().new_size(0, _known_count(self))
    return _unique(self, (n,), n if counts else 0, self._a.shape if inverse else (0,))


def unique_dim(self: Any, dim: int, is_sorted: bool, inverse: bool, counts: bool) -> Any:
    shape = self._a.shape
    d = shapes.wrap_dim(dim, len(shape))
    n = _mode().new_size(0, shape[d] if type(shape[d]) is int else None)
    rest = (*shape[:d], n, *shape[d + 1 :])
    made = _unique(self, rest, n if counts else 0, (shape[d],) if inverse else (0,))
    # The rows found lie one after the other, whatever their dimension.
    order = (d, *(i for i in range(len(shape)) if i != d))
    strides = shapes.strides_in_order(rest, order)
    return (_mode().empty(rest, self._t, self.device, strides), *made[1:])


def unique_consecutive(self: Any, inverse: bool, counts: bool, dim: Any) -> Any:
    if dim is None:
        return unique2(self, True, inverse, counts)
    values, *rest = unique_dim(self, dim, True, inverse, counts)
    return (_like(self, values._a.shape), *rest)


def repeat_interleave(repeats: Any, output_size: Any) -> Any:
    size = _mode().new_size() if output_size is None else output_size
    return _like(repeats, (size,), dtypes.int64)


def bincount(self: Any, weights: Any, minlength: int) -> Any:
    dtype = dtypes.int64
    if weights is not None:
        dtype = dtypes.float32 if weights._t is dtypes.float32 else dtypes.float64
    return _like(self, (_mode().new_size(minlength),), dtype)


def one_hot(self: Any, num_classes: int) -> Any:
    classes = _mode().new_size(1) if num_classes == -1 else num_classes
    return _like(self, (*self._a.shape, classes), dtypes.int64)


# -- shapes that values do not decide, though bodies look at values --------------------------------


def matrix_exp(self: Any) -> Any:
    shape = self._a.shape
    if len(shape) < 2 or shape[-1] != shape[-2]:
        raise ShapeError(
            f"linalg.matrix_exp: the input must be (batches of) square matrices, not {list(shape)}"
        )
    return _like(self, shape)


def histogram(self: Any, bins: Any, *rest: Any) -> Any:
    """(counts, edges): ``bins`` is how many, or the edges themselves."""
    edges = bins._a.shape[0] if hasattr(bins, "_k") else bins + 1
    return _like(self, (edges - 1,)), _like(self, (edges,))


RULES: dict[str, Callable[..., Any]] = {
    "detach": detach,
    "copy_": copy_,
    "resize_": resize_,
    **dict.fromkeys(("fill_.Scalar", "zero_", "elu_", "embedding_renorm_"), returns_self),
    "_local_scalar_dense": local_scalar_dense,
    "equal": equal,
    "nonzero": nonzero,
    "masked_select": masked_select,
    "_unique2": unique2,
    "unique_dim": unique_dim,
    "unique_consecutive": unique_consecutive,
    "repeat_interleave.Tensor": repeat_interleave,
    "bincount": bincount,
    "one_hot": one_hot,
    "linalg_matrix_exp": matrix_exp,
    "matrix_exp": matrix_exp,
    "histogram.bin_ct": histogram,
    "histogram.bins_tensor": histogram,
}
