"""``multiprocessing`` with tensors that go to other processes by sharing their memory.

Everything of the standard module is here. Once this module is imported, host tensors sent through
queues and pipes share memory with the receiver: a write on one side is seen on the other.
"""

from __future__ import annotations

import multiprocessing
from multiprocessing import *  # noqa: F403  # pyright: ignore[reportWildcardImportFromLibrary]
from multiprocessing.reduction import ForkingPickler
from typing import Any

from mortice._tensor.sharing import reduce_for_worker
from mortice._tensor.storage import Storage

__all__ = ["get_all_sharing_strategies", "get_sharing_strategy"]
__all__ += multiprocessing.__all__

ForkingPickler.register(Storage, reduce_for_worker)


def get_all_sharing_strategies() -> set[str]:
    """The ways in which memory is shared: by file descriptor."""
    return {"file_descriptor"}


def get_sharing_strategy() -> str:
    return "file_descriptor"


def __getattr__(name: str) -> Any:
    return getattr(multiprocessing, name)
