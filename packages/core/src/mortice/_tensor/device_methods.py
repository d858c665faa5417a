"""``x.npu()`` and ``x.is_npu``: what tensors, storages and modules have for each device type."""

from __future__ import annotations

from typing import Any, TypeVar

from mortice._base.errors import RegistrationError
from mortice._tensor.devices import located
from mortice._tensor.storage import Storage
from mortice._tensor.tensor import Tensor
from mortice._tensor.typed_storage import TypedStorage

Class = TypeVar("Class", bound=type)

#: Classes whose objects move, by what ``generate_methods_for_privateuse1_backend`` calls them.
_CLASSES: dict[str, list[type]] = {
    "tensor": [Tensor],
    "storage": [Storage, TypedStorage],
    "module": [],
}
#: Device types whose methods a kind of class gets, now and later.
_NAMES: dict[str, list[str]] = {kind: [] for kind in _CLASSES}
_given: set[tuple[type, str]] = set()


def movable(cls: Class) -> Class:
    """Class decorator: a method for each device type in use, now and later, from its ``to``."""
    _CLASSES["module"].append(cls)
    for name in _NAMES["module"]:
        _give(cls, _methods(name, "module"), name, required=False)
    return cls


def attach(name: str, kind: str, *, required: bool = False) -> None:
    """Give the classes of a kind their methods for a device type, where the names are free.

    With ``required``, RegistrationError where they are not.
    """
    if name not in _NAMES[kind]:
        _NAMES[kind].append(name)
    methods = _methods(name, kind)
    for cls in _CLASSES[kind]:
        _give(cls, methods, name, required=required)


def attach_all(name: str) -> None:
    """What a device gets when it is first used."""
    for kind in _CLASSES:
        attach(name, kind)


def _methods(name: str, kind: str) -> dict[str, Any]:
    def move_tensor(
        self: Any, device: Any = None, non_blocking: bool = False, memory_format: Any = None
    ) -> Any:
        return self.to(located(device, name), memory_format=memory_format)

    def move_storage(self: Any, device: Any = None, non_blocking: bool = False) -> Any:
        return self.to(device=located(device, name))

    def move_module(self: Any, device: Any = None) -> Any:
        return self.to(located(device, name))

    move = {"tensor": move_tensor, "storage": move_storage, "module": move_module}[kind]
    move.__name__ = name
    move.__doc__ = f"On a device of type {name!r}: the current one, or ``device``."
    if kind == "module":
        return {name: move}
    return {name: move, f"is_{name}": property(lambda self: self.device.type == name)}


def _give(cls: type, methods: dict[str, Any], name: str, *, required: bool) -> None:
    for method, value in methods.items():
        if not hasattr(cls, method):
            setattr(cls, method, value)
            _given.add((cls, method))
        elif required and not any((base, method) in _given for base in cls.__mro__):
            raise RegistrationError(
                f"{cls.__name__} has an attribute {method!r} already, so device {name!r} cannot "
                f"have it. Use .to({name!r})."
            )
