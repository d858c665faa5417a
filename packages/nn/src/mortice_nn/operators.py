"""The operators beneath ``mortice.nn``, each bound once under its ATen name.

``mortice.<name>`` is taken where core has such a function, else ``mortice.ops.aten.<name>``.
Everything else in this package reaches operators through here, through tensor methods, or through
plain ``mortice`` functions, so a renamed operator is mended in this file alone.

An operator is looked up on first use and then kept as a module attribute: importing the package
costs nothing for operators that a program never calls, and a missing one fails where it is called.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import mortice
from mortice.errors import UnknownName


def bind(name: str) -> Any:
    """The callable for ATen operator ``name``; raises UnknownName where core has none."""
    function = vars(mortice).get(name)
    if function is None and name in _functions():
        function = getattr(mortice, name)
    if callable(function):
        return function
    try:
        return getattr(mortice.ops.aten, name)
    except AttributeError:
        raise UnknownName(
            f"mortice.nn needs the operator 'aten::{name}', which the installed mortice "
            f"{getattr(mortice, '__version__', '')} does not declare; install matching versions "
            "of mortice and mortice-nn"
        ) from None


@cache
def _functions() -> frozenset[str]:
    """What core itself names: for any other name ``mortice`` would ask the installed plug-ins, and
    read all their metadata again (20 ms). The set takes 0.1 ms, and most names need none.
    """
    return frozenset(mortice.__dir__())  # as dir(), which sorts


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    function = bind(name)
    globals()[name] = function
    return function
