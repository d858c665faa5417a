"""What the names in a checkpoint stand for: one rule per function that PyTorch's writer names.

A rule gets the unpickler and the arguments, checks each of them, and returns plain data or a
description. No rule runs anything of the file's choosing, reads a storage or allocates one.
"""

from __future__ import annotations

import math
import re
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any

from mortice.serialization import formats
from mortice.serialization.bounds import hint
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
    StorageClass,
    StorageRef,
    TensorSpec,
    TypedSpec,
)
from mortice.serialization.unpickler import Unpickler, check_state, describe

INT64_MAX = (1 << 63) - 1
_DEVICE_TYPE = re.compile(r"[a-z][a-z0-9_]{0,31}\Z")
_LOCATION = re.compile(r"([a-z][a-z0-9_]{0,31})(?::(\d{1,5}))?\Z")

_REAL = formats.COMPUTING - {"complex64", "complex128"}

Rule = Callable[[Unpickler, "tuple[Any, ...]"], Any]


# -- checked arguments -------------------------------------------------------------------------


def _count(u: Unpickler, name: str, args: tuple[Any, ...], least: int, most: int) -> None:
    if not least <= len(args) <= most:
        wanted = str(least) if least == most else f"{least} to {most}"
        raise u.refuse(f"{name} with {len(args)} arguments; it takes {wanted}")


def _whole(u: Unpickler, what: str, value: Any, most: int = INT64_MAX) -> int:
    if type(value) is not int or not 0 <= value <= most:
        shown = value if type(value) is int else describe(value)
        raise u.refuse(f"{what} is {shown}, not a whole number from 0 to {most}")
    return value


def _flag(u: Unpickler, what: str, value: Any) -> bool:
    if type(value) is not bool:
        raise u.refuse(f"{what} is {describe(value)}, not True or False")
    return value


def _dims(u: Unpickler, what: str, value: Any) -> tuple[int, ...]:
    if type(value) is SizeSpec:
        return value.dims
    if type(value) is not tuple and type(value) is not list:
        raise u.refuse(f"{what} is {describe(value)}, not a tuple")
    if len(value) > u.limits.dims:
        raise u.refuse(f"{what} of {len(value)} dimensions", hint("dims"))
    for item in value:
        if type(item) is not int or not 0 <= item <= INT64_MAX:
            raise u.refuse(
                f"{what} holds {item if type(item) is int else describe(item)}; each is "
                f"a whole number from 0 to {INT64_MAX}"
            )
    return tuple(value)


def _dtype(u: Unpickler, value: Any) -> str:
    if type(value) is not Constant or value.of != "dtype" or value.name not in formats.DTYPES:
        shown = value.name if type(value) is Constant else describe(value)
        raise u.refuse(f"{shown} stands where a tensor's dtype belongs")
    return value.name


def _text(u: Unpickler, what: str, value: Any) -> str:
    if type(value) is bytes and value.isascii():
        return value.decode("ascii")
    if type(value) is not str:
        raise u.refuse(f"{what} is {describe(value)}, not a string")
    return value


def _no_hooks(u: Unpickler, value: Any) -> None:
    if value is None or ((type(value) is OrderedDict or type(value) is dict) and not value):
        return
    raise u.refuse(
        "a tensor comes with backward hooks, which are code",
        "Save it without them: remove the hooks, or save tensor.detach().",
    )


def _tensor(u: Unpickler, what: str, value: Any) -> TensorSpec:
    if type(value) is TypedSpec and value.cls is None and type(value.base) is TensorSpec:
        value = value.base
    if type(value) is not TensorSpec:
        raise u.refuse(f"{what} is {describe(value)}, not a tensor")
    return value


def location(u: Unpickler, value: Any) -> str:
    """A location tag such as cpu or cuda:0, checked to be one; its device is not looked for."""
    text = _text(u, "a location", value)
    if _LOCATION.match(text) is None:
        raise u.refuse(f"the location {text[:80]!r} names no device")
    return text


# -- tensors -----------------------------------------------------------------------------------


