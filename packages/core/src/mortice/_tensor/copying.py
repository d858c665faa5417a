"""Tensors and storages in ``copy`` and ``pickle``: what shares memory before shares it after."""

from __future__ import annotations

from typing import Any

import numpy as np

from mortice._base.errors import AutogradError, InvalidState
from mortice._dispatch import keys as K
from mortice._dispatch.state import GLOBAL
from mortice._tensor import make
from mortice._tensor.storage import Storage, host_storage
from mortice._tensor.tensor import Tensor
from mortice._types.device import CPU, Device
from mortice._types.dtypes import DType

#: Entries of a tensor's ``__dict__`` that belong to the engine, not to the user.
_INTERNAL = frozenset(("_leaf", "_inference"))


def _attributes(t: Tensor) -> dict[str, Any]:
    return {k: v for k, v in t.__dict__.items() if k not in _INTERNAL}


# -- pickle --------------------------------------------------------------------------------------


def reduce_ex(self: Tensor, protocol: Any) -> Any:
    """As the function below, the shared storage, and how the tensor looks at it."""
    if GLOBAL.watch:
        GLOBAL.settle(self, "pickle")
    if self.device.type == "meta":
        where: Any = None
    elif self.device is CPU:
        where = make.storage_of(self)
    else:
        where = _HostCopy(self)
    geometry = (tuple(self.shape), self.stride(), self.storage_offset())
    args = (type(self), where, str(self.device), self._t, *geometry, self.requires_grad)
    return rebuild_tensor, (*args, _attributes(self))


def rebuild_tensor(
    cls: type,
    source: Any,
    device: str,
    dtype: DType,
    shape: tuple[int, ...],
    stride: tuple[int, ...],
    offset: int,
    requires_grad: bool,
    attributes: dict[str, Any],
) -> Any:
    """The tensor that a pickle of mortice describes; a leaf."""
    if source is None:
        made = make.meta(shape, dtype, stride)
    elif isinstance(source, Storage):
        made = make.from_storage(source, dtype, shape, stride, offset)
    else:
        made = source.to(Device(device))
    return _finished(made, cls, requires_grad, attributes)


def _finished(made: Any, cls: type, requires_grad: bool, attributes: dict[str, Any]) -> Any:
    if cls is not Tensor:
        from mortice._tensor.construct import as_subclass

        made = as_subclass(made, cls)
    if requires_grad:
        made.requires_grad_(True)
    if attributes:
        made.__dict__.update(attributes)
    return made


class _HostCopy:
    """Stands for a device tensor in a pickle: its elements, copied to the host when pickled."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    def __reduce__(self) -> Any:
        from mortice._tensor.transfer import to_host

        return _from_bytes, (np.ascontiguousarray(to_host(self.tensor.detach())), self.tensor._t)


def _from_bytes(array: Any, dtype: DType) -> Any:
    return make.wrap(array, dtype)


def reduce_storage(self: Storage) -> Any:
    """A storage's bytes; a meta storage's size alone."""
    if self.device.type == "meta":
        return rebuild_meta_storage, (self.nbytes(),)
    return rebuild_storage, (storage_bytes(self), str(self.device))


def storage_bytes(storage: Storage) -> np.ndarray[Any, Any]:
    """All bytes of a storage on any device, on the host."""
    if storage.device is CPU:
        return storage.bytes()
    data = np.empty(storage.nbytes(), np.uint8)
    buffer = storage.root
    runtime = buffer.reachable()
    runtime.synchronize(buffer.index)
    runtime.copy_out(buffer.value, 0, memoryview(data))  # pyright: ignore[reportArgumentType]
    return data


def rebuild_storage(data: Any, device: str) -> Storage:
    if not data.flags.writeable:  # a pickle's out-of-band buffer may be read-only
        data = data.copy()
    storage = host_storage(np.ascontiguousarray(data).reshape(-1).view(np.uint8))
    if device == "cpu":
        return storage
    from mortice._types.dtypes import uint8

    return make.storage_of(make.from_storage(storage, uint8, (data.size,)).to(Device(device)))


def rebuild_meta_storage(nbytes: int) -> Storage:
    from mortice._tensor.storage import device_storage
    from mortice._types.device import META

    return device_storage(None, nbytes, META)


# -- copy ----------------------------------------------------------------------------------------


def deepcopy(self: Tensor, memo: dict[int, Any]) -> Any:
    """A leaf with memory of its own; tensors that share a storage share the copy.

    AutogradError for a tensor that an operator computed with gradients: its history cannot be
    copied.
    """
    found = memo.get(id(self))
    if found is not None:
        return found
    if GLOBAL.watch:
        GLOBAL.settle(self, "deepcopy")
    if self._k & K.PYTHON and getattr(self._a, "buffer", self) is None:
        made = memo[id(self)] = self.clone()  # a wrapper: its class knows what it holds
        if type(made) is not type(self):
            raise InvalidState(
                f"deepcopy of a {type(self).__name__} clones it, and its clone() gave a "
                f"{type(made).__name__}. Give the class a __deepcopy__, or mend its clone."
            )
        return made
    if not self.is_leaf:
        raise AutogradError(
            "Only Tensors created explicitly by the user (graph leaves) support the deepcopy "
            "protocol at the moment. Copy tensor.detach() instead, or deepcopy the module before "
            "it is used."
        )
    import copy as copying

    made = _copied(self, memo)
    made = _finished(made, type(self), self.requires_grad, {})
    memo[id(self)] = made
    if self.grad is not None:
        made.grad = copying.deepcopy(self.grad, memo)
    made.__dict__.update(copying.deepcopy(_attributes(self), memo))
    return made


def _copied(self: Tensor, memo: dict[int, Any]) -> Tensor:
    shape, stride, offset = tuple(self.shape), self.stride(), self.storage_offset()
    if self.device.type == "meta":
        return make.meta(shape, self._t, stride)
    if self._k & K.FAKE:
        return self.detach().clone()  # another model of the same sizes
    import copy as copying

    storage = copying.deepcopy(make.storage_of(self), memo)
    return make.from_storage(storage, self._t, shape, stride, offset)


def deepcopy_storage(self: Storage, memo: dict[int, Any]) -> Storage:
    found = memo.get(id(self))
    if found is None:
        found = memo[id(self)] = clone_storage(self)
    return found


def clone_storage(self: Storage) -> Storage:
    """Another storage on the same device with the same bytes."""
    if self.device.type == "meta":
        return rebuild_meta_storage(self.nbytes())
    if self.device is CPU:
        return rebuild_storage(storage_bytes(self).copy(), "cpu")
    return Storage(self.nbytes(), device=self.device).copy_(self)


METHODS: dict[str, Any] = {"__reduce_ex__": reduce_ex, "__deepcopy__": deepcopy}

Storage.__reduce__ = reduce_storage  # type: ignore[method-assign]
Storage.__deepcopy__ = deepcopy_storage  # type: ignore[attr-defined]
Storage.clone = clone_storage  # type: ignore[attr-defined]
