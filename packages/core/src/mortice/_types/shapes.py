"""Size and stride arithmetic. Strides and offsets are in elements; sizes may be symbolic."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from mortice._base.errors import DimensionError, ShapeError
from mortice._types.layout import MemoryFormat, channels_last, channels_last_3d

Shape = tuple[int, ...]


# tuple's own, looked up once: super() would cost as much again.
_tuple: Any = tuple
_item = _tuple.__getitem__
_joined = _tuple.__add__
_repeated = _tuple.__mul__


class Size(tuple[int, ...]):
    """The sizes of a tensor's dimensions: a tuple that also counts elements."""

    __slots__ = ()

    def numel(self) -> int:
        """Number of elements: the product of the sizes."""
        return numel(self)

    def __repr__(self) -> str:
        return f"mortice.Size({list(self)})"

    def __getitem__(self, index: Any) -> Any:
        item: Any = _item(self, index)
        return Size(item) if index.__class__ is slice else item

    def __add__(self, other: Any) -> Size:
        return Size(_joined(self, tuple(other)))

    def __radd__(self, other: Any) -> Size:
        return Size(tuple(other) + tuple(self))

    def __mul__(self, count: Any) -> Size:
        return Size(_repeated(self, count))

    def __reduce__(self) -> Any:
        return (Size, (tuple(self),))


# -- sizes that depend on data -------------------------------------------------------------------

# Comparisons of symbolic sizes give a bool, or a SymBool where the answer depends on the sizes. It
# is then decided by the sizes at hand; where there are none, sizes are taken to be neither 0 nor 1.


def sure(answer: Any) -> bool:
    """The answer, or False where it depends on data."""
    if answer is True or answer is False:
        return answer
    decide = getattr(answer, "or_false", None)
    return bool(answer) if decide is None else decide()


def possible(answer: Any) -> bool:
    """The answer, or True where it depends on data."""
    if answer is True or answer is False:
        return answer
    decide = getattr(answer, "or_true", None)
    return bool(answer) if decide is None else decide()


def _must_be_equal(a: Any, b: Any) -> bool:
    """Whether two sizes are equal, which is taken for granted where it depends on data."""
    answer: Any = a == b
    if answer is True or answer is False:
        return answer
    decide = getattr(answer, "assumed", None)
    return bool(answer) if decide is None else decide()


def _step(step: Any, size: Any) -> Any:
    """The stride outside a dimension of ``size`` with stride ``step``; size 0 counts as 1."""
    if size.__class__ is int:
        return step * (size or 1)
    return step if sure(size == 0) else step * size


def numel(shape: Iterable[int]) -> int:
    total = 1
    for size in shape:
        total = total * size
    return total