def check_extent(
    u: Unpickler,
    dtype: str,
    nbytes: int | None,
    offset: int,
    size: tuple[int, ...],
    stride: tuple[int, ...],
) -> None:
    """Refuse a tensor that reaches outside its storage of ``nbytes`` (None: there is none)."""
    if len(size) != len(stride):
        raise u.refuse(f"a tensor with {len(size)} sizes and {len(stride)} strides")
    itemsize = formats.DTYPES[dtype][0]
    # Empty tensors too: their other dimensions multiply in whatever computes with sizes.
    extent, last = 1, offset
    for dim, step in zip(size, stride, strict=True):
        extent *= dim or 1
        last += (dim - 1) * step
        if step > INT64_MAX // itemsize:
            raise u.refuse(f"a stride of {step} elements of {itemsize} bytes")
    if extent > INT64_MAX // itemsize:
        raise u.refuse(f"a tensor of size {size}, which is {extent} elements")
    if 0 not in size and nbytes is not None and (last + 1) * itemsize > nbytes:
        raise u.refuse(
            f"a tensor of {dtype}, size {size}, stride {stride} and offset {offset} reaches byte "
            f"{(last + 1) * itemsize} of a storage of {nbytes}"
        )


def _strided(
    u: Unpickler, args: tuple[Any, ...], requires_grad: bool, dtype: str | None = None
) -> TensorSpec:
    storage = args[0]
    if type(storage) is not StorageRef:
        raise u.refuse(f"a tensor over {describe(storage)}, not over a storage")
    offset = _whole(u, "a tensor's offset", args[1])
    size = _dims(u, "a tensor's size", args[2])
    stride = _dims(u, "a tensor's stride", args[3])
    if dtype is None:
        dtype = storage.dtype
    elif storage.typed and dtype != storage.dtype:
        raise u.refuse(f"a tensor of {dtype} over a storage of {storage.dtype}")
    check_extent(u, dtype, storage.nbytes, offset, size, stride)
    if requires_grad and dtype not in formats.FLOATING:
        raise u.refuse(f"requires_grad on a tensor of {dtype}; only floating point can")
    if not storage.typed:
        # Byte order is a matter of the elements, which an untyped storage does not tell.
        unit = formats.DTYPES[dtype][1]
        if storage.unit not in (0, unit):
            storage.unit = -1
        elif storage.unit == 0:
            storage.unit = unit
    return TensorSpec(storage, dtype, offset, size, stride, requires_grad, u.at - u.start)


def _metadata(u: Unpickler, spec: TensorSpec, value: Any) -> TensorSpec:
    if value is None:
        return spec
    if type(value) is not dict and type(value) is not OrderedDict:
        raise u.refuse(f"tensor metadata is {describe(value)}, not a dict")
    for name, flag in value.items():
        if name not in ("conj", "neg"):
            raise u.refuse(f"unknown tensor metadata {name!r}")
        setattr(spec, name, _flag(u, f"tensor metadata {name!r}", flag))
    if spec.conj and spec.dtype not in ("complex64", "complex128"):
        raise u.refuse(f"the conjugate bit on a tensor of {spec.dtype}")
    if spec.neg and (spec.dtype not in formats.COMPUTING or spec.dtype == "bool"):
        raise u.refuse(f"the negative bit on a tensor of {spec.dtype}")
    return spec


def _rebuild_tensor(u: Unpickler, args: tuple[Any, ...]) -> TensorSpec:
    _count(u, "_rebuild_tensor", args, 4, 4)
    return _strided(u, args, False)


def _rebuild_tensor_v2(u: Unpickler, args: tuple[Any, ...]) -> TensorSpec:
    _count(u, "_rebuild_tensor_v2", args, 6, 7)
    _no_hooks(u, args[5])
    spec = _strided(u, args, _flag(u, "requires_grad", args[4]))
    return spec if len(args) == 6 else _metadata(u, spec, args[6])


def _rebuild_tensor_v3(u: Unpickler, args: tuple[Any, ...]) -> TensorSpec:
    _count(u, "_rebuild_tensor_v3", args, 7, 8)
    _no_hooks(u, args[5])
    spec = _strided(u, args, _flag(u, "requires_grad", args[4]), _dtype(u, args[6]))
    return spec if len(args) == 7 else _metadata(u, spec, args[7])


def _rebuild_meta(u: Unpickler, args: tuple[Any, ...]) -> TensorSpec:
    _count(u, "_rebuild_meta_tensor_no_storage", args, 4, 4)
    dtype = _dtype(u, args[0])
    size = _dims(u, "a tensor's size", args[1])
    stride = _dims(u, "a tensor's stride", args[2])
    check_extent(u, dtype, None, 0, size, stride)
    flag = _flag(u, "requires_grad", args[3])
    return TensorSpec(None, dtype, 0, size, stride, flag, u.at - u.start)


