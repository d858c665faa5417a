"""PyTorch's way to name the one device that is out of its tree, for programs written that way.

A device of mortice needs none of it: it is found by entry point under its own name, any number of
them at once, and ``x.npu()`` and ``x.is_npu`` are there when it is first used.
"""

from __future__ import annotations

from typing import Any

from mortice._base.errors import RegistrationError
from mortice._dispatch import keys as _keys
from mortice._tensor.device_methods import attach
from mortice._types import device as _device

_IN_TREE = frozenset(("cpu", "cuda", "meta", "xpu", "mps", "mtia", "hpu", "ipu", "privateuseone"))

__all__ = ["generate_methods_for_privateuse1_backend", "rename_privateuse1_backend"]


def rename_privateuse1_backend(backend_name: Any) -> None:
    """Let ``privateuseone``, and the dispatch keys PrivateUse1, mean the device ``backend_name``.

    Once per process; the same name again changes nothing. RegistrationError for another one, or for
    a name that is PyTorch's own or no identifier.
    """
    if not isinstance(backend_name, str) or not backend_name.isidentifier():
        raise RegistrationError(
            f"rename_privateuse1_backend: {backend_name!r} is no identifier such as 'npu'."
        )
    if backend_name in _IN_TREE:
        raise RegistrationError(
            f"Cannot register privateuse1 backend with in-tree device name {backend_name!r}."
        )
    known = _device.ALIASES.get("privateuseone", backend_name)
    if known != backend_name:
        raise RegistrationError(
            f"privateuse1 backend has already been set! Current backend: {known}. Other devices "
            "need no renaming: install them, and use their names."
        )
    _device.ALIASES["privateuseone"] = backend_name
    _keys.device_bit(backend_name)
    _keys.ALIASED_DEVICES["PrivateUse1"] = backend_name


def generate_methods_for_privateuse1_backend(
    for_tensor: bool = True,
    for_module: bool = True,
    for_packed_sequence: bool = True,
    for_storage: bool = False,
    unsupported_dtype: Any = None,
) -> None:
    """Add ``is_<name>`` and ``<name>()`` to Tensor, and ``<name>()`` to Module and storages.

    ``name`` is the one given to ``rename_privateuse1_backend``. RegistrationError if Tensor has it.
    """
    name = _device.ALIASES.get("privateuseone", "privateuseone")
    if for_tensor:
        attach(name, "tensor", required=True)
    if for_module:
        attach(name, "module", required=True)
    if for_storage:
        attach(name, "storage", required=True)
