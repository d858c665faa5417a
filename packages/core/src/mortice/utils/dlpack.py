"""Sharing memory with other array libraries by DLPack."""

from __future__ import annotations

from mortice._tensor.dlpack import from_dlpack, to_dlpack

__all__ = ["from_dlpack", "to_dlpack"]
