"""mortice's tensors made from descriptions, and described for writing.

The one module of this package that knows what a Tensor is made of.
"""

from __future__ import annotations

import sys
from collections import Counter, OrderedDict
from typing import Any

import numpy as np

from mortice._tensor import make
from mortice._tensor.construct import as_subclass
from mortice._tensor.storage import Storage, device_storage, host_storage
from mortice._tensor.tensor import Tensor
from mortice._types import dtypes
from mortice._types import layout as layouts
from mortice._types.device import CPU, META, Device
from mortice._types.dtypes import DType
from mortice._types.layout import Layout
from mortice._types.shapes import Size
from mortice.errors import CheckpointError, DeviceError, InvalidState, InvalidValue
from mortice.serialization import formats
from mortice.serialization.opaque import NestedTensor, QuantizedTensor, SparseTensor, StorageOnly
from mortice.serialization.specs import (
    Constant,
    DeviceSpec,
    Global,
    MovedSpec,
    NestedSpec,
    ParameterSpec,
    QuantisedSpec,
    SizeSpec,
    SparseSpec,
    Spec,
    StorageRef,
    TensorSpec,
    TypedSpec,
)

_LAYOUTS = {layout.name: layout for layout in layouts.LAYOUTS}

# What core itself keeps in a tensor's __dict__: no attribute of a user's.
INTERNAL = frozenset(("_grad", "_inference", "_leaf", "_retains"))

_NAMED: dict[str, Any] = {
    "collections.OrderedDict": OrderedDict,
    "collections.Counter": Counter,
    "builtins.set": set,
    "builtins.frozenset": frozenset,
    "builtins.bytes": bytes,
    "builtins.bytearray": bytearray,
    "builtins.complex": complex,
    "torch.Tensor": Tensor,
    "torch.Size": Size,
    "torch.device": Device,
}


class TypedStorage:
    """A storage saved by itself, with the dtype it was saved as."""

    __slots__ = ("dtype", "storage")

    def __init__(self, storage: Storage, dtype: DType) -> None:
        self.storage = storage
        self.dtype = dtype

    def untyped(self) -> Storage:
        """The bytes, shared with every tensor over them."""
        return self.storage

    def tensor(self) -> Tensor:
        """All elements as a 1-d tensor that shares the memory."""
        count = self.storage.nbytes() // self.dtype.itemsize
        return make.from_storage(self.storage, self.dtype, (count,))

    def __len__(self) -> int:
        return self.storage.nbytes() // self.dtype.itemsize

    def __repr__(self) -> str:
        return f"TypedStorage({len(self)} x {self.dtype!r})"


def parameter_class() -> type | None:
    """mortice.nn.Parameter, or None where mortice-nn is not installed."""
    import importlib

    try:
        return importlib.import_module("mortice.nn").Parameter
    except ModuleNotFoundError as error:
        if error.name in ("mortice.nn", "mortice_nn"):
            return None
        raise


def storage_on(storage: Storage, device: Device) -> Storage:
    """A copy of a host storage on ``device``; itself where that is the host."""
    if device is CPU or device.type == "cpu":
        return storage
    if device.type == "meta":
        return device_storage(None, storage.nbytes(), META)
    return as_bytes(storage).to(device).untyped_storage()


def meta_storage(nbytes: int) -> Storage:
    """A storage without data."""
    return device_storage(None, nbytes, META)


def as_bytes(storage: Storage) -> Tensor:
    """A storage as a 1-d uint8 tensor."""
    return make.from_storage(storage, dtypes.uint8, (storage.nbytes(),))


