"""``mortice.toml``: what a plug-in says of itself, read before any of its code runs.

::

    hook_api = ">=1,<2"

    [device.npu]
    summary = "Acme NPUs"
    tags = ["experimental"]
    needs = [{file = "/dev/npu0", fix = "install the driver: apt install npu-driver"}]

    [device.npu.options]
    streams = {type = "int", default = 4, doc = "queues per device"}

    [variables]
    MORTICE_NPU_TRACE = "1: every launch is written to standard error"
    MORTICE_NPU_QUEUES = {type = "int", doc = "queues per device"}

A compile backend may also name sets of its options: ``[compile.NAME.modes]`` with
``fast = {level = 3}``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from mortice._base.errors import ConfigError, nearest
from mortice._base.knobs import KNOBS

from .groups import HIDDEN_TAGS, KINDS

OPTION_TYPES: dict[str, type | tuple[type, ...]] = {
    "bool": bool,
    "int": int,
    "float": (int, float),
    "str": str,
    "list": list,
}
#: Types of environment variables -> the kind of knob whose values they take.
VARIABLE_TYPES = {"bool": "flag", "int": "int"}
NEEDS = ("module", "library", "file", "platform", "machine")
_ENTRY_KEYS = ("summary", "tags", "devices", "needs", "options", "modes")
_OPTION_KEYS = ("type", "default", "choices", "doc")


def parse(data: bytes, origin: str) -> dict[str, Any]:
    """The manifest as plain data:
    ``{"hook_api": str, "entries": {"kind:name": row}, "variables": {name: meaning}}``, where a meaning is
    text, or a dict of ``type`` and ``doc``.

    Raises ConfigError that names ``origin`` and the key that is wrong.
    """
    from mortice._base.toml import parse as parse_toml

    table = parse_toml(data, origin)
    entries: dict[str, dict[str, Any]] = {}
    hook_api = table.pop("hook_api", None)
    if hook_api is None:
        raise ConfigError(f'{origin} has no hook_api. Add a line such as hook_api = ">=1,<2".')
    _specifier(hook_api, origin)
    variables = _variables(table.pop("variables", {}), origin)
    for kind, names in table.items():
        if kind not in KINDS:
            known = ("hook_api", "variables", *KINDS)
            raise ConfigError(f"{origin}: unknown key {kind!r}.{nearest(kind, known)}")
        if not isinstance(names, dict):
            raise ConfigError(f"{origin}: {kind} is not a table. Write [{kind}.NAME].")
        for name, row in names.items():
            entries[f"{kind}:{name}"] = _row(row, f"{origin}: [{kind}.{name}]")
    return {"hook_api": hook_api, "entries": entries, "variables": variables}


def _variables(told: Any, origin: str) -> dict[str, Any]:
    """The environment variables of the plug-in's own, and what each means."""
    if not isinstance(told, dict) or not all(isinstance(x, (str, dict)) for x in told.values()):
        raise ConfigError(
            f'{origin}: variables is not a table of NAME = "what it means", or of '
            'NAME = {type = "int", doc = "what it means"}.'
        )
    for name, row in told.items():
        if isinstance(row, dict):
            _variable(row, f"{origin}: the variable {name!r}")
    cores = {knob.env for knob in KNOBS.values()}
    for name in told:
        if name in cores:
            raise ConfigError(f"{origin}: the variable {name!r} is mortice's own. Take another.")
        if not name.startswith("MORTICE_"):
            raise ConfigError(f"{origin}: the variable {name!r} does not begin with MORTICE_.")
    return told


def _variable(row: dict[str, Any], where: str) -> None:
    for key in row:
        if key not in ("type", "doc"):
            raise ConfigError(f"{where}: unknown key {key!r}.{nearest(key, ('type', 'doc'))}")
    if row.get("type") not in VARIABLE_TYPES:
        raise ConfigError(
            f"{where}: type is {row.get('type')!r}; expected {' or '.join(VARIABLE_TYPES)}."
        )
    if not isinstance(row.get("doc"), str):
        raise ConfigError(f"{where} has no doc, which says what it means.")


def _specifier(text: Any, origin: str) -> Any:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        if not isinstance(text, str):
            raise InvalidSpecifier
        return SpecifierSet(text)
    except InvalidSpecifier:
        raise ConfigError(
            f'{origin}: hook_api is {text!r}; write a range such as ">=1,<2".'
        ) from None


def _row(row: Any, where: str) -> dict[str, Any]:
    if not isinstance(row, dict):
        raise ConfigError(f"{where} is not a table.")
    for key in row:
        if key not in _ENTRY_KEYS:
            raise ConfigError(f"{where}: unknown key {key!r}.{nearest(key, _ENTRY_KEYS)}")
    for key in ("tags", "devices"):
        _strings(row.get(key, []), f"{where}: {key}")
    for tag in row.get("tags", []):
        if tag not in HIDDEN_TAGS:
            raise ConfigError(f"{where}: unknown tag {tag!r}; expected {' or '.join(HIDDEN_TAGS)}.")
    if not isinstance(row.get("summary", ""), str):
        raise ConfigError(f"{where}: summary is not text.")
    for need in row.get("needs", []):
        _check_need(need, where)
    options = row.get("options", {})
    if not isinstance(options, dict):
        raise ConfigError(f"{where}: options is not a table.")
    for name, option in options.items():
        _check_option(option, f"{where}: option {name!r}")
    _check_modes(row.get("modes", {}), options, where)
    return row


