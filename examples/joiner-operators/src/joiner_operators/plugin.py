"""The entry point of the operator namespace ``joiner``."""

from __future__ import annotations

from mortice.backend import Declarations, hookimpl


@hookimpl
def mortice_operators(name: str) -> Declarations:
    from joiner_operators._generated.registry import OPERATORS

    return OPERATORS
