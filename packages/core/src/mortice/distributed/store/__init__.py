"""Stores: the table that ranks share, in one process, in a file, or over TCP."""

from __future__ import annotations

from .base import Store
from .file import FileStore
from .memory import HashStore
from .prefix import PrefixStore
from .tcp import TCPStore

__all__ = ["FileStore", "HashStore", "PrefixStore", "Store", "TCPStore"]
