"""Tensors that mortice keeps but does not compute with: sparse, quantised, nested.

They load, convert to strided tensors, and save again as they were.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mortice._types import layout as layouts
from mortice._types.shapes import Size
from mortice.errors import InvalidState

if TYPE_CHECKING:
    from mortice._tensor.tensor import Tensor
    from mortice._types.device import Device
    from mortice._types.dtypes import DType

_LAYOUTS = {layout.name: layout for layout in layouts.LAYOUTS}


class StorageOnly:
    """Base of what only loads, converts and saves; any other use says how to convert."""

    _convert = "to_dense"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise InvalidState(
            f"{type(self).__name__} has no {name!r}: it only loads, converts and saves. Call "
            f".{self._convert}() for a tensor that computes."
        )


def host_array(t: Tensor) -> np.ndarray[Any, Any]:
    """A tensor's elements as a numpy array, copied to the host if need be."""
    if t.is_meta:
        raise InvalidState("a tensor on the meta device has no data to convert.")
    return np.asarray(t._a if t.is_cpu else t.cpu()._a)


class SparseTensor(StorageOnly):
    """A tensor in one of the sparse layouts. ``parts`` are its index tensors, then its values."""

    def __init__(
        self,
        layout: str,
        parts: tuple[Tensor, ...],
        size: tuple[int, ...],
        coalesced: bool | None = None,
        requires_grad: bool = False,
    ) -> None:
        self.layout = _LAYOUTS[layout]
        self.parts = parts
        self.shape = Size(size)
        self.requires_grad = requires_grad
        self._coalesced = coalesced

    @property
    def dtype(self) -> DType:
        return self.parts[-1].dtype

    @property
    def device(self) -> Device:
        return self.parts[-1].device

    @property
    def is_sparse(self) -> bool:
        return self.layout is layouts.sparse_coo

    def size(self, dim: int | None = None) -> Any:
        """All sizes, or that of one dimension."""
        return self.shape if dim is None else self.shape[dim]

    def is_coalesced(self) -> bool:
        """Whether a COO tensor's indices are unique and sorted, as its writer said."""
        return bool(self._coalesced)

    def values(self) -> Tensor:
        """The elements that are stored."""
        return self.parts[-1]

    def _part(self, name: str, index: int, *names: str) -> Tensor:
        if self.layout.name not in names:
            raise InvalidState(f"{name} is not a part of a {self.layout.name} tensor.")
        return self.parts[index]

    def indices(self) -> Tensor:
        """COO: positions, one column per value."""
        return self._part("indices", 0, "sparse_coo")

    def crow_indices(self) -> Tensor:
        """CSR, BSR: where each row begins among the values."""
        return self._part("crow_indices", 0, "sparse_csr", "sparse_bsr")

    def col_indices(self) -> Tensor:
        """CSR, BSR: the column of each value."""
        return self._part("col_indices", 1, "sparse_csr", "sparse_bsr")

    def ccol_indices(self) -> Tensor:
        """CSC, BSC: where each column begins among the values."""
        return self._part("ccol_indices", 0, "sparse_csc", "sparse_bsc")

    def row_indices(self) -> Tensor:
        """CSC, BSC: the row of each value."""
        return self._part("row_indices", 1, "sparse_csc", "sparse_bsc")

    def to_dense(self) -> Tensor:
        """A strided tensor of the same values; entries given twice are added."""
        from mortice._tensor.make import wrap

        values = self.values()
        arrays = [host_array(part) for part in self.parts]
        dense = np.zeros(tuple(self.shape), arrays[-1].dtype)
        if self.is_sparse:
            np.add.at(dense, tuple(arrays[0]), arrays[-1])
        else:
            self._fill_compressed(dense, arrays)
        return wrap(dense, values.dtype)

    def _fill_compressed(self, dense: np.ndarray, arrays: list[np.ndarray]) -> None:
        pointers, plain, values = arrays
        by_column = self.layout.name in ("sparse_csc", "sparse_bsc")
        blocks = values.shape[pointers.ndim :] if "bs" in self.layout.name else ()
        tall, wide = blocks[:2] if blocks else (1, 1)
        for batch in np.ndindex(*pointers.shape[:-1]):
            starts, others, stored = pointers[batch], plain[batch], values[batch]
            major = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
            rows, columns = (others, major) if by_column else (major, others)
            for row, column, value in zip(rows, columns, stored, strict=True):
                place = (
                    slice(row * tall, (row + 1) * tall),
                    slice(column * wide, (column + 1) * wide),
                )
                dense[(*batch, *place)] = value

    def __repr__(self) -> str:
        return (
            f"SparseTensor(layout={self.layout!r}, size={tuple(self.shape)}, "
            f"nnz={self.parts[-1].shape[0]}, dtype={self.dtype!r})"
        )


