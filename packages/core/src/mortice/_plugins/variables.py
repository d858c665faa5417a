"""Environment variables of plug-ins: those that a manifest declares in ``[variables]``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from mortice._base import config
from mortice._base.errors import ConfigError
from mortice._base.knobs import Knob, check

from .manifest import VARIABLE_TYPES
from .records import Found

_looked = False


def _rows(found: list[Found]) -> Iterator[tuple[str, str, Any]]:
    """(name, distribution, meaning or a dict of type and doc) of each that is declared."""
    for one in found:
        for name, row in (one.manifest or {}).get("variables", {}).items():
            yield name, str(one.distribution), row


def declared(found: list[Found]) -> dict[str, tuple[str, str]]:
    """Each variable that one of the distributions declares: (distribution, what it means)."""
    return {
        name: (distribution, row if isinstance(row, str) else row["doc"])
        for name, distribution, row in _rows(found)
    }


def wrong(found: list[Found]) -> dict[str, str]:
    """The variables that are set and are close to a declared one, or have a value of another type than
    theirs; and what is to be said of each.
    """
    strangers = config.strange_variables()
    if not strangers:
        return {}
    known = declared(found)
    told = config.misspelt([name for name in strangers if name not in known], known)
    for name, distribution, row in _rows(found):
        text = os.environ.get(name)
        if text and not isinstance(row, str):
            knob = Knob(name, VARIABLE_TYPES[row["type"]], None, row["doc"])
            try:
                check(knob, text, f"the environment variable {name}")
            except ConfigError as error:
                told[name] = f"{error}. It is of {distribution}: {row['doc']}"
    return told


def refuse_wrong(found: list[Found]) -> None:
    """Raise ConfigError for such a variable, the first time that plug-ins are looked for."""
    global _looked
    if _looked:
        return
    for text in wrong(found).values():
        raise ConfigError(text)
    _looked = True
