"""Descriptions become objects: the one place where a file's bytes turn into tensors.

Everything here runs on a validated file. A `Factory` makes the tensors, so that the same walk
serves mortice's tensors and plain numpy arrays.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from mortice.errors import AutogradError, CheckpointError, NoKernel, ShapeError
from mortice.serialization import formats, safe
from mortice.serialization.checkpoint import Checkpoint
from mortice.serialization.specs import (
    UNSET,
    Call,
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


class Factory(Protocol):
    """Makes objects of one library. ``storage`` values are the library's own."""

    def storage(self, buffer: np.ndarray | None, ref: StorageRef) -> Any: ...
    def storage_object(self, storage: Any, dtype: str) -> Any: ...
    def tensor(self, storage: Any, spec: TensorSpec) -> Any: ...
    def parameter(self, data: Any, requires_grad: bool) -> Any: ...
    def attribute(self, target: Any, name: str, value: Any) -> None: ...
    def subclass(self, tensor: Any, cls: type) -> Any: ...
    def sparse(self, spec: SparseSpec, parts: tuple[Any, ...]) -> Any: ...
    def quantised(self, spec: QuantisedSpec, data: Any, scale: Any, zero_point: Any) -> Any: ...
    def nested(self, spec: NestedSpec, parts: tuple[Any, ...]) -> Any: ...
    def moved(self, data: Any, spec: MovedSpec) -> Any: ...
    def constant(self, spec: Constant) -> Any: ...
    def device(self, spec: DeviceSpec) -> Any: ...
    def size(self, dims: tuple[int, ...]) -> Any: ...
    def named(self, name: str) -> Any: ...


_UNFIT = (ArithmeticError, TypeError, ValueError, AutogradError, NoKernel, ShapeError)
_CONTAINERS = frozenset((list, dict, OrderedDict, Counter))