class TensorFactory:
    """Makes mortice's tensors (the `Factory` of `materialize`).

    ``place(buffer, ref)`` puts a storage where map_location says; the buffer is None where the data
    is not wanted.
    """

    def __init__(self, place: Any) -> None:
        self._place = place
        self._parameter: type | bool | None = False

    def storage(self, buffer: np.ndarray | None, ref: StorageRef) -> Storage:
        return self._place(buffer, ref)

    def storage_object(self, storage: Storage, dtype: str) -> TypedStorage:
        return TypedStorage(storage, _dtype(dtype))

    def tensor(self, storage: Storage | None, spec: TensorSpec) -> Tensor:
        dtype = _dtype(spec.dtype)
        if storage is None:
            made = make.meta(spec.size, dtype, spec.stride)
        else:
            offset = spec.offset
            made = make.from_storage(storage, dtype, spec.size, spec.stride, offset)
        if spec.conj or spec.neg:
            made = _resolved(made, spec.conj, spec.neg)
        if spec.requires_grad:
            made.requires_grad_(True)
        return made

    def attribute(self, target: Any, name: str, value: Any) -> None:
        """Set an attribute that the file gives a tensor."""
        taken = name in INTERNAL or hasattr(type(target), name)
        if taken or (isinstance(target, StorageOnly) and name in vars(target)):
            raise CheckpointError(
                f"the attribute {name!r} of a {type(target).__name__} would hide one of its own"
            )
        setattr(target, name, value)

    def parameter(self, data: Any, requires_grad: bool) -> Any:
        if isinstance(data, (SparseTensor, QuantizedTensor)):
            data.requires_grad = requires_grad
            return data
        if self._parameter is False:
            self._parameter = parameter_class()
        if self._parameter is None:
            return data.requires_grad_(requires_grad)
        return self._parameter(data, requires_grad)  # type: ignore[operator]

    def subclass(self, tensor: Any, cls: type) -> Any:
        if not isinstance(cls, type) or not issubclass(cls, Tensor):
            raise CheckpointError(
                f"{cls!r} stands where the file has a subclass of Tensor",
                fix="Mark one safe under that name.",
            )
        return tensor if isinstance(tensor, cls) else as_subclass(tensor, cls)

    def sparse(self, spec: SparseSpec, parts: tuple[Tensor, ...]) -> SparseTensor:
        return SparseTensor(spec.layout, parts, spec.size, spec.coalesced)

    def quantised(
        self, spec: QuantisedSpec, data: Tensor, scale: Any, zero_point: Any
    ) -> QuantizedTensor:
        return QuantizedTensor(data, spec.qscheme, scale, zero_point, spec.axis)

    def nested(self, spec: NestedSpec, parts: tuple[Tensor, ...]) -> NestedTensor:
        return NestedTensor(parts)

    def moved(self, data: Tensor, spec: MovedSpec) -> Tensor:
        moved = data.to(_dtype(spec.dtype))
        return moved.requires_grad_(True) if spec.requires_grad else moved

    def constant(self, spec: Constant) -> Any:
        if spec.of == "dtype":
            return _dtype(spec.name)
        if spec.of == "layout" and spec.name in _LAYOUTS:
            return _LAYOUTS[spec.name]
        raise CheckpointError(
            f"the {spec.of} {spec.name} as a value has no counterpart here",
            fix="Save its name as a string.",
        )

    def device(self, spec: DeviceSpec) -> Device:
        return device_of_file(spec.type, spec.index)

    def size(self, dims: tuple[int, ...]) -> Size:
        return Size(dims)

    def named(self, name: str) -> Any:
        if name == "torch.nn.parameter.Parameter":
            return parameter_class() or Tensor
        return _NAMED[name]


def _resolved(t: Tensor, conj: bool, neg: bool) -> Tensor:
    """A copy with the lazy conjugation and negation of the file done: mortice has no such views."""
    if t.is_meta:
        return t
    values = np.conjugate(t._a) if conj else t._a
    return make.wrap(np.negative(values) if neg else values, t.dtype)


_ABSENT: dict[tuple[str, int | None], Device] = {}


def device_of_file(type_: str, index: int | None) -> Device:
    """A device as a value, also where no installed package provides it."""
    try:
        return Device(type_, index)
    except DeviceError:
        pass
    # A value of a device that is not here: using it fails, naming it does not.
    made = object.__new__(Device)
    object.__setattr__(made, "type", type_)
    object.__setattr__(made, "index", index)
    return _ABSENT.setdefault((type_, index), made)


def _dtype(name: str) -> DType:
    found = dtypes.ALL.get(name)
    if found is None:
        raise CheckpointError(f"the dtype {name} has no counterpart here")
    return found


# -- describing for writing ------------------------------------------------------------------------


