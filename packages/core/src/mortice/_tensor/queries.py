"""Questions about tensors and dtypes that need no operator, as functions and methods."""

from __future__ import annotations

from typing import Any

import numpy as np

from mortice._base.errors import DTypeError, InvalidState, InvalidValue, ShapeError
from mortice._tensor.tensor import Tensor
from mortice._types import dtypes, promotion
from mortice._types.dtypes import DType


def promote_types(type1: DType, type2: DType) -> DType:
    """The smallest dtype to which both can be converted."""
    return promotion.promote(type1, type2)


def can_cast(from_: DType, to: DType) -> bool:
    """Whether PyTorch's casting rules let an operator write ``from_`` into ``to``."""
    return promotion.can_cast(from_, to)


def result_type(tensor1: Any, tensor2: Any) -> DType:
    """The dtype of an elementwise operator on the two operands, each a tensor or a number."""
    return promotion.result_type((tensor1, tensor2))


def is_nonzero(input: Tensor) -> bool:
    """Whether the only element is not zero."""
    if input.numel() != 1:
        raise InvalidState(
            f"Boolean value of Tensor with {'no' if not input.numel() else 'more than one'} value "
            f"is ambiguous: is_nonzero() needs one element, found {input.numel()}."
        )
    return bool(input.item())


def is_same_size(input: Tensor, other: Tensor) -> bool:
    return tuple(input.shape) == tuple(other.shape)


def is_signed(input: Tensor) -> bool:
    return input.is_signed()


def is_conj(input: Tensor) -> bool:
    return input.is_conj()


def is_neg(input: Tensor) -> bool:
    return input.is_neg()


def is_inference(input: Tensor) -> bool:
    return input.is_inference()


def is_storage(obj: Any) -> bool:
    """Whether an object is a storage."""
    from mortice._tensor.storage import Storage

    return isinstance(obj, Storage)


def get_device(input: Tensor) -> int:
    """Device index, -1 on the CPU."""
    return input.get_device()


def frombuffer(
    buffer: Any, *, dtype: DType, count: int = -1, offset: int = 0, requires_grad: bool = False
) -> Tensor:
    """A 1-d tensor over the memory of an object with the buffer protocol, from byte ``offset``.

    ``count`` elements of ``dtype``, or as many as there are. InvalidValue if they do not fit.
    """
    from mortice._tensor.make import storage_of, wrap

    item = dtype.itemsize
    memory = memoryview(buffer).cast("B")
    size = memory.nbytes
    if not size:
        raise InvalidValue("both buffer length (0) and count (-1) must not be 0")
    if not 0 <= offset < size:
        raise InvalidValue(
            f"offset ({offset} bytes) must be non-negative and no greater than buffer length "
            f"({size} bytes) minus 1"
        )
    if count < 0:
        if (size - offset) % item:
            raise InvalidValue(
                f"buffer length ({size} bytes) after offset ({offset} bytes) must be a multiple of "
                f"element size ({item})"
            )
        count = (size - offset) // item
    if offset + count * item > size:
        raise InvalidValue(
            f"requested buffer length ({count} * {item} bytes) after offset ({offset} bytes) must "
            f"not be greater than actual buffer length ({size} bytes)"
        )
    if memory.readonly:
        import warnings

        warnings.warn(
            "The given buffer is not writable. Writing to the tensor is an error; copy the buffer "
            "to a bytearray first if you want to write.",
            UserWarning,
            stacklevel=2,
        )
    made = wrap(np.frombuffer(memory, dtype.numpy, count, offset), dtype)
    storage_of(made).exported = True
    return made.requires_grad_(True) if requires_grad else made


def dim_order(self: Tensor) -> tuple[int, ...]:
    """The dimensions from the outermost in memory to the innermost."""
    strides = self.stride()
    return tuple(sorted(range(self.ndim), key=lambda d: (-strides[d], d)))


def is_pinned(self: Tensor, device: Any = None) -> bool:
    """Whether the memory is page-locked; host memory made by core never is."""
    return False


def pin_memory(self: Tensor, device: Any = None) -> Tensor:
    """Page-locked memory belongs to an accelerator, and none here offers it."""
    raise InvalidState(
        "pin_memory(): no accelerator that page-locks host memory is in use. Leave pin_memory away."
    )


def is_set_to(self: Tensor, tensor: Tensor) -> bool:
    """Whether both see the same memory with the same offset, sizes and strides."""
    return (
        self.untyped_storage() is tensor.untyped_storage()
        and self.storage_offset() == tensor.storage_offset()
        and tuple(self.shape) == tuple(tensor.shape)
        and self.stride() == tensor.stride()
    )


def sum_to_size(self: Tensor, *size: Any) -> Tensor:
    """Summed down to a shape that broadcasts to this tensor's."""
    from mortice._dispatch.operator import get

    wanted = tuple(size[0]) if len(size) == 1 and not isinstance(size[0], int) else tuple(size)
    have = tuple(self.shape)
    gap = len(have) - len(wanted)
    fits = gap >= 0 and all(n in (1, m) for n, m in zip(wanted, have[gap:]))
    if not fits:
        raise ShapeError(f"size {{{list(wanted)}}} is not expandable to size {{{list(have)}}}.")
    dims = (*range(gap), *(i + gap for i, n in enumerate(wanted) if n == 1 and have[i + gap] != 1))
    if not wanted:
        return get("sum")(self, None)
    if not dims:
        return self
    return get("sum.dim_IntList")(self, dims, True, None).view(wanted)


