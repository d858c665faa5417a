"""Objects in this process: compiling, caching, loading, threads."""

from __future__ import annotations

from .library import Library, load
from .threads import get_num_threads, set_num_threads

__all__ = ["Library", "get_num_threads", "load", "set_num_threads"]
