"""What is in a checkpoint, without loading it: the data of the pickle is read, no storage is."""

from __future__ import annotations

import math
import os
import re
import sys
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np

from mortice.serialization import bounds, safe
from mortice.serialization.checkpoint import Checkpoint
from mortice.serialization.materialize import Materializer
from mortice.serialization.names import Names
from mortice.serialization.reader import open_checkpoint
from mortice.serialization.safetensors_files import DTYPES as SAFETENSORS_DTYPES
from mortice.serialization.safetensors_files import is_safetensors, open_safetensors
from mortice.serialization.source import Source
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

# How numpy names a dtype without fields.
_DTYPE = re.compile(r"[<>|=]?[?bBhHiIlLqQefdgFDGSUVmM]\d{0,4}\Z")


class Row(NamedTuple):
    """One tensor or storage of a file. ``shares`` says that an earlier row has the same storage."""

    name: str
    kind: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    location: str
    storage: str
    shares: bool
    requires_grad: bool


class Contents(NamedTuple):
    """What `inspect` found."""

    format: str
    byteorder: str
    rows: list[Row]
    others: dict[str, str]
    globals: list[str]
    unsafe: list[str]
    storage_bytes: int
    file_bytes: int
    records: list[tuple[str, int, int]]


def inspect(f: Any, *, limits: dict[str, int] | None = None) -> Contents:
    """Names, shapes, dtypes, sizes of all tensors in a checkpoint, and the globals it wants.

    Reads also files that `load` refuses because of their globals. Raises CheckpointError for a file
    that is damaged or not understood. A path ending in ``.safetensors`` is read with that library.
    """
    if is_safetensors(f):
        return _inspect_safetensors(os.fspath(f))
    source = Source(f)
    try:
        names = Names(collect=True)
        checkpoint = open_checkpoint(source, bounds.current().with_(limits or {}), names=names)
        lister = _Lister()
        with checkpoint.bounded_recursion():
            lister.walk("", checkpoint.root)
        container = checkpoint.container
        records = (
            [(r.name, r.size, r.header_offset) for r in container.records.values()]
            if container is not None
            else []
        )
        return Contents(
            checkpoint.format,
            "big" if checkpoint.big else "little",
            lister.rows,
            lister.others,
            names.seen,
            names.unsafe,
            sum(ref.nbytes for ref in checkpoint.storages.values()),
            source.size,
            records,
        )
    finally:
        source.close()


def _inspect_safetensors(path: str) -> Contents:
    from mortice.serialization.formats import DTYPES as SIZES

    rows: list[Row] = []
    for name, kind, shape in open_safetensors(path):
        dtype = SAFETENSORS_DTYPES.get(kind, kind)
        nbytes = math.prod(shape) * SIZES[dtype][0] if dtype in SIZES else 0
        rows.append(Row(name, "tensor", dtype, shape, nbytes, "cpu", name, False, False))
    total = sum(row.nbytes for row in rows)
    size = os.path.getsize(path)
    return Contents("safetensors", "little", rows, {}, [], [], total, size, [])


