"""Environment variables of plug-ins: those that a manifest declares in ``[variables]``."""

from __future__ import annotations

from mortice._base import config
from mortice._base.errors import ConfigError

from .records import Found

_looked = False


def declared(found: list[Found]) -> dict[str, tuple[str, str]]:
    """Each variable that one of the distributions declares: (distribution, what it means)."""
    return {
        name: (str(one.distribution), meaning)
        for one in found
        for name, meaning in (one.manifest or {}).get("variables", {}).items()
    }


def misspelt(found: list[Found]) -> dict[str, str]:
    """The variables that are set and close to a declared one, and what is to be said of each."""
    strangers = config.strange_variables()
    if not strangers:
        return {}
    known = declared(found)
    return config.misspelt([name for name in strangers if name not in known], known)


def refuse_misspelt(found: list[Found]) -> None:
    """Raise ConfigError for such a variable, the first time that plug-ins are looked for."""
    global _looked
    if _looked:
        return
    for text in misspelt(found).values():
        raise ConfigError(text)
    _looked = True
