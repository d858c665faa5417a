"""Reading and writing by index: shape rules, bodies and gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mortice._base.errors import DimensionError, DTypeError, ShapeError
from mortice._ops.embedding import *  # noqa: F403  the bodies and gradients of embeddings
from mortice._ops.formulas import call, scaled, sum_to, zeros
from mortice._ops.view_scatter import *  # noqa: F403  the bodies of select_scatter and its kind
from mortice._types import dtypes, shapes
from mortice._types.promotion import result_type
from mortice._types.shapes import broadcast_all, wrap_dim

_MASKS = frozenset(("bool", "uint8"))
_INTEGERS = frozenset(("int64", "int32"))


def _shape(x: Any) -> tuple[int, ...]:
    return tuple(x._a.shape)


# -- index and index_put ---------------------------------------------------------------------------


def expanded(self: Any, indices: Sequence[Any], name: str = "index") -> list[Any]:
    """Indices one per dimension, masks replaced by the positions of their true elements."""
    shape = _shape(self)
    out: list[Any] = []
    for i, index in enumerate(indices):
        if index is None:
            out.append(None)
        elif index._t.name in _MASKS:
            _check_mask(shape, len(out), index, i)
            out += call("nonzero_numpy", index)
        else:
            if index._t.name not in _INTEGERS:
                raise DimensionError(
                    "tensors used as indices must be long, int, byte or bool tensors"
                )
            out.append(index)
    if len(out) > len(shape):
        raise DimensionError(
            f"too many indices for tensor of dimension {len(shape)} (got {len(out)})"
        )
    return out


def _check_mask(shape: Sequence[int], start: int, mask: Any, position: int) -> None:
    for j, n in enumerate(_shape(mask)):
        if start + j >= len(shape):
            raise DimensionError(f"too many indices for tensor of dimension {len(shape)}")
        if shape[start + j] != n:
            raise DimensionError(
                f"The shape of the mask {list(mask.shape)} at index {j} does not match the shape "
                f"of the indexed tensor {list(shape)} at index {start + j}"
            )


def _index_shape(self: Any, indices: Sequence[Any]) -> tuple[int, ...]:
    shape = _shape(self)
    given = expanded(self, indices)
    used = [(d, _shape(x)) for d, x in enumerate(given) if x is not None]
    if not used:
        return shape
    try:
        common = broadcast_all([s for _, s in used])
    except ShapeError:
        raise DimensionError(
            "shape mismatch: indexing tensors could not be broadcast together with shapes "
            + ", ".join(str(list(s)) for _, s in used)
        ) from None
    dims = [d for d, _ in used]
    kept = [n for d, n in enumerate(shape) if d not in dims]
    together = dims[-1] - dims[0] == len(dims) - 1
    at = dims[0] if together else 0
    return (*kept[:at], *common, *kept[at:])


def index(self: Any, indices: Sequence[Any]) -> Any:
    return _index_shape(self, indices), self._t


def index_grad(grad: Any, shape: Sequence[int], indices: Any) -> Any:
    return call("index_put", zeros(shape, grad._t, grad.device), tuple(indices), grad, True)


def unsafe_index(self: Any, indices: Any) -> Any:
    return call("index.Tensor", self, indices)


def index_put(self: Any, indices: Sequence[Any], values: Any, accumulate: bool) -> Any:
    if self._t is not values._t:
        raise DTypeError(
            "Index put requires the source and destination dtypes match, got "
            f"{self._t!r} for the destination and {values._t!r} for the source. Convert one with "
            ".to(dtype)."
        )
    target = _index_shape(self, indices)
    try:
        shapes.expand_strides(_shape(values), values.stride(), target)
    except ShapeError:
        raise ShapeError(
            f"shape mismatch: value tensor of shape {list(values.shape)} cannot be broadcast to "
            f"indexing result of shape {list(target)}"
        ) from None
    return _shape(self), self._t


def unsafe_index_put(self: Any, indices: Any, values: Any, accumulate: bool) -> Any:
    return call("index_put", self, indices, values, accumulate)


def index_put_impl_(self: Any, indices: Any, values: Any, accumulate: bool, unsafe: bool) -> Any:
    return call("index_put_", self, indices, values, accumulate)


# -- along one dimension ---------------------------------------------------------------------------


def _vector(index: Any, name: str) -> int:
    if index.ndim > 1:
        raise DimensionError(f"{name}(): Index is supposed to be a vector")
    _integer(index, name)
    return index.numel()


def _integer(index: Any, name: str) -> None:
    if index._t.name not in _INTEGERS:
        raise DTypeError(f"{name}(): Expected dtype int32 or int64 for index, got {index._t!r}")


def index_select(self: Any, dim: int, index: Any) -> Any:
    shape = list(_shape(self))
    d = wrap_dim(dim, len(shape))
    n = _vector(index, "index_select")
    if shape:
        shape[d] = n
    elif n != 1:
        raise DimensionError(
            f"index_select(): Index to scalar can have only 1 value, got {n} value(s)"
        )
    return tuple(shape), self._t


def index_select_grad(grad: Any, shape: Sequence[int], dim: int, index: Any) -> Any:
    return call("index_add", zeros(shape, grad._t, grad.device), dim, index, grad, 1)


def index_back(grad: Any, dim: int, index: Any, shape: Sequence[int]) -> Any:
    """What ``index_add``'s source contributed to: a selection, in the source's shape."""
    picked = call("index_select", grad, dim, index)
    return (
        call("expand", picked, tuple(shape), False)
        if tuple(picked._a.shape) != tuple(shape)
        else picked
    )


def index_add(self: Any, dim: int, index: Any, source: Any, *rest: Any) -> Any:
    name = "index_add" if rest else "index_copy"
    shape = _shape(self)
    d = wrap_dim(dim, len(shape))
    n = _vector(index, name)
    if self._t is not source._t:
        raise DTypeError(
            f"{name}(): self ({self._t!r}) and source ({source._t!r}) must have the same scalar type"
        )
    _check_source(shape, d, n, _shape(source), name)
    return shape, self._t


def _check_source(shape: Sequence[int], d: int, n: int, source: Sequence[int], name: str) -> None:
    if not source and not shape:
        return
    if (len(source) > 1 and len(source) != len(shape)) or (not source and n != 1):
        raise ShapeError(
            f"{name}(): the source has {len(source)} dimensions, but the destination {len(shape)}"
        )
    found = list(source) if source else [1] * len(shape)
    wanted = [n if k == d else s for k, s in enumerate(shape)] if shape else [n]
    if source and found != wanted:
        if len(found) > d and found[d] != n:
            raise DimensionError(
                f"{name}(): Number of indices ({n}) should be equal to source.size(dim): "
                f"({found[d]}), for dim: {d}"
            )
        raise ShapeError(
            f"{name}(): source tensor shape must match self tensor shape, excluding the specified "
            f"dimension. Got self.shape = {list(shape)} source.shape = {list(source)}"
        )


def index_fill(self: Any, dim: int, index: Any, value: Any) -> Any:
    _fill_checks(self, dim, index)
    if isinstance(value, complex) and not self._t.is_complex:
        raise DTypeError(
            "index_fill_(): Converting complex Scalar to non-complex type is not supported"
        )
    return _shape(self), self._t


def _fill_checks(self: Any, dim: int, index: Any) -> None:
    wrap_dim(dim, self.ndim)
    if index._t.name not in ("int64", "int32"):
        raise DimensionError("index_fill_(): Expected dtype int64 for index.")
    if index.ndim > 1:
        raise DimensionError("index_fill_(): Index is supposed to be a vector")


def index_fill_tensor(self: Any, dim: int, index: Any, value: Any) -> Any:
    _fill_checks(self, dim, index)
    if value.ndim:
        raise ShapeError(
            "index_fill_ only supports a 0-dimensional value tensor, but got tensor with "
            f"{value.ndim} dimension(s)."
        )
    return _shape(self), self._t


def index_fill_by_copy(self: Any, dim: int, index: Any, value: Any) -> Any:
    index_fill_tensor(self, dim, index, value)
    return call("index_fill.int_Scalar", self, dim, index, value.item())


def filled_places(grad: Any, dim: int, index: Any) -> Any:
    """The sum over what was filled, places named twice counted once."""
    kept = call("ones_like", grad, dtypes.bool_, None, None, None, None)
    kept = call("index_fill.int_Scalar", kept, dim, index, False)
    return grad.masked_fill(kept, 0).sum()


REDUCTIONS = ("prod", "mean", "amax", "amin")


def index_reduce(
    self: Any, dim: int, index: Any, source: Any, reduce: str, include_self: bool
) -> Any:
    if reduce not in REDUCTIONS:
        raise ShapeError(
            f"index_reduce(): Expected reduce to be one of prod, mean, amax or amin but got {reduce}."
        )
    return index_add(self, dim, index, source, 1)


# -- gather and scatter ----------------------------------------------------------------------------


def _check_index(index: Any, name: str) -> None:
    if index.numel() and index._t.name not in ("int64", "int32"):
        raise DTypeError(f"{name}(): Expected dtype int64 for index")


def gather(self: Any, dim: int, index: Any, sparse_grad: bool) -> Any:
    shape = _shape(self)
    d = wrap_dim(dim, len(shape))
    _check_index(index, "gather")
    wanted = _shape(index)
    if index.numel():
        _same_rank(shape, wanted, "gather", "input")
        for k, (n, m) in enumerate(zip(shape or (1,), wanted or (1,))):
            if k != d and m > n:
                raise ShapeError(
                    f"Size does not match at dimension {k} expected index {list(wanted)} to be no "
                    f"larger than self {list(shape)} apart from dimension {d}"
                )
    return wanted, self._t


def _same_rank(shape: Sequence[int], index: Sequence[int], name: str, other: str) -> None:
    if max(len(shape), 1) != max(len(index), 1):
        raise ShapeError(f"Index tensor must have the same number of dimensions as {other} tensor")


def gather_grad(grad: Any, shape: Sequence[int], dim: int, index: Any) -> Any:
    return call("scatter_add", zeros(shape, grad._t, grad.device), dim, index, grad)


def gathered(grad: Any, dim: int, index: Any, shape: Sequence[int]) -> Any:
    """Gradient of a scatter's source: what the index wrote, zero where the source is larger."""
    picked = call("gather", grad, dim, index, False)
    have = tuple(picked._a.shape)
    if have == tuple(shape):
        return picked
    out = zeros(shape, grad._t, grad.device)
    return corner_scatter(out, picked)