def _strings(value: Any, where: str) -> None:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ConfigError(f"{where} is not a list of text.")


def _check_need(need: Any, where: str) -> None:
    keys = [key for key in need if key != "fix"] if isinstance(need, dict) else []
    if len(keys) != 1 or keys[0] not in NEEDS:
        raise ConfigError(
            f"{where}: a need is {need!r}; write one of {', '.join(NEEDS)} and a fix, as in "
            '{library = "libnpu.so.2", fix = "apt install npu"}.'
        )
    if not all(isinstance(value, str) for value in need.values()):
        raise ConfigError(f"{where}: the need {need!r} holds something that is not text.")


def _check_option(option: Any, where: str) -> None:
    if not isinstance(option, dict) or "type" not in option or "default" not in option:
        raise ConfigError(f'{where}: write {{type = "int", default = 4}}, found {option!r}.')
    for key in option:
        if key not in _OPTION_KEYS:
            raise ConfigError(f"{where}: unknown key {key!r}.{nearest(key, _OPTION_KEYS)}")
    if option["type"] not in OPTION_TYPES:
        kinds = ", ".join(OPTION_TYPES)
        raise ConfigError(f"{where}: unknown type {option['type']!r}; expected one of {kinds}.")
    check_option_value(option, option["default"], f"{where}: default")


def _check_modes(modes: Any, options: dict[str, Any], where: str) -> None:
    """Each mode is a table of options of the entry and the values that it stands for."""
    if not isinstance(modes, dict) or not all(isinstance(mode, dict) for mode in modes.values()):
        raise ConfigError(f"{where}: modes is not a table of tables.")
    for mode, values in modes.items():
        for name, value in values.items():
            place = f"{where}: mode {mode!r}: {name}"
            if name not in options:
                raise ConfigError(f"{place} is none of its options.{nearest(name, options)}")
            check_option_value(options[name], value, place)


# -- what the manifest is used for --------------------------------------------------------------


def check_option_value(option: Mapping[str, Any], value: Any, where: str) -> Any:
    """``value`` if it fits the declared option; raises ConfigError."""
    expected = OPTION_TYPES[option["type"]]
    fits = isinstance(value, expected) and (option["type"] == "bool" or not isinstance(value, bool))
    if not fits:
        raise ConfigError(f"{where} is {value!r}; expected {option['type']}.")
    if "choices" in option and value not in option["choices"]:
        choices = ", ".join(map(repr, option["choices"]))
        raise ConfigError(f"{where} is {value!r}; expected one of {choices}.")
    return value


def incompatibility(manifest: Mapping[str, Any], hook_api: int) -> str | None:
    """Why the manifest's range excludes this core's hook API, or None if it does not."""
    text: str = manifest["hook_api"]
    if _specifier(text, "mortice.toml").contains(str(hook_api)):
        return None
    return f"it is made for hook API {text}, and this mortice has {hook_api}"


def admits_later(hook_api: str, than: int) -> bool:
    """Whether a range that excludes ``than`` is for a later hook API, so that core is too old."""
    specifiers = _specifier(hook_api, "mortice.toml")
    return any(specifiers.contains(str(later)) for later in range(than + 1, than + 100))


def unmet_need(row: Mapping[str, Any], *, libraries: bool) -> tuple[str, str] | None:
    """The first need that this machine does not meet, as (reason, fix).

    ``libraries=False`` leaves out what can only be known by loading a shared library into the
    process, which listing must not do.
    """
    for need in row.get("needs", ()):
        kind = next(key for key in need if key != "fix")
        if kind == "library" and not libraries:
            continue
        if not _NEED_CHECKS[kind](need[kind]):
            return _NEED_REASONS[kind].format(need[kind]), need.get("fix", "")
    return None


def _has_module(name: str) -> bool:
    import importlib.util

    try:
        return importlib.util.find_spec(name.partition(".")[0]) is not None
    except Exception:  # a finder of another tool may raise anything
        return False


def _has_library(name: str) -> bool:
    import ctypes

    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def _has_file(path: str) -> bool:
    import os

    return os.path.exists(path)


def _is_machine(names: str) -> bool:
    import platform

    return platform.machine().lower() in names.lower().replace(",", " ").split()


def _is_platform(names: str) -> bool:
    return sys.platform in names.replace(",", " ").split()


_NEED_CHECKS: dict[str, Callable[[str], bool]] = {
    "module": _has_module,
    "library": _has_library,
    "file": _has_file,
    "platform": _is_platform,
    "machine": _is_machine,
}
_NEED_REASONS = {
    "module": "the Python module {} is not installed",
    "library": "the library {} cannot be loaded",
    "file": "{} does not exist on this machine",
    "platform": "it runs on {} only",
    "machine": "it runs on {} processors only",
}
