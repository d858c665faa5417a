"""Devices by name. A device is a value: making one loads no plug-in."""

from __future__ import annotations

# From the C module: importing threading itself takes 0.5 of the 12 ms that importing mortice takes.
from _thread import _local  # pyright: ignore[reportPrivateUsage]
from collections.abc import Callable
from typing import Any

from mortice._base.errors import DeviceError

#: Called with the type name of a device that is not built in, the first time it is mentioned;
#: raises DeviceError if no installed package provides it. Set by ``_tensor.devices``.
check_installed: Callable[[str], None] = lambda name: None  # noqa: E731

BUILT_IN = frozenset(("cpu", "meta"))
_INTERNED: dict[tuple[str, int | None], Device] = {}
_KNOWN: set[str] = set(BUILT_IN)
#: Names that stand for another: "privateuseone" for what ``rename_privateuse1_backend`` said.
ALIASES: dict[str, str] = {}


class Device:
    """``mortice.device("npu", 1)`` or ``mortice.device("npu:1")``. Interned and hashable.

    As a context manager it is where factories make tensors, in this thread; with an index it is
    also what its type alone means there: inside ``with device("npu:1"):``, "npu" is "npu:1".
    """

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
        name = ALIASES.get(name, name)
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
        _thread.saved.append((_thread.defaults, _thread.indices))
        _thread.defaults = (*_thread.defaults, self)
        if self.index is not None and self.type not in BUILT_IN:
            _thread.indices = {**_thread.indices, self.type: self.index}
        default_devices.append(self)
        return self

    def __exit__(self, *exc: object) -> None:
        if not _thread.saved:
            return  # set_default came between
        _thread.defaults, _thread.indices = _thread.saved.pop()
        default_devices.pop()


class _Thread(_local):
    """Where factories make tensors in a thread, and the present device of each type."""

    def __init__(self) -> None:
        self.defaults: tuple[Device, ...] = ()
        self.indices: dict[str, int] = {}
        self.saved: list[tuple[tuple[Device, ...], dict[str, int]]] = []


_thread = _Thread()
#: As many as there are defaults set in all threads: one cheap look for who must be quick.
default_devices: list[Device] = []


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


#: Device type meant by a bare index such as ``device(0)``. Set by ``_tensor.devices``.
default_accelerator: Callable[[], str] = lambda: "cpu"  # noqa: E731


CPU = Device("cpu")
META = Device("meta")


def current_default() -> Device:
    """Where factories make tensors when no device is given."""
    found = _thread.defaults
    return found[-1] if found else CPU


def set_default(device: Any) -> None:
    """``mortice.set_default_device``, for this thread; None restores the CPU."""
    chosen = None if device is None else Device(device)
    del default_devices[: len(_thread.defaults)]
    _thread.saved.clear()
    _thread.defaults = () if chosen is None else (chosen,)
    default_devices.extend(_thread.defaults)


def current_index(device_type: str) -> int:
    """Which device of a type its bare name means in this thread; 0 unless it was set."""
    return _thread.indices.get(device_type, 0)


def set_current_index(device_type: str, index: int) -> int:
    """Set it, and return what it was."""
    before = current_index(device_type)
    _thread.indices = {**_thread.indices, device_type: index}
    return before


def indexed(device: Device) -> Device:
    """The device with its index: the present one of its type where it names none."""
    if device.index is not None or device.type in BUILT_IN:
        return device
    return Device(device.type, current_index(device.type))
