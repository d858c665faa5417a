"""Layouts and memory formats: names with an identity."""

from __future__ import annotations

from typing import Any


class _Named:
    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"mortice.{self.name}"

    def __reduce__(self) -> Any:
        return (_find, (self.name,))

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: Any) -> Any:
        return self


class Layout(_Named):
    """How elements are laid out: ``strided`` computes, the others are storage-only."""

    __slots__ = ()


class MemoryFormat(_Named):
    """Order of the dimensions of a strided tensor in memory."""

    __slots__ = ()


strided = Layout("strided")
sparse_coo = Layout("sparse_coo")
sparse_csr = Layout("sparse_csr")
sparse_csc = Layout("sparse_csc")
sparse_bsr = Layout("sparse_bsr")
sparse_bsc = Layout("sparse_bsc")
jagged = Layout("jagged")

contiguous_format = MemoryFormat("contiguous_format")
preserve_format = MemoryFormat("preserve_format")
channels_last = MemoryFormat("channels_last")
channels_last_3d = MemoryFormat("channels_last_3d")

LAYOUTS = (strided, sparse_coo, sparse_csr, sparse_csc, sparse_bsr, sparse_bsc, jagged)
MEMORY_FORMATS = (contiguous_format, preserve_format, channels_last, channels_last_3d)


def _find(name: str) -> _Named:
    return next(x for x in (*LAYOUTS, *MEMORY_FORMATS) if x.name == name)
