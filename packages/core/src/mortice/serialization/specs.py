"""What a checkpoint describes, as plain data: nothing here has run, read or allocated anything.

The unpickler makes these; `validate` checks how they hang together; `materialize` turns them into
tensors. Each is made only by the rules of `rebuild`, which have checked its fields.
"""

from __future__ import annotations

from typing import Any


class Unset:
    """Type of `UNSET`: the value of a description not yet made into an object."""

    def __repr__(self) -> str:
        return "UNSET"


UNSET = Unset()


class Spec:
    """A description; ``value`` is the object made from it, so that sharing survives."""

    __slots__ = ("value",)

    kind = "object"

    def __init__(self) -> None:
        self.value: Any = UNSET


class Global(Spec):
    """A name in the file that stands for a function or class.

    ``target`` is the object where a user marked it safe; ``rule`` is ours for the names we know.
    With neither it is unsafe, and only inspection gets as far as holding one.
    """

    __slots__ = ("at", "name", "rule", "target")

    kind = "global"

    def __init__(self, name: str, at: int, rule: Any = None, target: Any = UNSET) -> None:
        self.name = name
        self.at = at
        self.rule = rule
        self.target = target
        self.value = UNSET


class StorageClass(Spec):
    """A storage class named in the file; ``dtype`` is that of its elements."""

    __slots__ = ("dtype", "itemsize", "typed")

    kind = "storage class"

    def __init__(self, dtype: str, itemsize: int, typed: bool) -> None:
        self.dtype = dtype
        self.itemsize = itemsize
        self.typed = typed
        self.value = UNSET


class Constant(Spec):
    """A dtype, layout or quantisation scheme: ``of`` says which, ``name`` is its bare name."""

    __slots__ = ("name", "of")

    kind = "constant"

    def __init__(self, of: str, name: str) -> None:
        self.of = of
        self.name = name
        self.value = UNSET


class DeviceSpec(Spec):
    """A device named in the file, as data: no plug-in is asked."""

    __slots__ = ("index", "type")

    kind = "device"

    def __init__(self, type_: str, index: int | None) -> None:
        self.type = type_
        self.index = index
        self.value = UNSET

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"


class SizeSpec(Spec):
    """The sizes of a tensor, as a value."""

    __slots__ = ("dims",)

    kind = "size"

    def __init__(self, dims: tuple[int, ...]) -> None:
        self.dims = dims
        self.value = UNSET


class StorageRef(Spec):
    """A storage: record ``data/<key>``, ``nbytes`` long. ``unit`` is what byte order swaps."""

    __slots__ = ("at", "dtype", "key", "location", "nbytes", "typed", "unit")

    kind = "storage"

    def __init__(
        self, key: str, dtype: str, location: str, nbytes: int, typed: bool, unit: int, at: int
    ) -> None:
        self.key = key
        self.dtype = dtype
        self.location = location
        self.nbytes = nbytes
        self.typed = typed
        self.unit = unit
        self.at = at
        self.value = UNSET


class TensorSpec(Spec):
    """A strided tensor over a storage, or over none (meta). Sizes, strides, offset in elements."""

    __slots__ = (
        "at",
        "conj",
        "dtype",
        "neg",
        "offset",
        "requires_grad",
        "size",
        "storage",
        "stride",
    )

    kind = "tensor"

    def __init__(
        self,
        storage: StorageRef | None,
        dtype: str,
        offset: int,
        size: tuple[int, ...],
        stride: tuple[int, ...],
        requires_grad: bool,
        at: int,
    ) -> None:
        self.storage = storage
        self.dtype = dtype
        self.offset = offset
        self.size = size
        self.stride = stride
        self.requires_grad = requires_grad
        self.conj = False
        self.neg = False
        self.at = at
        self.value = UNSET


class ParameterSpec(Spec):
    """A Parameter over another tensor; ``state`` holds its attributes."""

    __slots__ = ("data", "requires_grad", "state")

    kind = "parameter"

    def __init__(self, data: Spec, requires_grad: bool, state: Any = None) -> None:
        self.data = data
        self.requires_grad = requires_grad
        self.state = state
        self.value = UNSET


class SparseSpec(Spec):
    """``parts``: indices, values for COO; compressed indices, plain indices, values otherwise."""

    __slots__ = ("at", "coalesced", "layout", "parts", "requires_grad", "size")

    kind = "sparse"

    def __init__(
        self,
        layout: str,
        parts: tuple[TensorSpec, ...],
        size: tuple[int, ...],
        coalesced: bool | None,
        at: int,
    ) -> None:
        self.layout = layout
        self.parts = parts
        self.size = size
        self.coalesced = coalesced
        self.at = at
        self.value = UNSET


class QuantisedSpec(Spec):
    """``data`` has the quantised dtype; scale, zero point and axis are numbers or tensors."""

    __slots__ = ("at", "axis", "data", "qscheme", "scale", "zero_point")

    kind = "quantised"

    def __init__(
        self, data: TensorSpec, qscheme: str, scale: Any, zero_point: Any, axis: int | None, at: int
    ) -> None:
        self.data = data
        self.qscheme = qscheme
        self.scale = scale
        self.zero_point = zero_point
        self.axis = axis
        self.at = at
        self.value = UNSET


class NestedSpec(Spec):
    """Tensors of different sizes in one buffer; ``parts``: buffer, sizes, strides, offsets."""

    __slots__ = ("at", "parts")

    kind = "nested"

    def __init__(self, parts: tuple[TensorSpec, ...], at: int) -> None:
        self.parts = parts
        self.at = at
        self.value = UNSET


class MovedSpec(Spec):
    """A tensor that its device could only write by way of the CPU."""

    __slots__ = ("at", "data", "dtype", "location", "requires_grad")

    kind = "moved"

    def __init__(
        self, data: TensorSpec, dtype: str, location: str, requires_grad: bool, at: int
    ) -> None:
        self.data = data
        self.dtype = dtype
        self.location = location
        self.requires_grad = requires_grad
        self.at = at
        self.value = UNSET


class TypedSpec(Spec):
    """A tensor with Python attributes, or of a subclass: ``cls`` is None for Tensor itself."""

    __slots__ = ("at", "base", "cls", "state")

    kind = "subclass"

    def __init__(self, cls: Global | None, base: Spec, state: Any, at: int) -> None:
        self.cls = cls
        self.base = base
        self.state = state
        self.at = at
        self.value = UNSET


class Call(Spec):
    """A call of something that is not ours: done only after the whole file is validated."""

    __slots__ = ("args", "at", "func", "new", "states")

    kind = "call"

    def __init__(self, func: Global, args: tuple[Any, ...], new: bool, at: int) -> None:
        self.func = func
        self.args = args
        self.new = new
        self.at = at
        self.states: list[tuple[int, Any]] = []
        self.value = UNSET


def children(spec: Spec) -> tuple[Any, ...]:
    """The data inside a description that may itself contain descriptions or containers."""
    if isinstance(spec, ParameterSpec):
        return (spec.data, spec.state)
    if isinstance(spec, TypedSpec):
        return (spec.base, spec.state)
    if isinstance(spec, Call):
        return (spec.args, *(state for _, state in spec.states))
    return ()
