"""Passes that users bring."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any


class CustomGraphPass(ABC):
    """A pass over a graph, for the options ``post_grad_custom_pre_pass`` and ``.._post_pass``.

    ``uuid`` says which version of the pass it is, and is part of the cache's key; None keeps graphs
    that it saw off the disk, as with plain functions.
    """

    @abstractmethod
    def __call__(self, graph: Any) -> None:
        """Changes ``graph`` (a ``mortice.fx.Graph``) in place."""

    @abstractmethod
    def uuid(self) -> Any:
        """Text or bytes, or None."""