def corner_scatter(out: Any, part: Any) -> Any:
    """``out`` with its leading corner replaced by ``part``."""
    sizes = tuple(part._a.shape)
    padded = part
    for d in range(len(sizes)):
        target = tuple(out._a.shape)
        if sizes[d] == target[d]:
            continue
        wide = list(padded._a.shape)
        wide[d] = target[d] - sizes[d]
        padded = call("cat", (padded, zeros(wide, part._t, part.device)), d)
    return padded


def scatter(self: Any, dim: int, index: Any, src: Any) -> Any:
    d = _scatter_checks(self, dim, index)
    if self._t is not src._t:
        raise DTypeError("scatter(): Expected self.dtype to be equal to src.dtype")
    wanted, source = _shape(index), _shape(src)
    if index.numel():
        _same_rank(source, wanted, "scatter", "src")
        for n, m in zip(source or (1,), wanted or (1,)):
            if m > n:
                raise ShapeError(
                    f"Expected index {list(wanted)} to be no larger than self {list(self.shape)} "
                    f"apart from dimension {d} and to be no larger size than src {list(source)}"
                )
    return _shape(self), self._t


def _scatter_checks(self: Any, dim: int, index: Any) -> int:
    shape, wanted = _shape(self), _shape(index)
    d = wrap_dim(dim, len(shape))
    _check_index(index, "scatter")
    if index.numel():
        _same_rank(shape, wanted, "scatter", "self")
        for k, (n, m) in enumerate(zip(shape or (1,), wanted or (1,))):
            if k != d and m > n:
                raise ShapeError(
                    f"Expected index {list(wanted)} to be no larger than self {list(shape)} apart "
                    f"from dimension {d}"
                )
    return d


