"""The entry point of the operator namespace ``joiner``."""

from __future__ import annotations

from mortice.backend import hookimpl


@hookimpl
def mortice_operators(name):
    from joiner_operators._generated.registry import OPERATORS

    return OPERATORS