def _parameter_data(u: Unpickler, value: Any, requires_grad: bool) -> Spec:
    plain = value.base if type(value) is TypedSpec else value
    if isinstance(plain, QuantisedSpec):
        plain = plain.data
    if not isinstance(plain, (TensorSpec, SparseSpec, MovedSpec)):
        raise u.refuse(f"a Parameter of {describe(value)}, not of a tensor")
    dtype = plain.parts[-1].dtype if isinstance(plain, SparseSpec) else plain.dtype
    if requires_grad and dtype not in formats.FLOATING:
        raise u.refuse(f"a Parameter of {dtype} that requires_grad; only floating point can")
    return value


def _rebuild_parameter(u: Unpickler, args: tuple[Any, ...]) -> ParameterSpec:
    _count(u, "_rebuild_parameter", args, 3, 3)
    _no_hooks(u, args[2])
    flag = _flag(u, "requires_grad", args[1])
    return ParameterSpec(_parameter_data(u, args[0], flag), flag)


def _rebuild_parameter_with_state(u: Unpickler, args: tuple[Any, ...]) -> ParameterSpec:
    _count(u, "_rebuild_parameter_with_state", args, 4, 4)
    spec = _rebuild_parameter(u, args[:3])
    spec.state = _state(u, args[3])
    return spec


def _new_parameter(u: Unpickler, args: tuple[Any, ...]) -> ParameterSpec:
    _count(u, "a Parameter", args, 1, 2)
    flag = _flag(u, "requires_grad", args[1]) if len(args) == 2 else True
    return ParameterSpec(_parameter_data(u, args[0], flag), flag)


def _state(u: Unpickler, value: Any) -> Any:
    """The attributes of a tensor: a dict, or a pair of dicts (plain and slots), or nothing."""
    if value is None:
        return None
    parts = value if type(value) is tuple else (value,)
    if len(parts) > 2:
        raise u.refuse(f"a tensor's attributes in {len(parts)} parts")
    for part in parts:
        if part is not None:
            check_state(u, part, None)
    return value


def _rebuild_from_type(u: Unpickler, args: tuple[Any, ...]) -> TypedSpec:
    _count(u, "_rebuild_from_type_v2", args, 4, 4)
    func, cls, inner, state = args
    if type(func) is not Global or func.rule not in _TENSOR_RULES:
        raise u.refuse(f"_rebuild_from_type_v2 by {describe(func)}, which rebuilds no tensor")
    if type(inner) is not tuple:
        raise u.refuse(f"_rebuild_from_type_v2 with {describe(inner)} for arguments")
    if type(cls) is not Global or (cls.rule is not None and cls.name not in TENSOR_CLASSES):
        raise u.refuse(f"_rebuild_from_type_v2 of {describe(cls)}, which is no tensor class")
    base = func.rule(u, inner)
    if cls.name not in TENSOR_CLASSES and type(base) not in (TensorSpec, ParameterSpec):
        raise u.refuse(f"_rebuild_from_type_v2 of {cls.name} over {describe(base)}")
    if cls.name == _PARAMETER and type(base) is not ParameterSpec:
        base = ParameterSpec(_parameter_data(u, base, base.requires_grad), base.requires_grad)
    plain = cls.name in TENSOR_CLASSES
    return TypedSpec(None if plain else cls, base, _state(u, state), u.at - u.start)


# -- other layouts -----------------------------------------------------------------------------


def _no_repeats(u: Unpickler, spec: TensorSpec) -> None:
    """Refuse a table with more elements than its storage: all of them will be read."""
    count = math.prod(spec.size)
    if spec.storage is not None and count * formats.DTYPES[spec.dtype][0] > spec.storage.nbytes:
        raise u.refuse(f"a table of {count} indices over a storage of {spec.storage.nbytes} bytes")