def contiguous_strides(shape: Sequence[int]) -> Shape:
    """Row-major strides; a dimension of size 0 counts as 1, as in PyTorch."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step = _step(step, size)
    return tuple(reversed(strides))


def channels_last_strides(shape: Sequence[int]) -> Shape:
    """Strides with the channel dimension (1) innermost, for 4 or 5 dimensions."""
    order = (0, *range(2, len(shape)), 1)
    return strides_in_order(shape, order)


def strides_in_order(shape: Sequence[int], order: Sequence[int]) -> Shape:
    """Dense strides with the dimensions of ``order`` from outermost to innermost."""
    strides = [0] * len(shape)
    step = 1
    for dim in reversed(order):
        strides[dim] = step
        step = _step(step, shape[dim])
    return tuple(strides)


def strides_for(shape: Sequence[int], memory_format: MemoryFormat | None) -> Shape:
    if memory_format is not None and memory_format in (channels_last, channels_last_3d):
        wanted = 4 if memory_format is channels_last else 5
        if len(shape) != wanted:
            raise ShapeError(
                f"required rank {wanted} tensor to use {memory_format.name} format, got "
                f"{len(shape)} dimensions."
            )
        return channels_last_strides(shape)
    return contiguous_strides(shape)


def dense_strides_like(shape: Sequence[int], strides: Sequence[int]) -> Shape:
    """Strides of ``preserve_format``: the same strides if dense, else dense in the same order.

    Dense means that the elements fill one gap-free block without overlap.
    """
    if is_dense(shape, strides):
        return tuple(strides)
    return elementwise_strides(shape, ((shape, strides),))


def elementwise_strides(
    shape: Sequence[int], operands: Iterable[tuple[Sequence[int], Sequence[int]]]
) -> Shape:
    """Strides of an elementwise result: dense, in the order in which the operands lie in memory.

    ``operands`` are (sizes, strides).
    """
    return strides_in_order(shape, memory_order(shape, operands))


def strides_as(shape: Sequence[int], like: Any) -> Shape:
    """Dense strides for ``shape``, in the order in which the tensor ``like`` lies in memory."""
    have = like._a.shape
    return strides_in_order(shape, memory_order(have, ((have, like.stride()),)))


def memory_order(
    shape: Sequence[int], operands: Iterable[tuple[Sequence[int], Sequence[int]]]
) -> Sequence[int]:
    """The dimensions from the outermost in memory inwards, as the operands (sizes, strides) lie.

    The order is numpy's: row-major, unless some operand says otherwise and none disagrees;
    dimensions where a stride is 0 have no say.
    """
    operands = tuple(operands)
    if all(is_contiguous(*operand) for operand in operands):
        return range(len(shape))
    aligned = [_aligned(shape, *operand) for operand in operands]
    order: list[int] = []  # from the innermost dimension outwards
    for dim in reversed(range(len(shape))):
        place = len(order)
        for i in reversed(range(len(order))):
            swap = _lies_inside(aligned, dim, order[i])
            if swap is None:
                continue
            if not swap:
                break
            place = i
        order.insert(place, dim)
    return order[::-1]


def _aligned(shape: Sequence[int], size: Sequence[int], strides: Sequence[int]) -> list[int]:
    """Strides for the dimensions of ``shape``; 0 where an operand is repeated."""
    gap = len(shape) - len(size)
    return [0] * gap + [0 if sure(n == 1) else s for n, s in zip(size, strides)]


def _lies_inside(operands: list[list[int]], dim: int, other: int) -> bool | None:
    """Whether ``dim`` shall lie inside ``other``, or None if no operand has a say."""
    answer: bool | None = None
    for strides in operands:
        mine, theirs = strides[dim], strides[other]
        if sure(mine == 0) or sure(theirs == 0):
            continue
        if not sure(theirs > mine):
            answer = False
        elif answer is None:
            answer = True
    return answer


def is_dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether the elements fill one block of memory without gap or overlap."""
    if is_contiguous(shape, strides):
        return True
    expected = 1
    # Any order in which the chain closes proves it, so that none needs a guard.
    for stride, size in sorted(zip(strides, shape), key=_size_key):
        if sure(size == 1):
            continue
        if sure(size == 0):
            return True
        if not sure(stride == expected):
            return False
        expected = expected * size
    return True


def _size_key(pair: tuple[Any, Any]) -> tuple[int, int]:
    stride, size = pair
    if stride.__class__ is int and size.__class__ is int:
        return stride, size
    return getattr(stride, "guess", stride), getattr(size, "guess", size)