def scatter_value(self: Any, dim: int, index: Any, value: Any) -> Any:
    _scatter_checks(self, dim, index)
    return _shape(self), self._t


def _check_reduce(reduce: str) -> None:
    if reduce not in ("add", "multiply"):
        raise ShapeError("reduce argument must be either add or multiply.")


def scatter_with_reduce(self: Any, dim: int, index: Any, src: Any, reduce: str) -> Any:
    _check_reduce(reduce)
    return scatter(self, dim, index, src)


def scatter_value_reduce(self: Any, dim: int, index: Any, value: Any, reduce: str) -> Any:
    _check_reduce(reduce)
    return scatter_value(self, dim, index, value)


def scatter_reduce(
    self: Any, dim: int, index: Any, src: Any, reduce: str, include_self: bool
) -> Any:
    if reduce not in ("sum", *REDUCTIONS):
        raise ShapeError(
            f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}"
        )
    return scatter(self, dim, index, src)


def scatter_reduce_grad(
    grad: Any,
    self: Any,
    dim: int,
    index: Any,
    src: Any,
    reduce: str,
    include_self: bool,
    result: Any,
) -> tuple[Any, Any]:
    """Gradients of a reduction into places named by an index, for self and source."""

    def back(x: Any) -> Any:
        return call("gather", x, dim, index, False)

    def into(target: Any, values: Any) -> Any:
        return call("scatter_add", target, dim, index, values)

    part = src if tuple(src._a.shape) == tuple(index._a.shape) else _corner(src, index)

    def reduced(target: Any, values: Any) -> Any:
        return call("scatter_reduce.two", target, dim, index, values, reduce, include_self)

    own, theirs = _reduce_grad(grad, self, part, reduce, include_self, result, back, into, reduced)
    if not include_self:
        own = own.scatter(dim, index, 0)
    if theirs._a.shape != src._a.shape:
        theirs = corner_scatter(zeros(tuple(src._a.shape), theirs._t, theirs.device), theirs)
    return own, theirs


