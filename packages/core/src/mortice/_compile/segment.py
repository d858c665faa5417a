"""A captured graph -> something that runs it: the one entrance for the recorder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mortice._base.errors import BackendFailed, MorticeError

from .settings import Settings


def call_backend(gm: Any, example_inputs: Sequence[Any], settings: Settings) -> Callable[..., Any]:
    """What the backend makes of one graph; BackendFailed if it raises or gives no callable."""
    keywords = {"options": settings.options} if settings.options else {}
    try:
        run = settings.backend(gm, list(example_inputs), **keywords)
    except MorticeError:
        raise
    except Exception as error:
        raise BackendFailed(
            f"backend {settings.backend_name!r} raised {type(error).__name__}: {error}"
        ) from error
    if not callable(run):
        raise BackendFailed(
            f"backend {settings.backend_name!r} returned {type(run).__name__}, and a callable is "
            "expected, fn(*inputs) -> tuple. To run the graph as it is, return gm."
        )
    return run
