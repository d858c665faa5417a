"""What mortice finds by the entry point."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mortice.backend import hookimpl

if TYPE_CHECKING:
    from .communicator import XcclCommunicator


@hookimpl
def mortice_distributed_backend(name: str) -> type[XcclCommunicator]:
    """The class of the backend; raises Unavailable where oneCCL is missing."""
    from . import library

    library.load()
    from .communicator import XcclCommunicator

    return XcclCommunicator