def _rebuild_sparse(u: Unpickler, args: tuple[Any, ...]) -> SparseSpec:
    _count(u, "_rebuild_sparse_tensor", args, 2, 2)
    layout, data = args
    if type(layout) is not Constant or layout.name not in formats.SPARSE_LAYOUTS:
        raise u.refuse(f"a sparse tensor with {describe(layout)} for its layout")
    if type(data) is not tuple:
        raise u.refuse(f"a sparse tensor of {describe(data)}")
    coalesced: bool | None = None
    if layout.name == "sparse_coo":
        _count(u, "a COO tensor", data, 3, 4)
        parts, size = data[:2], data[2]
        if len(data) == 4 and data[3] is not None:
            coalesced = _flag(u, "the mark that a COO tensor is coalesced", data[3])
    else:
        _count(u, f"a {layout.name} tensor", data, 4, 4)
        parts, size = data[:3], data[3]
    tensors = tuple(_tensor(u, "a part of a sparse tensor", part) for part in parts)
    for indices in tensors[:-1]:
        if indices.dtype not in ("int64", "int32"):
            raise u.refuse(f"sparse indices of {indices.dtype}; int64 or int32 expected")
        _no_repeats(u, indices)
    return SparseSpec(
        layout.name, tensors, _dims(u, "a sparse tensor's size", size), coalesced, u.at - u.start
    )


def _number(u: Unpickler, what: str, value: Any) -> float | int:
    if type(value) is not float and type(value) is not int:
        raise u.refuse(f"{what} is {describe(value)}, not a number")
    return value


def _rebuild_quantised(u: Unpickler, args: tuple[Any, ...]) -> QuantisedSpec:
    _count(u, "_rebuild_qtensor", args, 7, 7)
    params = args[4]
    _no_hooks(u, args[6])
    if _flag(u, "requires_grad", args[5]):
        raise u.refuse("requires_grad on a quantised tensor")
    data = _strided(u, args, False)
    if data.dtype not in formats.QUANTISED:
        raise u.refuse(f"a quantised tensor over a storage of {data.dtype}")
    if type(params) is not tuple or not params or type(params[0]) is not Constant:
        raise u.refuse(f"{describe(params)} for the parameters of a quantised tensor")
    scheme = params[0].name
    at = u.at - u.start
    if scheme == "per_tensor_affine":
        _count(u, "per_tensor_affine", params, 3, 3)
        scale = _number(u, "a quantised tensor's scale", params[1])
        zero = _number(u, "a quantised tensor's zero point", params[2])
        return QuantisedSpec(data, scheme, scale, zero, None, at)
    if scheme not in ("per_channel_affine", "per_channel_affine_float_qparams"):
        raise u.refuse(f"the quantisation scheme {scheme}")
    _count(u, scheme, params, 4, 4)
    axis = _whole(u, "a quantised tensor's axis", params[3])
    if axis >= len(data.size):
        raise u.refuse(f"a quantised tensor's axis {axis} with size {data.size}")
    for what, value in (("scales", params[1]), ("zero points", params[2])):
        _channel_parameters(u, what, value, data.size[axis])
    return QuantisedSpec(data, scheme, params[1], params[2], axis, at)


def _channel_parameters(u: Unpickler, what: str, value: Any, expected: int) -> None:
    if type(value) is list:
        length = len(value)
        for item in value:
            _number(u, f"one of a quantised tensor's {what}", item)
    else:
        size = _tensor(u, f"the {what} of a quantised tensor", value).size
        length = size[0] if len(size) == 1 else -1
    if length != expected:
        raise u.refuse(f"{length} {what} for {expected} channels of a quantised tensor")


def _rebuild_nested(u: Unpickler, args: tuple[Any, ...]) -> NestedSpec:
    _count(u, "_rebuild_nested_tensor", args, 4, 4)
    parts = tuple(_tensor(u, "a part of a nested tensor", part) for part in args)
    buffer, sizes, strides, offsets = parts
    for part in parts[1:]:
        if part.dtype != "int64":
            raise u.refuse(f"a nested tensor's sizes in {part.dtype}; int64 expected")
        _no_repeats(u, part)
    if (
        len(buffer.size) != 1
        or len(offsets.size) != 1
        or sizes.size != strides.size
        or (sizes.size and sizes.size[0] != offsets.size[0])
        or len(sizes.size) > 2
    ):
        raise u.refuse("a nested tensor whose parts do not fit each other")
    return NestedSpec(parts, u.at - u.start)


