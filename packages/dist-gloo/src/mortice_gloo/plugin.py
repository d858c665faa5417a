"""What mortice finds by the entry point."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mortice.backend import hookimpl

if TYPE_CHECKING:
    from .communicator import GlooCommunicator


@hookimpl
def mortice_distributed_backend(name: str) -> type[GlooCommunicator]:
    """The class of the backend; raises Unavailable where Gloo's library is missing."""
    from . import native

    native.library_path()
    from .communicator import GlooCommunicator

    return GlooCommunicator