def _corner(src: Any, index: Any) -> Any:
    for d, n in enumerate(index._a.shape):
        src = call("slice.Tensor", src, d, 0, n, 1)
    return src


def index_reduce_grad(
    grad: Any,
    self: Any,
    dim: int,
    index: Any,
    source: Any,
    reduce: str,
    include_self: bool,
    result: Any,
) -> tuple[Any, Any]:
    def back(x: Any) -> Any:
        return call("index_select", x, dim, index)

    def into(target: Any, values: Any) -> Any:
        return call("index_add", target, dim, index, values, 1)

    def reduced(target: Any, values: Any) -> Any:
        return call("index_reduce", target, dim, index, values, reduce, include_self)

    own, theirs = _reduce_grad(
        grad, self, source, reduce, include_self, result, back, into, reduced
    )
    if not include_self:
        own = own.index_fill(dim, index, 0)
    return own, theirs.expand_as(source) if theirs._a.shape != source._a.shape else theirs


def _reduce_grad(
    grad: Any, self: Any, src: Any, reduce: str, include_self: bool, result: Any, back: Any, into: Any,
    reduced: Any,
) -> tuple[Any, Any]:  # fmt: skip
    if reduce == "sum":
        return grad, back(grad)
    if reduce == "mean":
        start = call("ones_like", grad, None, None, None, None, None)
        if not include_self:
            start = into_zero(start, into, src)
        counts = into(start, call("ones_like", src, None, None, None, None, None))
        counts = counts.masked_fill(counts == 0, 1)
        return grad / counts, back(grad) / back(counts)
    if reduce == "prod":
        return _prod_grad(grad, self, src, include_self, result, back, into, reduced)
    own = self == result
    theirs = src == back(result)
    hits = into((own if include_self else own & False).to(grad._t), theirs.to(grad._t))
    hits = hits if include_self else hits + (own & _untouched(self, src, into)).to(grad._t)
    shared = grad / hits.masked_fill(hits == 0, 1)
    return own.to(grad._t) * shared, theirs.to(grad._t) * back(shared)


def _untouched(self: Any, src: Any, into: Any) -> Any:
    ones = call("ones_like", src, None, None, None, None, None)
    none = call("zeros_like", self, None, None, None, None, None)
    return into(none, ones) == 0


def into_zero(start: Any, into: Any, src: Any) -> Any:
    """``start`` with a zero in every place that the index names."""
    zero = call("zeros_like", start, None, None, None, None, None)
    touched = into(zero, call("ones_like", src, None, None, None, None, None)) != 0
    return start.masked_fill(touched, 0)


def _prod_grad(
    grad: Any,
    self: Any,
    src: Any,
    include_self: bool,
    result: Any,
    back: Any,
    into: Any,
    reduced: Any,
) -> tuple[Any, Any]:
    """Products with zeros: a place with one zero passes the product of the others to it."""
    whole = self.masked_fill(self == 0, 1)
    own = grad * reduced(whole, src) / whole
    is_zero = src == 0
    none = call("zeros_like", self, None, None, None, None, None)
    zeros_there = into(none, is_zero.to(self._t))
    single = is_zero & back(zeros_there == 1)
    others = reduced(self, src.masked_fill(single, 1))
    plain = back(grad * result) / src.masked_fill(is_zero, 1)
    return own, call("where.self", single, back(grad * others), plain)


# -- masks -----------------------------------------------------------------------------------------


def masked_select_grad(grad: Any, shape: Sequence[int], mask: Any) -> Any:
    whole = shapes.broadcast(tuple(shape), tuple(mask._a.shape))
    target = zeros(whole, grad._t, grad.device)
    return call("masked_scatter", target, call("expand", mask, whole, False), grad)


def masked_scatter(self: Any, mask: Any, source: Any) -> Any:
    if self._t is not source._t:
        raise DTypeError(
            f"masked_scatter: expected self and source to have same dtypes but got {self._t!r} "
            f"and {source._t!r}"
        )
    if mask._t.name != "bool":
        raise DTypeError(
            f"masked_scatter_ only supports boolean masks, but got mask with dtype {mask._t!r}"
        )
    return shapes.broadcast(_shape(self), _shape(mask)), self._t


