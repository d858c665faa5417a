"""Sizes, strides and offsets as operators, so that captured graphs can hold them."""

from __future__ import annotations

from typing import Any


def sym_size(self: Any, dim: int) -> Any:
    return self.size(dim)


def sym_stride(self: Any, dim: int) -> Any:
    return self.stride(dim)


def sym_numel(self: Any) -> Any:
    return self.numel()


def sym_storage_offset(self: Any) -> Any:
    return self.storage_offset()


def sym_is_contiguous(self: Any, memory_format: Any) -> Any:
    return self.is_contiguous(memory_format)


__all__ = [name for name in dir() if not name.startswith("_")]
