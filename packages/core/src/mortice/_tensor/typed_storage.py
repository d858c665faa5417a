"""A storage seen as elements of one dtype, as ``Tensor.storage()`` gives it."""

from __future__ import annotations

from typing import Any

from mortice._tensor import make
from mortice._tensor.storage import Storage
from mortice._types.device import Device
from mortice._types.dtypes import DType


class TypedStorage:
    """Elements over a storage. New code uses ``Tensor.untyped_storage()`` instead."""

    __slots__ = ("__weakref__", "_untyped_storage", "dtype")

    def __init__(self, wrap_storage: Storage, dtype: DType) -> None:
        self._untyped_storage = wrap_storage
        self.dtype = dtype

    def _elements(self) -> Any:
        return make.from_storage(self._untyped_storage, self.dtype, (len(self),))

    def untyped(self) -> Storage:
        """The bytes behind."""
        return self._untyped_storage

    @property
    def device(self) -> Device:
        return self._untyped_storage.device

    def size(self) -> int:
        """Number of elements."""
        return self._untyped_storage.nbytes() // self.dtype.itemsize

    __len__ = size

    def nbytes(self) -> int:
        return self._untyped_storage.nbytes()

    def element_size(self) -> int:
        return self.dtype.itemsize

    def data_ptr(self) -> int:
        return self._untyped_storage.data_ptr()

    def tolist(self) -> list[Any]:
        return self._elements().tolist()

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            raise TypeError("slices of a storage are not supported; index a tensor instead")
        return self._elements()[index].item()

    def __setitem__(self, index: Any, value: Any) -> None:
        self._elements()[index] = value

    def __iter__(self) -> Any:
        return iter(self.tolist())

    def fill_(self, value: Any) -> TypedStorage:
        self._elements().fill_(value)
        return self

    def clone(self) -> TypedStorage:
        made: Any = self._untyped_storage
        return TypedStorage(made.clone(), self.dtype)

    def to(self, *, device: Any, non_blocking: bool = False) -> TypedStorage:
        return TypedStorage(self._untyped_storage.to(device=device), self.dtype)

    def cpu(self) -> TypedStorage:
        return TypedStorage(self._untyped_storage.cpu(), self.dtype)

    def is_shared(self) -> bool:
        return self._untyped_storage.is_shared()

    def share_memory_(self) -> TypedStorage:
        self._untyped_storage.share_memory_()
        return self

    def __repr__(self) -> str:
        return f"<TypedStorage of {len(self)} {self.dtype.name} on {self.device}>"
