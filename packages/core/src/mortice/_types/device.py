"""Devices by name. A device is a value: making one loads no plug-in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mortice._base.errors import DeviceError

#: Called with the type name of a device that is not built in, the first time it is mentioned;
#: raises DeviceError if no installed package provides it. Set by ``_tensor.runtime``.
check_installed: Callable[[str], None] = lambda name: None  # noqa: E731

BUILT_IN = frozenset(("cpu", "meta"))
_INTERNED: dict[tuple[str, int | None], Device] = {}
_KNOWN: set[str] = set(BUILT_IN)


class Device:
    """``mortice.device("npu", 1)`` or ``mortice.device("npu:1")``. Interned and hashable."""

    __slots__ = ("index", "type")

    type: str
    index: int | None

    def __new__(cls, type: Any = "cpu", index: int | None = None) -> Device:
        if type.__class__ is Device:
            return type if index is None else cls(type.type, index)
        if isinstance(type, int):
            return cls(default_accelerator(), type)
        if not isinstance(type, str):
            raise TypeError(
                f"device(): expected a name such as 'cpu' or 'npu:0', got {type!r} of type "
                f"{type.__class__.__name__}."
            )
        name, position = _split(type, index)
        found = _INTERNED.get((name, position))
        if found is None:
            if name not in _KNOWN:
                check_installed(name)
                _KNOWN.add(name)
            found = object.__new__(cls)
            object.__setattr__(found, "type", name)
            object.__setattr__(found, "index", position)
            found = _INTERNED.setdefault((name, position), found)
        return found

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"device.{name} is read-only. Make another device instead.")

    def __repr__(self) -> str:
        if self.index is None:
            return f"device(type={self.type!r})"
        return f"device(type={self.type!r}, index={self.index})"

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return hash((self.type, self.index))

    def __reduce__(self) -> Any:
        return (Device, (self.type, self.index))

    def __copy__(self) -> Device:
        return self

    def __deepcopy__(self, memo: Any) -> Device:
        return self

    def __enter__(self) -> Device:
        default_stack.append(self)
        return self

    def __exit__(self, *exc: object) -> None:
        default_stack.pop()


default_stack: list[Device] = []


def _split(text: str, index: int | None) -> tuple[str, int | None]:
    name, colon, digits = text.partition(":")
    if colon:
        if index is not None:
            raise DeviceError(
                f"device({text!r}, {index}): the index is given twice. Write device({name!r}, "
                f"{index}) or device('{name}:{index}')."
            )
        if not digits.isdigit() or (len(digits) > 1 and digits[0] == "0"):
            raise DeviceError(
                f"Invalid device string {text!r}: after the colon comes a device index, a number "
                "such as 0, without sign or leading zeros."
            )
        index = int(digits)
    elif index is not None and index < 0:
        raise DeviceError(f"device({text!r}, {index}): a device index is 0 or more.")
    if not name.isidentifier():
        raise DeviceError(
            f"Invalid device string {text!r}: a device type is an identifier such as 'cpu', "
            "optionally followed by a colon and an index."
        )
    return name, index


def default_accelerator() -> str:
    """Device type meant by a bare index such as ``device(0)``."""
    for name in sorted(_KNOWN - BUILT_IN):
        return name
    raise DeviceError(
        "A bare device index means the accelerator, and none is in use here. Name the device, "
        "for example device('cpu')."
    )


CPU = Device("cpu")
META = Device("meta")


def current_default() -> Device:
    """Where factories make tensors when no device is given."""
    return default_stack[-1] if default_stack else CPU


def set_default(device: Any) -> None:
    """``mortice.set_default_device``; None restores the CPU."""
    del default_stack[:]
    if device is not None:
        default_stack.append(Device(device))