class QuantizedTensor(StorageOnly):
    """Integers with a scale and a zero point, for the whole tensor or for each channel."""

    _convert = "dequantize"

    def __init__(
        self, data: Tensor, qscheme: str, scale: Any, zero_point: Any, axis: int | None
    ) -> None:
        self.data = data
        self.scheme = qscheme
        self.scale = scale
        self.zero_point = zero_point
        self.axis = axis
        self.layout = layouts.strided
        self.requires_grad = False

    @property
    def shape(self) -> Size:
        return self.data.shape

    @property
    def dtype(self) -> DType:
        return self.data.dtype

    @property
    def device(self) -> Device:
        return self.data.device

    def int_repr(self) -> Tensor:
        """The stored integers, in the plain dtype of their size."""
        from mortice._tensor.make import wrap_array

        return wrap_array(np.array(host_array(self.data)))

    def dequantize(self) -> Tensor:
        """(integer - zero point) * scale, in float32."""
        from mortice._tensor.make import wrap_array

        scale = _numbers(self.scale)
        zero = _numbers(self.zero_point)
        if self.axis is not None:
            shape = [1] * self.data.ndim
            shape[self.axis] = -1
            scale, zero = scale.reshape(shape), zero.reshape(shape)
        values = host_array(self.data).astype(np.float64)
        return wrap_array(np.asarray((values - zero) * scale, np.float32))

    def __repr__(self) -> str:
        return (
            f"QuantizedTensor(size={tuple(self.shape)}, dtype={self.dtype!r}, "
            f"qscheme={self.scheme!r}, scale={self.scale!r}, zero_point={self.zero_point!r})"
        )


def _numbers(value: Any) -> np.ndarray:
    return np.asarray(value if isinstance(value, (int, float, list)) else host_array(value), float)


class NestedTensor(StorageOnly):
    """Tensors of different sizes in one buffer; ``parts``: buffer, sizes, strides, offsets."""

    _convert = "unbind"

    def __init__(self, parts: tuple[Tensor, ...]) -> None:
        self.parts = parts
        self.layout = layouts.strided
        self.is_nested = True
        self.requires_grad = False

    @property
    def dtype(self) -> DType:
        return self.parts[0].dtype

    @property
    def device(self) -> Device:
        return self.parts[0].device

    def unbind(self) -> tuple[Tensor, ...]:
        """The tensors, as views of the buffer."""
        from mortice._tensor.make import from_storage

        buffer, sizes, strides, offsets = self.parts
        storage, start = buffer.untyped_storage(), buffer.storage_offset()
        tables = [host_array(table).tolist() for table in (sizes, strides, offsets)]
        return tuple(
            from_storage(storage, buffer.dtype, tuple(size), tuple(stride), start + offset)
            for size, stride, offset in zip(*tables, strict=True)
        )

    def __repr__(self) -> str:
        return f"NestedTensor(of {self.parts[1].shape[0]}, dtype={self.dtype!r})"
