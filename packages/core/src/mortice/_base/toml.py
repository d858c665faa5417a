"""TOML text to plain data, on every Python we support."""

from __future__ import annotations

import sys
from typing import Any

from .errors import ConfigError


def parse(data: bytes, origin: str) -> dict[str, Any]:
    """The table in ``data``; raises ConfigError that names ``origin`` and the place in it."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        # a dependency of core on Python 3.10 only
        import tomli as tomllib  # pyright: ignore[reportMissingImports]
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{origin} is not UTF-8 text (byte {error.start}). Save it as UTF-8."
        ) from error
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{origin} is not valid TOML: {error}. Correct that line.") from error
