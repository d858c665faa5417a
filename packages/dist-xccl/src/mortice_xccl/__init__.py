"""The distributed backend ``xccl``: oneCCL."""

from __future__ import annotations

from ._version import __version__

__all__ = ["__version__"]
