"""The distributed backend ``mpi``: MPI through mpi4py."""

from __future__ import annotations

from ._version import __version__

__all__ = ["__version__"]