class _Lister:
    """Walks the data and names each tensor by its path."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.others: dict[str, str] = {}
        self._seen: dict[int, str] = {}
        self._storages: set[str] = set()

    def walk(self, path: str, node: Any) -> None:
        """List ``node``, found at ``path``."""
        if isinstance(node, Spec):
            self._spec(path, node)
        elif isinstance(node, (dict, list, tuple)) and node:
            known = self._seen.setdefault(id(node), path)
            if known != path:
                self.others[path] = f"the same as {known or 'the whole'}"
                return
            for name, item in _items(node):
                self.walk(f"{path}.{name}" if path else name, item)
        else:
            self.others[path or "(the whole)"] = _short(node)

    def _spec(self, path: str, spec: Spec) -> None:
        if isinstance(spec, Call):
            self.others[path or "(the whole)"] = f"an object of {spec.func.name}"
            if spec.args:
                self.walk(path, spec.args)
            for _, state in spec.states:
                self.walk(path, state)
            return
        tensor = _tensor_in(spec)
        if tensor is None:
            self.others[path or "(the whole)"] = _short(spec)
            return
        kind, flat, shape, nbytes, grad = tensor
        ref = flat.storage if isinstance(flat, TensorSpec) else flat
        key = "" if ref is None else ref.key
        self.rows.append(
            Row(
                path or "(the whole)",
                kind,
                flat.dtype,
                shape,
                nbytes,
                "meta" if ref is None else ref.location,
                key,
                bool(key) and key in self._storages,
                grad,
            )
        )
        self._storages.add(key)


def _items(node: Any) -> list[tuple[str, Any]]:
    if isinstance(node, dict):
        return [(key if isinstance(key, str) else repr(key), item) for key, item in node.items()]
    return [(str(index), item) for index, item in enumerate(node)]


def _tensor_in(spec: Spec) -> Any:
    """(kind, strided tensor or storage, shape, bytes, requires_grad) of a spec, or None."""
    from mortice.serialization.formats import DTYPES

    def nbytes(t: TensorSpec) -> int:
        count = 1
        for dim in t.size:
            count *= dim
        return count * DTYPES[t.dtype][0]

    if isinstance(spec, TensorSpec):
        return "tensor", spec, spec.size, nbytes(spec), spec.requires_grad
    if isinstance(spec, ParameterSpec):
        inner = _tensor_in(spec.data)
        return ("parameter", *inner[1:4], spec.requires_grad)
    if isinstance(spec, TypedSpec):
        inner = _tensor_in(spec.base)
        return inner if spec.cls is None else (spec.cls.name, *inner[1:])
    if isinstance(spec, SparseSpec):
        size = sum(nbytes(part) for part in spec.parts)
        return spec.layout, spec.parts[-1], spec.size, size, False
    if isinstance(spec, QuantisedSpec):
        return "quantised", spec.data, spec.data.size, nbytes(spec.data), False
    if isinstance(spec, NestedSpec):
        return "nested", spec.parts[0], spec.parts[0].size, nbytes(spec.parts[0]), False
    if isinstance(spec, MovedSpec):
        return "moved", spec.data, spec.data.size, nbytes(spec.data), spec.requires_grad
    if isinstance(spec, StorageRef):
        return "storage", spec, (spec.nbytes // DTYPES[spec.dtype][0],), spec.nbytes, False
    return None


def _short(value: Any) -> str:
    if isinstance(value, Constant):
        return f"torch.{value.name}"
    if isinstance(value, DeviceSpec):
        return f"device {value}"
    if isinstance(value, SizeSpec):
        return f"Size {value.dims}"
    if isinstance(value, Global):
        return f"the class or function {value.name}"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


# -- names that are not safe -------------------------------------------------------------------


def unsafe_globals(source: Source) -> list[str]:
    """The names for `get_unsafe_globals_in_checkpoint`."""
    names = Names(collect=True)
    checkpoint = open_checkpoint(source, bounds.current(), names=names)
    found = list(names.unsafe)
    for name in _classes_at_build(checkpoint):
        if name not in found and name not in safe.targets():
            found.append(name)
    return found


def _classes_at_build(checkpoint: Checkpoint) -> list[str]:
    """Classes that the file names nowhere: of what a function makes and the file then fills.

    A function marked safe is called, as loading would; tensors among its arguments are empty. Of
    others the class is told where that takes no call.
    """
    from mortice.serialization.tensors import TensorFactory, meta_storage

    filled = [call for call in checkpoint.calls if call.states]
    found = [name for name in map(_told_class, filled) if name]
    if any(call.func.target is not UNSET for call in filled):
        finder = _ClassFinder(
            checkpoint, TensorFactory(lambda buffer, ref: meta_storage(ref.nbytes)), _no_data
        )
        with checkpoint.bounded_recursion():
            finder.run()
        found += finder.found
    return found


def _told_class(call: Call) -> str:
    """The class of what a function that is not safe yet will make, or nothing.

    numpy.dtype makes an object of another class for each dtype; a function of a module that is
    imported already may say in its annotation what it returns.
    """
    if call.func.target is not UNSET:
        return ""
    first = call.args[0] if call.args else None
    if call.func.name == "numpy.dtype" and isinstance(first, str) and _DTYPE.match(first):
        return _full_name(type(np.dtype(first)))
    module, _, name = call.func.name.rpartition(".")
    function = getattr(sys.modules.get(module), name, None)
    if not isinstance(function, FunctionType):
        return ""
    returns = function.__annotations__.get("return")
    if isinstance(returns, str):
        returns = function.__globals__.get(returns.strip("'\""))
    return _full_name(returns) if isinstance(returns, type) else ""


def _full_name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _no_data(ref: StorageRef) -> np.ndarray[Any, Any] | None:
    return None


class _ClassFinder(Materializer):
    """Makes the objects that safe functions make, and notes classes that are not safe."""

    def run(self) -> Any:
        self.found: list[str] = []
        super().run_calls()

    def _call(self, call: Call) -> Any:
        if not self._reaches(call):
            return UNSET
        return super()._call(call)

    def _build(self, call: Call, state: Any) -> None:
        if call.value is UNSET:
            return
        cls = type(call.value)
        if cls is not call.func.target and not safe.is_safe_type(cls):
            self.found.append(_full_name(cls))
            return
        if self._known(state):
            super()._build(call, state)

    def _reaches(self, call: Call) -> bool:
        return call.func.target is not UNSET and self._known(call.args)

    def _known(self, node: Any) -> bool:
        """Whether everything that ``node`` refers to can be made."""
        pending, seen = [node], set[int]()
        while pending:
            item = pending.pop()
            if id(item) in seen:
                continue
            seen.add(id(item))
            if isinstance(item, Call):
                if item.value is UNSET:
                    return False
            elif isinstance(item, Global):
                if item.rule is None and item.target is UNSET:
                    return False
            elif isinstance(item, TypedSpec):
                if item.cls is not None and item.cls.target is UNSET:
                    return False
                pending.extend((item.base, item.state))
            elif isinstance(item, ParameterSpec):
                pending.extend((item.data, item.state))
            elif isinstance(item, dict):
                pending.extend(item.values())
            elif isinstance(item, (list, tuple)):
                pending.extend(item)
        return True