class Materializer:
    """Makes the objects of one checkpoint.

    ``load(ref)`` gives a storage's bytes as a uint8 array, or None where its data is not wanted.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        factory: Factory,
        load: Callable[[StorageRef], np.ndarray | None],
    ) -> None:
        self.checkpoint = checkpoint
        self.factory = factory
        self._load = load
        self._buffers: dict[str, np.ndarray | None] = {}
        self._storages: dict[str, Any] = {}
        self._resolved: set[int] = set()
        self._tuples: dict[int, Any] = {}
        # Keeps the originals alive while their ids are keys.
        self._kept: list[Any] = []

    def run(self) -> Any:
        """The object that the file holds."""
        self.run_calls()
        return self.resolve(self.checkpoint.root)

    def run_calls(self) -> None:
        """Call what was marked safe, and set states, in the order of the file."""
        calls = self.checkpoint.calls
        steps: list[tuple[int, Call, Any]] = []
        for call in calls:
            steps.append((call.at, call, UNSET))
            steps.extend((at, call, state) for at, state in call.states)
        steps.sort(key=lambda step: step[0])
        for _, call, state in steps:
            if state is UNSET:
                call.value = self._call(call)
            else:
                self._build(call, state)
        # What was resolved for a call may have been added to since.
        self._resolved.clear()
        self._tuples.clear()

    # -- the walk ------------------------------------------------------------------------------

    def resolve(self, node: Any) -> Any:
        """``node`` with every description in it made into its object; lists and dicts in place."""
        kind = type(node)
        if isinstance(node, Spec):
            return self._spec(node)
        if kind is tuple:
            return self._tuple(node)
        if kind in _CONTAINERS:
            self._container(node)
        return node

    def _container(self, node: Any) -> None:
        if id(node) in self._resolved:
            return
        self._resolved.add(id(node))
        if type(node) is list:
            for index, item in enumerate(node):
                kind = type(item)
                if kind in _CONTAINERS or kind is tuple or isinstance(item, Spec):
                    node[index] = self.resolve(item)
            return
        rekeyed = False
        for key, item in node.items():
            kind = type(item)
            if kind is TensorSpec:
                node[key] = self._spec(item)
            elif kind in _CONTAINERS or kind is tuple or isinstance(item, Spec):
                node[key] = self.resolve(item)
            if type(key) is not str and (isinstance(key, Spec) or type(key) is tuple):
                rekeyed = True
        if rekeyed:
            self._rekey(node)
        if type(node) is not dict and vars(node):
            for name, item in list(vars(node).items()):
                setattr(node, name, self.resolve(item))

    def _rekey(self, node: dict[Any, Any]) -> None:
        pairs = [(self.resolve(key), item) for key, item in node.items()]
        node.clear()
        try:
            node.update(pairs)
        except Exception as error:
            raise self.checkpoint.refuse(
                f"a key of a dict cannot be one ({type(error).__name__}: {error})",
                record="data.pkl",
            ) from error

    def _tuple(self, node: tuple[Any, ...]) -> tuple[Any, ...]:
        known = self._tuples.get(id(node))
        if known is not None:
            return known
        made = tuple(self.resolve(item) for item in node)
        if all(new is old for new, old in zip(made, node, strict=True)):
            made = node
        self._tuples[id(node)] = made
        self._kept.append(node)
        return made

    def _spec(self, spec: Spec) -> Any:
        if spec.value is UNSET:
            maker = _MAKERS.get(type(spec))
            if maker is None:
                raise self.checkpoint.refuse(f"a {spec.kind} stands where data belongs")
            try:
                spec.value = maker(self, spec)
            except CheckpointError as error:
                if error.path is not None or self.checkpoint.source.path is None:
                    raise
                raise self._with_path(error) from error
            except _UNFIT as error:
                # The rules should have seen it; whatever they missed is still the file's fault.
                raise self.checkpoint.refuse(
                    f"a {spec.kind} cannot be made ({type(error).__name__}: {error})",
                    record="data.pkl",
                    offset=getattr(spec, "at", None),
                ) from error
        return spec.value

    def _with_path(self, error: CheckpointError) -> CheckpointError:
        return self.checkpoint.refuse(
            error.problem, error.fix, record=error.record, offset=error.offset
        )

    # -- tensors -------------------------------------------------------------------------------

    def load(self, ref: StorageRef) -> np.ndarray | None:
        """A storage's bytes, read once."""
        if ref.key not in self._buffers:
            self._buffers[ref.key] = self._load(ref)
        return self._buffers[ref.key]

    def _storage(self, ref: StorageRef) -> Any:
        known = self._storages.get(ref.key)
        if known is None:
            known = self._storages[ref.key] = self.factory.storage(self.load(ref), ref)
        return known

    def _storage_object(self, ref: StorageRef) -> Any:
        return self.factory.storage_object(self._storage(ref), ref.dtype)

    def _tensor(self, spec: TensorSpec) -> Any:
        storage = None if spec.storage is None else self._storage(spec.storage)
        return self.factory.tensor(storage, spec)

    def _parameter(self, spec: ParameterSpec) -> Any:
        data = self._spec(spec.data)
        made = self.factory.parameter(data, spec.requires_grad)
        self._attributes(made, spec.state)
        return made

    def _typed(self, spec: TypedSpec) -> Any:
        base = self._spec(spec.base)
        if spec.cls is not None:
            cls = self._target(spec.cls, spec.at)
            if not isinstance(cls, type):
                raise self.checkpoint.at(spec.at, f"{spec.cls.name} is no class")
            base = self.factory.subclass(base, cls)
        self._attributes(base, spec.state)
        return base

    def _attributes(self, target: Any, state: Any) -> None:
        for part in state if type(state) is tuple else (state,):
            for name, value in (part or {}).items():
                resolved = self.resolve(value)
                try:
                    self.factory.attribute(target, name, resolved)
                except CheckpointError as error:
                    raise self.checkpoint.refuse(error.problem, record="data.pkl") from error

    def _sparse(self, spec: SparseSpec) -> Any:
        parts = tuple(self._spec(part) for part in spec.parts)
        self._check_indices(spec)
        return self.factory.sparse(spec, parts)

    def _quantised(self, spec: QuantisedSpec) -> Any:
        data = self._spec(spec.data)
        return self.factory.quantised(
            spec, data, self.resolve(spec.scale), self.resolve(spec.zero_point)
        )

    def _nested(self, spec: NestedSpec) -> Any:
        parts = tuple(self._spec(part) for part in spec.parts)
        self._check_nested(spec)
        return self.factory.nested(spec, parts)

    def _moved(self, spec: MovedSpec) -> Any:
        return self.factory.moved(self._spec(spec.data), spec)

    # -- what can only be checked on the values --------------------------------------------------

    def _values(self, spec: TensorSpec) -> np.ndarray | None:
        """An integer tensor's values, or None where its data is not loaded."""
        buffer = None if spec.storage is None else self.load(spec.storage)
        if buffer is None:
            return None
        itemsize = formats.DTYPES[spec.dtype][0]
        if 0 in spec.size:
            return np.empty(spec.size, spec.dtype)
        start = spec.offset * itemsize
        whole = buffer[start : start + (buffer.size - start) // itemsize * itemsize]
        return np.lib.stride_tricks.as_strided(
            whole.view(spec.dtype), spec.size, [step * itemsize for step in spec.stride]
        )

    def _check_indices(self, spec: SparseSpec) -> None:
        """Refuse indices that point outside the tensor or do not fit its values."""
        from mortice.serialization import sparse

        problem = sparse.check(spec, [self._values(part) for part in spec.parts[:-1]])
        if problem:
            raise self.checkpoint.at(spec.at, problem)

    def _check_nested(self, spec: NestedSpec) -> None:
        sizes, strides, offsets = (self._values(part) for part in spec.parts[1:])
        if sizes is None or strides is None or offsets is None:
            return
        length = spec.parts[0].size[0]
        for size, stride, offset in zip(
            sizes.tolist(), strides.tolist(), offsets.tolist(), strict=True
        ):
            last = offset + sum((dim - 1) * step for dim, step in zip(size, stride, strict=True))
            if min([0, offset, *size, *stride]) < 0 or (0 not in size and last >= length):
                raise self.checkpoint.at(
                    spec.at,
                    f"a nested tensor's part of size {size}, stride {stride} and offset {offset} "
                    f"reaches outside its buffer of {length} elements",
                )

    # -- what a user marked safe -----------------------------------------------------------------

    def _target(self, name: Global, at: int) -> Any:
        if name.target is UNSET:
            raise self.checkpoint.at(
                at, f"{name.name} is not among the safe globals", safe.paste_hint(name.name)
            )
        return name.target

    def _call(self, call: Call) -> Any:
        target = self._target(call.func, call.at)
        args = tuple(self.resolve(arg) for arg in call.args)
        try:
            if not call.new:
                return target(*args)
            if not isinstance(target, type):
                raise self.checkpoint.at(call.at, f"NEWOBJ of {call.func.name}, which is no class")
            return target.__new__(target, *args)
        except CheckpointError:
            raise
        except Exception as error:
            raise self.checkpoint.at(
                call.at,
                f"{call.func.name}, marked safe, raised {type(error).__name__}: {error}",
                "Its arguments come from the file; they may not fit this version of it.",
            ) from error

    def _made_call(self, call: Call) -> Any:
        if call.value is UNSET:
            raise self.checkpoint.at(
                call.at, f"{call.func.name} is used before the file has made it"
            )
        return call.value

    def _build(self, call: Call, state: Any) -> None:
        target = self._made_call(call)
        cls = type(target)
        if cls is not call.func.target and not safe.is_safe_type(cls):
            full = f"{cls.__module__}.{cls.__qualname__}"
            raise self.checkpoint.at(
                call.at,
                f"{call.func.name} made a {full}, whose attributes the file wants to set and which "
                "is not among the safe globals",
                safe.paste_hint(full),
            )
        resolved = self.resolve(state)
        try:
            _set_state(target, resolved)
        except Exception as error:
            raise self.checkpoint.at(
                call.at,
                f"setting the attributes of a {cls.__qualname__} raised "
                f"{type(error).__name__}: {error}",
                "They come from the file; they may not fit this version of the class.",
            ) from error

    def _global(self, name: Global) -> Any:
        if name.rule is None:
            return self._target(name, name.at)
        return self.factory.named(name.name)


def _set_state(target: Any, state: Any) -> None:
    """As pickle sets the state of an object."""
    setter = getattr(target, "__setstate__", None)
    if setter is not None:
        setter(state)
        return
    slots = None
    if isinstance(state, tuple) and len(state) == 2:
        state, slots = state
    if state:
        target.__dict__.update(state)
    for name, value in (slots or {}).items():
        setattr(target, name, value)


_MAKERS: dict[type, Callable[[Materializer, Any], Any]] = {
    StorageRef: Materializer._storage_object,
    TensorSpec: Materializer._tensor,
    ParameterSpec: Materializer._parameter,
    TypedSpec: Materializer._typed,
    SparseSpec: Materializer._sparse,
    QuantisedSpec: Materializer._quantised,
    NestedSpec: Materializer._nested,
    MovedSpec: Materializer._moved,
    Constant: lambda self, spec: self.factory.constant(spec),
    DeviceSpec: lambda self, spec: self.factory.device(spec),
    SizeSpec: lambda self, spec: self.factory.size(spec.dims),
    Call: Materializer._made_call,
    Global: Materializer._global,
}