def module_load(self: Tensor, other: Tensor, assign: bool = False) -> Tensor:
    """What ``load_state_dict`` calls: the tensor to keep, filled from ``other``."""
    if assign:
        return other.detach()
    return self.copy_(other).detach()


def storage(self: Tensor) -> Any:
    """The storage, seen as elements of the tensor's dtype."""
    from mortice._tensor.typed_storage import TypedStorage

    return TypedStorage(self.untyped_storage(), self._t)


def cuda(
    self: Tensor, device: Any = None, non_blocking: bool = False, memory_format: Any = None
) -> Tensor:
    """On a CUDA device, the current one by default; needs a package that provides ``cuda``."""
    from mortice._tensor.devices import located

    return self.to(located(device, "cuda"), memory_format=memory_format)


def record_stream(self: Tensor, stream: Any) -> None:
    """Give the memory back only when ``stream``, another than made it, is done with it.

    Nothing on the CPU, where work is done when an operator returns.
    """
    users = getattr(getattr(self._a, "buffer", None), "users", None)
    if users is not None:
        users.append(stream)


def to_dense(
    self: Tensor, dtype: DType | None = None, *, masked_grad: bool | None = None
) -> Tensor:
    """The tensor itself, which is dense."""
    return self if dtype is None else self.to(dtype)


def const_data_ptr(self: Tensor) -> int:
    return self.data_ptr()


def _on(device: str) -> Any:
    return property(lambda self: self.device.type == device, doc=f"Whether it is on {device!r}.")


def _never(doc: str) -> Any:
    return property(lambda self: False, doc=doc)


class finfo:
    """Limits of a floating dtype: ``bits, eps, max, min, tiny, smallest_normal, resolution``."""

    __slots__ = ("bits", "dtype", "eps", "max", "min", "resolution", "smallest_normal", "tiny")

    def __init__(self, type: DType | None = None) -> None:
        dtype = (type or dtypes.default.dtype).to_real()
        if not dtype.is_floating_point:
            raise DTypeError(
                f"mortice.finfo() requires a floating point input type. Use mortice.iinfo to handle "
                f"{dtype!r}."
            )
        info: Any = _numpy_finfo(dtype)
        self.dtype = dtype.name
        self.bits = dtype.itemsize * 8
        self.eps = float(info.eps)
        self.max = float(info.max)
        self.min = float(info.min)
        self.tiny = self.smallest_normal = float(info.smallest_normal)
        self.resolution = 10.0 ** -int(-np.log10(self.eps))  # decimal digits that survive

    def __repr__(self) -> str:
        return (
            f"finfo(resolution={self.resolution:g}, min={self.min:g}, max={self.max:g}, "
            f"eps={self.eps:g}, smallest_normal={self.smallest_normal:g}, tiny={self.tiny:g}, "
            f"dtype={self.dtype})"
        )


def _numpy_finfo(dtype: DType) -> Any:
    if dtype.numpy.kind == "f":
        return np.finfo(dtype.numpy)
    import ml_dtypes

    return ml_dtypes.finfo(dtype.numpy)


class iinfo:
    """Limits of an integer dtype: ``bits, max, min``."""

    __slots__ = ("bits", "dtype", "max", "min")

    def __init__(self, type: DType) -> None:
        if type.differentiable or type.kind == dtypes.BOOL:
            raise DTypeError(
                f"mortice.iinfo() requires an integer input type. Use mortice.finfo to handle {type!r}."
            )
        info = np.iinfo(type.numpy)
        self.dtype = type.name
        self.bits = type.itemsize * 8
        self.max = int(info.max)
        self.min = int(info.min)

    def __repr__(self) -> str:
        return f"iinfo(min={self.min}, max={self.max}, dtype={self.dtype})"


FUNCTIONS: dict[str, Any] = {
    f.__name__: f
    for f in (
        promote_types, can_cast, result_type, is_nonzero, is_same_size, is_signed, is_conj, is_neg,
        is_inference, is_storage, get_device, frombuffer, finfo, iinfo,
    )
}  # fmt: skip

METHODS: dict[str, Any] = {
    **{
        f.__name__: f
        for f in (
            dim_order, is_pinned, pin_memory, is_set_to, sum_to_size, module_load, storage, cuda,
            record_stream, to_dense, const_data_ptr, is_nonzero, is_same_size,
        )
    },
    **{f"is_{d}": _on(d) for d in ("mps", "xpu", "ipu", "mtia", "maia", "vulkan", "xla")},
    "is_sparse_csr": _never("Whether the layout is compressed sparse rows."),
    "is_mkldnn": _never("Whether the layout is oneDNN's."),
    "name": property(lambda self: None, doc="Always None: tensors have no names."),
    "grad_dtype": property(lambda self: self._t, doc="The dtype of the gradient: the tensor's."),
}  # fmt: skip