def _rebuild_moved(u: Unpickler, args: tuple[Any, ...]) -> MovedSpec:
    _count(u, "_rebuild_device_tensor_from_cpu_tensor", args, 4, 4)
    data = _tensor(u, "a device tensor's data", args[0])
    place = str(args[2]) if type(args[2]) is DeviceSpec else location(u, args[2])
    dtype = _dtype(u, args[1])
    if dtype != data.dtype and not (dtype in _REAL and data.dtype in _REAL):
        raise u.refuse(f"a device tensor of {dtype} by way of {data.dtype}")
    flag = _flag(u, "requires_grad", args[3])
    if flag and dtype not in formats.FLOATING:
        raise u.refuse(f"requires_grad on a tensor of {dtype}; only floating point can")
    return MovedSpec(data, dtype, place, flag, u.at - u.start)


# -- Python values -----------------------------------------------------------------------------


def _get_layout(u: Unpickler, args: tuple[Any, ...]) -> Constant:
    _count(u, "_get_layout", args, 1, 1)
    name = _text(u, "a layout", args[0])
    found = CONSTANTS.get(name)
    if found is None or found.of != "layout":
        raise u.refuse(f"the layout {name[:80]!r} is unknown")
    return found


def _size(u: Unpickler, args: tuple[Any, ...]) -> SizeSpec:
    _count(u, "torch.Size", args, 0, 1)
    return SizeSpec(_dims(u, "a torch.Size", args[0]) if args else ())


def _device(u: Unpickler, args: tuple[Any, ...]) -> DeviceSpec:
    _count(u, "torch.device", args, 1, 2)
    text = _text(u, "a device", args[0])
    if len(args) == 1:
        match = _LOCATION.match(text)
        if match is None:
            raise u.refuse(f"{text[:80]!r} names no device")
        return DeviceSpec(match[1], None if match[2] is None else int(match[2]))
    if _DEVICE_TYPE.match(text) is None:
        raise u.refuse(f"{text[:80]!r} names no type of device")
    return DeviceSpec(
        text, None if args[1] is None else _whole(u, "a device's index", args[1], 99_999)
    )


def _encode(u: Unpickler, args: tuple[Any, ...]) -> bytes:
    _count(u, "_codecs.encode", args, 2, 2)
    text = args[0]
    if type(text) is not str or args[1] != "latin1":
        raise u.refuse("_codecs.encode other than of a string in latin1, which is how bytes are")
    u.charge(len(text))
    try:
        return text.encode("latin1")
    except UnicodeEncodeError:
        raise u.refuse("bytes given as a string with letters beyond latin1") from None


def _bytes(u: Unpickler, args: tuple[Any, ...]) -> bytes:
    _count(u, "bytes", args, 0, 1)
    if args and type(args[0]) is not bytes:
        raise u.refuse(f"bytes made from {describe(args[0])}, not from bytes")
    return args[0] if args else b""


def _bytearray(u: Unpickler, args: tuple[Any, ...]) -> bytearray:
    _count(u, "bytearray", args, 0, 2)
    if not args:
        return bytearray()
    content: Any = args[0]
    if len(args) == 2 and args[1] == "latin-1":  # as Python 2 pickled them
        content = _encode(u, (content, "latin1"))
    if type(content) is not bytes:
        raise u.refuse(f"a bytearray made from {describe(content)}, not from bytes")
    u.charge(len(content))
    return bytearray(content)


def _complex(u: Unpickler, args: tuple[Any, ...]) -> complex:
    _count(u, "complex", args, 2, 2)
    real, imag = (_number(u, "a part of a complex number", part) for part in args)
    try:
        return complex(real, imag)
    except OverflowError:
        raise u.refuse("a part of a complex number is too large") from None


def _holds_description(item: Any) -> bool:
    """Whether a checked key is a description or a tuple with one."""
    if type(item) is tuple:
        return any(_holds_description(part) for part in item)
    return isinstance(item, Spec)


def _set_of(kind: type) -> Rule:
    def rule(u: Unpickler, args: tuple[Any, ...]) -> Any:
        _count(u, kind.__name__, args, 0, 1)
        if not args:
            return kind()
        items = args[0]
        if type(items) is not list and type(items) is not tuple:
            raise u.refuse(f"a {kind.__name__} made from {describe(items)}, not from a list")
        u.charge(96 * len(items))
        owner = object()
        for item in items:
            u.check_key(item, owner)
            if _holds_description(item):
                raise u.refuse(f"{describe(item)} inside a {kind.__name__}, which is for values")
        return kind(items)

    return rule


