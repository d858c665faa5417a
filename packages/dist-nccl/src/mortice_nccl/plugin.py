"""What mortice finds by the entry points."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mortice.backend import hookimpl

if TYPE_CHECKING:
    from .communicator import NcclCommunicator


@hookimpl
def mortice_distributed_backend(name: str) -> type[NcclCommunicator]:
    """The class of a name; raises Unavailable where NCCL or a GPU is missing."""
    from . import library

    library.load()
    from .variants import VARIANTS

    return VARIANTS[name]