def masked_scatter_backward(grad: Any, mask: Any, shape: Sequence[int]) -> Any:
    taken = call("masked_select", grad, call("expand", mask, tuple(grad._a.shape), False))
    missing = shapes.numel(shape) - taken.numel()
    if missing > 0:
        taken = call("cat", (taken, zeros((missing,), grad._t, grad.device)), 0)
    elif missing < 0:
        taken = call("slice.Tensor", taken, 0, 0, shapes.numel(shape), 1)
    return call("reshape", taken, tuple(shape))


def nonzero_static(self: Any, size: int, fill_value: int) -> Any:
    if size < 0:
        raise ShapeError("nonzero_static: 'size' must be an non-negative integer")
    return (size, self.ndim), dtypes.int64


def nonzero_numpy(self: Any) -> Any:
    if not self.ndim:
        return call("unbind.int", call("nonzero", call("unsqueeze", self, 0)), 1)
    return call("unbind.int", call("nonzero", self), 1)


def argwhere(self: Any) -> Any:
    return call("nonzero", self)


# -- flat positions --------------------------------------------------------------------------------


def take(self: Any, index: Any) -> Any:
    if index._t.name != "int64":
        raise DTypeError(f"take(): Expected a long tensor for index, but got {index._t!r}")
    return _shape(index), self._t


def take_grad(grad: Any, shape: Sequence[int], index: Any) -> Any:
    return call("put", zeros(shape, grad._t, grad.device), index, grad, True)


def put(self: Any, index: Any, source: Any, accumulate: bool) -> Any:
    if index._t.name != "int64":
        raise DTypeError(f"put_(): Expected a long tensor for index, but got {index._t!r}")
    if self._t is not source._t:
        raise DTypeError(
            f"put_(): self and source expected to have the same dtype, but got self.dtype = "
            f"{self._t!r} and source.dtype = {source._t!r}"
        )
    if index.numel() != source.numel():
        raise ShapeError(
            "put_(): Expected source and index to have the same number of elements, but got "
            f"source.numel() = {source.numel()}, index.numel() = {index.numel()}"
        )
    return _shape(self), self._t


def _wrapped(indices: Any, size: int) -> Any:
    """Negative indices counted from the end."""
    return call("where.self", indices < 0, indices + size, indices)


def take_along_dim(self: Any, indices: Any, dim: int | None) -> Any:
    if indices._t.name != "int64":
        raise DTypeError(
            f"take_along_dim(): dtype of indices should be Long but got {indices._t!r}"
        )
    if dim is None:
        flat = call("reshape", _wrapped(indices, self.numel()), (-1,))
        return call("gather", call("reshape", self, (-1,)), 0, flat, False)
    if self.ndim != indices.ndim:
        raise ShapeError(
            f"take_along_dim(): input and indices should have the same number of dimensions, but "
            f"got {self.ndim} dimensions for input, and {indices.ndim} dimensions for indices"
        )
    d = wrap_dim(dim, self.ndim)
    indices = _wrapped(indices, self._a.shape[d] if self.ndim else 1)
    own, theirs = list(_shape(self)), list(_shape(indices))
    n = own[d] if own else 1
    m = theirs[d] if theirs else 1
    if own:
        own[d] = theirs[d] = 1
    common = list(shapes.broadcast(tuple(own), tuple(theirs)))
    wide, wanted = list(common), list(common)
    if common:
        wide[d], wanted[d] = n, m
    return call(
        "gather", call("expand", self, tuple(wide), False), d,
        call("expand", indices, tuple(wanted), False), False,
    )  # fmt: skip


# -- sets ------------------------------------------------------------------------------------------


def isin(elements: Any, test_elements: Any, assume_unique: bool, invert: bool) -> Any:
    result_type((elements, test_elements))
    return _shape(elements), dtypes.bool_


def isin_number(elements: Any, test_element: Any, assume_unique: bool, invert: bool) -> Any:
    found = elements == test_element
    return ~found if invert else found


def number_isin(element: Any, test_elements: Any, assume_unique: bool, invert: bool) -> Any:
    found = (test_elements == element).any()
    return ~found if invert else found


def unique_pair(self: Any, sorted: bool, return_inverse: bool) -> Any:
    return call("_unique2", self, sorted, return_inverse, False)[:2]


def unique_dim_consecutive(self: Any, dim: int, return_inverse: bool, return_counts: bool) -> Any:
    return call("unique_consecutive", self, return_inverse, return_counts, dim)


__all__ = [name for name in dir() if not name.startswith("_")] + ["scaled", "sum_to"]