def _ordered_dict(u: Unpickler, args: tuple[Any, ...]) -> OrderedDict[Any, Any]:
    _count(u, "OrderedDict", args, 0, 1)
    made: OrderedDict[Any, Any] = OrderedDict()
    pairs = args[0] if args else []
    if type(pairs) is not list:
        raise u.refuse(f"an OrderedDict made from {describe(pairs)}, not from a list of pairs")
    u.charge(128 * len(pairs))
    for pair in pairs:
        if type(pair) not in (list, tuple) or len(pair) != 2:
            raise u.refuse("an OrderedDict made from a list of something else than pairs")
        u.check_key(pair[0], made)
        made[pair[0]] = pair[1]
    return made


def _counter(u: Unpickler, args: tuple[Any, ...]) -> Counter[Any]:
    _count(u, "Counter", args, 0, 1)
    made: Counter[Any] = Counter()
    items = args[0] if args else {}
    if type(items) is not dict:
        raise u.refuse(f"a Counter made from {describe(items)}, not from a dict")
    u.charge(128 * len(items))
    for key, value in items.items():
        made[key] = value
    return made


# -- names -------------------------------------------------------------------------------------

_PARAMETER = "torch.nn.parameter.Parameter"

RULES: dict[str, Rule] = {
    "torch._utils._rebuild_tensor": _rebuild_tensor,
    "torch._utils._rebuild_tensor_v2": _rebuild_tensor_v2,
    "torch._utils._rebuild_tensor_v3": _rebuild_tensor_v3,
    "torch._utils._rebuild_meta_tensor_no_storage": _rebuild_meta,
    "torch._utils._rebuild_parameter": _rebuild_parameter,
    "torch._utils._rebuild_parameter_with_state": _rebuild_parameter_with_state,
    "torch._utils._rebuild_sparse_tensor": _rebuild_sparse,
    "torch._utils._rebuild_qtensor": _rebuild_quantised,
    "torch._utils._rebuild_nested_tensor": _rebuild_nested,
    "torch._utils._rebuild_device_tensor_from_cpu_tensor": _rebuild_moved,
    "torch._tensor._rebuild_from_type_v2": _rebuild_from_type,
    "torch.serialization._get_layout": _get_layout,
    "torch.Size": _size,
    "torch.device": _device,
    _PARAMETER: _new_parameter,
    "collections.OrderedDict": _ordered_dict,
    "collections.Counter": _counter,
    "_codecs.encode": _encode,
    "builtins.bytes": _bytes,
    "builtins.bytearray": _bytearray,
    "builtins.complex": _complex,
    "builtins.set": _set_of(set),
    "builtins.frozenset": _set_of(frozenset),
}

_TENSOR_RULES = frozenset(
    RULES[f"torch._utils.{name}"]
    for name in (
        "_rebuild_tensor",
        "_rebuild_tensor_v2",
        "_rebuild_tensor_v3",
        "_rebuild_meta_tensor_no_storage",
        "_rebuild_parameter",
        "_rebuild_sparse_tensor",
        "_rebuild_qtensor",
        "_rebuild_nested_tensor",
        "_rebuild_device_tensor_from_cpu_tensor",
    )
)

# Classes that are values in a file, as the type of a tensor that has attributes.
TENSOR_CLASSES = ("torch.Tensor", "torch._tensor.Tensor", _PARAMETER)


def no_call(u: Unpickler, args: tuple[Any, ...]) -> Any:
    """The rule of classes that a file names, but does not call."""
    raise u.refuse("a call of torch.Tensor, which is a class and no function of the format")


CONSTANTS: dict[str, Constant] = {
    **{f"torch.{name}": Constant("dtype", name) for name in formats.NAMED_DTYPES},
    **{f"torch.{name}": Constant("layout", name) for name in formats.LAYOUTS},
    **{f"torch.{name}": Constant("qscheme", name) for name in formats.QSCHEMES},
}

STORAGES: dict[str, StorageClass] = {
    "torch.storage.UntypedStorage": StorageClass("uint8", 1, False),
    **{
        f"torch.{prefix}{cls}": StorageClass(dtype, formats.DTYPES[dtype][0], True)
        for prefix in ("", "cuda.")
        for cls, dtype in formats.STORAGE_DTYPES.items()
    },
}