def is_contiguous(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Row-major without gaps. Strides of dimensions of size 1 do not matter."""
    expected = 1
    for size, stride in zip(reversed(shape), reversed(strides)):
        if sure(size == 0):
            return True
        # A stride that fits in every call fits a size of 1 as well: no question of the size.
        if (stride == expected) is True:
            expected = expected * size
        elif not sure(size == 1):
            if not sure(stride == expected):
                return False
            expected = expected * size
    return True


def is_channels_last(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether a 4-d or 5-d tensor is contiguous with channels innermost."""
    if len(shape) not in (4, 5):
        return False
    expected = 1
    for dim in (1, *reversed(range(2, len(shape))), 0):
        if not sure(shape[dim] == 1):
            if not sure(strides[dim] == expected):
                return False
            expected = expected * shape[dim]
    return True


def is_like_channels_last(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether a 4-d or 5-d tensor's strides grow from the channels outward, with gaps or without; not
    if it is row-major as well. Strides of dimensions of size 1 do not matter.
    """
    if len(shape) not in (4, 5) or is_contiguous(shape, strides):
        return False
    least = 1
    for dim in (1, *reversed(range(2, len(shape))), 0):
        if not sure(shape[dim] == 1):
            if sure(shape[dim] == 0) or not sure(strides[dim] >= least):
                return False
            least = strides[dim] * shape[dim]
    return True


def wrap_dim(dim: int, ndim: int, name: str = "Dimension") -> int:
    """``dim`` as 0 <= dim < ndim; a 0-d tensor counts as having one dimension."""
    bound = ndim or 1
    if dim < -bound or dim >= bound:
        raise DimensionError(
            f"{name} out of range (expected to be in range of [{-bound}, {bound - 1}], "
            f"but got {dim})"
        )
    return dim + bound if dim < 0 else dim


def wrap_dims(dims: Any, ndim: int) -> Shape:
    """A dim, several dims, or None or () for all, as distinct non-negative dims."""
    if dims is None:
        return tuple(range(ndim))
    if isinstance(dims, int):
        return (wrap_dim(dims, ndim),)
    if not len(dims):
        return tuple(range(ndim))
    wrapped = tuple(wrap_dim(d, ndim) for d in dims)
    if len(set(wrapped)) != len(wrapped):
        twice = next(d for d in wrapped if wrapped.count(d) > 1)
        raise ShapeError(f"dim {twice} appears multiple times in the list of dims {tuple(dims)}")
    return wrapped


def broadcast(a: Sequence[int], b: Sequence[int]) -> Shape:
    """The shape in which two operands meet; ShapeError names the dimension that does not fit."""
    if len(a) == len(b) and a == b:  # symbolic sizes of other dimensions are not to be compared
        return tuple(a)
    if len(a) < len(b):
        return tuple(reversed(_broadcast(b, a, swapped=True)))
    return tuple(reversed(_broadcast(a, b, swapped=False)))


def _broadcast(long: Sequence[int], short: Sequence[int], swapped: bool) -> list[int]:
    out: list[int] = []
    gap = len(long) - len(short)
    for dim in range(len(long) - 1, -1, -1):
        x = long[dim]
        y = short[dim - gap] if dim >= gap else 1
        if x is y or sure(y == 1):
            out.append(x)
        elif sure(x == 1):
            out.append(y)
        elif _must_be_equal(x, y):
            out.append(x)
        else:
            first, second = (y, x) if swapped else (x, y)
            raise ShapeError(
                f"The size of tensor a ({first}) must match the size of tensor b ({second}) at "
                f"non-singleton dimension {dim}. Sizes that meet must be equal, or one of them 1."
            )
    return out


def broadcast_all(shapes: Iterable[Sequence[int]]) -> Shape:
    result: Shape = ()
    for shape in shapes:
        result = broadcast(result, shape)
    return result


def expand_strides(shape: Sequence[int], strides: Sequence[int], size: Sequence[int]) -> Any:
    """(sizes, strides) of ``expand(size)``: -1 keeps a size, new and widened dims get stride 0."""
    gap = len(size) - len(shape)
    if gap < 0:
        raise ShapeError(
            f"expand({list(size)}): the number of sizes provided ({len(size)}) must be greater or "
            f"equal to the number of dimensions in the tensor ({len(shape)})"
        )
    sizes: list[int] = []
    steps: list[int] = []
    for dim, wanted in enumerate(size):
        have = shape[dim - gap] if dim >= gap else 1
        step = strides[dim - gap] if dim >= gap else 0
        if wanted == -1:
            if dim < gap:
                raise ShapeError(
                    f"expand({list(size)}): -1 is not allowed in the leading, non-existing "
                    f"dimension {dim}"
                )
            wanted = have
        if wanted is not have and not sure(wanted == have):
            if sure(have == 1) and wanted >= 0:
                step = 0
            elif not _must_be_equal(wanted, have):
                raise ShapeError(
                    f"The expanded size of the tensor ({wanted}) must match the existing size "
                    f"({have}) at non-singleton dimension {dim}. Target sizes: {list(size)}. "
                    f"Tensor sizes: {list(shape)}"
                )
        sizes.append(wanted)
        steps.append(step)
    return tuple(sizes), tuple(steps)


def _wrong_size(size: Sequence[int], count: int) -> ShapeError:
    return ShapeError(
        f"shape '{list(size)}' is invalid for input of size {count}. The sizes must multiply to "
        f"{count}; one of them may be -1, to be worked out."
    )


def infer_size(size: Sequence[int], count: int) -> Shape:
    """``size`` with its one -1 replaced so that it holds ``count`` elements."""
    known = 1
    hole = -1
    for dim, wanted in enumerate(size):
        if wanted == -1:
            if hole >= 0:
                raise ShapeError(
                    f"only one dimension can be inferred, got shape {list(size)}. Give one -1."
                )
            hole = dim
        elif wanted < 0:
            raise ShapeError(f"invalid shape dimension {wanted} at index {dim} of {list(size)}")
        else:
            known = known * wanted
    if hole < 0:
        if sure(known != count):
            raise _wrong_size(size, count)
        return tuple(size)
    if sure(known == 0):
        raise ShapeError(
            f"cannot reshape tensor of {count} elements into shape {list(size)} because the "
            "unspecified dimension size -1 can be any value and is ambiguous"
        )
    if sure(count % known != 0):
        raise _wrong_size(size, count)
    return tuple(count // known if d == hole else s for d, s in enumerate(size))


def view_strides(shape: Sequence[int], strides: Sequence[int], size: Sequence[int]) -> Any:
    """Strides that let the same memory be seen as ``size``, or None if a copy is needed.

    Runs of dimensions that lie gap-free behind each other are merged, then each run is split
    into the new sizes from the innermost outwards.
    """
    if sure(numel(shape) == 0):
        return tuple(strides) if tuple(shape) == tuple(size) else contiguous_strides(size)
    chunks = _merged(shape, strides)
    result = [0] * len(size)
    dim = len(size) - 1
    for i, (extent, base) in reversed(list(enumerate(chunks))):
        count = 1
        # What is left goes into the outermost run, whatever the sizes are.
        while dim >= 0 and (
            i == 0
            or (count * size[dim] == extent) is True
            or possible(count < extent)
            or sure(size[dim] == 1)
        ):
            result[dim] = base * count
            count = count * size[dim]
            dim -= 1
        if not _must_be_equal(count, extent):
            return None
    return tuple(result) if dim == -1 else None


def _merged(shape: Sequence[int], strides: Sequence[int]) -> list[tuple[int, int]]:
    """(elements, innermost stride) of each maximal run of dimensions contiguous together."""
    runs: list[tuple[int, int]] = []
    extent, base = 1, 1
    outer: int | None = None
    for size, stride in zip(reversed(shape), reversed(strides)):
        if outer is not None and (stride == outer) is True:
            extent = extent * size
            outer = base * extent
            continue
        if sure(size == 1):
            continue
        if outer is None:
            extent, base = size, stride
        elif sure(stride == outer):
            extent = extent * size
        else:
            runs.append((extent, base))
            extent, base = size, stride
        outer = base * extent
    runs.append((extent, base))
    runs.reverse()
    return runs


def storage_extent(shape: Sequence[int], strides: Sequence[int], offset: int) -> int:
    """Elements that a storage must hold for these sizes, strides and offset."""
    if any(sure(size == 0) for size in shape):
        return 0
    return offset + 1 + sum((size - 1) * stride for size, stride in zip(shape, strides))


def has_overlap(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether two indices surely name one element: a stride of 0 in a dimension above size 1."""
    if any(sure(size == 0) for size in shape):
        return False  # no element, whatever numpy gave for strides
    return any(sure(stride == 0) and sure(size > 1) for size, stride in zip(shape, strides))
