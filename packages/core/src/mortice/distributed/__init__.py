"""Distributed backends: which there are."""

from __future__ import annotations

__all__ = ["list_backends"]


def list_backends() -> list[str]:
    """Names of the distributed backends that can be used as far as metadata tells, sorted.

    Loads none; ``mortice.list_backends("distributed")`` gives states and reasons, too.
    """
    from mortice._plugins.report import names

    return names("distributed")