class Exporter:
    """Describes objects of mortice for the pickler; collects their storages in order.

    ``tag(storage)`` gives a storage's location. ``storages`` maps key to storage.
    """

    def __init__(self, tag: Any) -> None:
        self._tag = tag
        self._refs: dict[int, StorageRef] = {}
        self.storages: dict[str, Storage] = {}
        # Where its module was never imported there are no Parameters to save.
        module = sys.modules.get("mortice_nn.parameter")
        self._parameter: type | None = getattr(module, "Parameter", None)

    def __call__(self, obj: Any) -> Spec | None:
        if isinstance(obj, Tensor):
            return self._tensor(obj)
        describe = _DESCRIPTIONS.get(type(obj))
        return None if describe is None else describe(self, obj)

    def _storage(self, storage: Storage, dtype: str, typed: bool = True) -> StorageRef:
        itemsize, _, cls = formats.DTYPES[dtype]
        typed = typed and bool(cls) and storage.nbytes() % itemsize == 0
        known = self._refs.get(id(storage))
        if known is not None:
            if known.dtype == dtype or not (known.typed or typed):
                return known
            raise InvalidState(
                f"a storage is saved as {known.dtype} and as {dtype}: one file cannot say both. "
                "Save one of the tensors as a copy: tensor.clone()."
            )
        ref = StorageRef(
            str(len(self._refs)), dtype, self._tag(storage), storage.nbytes(), typed, 0, 0
        )
        self._refs[id(storage)] = ref
        self.storages[ref.key] = storage
        return ref

    def _strided(self, t: Tensor, requires_grad: bool) -> TensorSpec:
        name = t.dtype.name
        if name not in formats.DTYPES:
            raise InvalidValue(f"a tensor of {t.dtype!r} cannot be saved.")
        size, stride = tuple(t.shape), tuple(t.stride())
        if t.device.type == "meta":
            return TensorSpec(None, name, 0, size, stride, requires_grad, 0)
        ref = self._storage(t.untyped_storage(), name)
        return TensorSpec(ref, name, t.storage_offset(), size, stride, requires_grad, 0)

    def _tensor(self, t: Tensor) -> Spec:
        state = {name: value for name, value in vars(t).items() if name not in INTERNAL}
        if self._parameter is not None and type(t) is self._parameter:
            return ParameterSpec(self._strided(t, False), t.requires_grad, state or None)
        # PyTorch writes what has a history as a tensor without one that requires_grad.
        base = self._strided(t, t.requires_grad)
        if type(t) is Tensor and not state:
            return base
        cls = None
        if type(t) is not Tensor:
            from mortice.serialization.pickler import importable

            name = importable(type(t))
            cls = Global(f"{name.module}.{name.name}", 0)
        return TypedSpec(cls, base, state, 0)

    def _sparse(self, t: SparseTensor) -> SparseSpec:
        parts = tuple(self._strided(part, False) for part in t.parts)
        coalesced = t._coalesced
        return SparseSpec(t.layout.name, parts, tuple(t.shape), coalesced, 0)

    def _quantised(self, t: QuantizedTensor) -> QuantisedSpec:
        return QuantisedSpec(
            self._strided(t.data, False), t.scheme, t.scale, t.zero_point, t.axis, 0
        )

    def _nested(self, t: NestedTensor) -> NestedSpec:
        return NestedSpec(tuple(self._strided(part, False) for part in t.parts), 0)


_DESCRIPTIONS: dict[type, Any] = {
    SparseTensor: Exporter._sparse,
    QuantizedTensor: Exporter._quantised,
    NestedTensor: Exporter._nested,
    DType: lambda self, obj: Constant("dtype", obj.name),
    Layout: lambda self, obj: Constant("layout", obj.name),
    Device: lambda self, obj: DeviceSpec(obj.type, obj.index),
    Size: lambda self, obj: SizeSpec(tuple(obj)),
    Storage: lambda self, obj: self._storage(obj, "uint8", typed=False),
    TypedStorage: lambda self, obj: self._storage(
        obj.storage, obj.dtype.name, typed=obj.dtype.name != "uint8"
    ),
}


def host_buffer(storage: Storage) -> np.ndarray:
    """A storage's bytes on the host, shared where it is there already."""
    if storage.device is CPU:
        return storage.bytes()
    return as_bytes(storage).cpu().untyped_storage().bytes()


def from_buffer(buffer: np.ndarray) -> Storage:
    """A host storage over a uint8 array."""
    return host_storage(buffer)
