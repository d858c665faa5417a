"""Where configuration and cached files live on each platform."""

from __future__ import annotations

import os
import sys


def _home(*parts: str) -> str | None:
    home = os.path.expanduser("~")
    return None if home in ("~", "") else os.path.join(home, *parts)


def _first_env(*names: str) -> str | None:
    """The first of these variables that holds an absolute path (relative ones are invalid)."""
    for name in names:
        value = os.environ.get(name, "")
        if os.path.isabs(value):
            return value
    return None


def user_config_file() -> str | None:
    """The user's ``config.toml``, or None where there is no home directory."""
    if sys.platform == "win32":
        base = _first_env("APPDATA") or _home("AppData", "Roaming")
    elif sys.platform == "darwin":
        base = _home("Library", "Application Support")
    else:
        base = _first_env("XDG_CONFIG_HOME") or _home(".config")
    return os.path.join(base, "mortice", "config.toml") if base else None


def system_config_file() -> str:
    """The machine's ``config.toml``, written by its administrator."""
    if sys.platform == "win32":
        base = _first_env("PROGRAMDATA") or r"C:\ProgramData"
    elif sys.platform == "darwin":
        base = "/Library/Application Support"
    else:
        listed = os.environ.get("XDG_CONFIG_DIRS", "").split(os.pathsep)
        base = next((path for path in listed if os.path.isabs(path)), "/etc/xdg")
    return os.path.join(base, "mortice", "config.toml")


def project_config_file(start: str | None = None) -> str | None:
    """The nearest ``pyproject.toml`` at or above ``start`` (default: the working directory)."""
    try:
        folder = os.path.abspath(start or os.getcwd())
    except OSError:  # the working directory was deleted
        return None
    while True:
        candidate = os.path.join(folder, "pyproject.toml")
        if os.path.isfile(candidate):
            return candidate
        parent = os.path.dirname(folder)
        if parent == folder:
            return None
        folder = parent


def default_cache_dir() -> str | None:
    """The platform's cache directory for mortice, or None where there is no home directory."""
    if sys.platform == "win32":
        base = _first_env("LOCALAPPDATA") or _home("AppData", "Local")
        return os.path.join(base, "mortice", "Cache") if base else None
    if sys.platform == "darwin":
        base = _home("Library", "Caches")
    else:
        base = _first_env("XDG_CACHE_HOME") or _home(".cache")
    return os.path.join(base, "mortice") if base else None
