"""What mortice finds by the entry point."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mortice.backend import hookimpl

if TYPE_CHECKING:
    from .communicator import MpiCommunicator


@hookimpl
def mortice_distributed_backend(name: str) -> type[MpiCommunicator]:
    """The class of the backend; raises Unavailable where there is no MPI library."""
    from . import library

    library.load()
    from .communicator import MpiCommunicator

    return MpiCommunicator
