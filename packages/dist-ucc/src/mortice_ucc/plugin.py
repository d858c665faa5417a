"""What mortice finds by the entry point."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mortice.backend import hookimpl

if TYPE_CHECKING:
    from .communicator import UccCommunicator


@hookimpl
def mortice_distributed_backend(name: str) -> type[UccCommunicator]:
    """The class of the backend; raises Unavailable where UCC is missing."""
    from . import library

    library.load()
    from .communicator import UccCommunicator

    return UccCommunicator
