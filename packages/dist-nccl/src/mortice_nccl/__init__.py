"""The distributed backends of NCCL: nccl, nccl-legacy, nccl2, nccl-lazy, nccl4py."""

from __future__ import annotations

from ._version import __version__

__all__ = ["__version__"]
