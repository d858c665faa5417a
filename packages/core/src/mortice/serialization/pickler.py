"""A pickle written opcode for opcode as CPython's own pickler writes protocol 2.

It exists because the names in a checkpoint are PyTorch's, and the standard pickler imports what it
names. Batches of 1000, memo entries in the order of first sight, the shortest integer opcodes: all
as CPython's Modules/_pickle.c, so that the same data gives the same bytes as torch.save.
"""

from __future__ import annotations

import struct
import sys
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from itertools import islice
from types import BuiltinFunctionType, FunctionType
from typing import Any

from mortice.errors import InvalidValue
from mortice.serialization import formats
from mortice.serialization.naming import torch_module
from mortice.serialization.specs import (
    Constant,
    DeviceSpec,
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

_BATCH = 1000
_PACK_INT = struct.Struct("<i").pack
_PACK_UINT = struct.Struct("<I").pack
_PACK_USHORT = struct.Struct("<H").pack
_PACK_FLOAT = struct.Struct(">d").pack
_LONG_BYTES = 255

_LAYOUTS: dict[str, Constant] = {}
_STORAGE = "storage"
_LATIN1 = "latin1"


class Name:
    """A function or class to be named: a GLOBAL."""

    __slots__ = ("module", "name")

    def __init__(self, module: str, name: str) -> None:
        self.module = module
        self.name = name


def _name(full: str) -> Name:
    module, _, name = full.rpartition(".")
    return Name(module, name)


_REBUILD_V2 = _name("torch._utils._rebuild_tensor_v2")
_REBUILD_V3 = _name("torch._utils._rebuild_tensor_v3")
_REBUILD_META = _name("torch._utils._rebuild_meta_tensor_no_storage")
_REBUILD_PARAMETER = _name("torch._utils._rebuild_parameter")
_REBUILD_PARAMETER_STATE = _name("torch._utils._rebuild_parameter_with_state")
_REBUILD_SPARSE = _name("torch._utils._rebuild_sparse_tensor")
_REBUILD_QUANTISED = _name("torch._utils._rebuild_qtensor")
_REBUILD_NESTED = _name("torch._utils._rebuild_nested_tensor")
_REBUILD_MOVED = _name("torch._utils._rebuild_device_tensor_from_cpu_tensor")
_REBUILD_TYPE = _name("torch._tensor._rebuild_from_type_v2")
_GET_LAYOUT = _name("torch.serialization._get_layout")
_TENSOR = _name("torch.Tensor")
_SIZE = _name("torch.Size")
_DEVICE = _name("torch.device")
_UNTYPED = _name("torch.storage.UntypedStorage")
_ORDERED_DICT = _name("collections.OrderedDict")
_COUNTER = _name("collections.Counter")
_ENCODE = _name("_codecs.encode")


class Pickler:
    """Writes one pickle.

    ``export(obj)`` turns what is not plain Python into a description (`specs`), or gives None.
    """

    def __init__(self, export: Callable[[Any], Spec | None]) -> None:
        self._export = export
        self._out = bytearray()
        self._memo: dict[int, int] = {}
        self._names: dict[tuple[str, str], int] = {}
        self._next = 0
        # Keeps what the memo knows by id alive until the end.
        self._kept: list[Any] = []

    def dump(self, obj: Any) -> bytes:
        """The pickle of ``obj``. Raises InvalidValue for what cannot be saved."""
        self._out += b"\x80\x02"
        try:
            self._save(obj)
        except RecursionError:
            raise InvalidValue(
                "the object is nested too deeply to be saved. Flatten it, or raise "
                "sys.setrecursionlimit."
            ) from None
        self._out += b"."
        return bytes(self._out)

    # -- frame ---------------------------------------------------------------------------------

    def _save(self, obj: Any) -> None:
        kind = type(obj)
        atom = _ATOMS.get(kind)
        if atom is not None:
            atom(self, obj)
            return
        index = self._memo.get(id(obj))
        if index is not None:
            self._get(index)
            return
        saver = _SAVERS.get(kind)
        if saver is not None:
            saver(self, obj)
            return
        spec = self._export(obj)
        if spec is not None:
            self._save_spec(spec, obj)
        else:
            self._save_object(obj)

    def _put(self, obj: Any) -> None:
        self._memo[id(obj)] = self._next
        self._kept.append(obj)
        self._put_next()

    def _put_next(self) -> None:
        index = self._next
        self._out += bytes((0x71, index)) if index < 256 else b"r" + _PACK_UINT(index)
        self._next = index + 1

    def _get(self, index: int) -> None:
        self._out += bytes((0x68, index)) if index < 256 else b"j" + _PACK_UINT(index)

    # -- plain values --------------------------------------------------------------------------

    def _none(self, obj: None) -> None:
        self._out += b"N"

    def _bool(self, obj: bool) -> None:
        self._out += b"\x88" if obj else b"\x89"

    def _int(self, obj: int) -> None:
        out = self._out
        if 0 <= obj < 256:
            out += bytes((0x4B, obj))
        elif 0 <= obj < 65536:
            out += b"M" + _PACK_USHORT(obj)
        elif -0x80000000 <= obj < 0x80000000:
            out += b"J" + _PACK_INT(obj)
        else:
            length = obj.bit_length() // 8 + 1
            raw = obj.to_bytes(length, "little", signed=True)
            if obj < 0 and length > 1 and raw[-1] == 0xFF and raw[-2] & 0x80:
                raw = raw[:-1]
            if len(raw) > _LONG_BYTES:
                raise InvalidValue(
                    f"an integer of {obj.bit_length()} bits cannot be saved in a checkpoint that "
                    "loads with weights_only=True. Save it as a string."
                )
            out += bytes((0x8A, len(raw))) + raw

    def _float(self, obj: float) -> None:
        self._out += b"G" + _PACK_FLOAT(obj)

    def _str(self, obj: str) -> None:
        index = self._memo.get(id(obj))
        if index is not None:
            self._get(index)
            return
        raw = obj.encode("utf-8", "surrogatepass")
        if len(raw) > 0xFFFFFFFF:
            raise InvalidValue("a string of over 4 GiB cannot be saved.")
        self._out += b"X" + _PACK_UINT(len(raw)) + raw
        self._put(obj)

    def _bytes(self, obj: bytes) -> None:
        # The empty one too: PyTorch's restricted reader knows no name for bytes().
        self._reduce(_ENCODE, (obj.decode("latin1"), _LATIN1), obj)

    def _bytearray(self, obj: bytearray) -> None:
        self._reduce(_name("builtins.bytearray"), (bytes(obj),) if obj else (), obj)

    def _complex(self, obj: complex) -> None:
        self._reduce(_name("builtins.complex"), (obj.real, obj.imag), obj)

    # -- containers ----------------------------------------------------------------------------

    def _tuple(self, obj: tuple[Any, ...]) -> None:
        if not obj:
            self._out += b")"
            return
        short = len(obj) <= 3
        if not short:
            self._out += b"("
        for item in obj:
            self._save(item)
        index = self._memo.get(id(obj))
        if index is not None:  # it contains itself, and was saved on the way
            self._out += b"0" * len(obj) if short else b"1"
            self._get(index)
            return
        self._out += bytes((0x84 + len(obj),)) if short else b"t"
        self._put(obj)

    def _list(self, obj: list[Any]) -> None:
        self._out += b"]"
        self._put(obj)
        if len(obj) == 1:
            self._save(obj[0])
            self._out += b"a"
            return
        for start in range(0, len(obj), _BATCH):
            self._out += b"("
            for item in obj[start : start + _BATCH]:
                self._save(item)
            self._out += b"e"

    def _dict(self, obj: dict[Any, Any]) -> None:
        self._out += b"}"
        self._put(obj)
        self._items(obj.items())
        # CPython ends a dict of whole batches, unlike any other mapping, with an empty one.
        if obj and len(obj) % _BATCH == 0:
            self._out += b"(u"

    def _items(self, items: Iterable[tuple[Any, Any]], exact: bool = True) -> None:
        """Key and value pairs. Only of a mapping that is no dict may the last one come alone."""
        pairs = iter(items)
        first = True
        while batch := list(islice(pairs, _BATCH)):
            single = len(batch) == 1 and (first or not exact)
            if not single:
                self._out += b"("
            for key, value in batch:
                self._save(key)
                self._save(value)
            self._out += b"s" if single else b"u"
            first = False

    def _ordered_dict(self, obj: OrderedDict[Any, Any]) -> None:
        self._call(_ORDERED_DICT, ())
        self._put(obj)
        self._items(obj.items(), exact=False)
        state = vars(obj)
        if state:
            self._save(dict(state))
            self._out += b"b"

    def _counter(self, obj: Counter[Any]) -> None:
        self._reduce(_COUNTER, (dict(obj),), obj)

    def _set(self, obj: set[Any]) -> None:
        self._reduce(_name("builtins.set"), (list(obj),), obj)

    def _frozenset(self, obj: frozenset[Any]) -> None:
        self._reduce(_name("builtins.frozenset"), (list(obj),), obj)

    # -- names and calls -----------------------------------------------------------------------

    def _global(self, name: Name) -> None:
        key = (name.module, name.name)
        index = self._names.get(key)
        if index is not None:
            self._get(index)
            return
        module, qualname = formats.python2_name(name.module, name.name)
        if "\n" in module or "\n" in qualname:
            raise InvalidValue(f"{name.module}.{name.name} cannot be named in a checkpoint.")
        self._out += b"c" + f"{module}\n{qualname}\n".encode()
        self._names[key] = self._next
        self._put_next()

    def _call(self, name: Name, args: tuple[Any, ...]) -> None:
        self._global(name)
        self._save(args)
        self._out += b"R"

    def _reduce(self, name: Name, args: tuple[Any, ...], obj: Any) -> None:
        self._call(name, args)
        self._put(obj)

    # -- tensors -------------------------------------------------------------------------------

    def _save_spec(self, spec: Spec, obj: Any) -> None:
        if type(spec) is Constant:
            if spec.of != "layout":
                self._global(Name("torch", spec.name))
                return
            obj = spec = _LAYOUTS.setdefault(spec.name, spec)  # one object, as there
            index = self._memo.get(id(obj))
            if index is not None:
                self._get(index)
                return
        if type(spec) is StorageRef:
            self._storage(spec)
            return
        name, args = reduction(spec)
        self._reduce(name, args, obj)

    def _spec(self, spec: Spec) -> None:
        self._save_spec(spec, spec)

    def _storage(self, ref: StorageRef) -> None:
        itemsize, _, cls = formats.DTYPES[ref.dtype]
        typed = ref.typed and bool(cls)
        self._save(
            (
                _STORAGE,
                Name("torch", cls) if typed else _UNTYPED,
                ref.key,
                ref.location,
                ref.nbytes // itemsize if typed else ref.nbytes,
            )
        )
        self._out += b"Q"

    # -- anything else -------------------------------------------------------------------------

    def _save_object(self, obj: Any) -> None:
        """As pickle: by name where it is a function or class, else by its ``__reduce_ex__``."""
        if isinstance(obj, (type, FunctionType, BuiltinFunctionType)):
            self._global(importable(obj))
            return
        try:
            reduced = obj.__reduce_ex__(2)
        except TypeError as error:
            raise InvalidValue(
                f"a {type(obj).__qualname__} cannot be saved ({error}). Save its state instead."
            ) from error
        if isinstance(reduced, str):
            self._global(Name(type(obj).__module__, reduced))
            return
        func, args = reduced[:2]
        state, items, pairs = (*reduced[2:], None, None, None)[:3]
        self._save_call(func, args)
        self._put(obj)
        self._fill(items, pairs)
        if state is not None:
            self._save(state)
            self._out += b"b"

    def _save_call(self, func: Any, args: tuple[Any, ...]) -> None:
        kind = getattr(func, "__name__", "")
        if kind == "__newobj__":
            self._global(importable(args[0]))
            self._save(args[1:])
            self._out += b"\x81"
        elif kind == "__newobj_ex__":
            raise InvalidValue(
                f"a {args[0].__qualname__} is made with keyword arguments "
                "(__getnewargs_ex__), which protocol 2 cannot say. Save its state instead."
            )
        else:
            self._global(importable(func))
            self._save(args)
            self._out += b"R"

    def _fill(self, items: Iterable[Any] | None, pairs: Iterable[tuple[Any, Any]] | None) -> None:
        if items is not None:
            rest = list(items)
            for start in range(0, len(rest), _BATCH):
                batch = rest[start : start + _BATCH]
                if len(batch) > 1:
                    self._out += b"("
                for item in batch:
                    self._save(item)
                self._out += b"e" if len(batch) > 1 else b"a"
        if pairs is not None:
            self._items(pairs, exact=False)


def reduction(spec: Spec) -> tuple[Name, tuple[Any, ...]]:
    """The call that rebuilds what ``spec`` describes: its name and arguments."""
    return _REDUCTIONS[type(spec)](spec)


def _tensor(spec: TensorSpec) -> tuple[Name, tuple[Any, ...]]:
    size, stride = tuple(spec.size), tuple(spec.stride)
    if spec.storage is None:
        return _REBUILD_META, (Constant("dtype", spec.dtype), size, stride, spec.requires_grad)
    args: tuple[Any, ...] = (
        spec.storage,
        spec.offset,
        size,
        stride,
        spec.requires_grad,
        OrderedDict(),
    )
    typed = spec.storage.typed and bool(formats.DTYPES[spec.dtype][2])
    if not typed:
        args += (Name("torch", spec.dtype),)
    flags = {name: True for name in ("conj", "neg") if getattr(spec, name)}
    if flags:
        args += (flags,)
    return (_REBUILD_V2 if typed else _REBUILD_V3), args


def _parameter(spec: ParameterSpec) -> tuple[Name, tuple[Any, ...]]:
    args = (spec.data, spec.requires_grad, OrderedDict())
    if spec.state:
        return _REBUILD_PARAMETER_STATE, (*args, spec.state)
    return _REBUILD_PARAMETER, args


def _typed(spec: TypedSpec) -> tuple[Name, tuple[Any, ...]]:
    func, args = reduction(spec.base)
    cls = _TENSOR if spec.cls is None else _name(spec.cls.name)
    return _REBUILD_TYPE, (func, cls, args, spec.state)


def _sparse(spec: SparseSpec) -> tuple[Name, tuple[Any, ...]]:
    data: tuple[Any, ...] = (*spec.parts, SizeSpec(spec.size))
    if spec.layout == "sparse_coo" and spec.coalesced is not None:
        data += (spec.coalesced,)
    return _REBUILD_SPARSE, (Constant("layout", spec.layout), data)


def _quantised(spec: QuantisedSpec) -> tuple[Name, tuple[Any, ...]]:
    data = spec.data
    params: tuple[Any, ...] = (Name("torch", spec.qscheme), spec.scale, spec.zero_point)
    if spec.axis is not None:
        params += (spec.axis,)
    return _REBUILD_QUANTISED, (
        data.storage,
        data.offset,
        tuple(data.size),
        tuple(data.stride),
        params,
        False,
        OrderedDict(),
    )


def _moved(spec: MovedSpec) -> tuple[Name, tuple[Any, ...]]:
    return _REBUILD_MOVED, (
        spec.data,
        Constant("dtype", spec.dtype),
        spec.location,
        spec.requires_grad,
    )


def _device(spec: DeviceSpec) -> tuple[Name, tuple[Any, ...]]:
    return _DEVICE, (spec.type,) if spec.index is None else (spec.type, spec.index)


_REDUCTIONS: dict[type, Callable[[Any], tuple[Name, tuple[Any, ...]]]] = {
    TensorSpec: _tensor,
    ParameterSpec: _parameter,
    TypedSpec: _typed,
    SparseSpec: _sparse,
    QuantisedSpec: _quantised,
    NestedSpec: lambda spec: (_REBUILD_NESTED, spec.parts),
    MovedSpec: _moved,
    DeviceSpec: _device,
    SizeSpec: lambda spec: (_SIZE, (tuple(spec.dims),)),
    Constant: lambda spec: (_GET_LAYOUT, (f"torch.{spec.name}",)),
}


def importable(item: Any) -> Name:
    """The name by which a file may mean a function or class; checked to lead back to it."""
    module, qualname = getattr(item, "__module__", None), getattr(item, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(qualname, str):
        raise InvalidValue(f"{item!r} has no name by which a file could mean it.")
    found: Any = sys.modules.get(module)
    for part in qualname.split("."):
        found = getattr(found, part, None)
    if found is not item:
        raise InvalidValue(
            f"{module}.{qualname} is not found under that name, so no reader could find it. "
            "Define it at the top of a module (no lambda, no class inside a function)."
        )
    return Name(torch_module(module, qualname) or module, qualname)


_ATOMS: dict[type, Callable[[Pickler, Any], None]] = {
    type(None): Pickler._none,
    bool: Pickler._bool,
    int: Pickler._int,
    float: Pickler._float,
    str: Pickler._str,
    Name: Pickler._global,
}

_SAVERS: dict[type, Callable[[Pickler, Any], None]] = {
    tuple: Pickler._tuple,
    list: Pickler._list,
    dict: Pickler._dict,
    OrderedDict: Pickler._ordered_dict,
    Counter: Pickler._counter,
    set: Pickler._set,
    frozenset: Pickler._frozenset,
    bytes: Pickler._bytes,
    bytearray: Pickler._bytearray,
    complex: Pickler._complex,
    **dict.fromkeys((*_REDUCTIONS, StorageRef), Pickler._spec),
}
