"""What mortice finds by the entry point."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mortice.backend import Unavailable, hookimpl

if TYPE_CHECKING:
    from .launcher import RayLauncher


@hookimpl
def mortice_launcher(name: str) -> type[RayLauncher]:
    """The class of the engine; raises Unavailable where Ray is missing."""
    try:
        from .launcher import RayLauncher
    except ImportError as error:
        raise Unavailable(f"Ray cannot be imported: {error}", "pip install ray") from error

    return RayLauncher
