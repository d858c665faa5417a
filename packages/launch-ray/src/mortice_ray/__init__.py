"""The launch engine ``ray``: ranks started by actors of a Ray cluster."""

from __future__ import annotations

from ._version import __version__

__all__ = ["__version__"]
