"""Compile backends: which there are."""

from __future__ import annotations

from collections.abc import Iterable

from mortice._plugins.groups import HIDDEN_TAGS

__all__ = ["list_backends"]


def list_backends(exclude_tags: Iterable[str] | None = HIDDEN_TAGS) -> list[str]:
    """Names of the compile backends that can be used as far as metadata tells, sorted.

    Those with one of ``exclude_tags`` are left out. Loads none; ``mortice.list_backends("compile")``
    gives states and reasons, too.
    """
    from mortice._plugins.report import names

    return names("compile", exclude_tags or ())
