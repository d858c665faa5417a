"""The distributed backend ``gloo``: the real Gloo, from xoscar's wheel."""

from __future__ import annotations

from ._version import __version__

__all__ = ["__version__"]
