"""Fitting a Python call to a schema: conversions, defaults, and errors that name the argument."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mortice._base.errors import nearest
from mortice._dispatch.schema import REQUIRED, Argument, FunctionSchema
from mortice._types import dtypes, layout
from mortice._types.device import Device
from mortice._types.promotion import NUMBERS


class Misfit(Exception):
    """A call does not fit a schema; the text says why. Never leaves the dispatcher.

    ``unknown_name`` tells a misspelt keyword from other misfits.
    """

    def __init__(self, text: str, unknown_name: bool = False) -> None:
        super().__init__(text)
        self.unknown_name = unknown_name


#: numpy's spellings, understood for keywords as PyTorch does.
SYNONYMS = {
    "axis": "dim",
    "axes": "dim",
    "keepdims": "keepdim",
    "x": "self",
    "x1": "self",
    "x2": "other",
    "a": "self",
}

#: Operators whose first operand may be a number, too, when called as functions.
NUMBER_FIRST = frozenset(
    (
        "add", "sub", "subtract", "mul", "multiply", "div", "divide", "true_divide", "floor_divide",
        "where",
    )
)  # fmt: skip

_UNSET: Any = object()


def bind(
    schema: FunctionSchema,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    numbers: bool = False,
    first_name: str = "input",
    varargs_from: int = -1,
) -> list[Any]:
    """All arguments in schema order, converted; Misfit if the call does not fit.

    ``numbers``: Python numbers may stand for tensors. ``first_name``: keyword that also means
    ``self``. ``varargs_from``: position whose ``int[]`` may be given as separate integers.
    """
    arguments = schema.arguments
    if varargs_from >= 0 and len(args) > varargs_from:
        args = _gather(arguments, args, varargs_from)
    beyond = _keyword_positions(schema, len(args) - schema.positional, kwargs)
    if len(args) > schema.positional and beyond is None:
        raise Misfit(
            f"{schema.name}() takes {schema.positional} positional argument(s) but "
            f"{len(args)} were given"
        )
    # Before anything is converted: that may read a tensor's value, for a form that is not meant.
    named = _named_positions(schema, kwargs, first_name) if kwargs else {}
    values: list[Any] = [_UNSET] * len(arguments)
    first = numbers and schema.name.rstrip("_") in NUMBER_FIRST
    for i, value in enumerate(args):
        place = beyond[i - schema.positional] if beyond and i >= schema.positional else i
        values[place] = convert(arguments[place], value, i, numbers if i else first)
    for name, position in named.items():
        if values[position] is not _UNSET:
            raise Misfit(f"argument {name!r} is given twice")
        values[position] = convert(arguments[position], kwargs[name], position, numbers)
    for i, argument in enumerate(arguments):
        if values[i] is _UNSET:
            if argument.default is REQUIRED:
                shown = first_name if argument.name == "self" else argument.name
                raise Misfit(f"missing required argument {shown!r} (position {i + 1})")
            values[i] = default_of(argument)
    return values


def _keyword_positions(
    schema: FunctionSchema, count: int, kwargs: Mapping[str, Any]
) -> list[int] | None:
    """Where ``count`` positional values too many go: ``sort(x, 0, stable=True)``.

    PyTorch takes them for the optional keywords in order, once a keyword that is required has
    settled that the form is meant. None if they go nowhere.
    """
    if count <= 0:
        return None
    keywords = schema.arguments[schema.positional :]
    if not any(a.default is REQUIRED and a.name in kwargs for a in keywords):
        return None
    free = [
        i
        for i, a in enumerate(schema.arguments)
        if i >= schema.positional and a.default is not REQUIRED and a.name not in kwargs
    ]
    return free[:count] if len(free) >= count else None


def _named_positions(
    schema: FunctionSchema, kwargs: Mapping[str, Any], first_name: str
) -> dict[str, int]:
    """Where keywords go; Misfit names one that the schema does not have."""
    found: dict[str, int] = {}
    for name in kwargs:
        position = schema.by_name.get(name)
        if position is None:
            synonym = "self" if name == first_name else SYNONYMS.get(name, "")
            position = schema.by_name.get(synonym)
        if position is None:
            shown = [first_name if n == "self" else n for n in schema.by_name]
            raise Misfit(
                f"unexpected keyword argument {name!r}.{nearest(name, shown)} It takes: "
                f"{', '.join(shown)}",
                unknown_name=True,
            )
        found[name] = position
    return found


def _gather(arguments: Sequence[Argument], args: Sequence[Any], start: int) -> Sequence[Any]:
    """``view(2, 3)`` as ``view((2, 3))``; only where the list is the one positional argument left."""
    kind = arguments[start].type
    if not kind.is_list or kind.base not in ("int", "SymInt") or kind.length is not None:
        return args
    if start + 1 < len(arguments) and not arguments[start + 1].kwarg_only:
        return args
    return (*args[:start], tuple(args[start:])) if all(map(is_int, args[start:])) else args


def default_of(argument: Argument) -> Any:
    """A schema default as kernels get it: ``int[2] x=0`` becomes (0, 0)."""
    value = argument.default
    kind = argument.type
    if kind.is_list and value is not None:
        if isinstance(value, list):
            return tuple(value)
        return (value,) * (kind.length or 1)
    return value


def convert(argument: Argument, value: Any, position: int, numbers: bool) -> Any:
    """``value`` as the schema's type wants it; Misfit names the argument and both types."""
    kind = argument.type
    if value is None and kind.is_optional:
        return None
    if kind.is_list:
        converted = _convert_list(argument, value, numbers)
    else:
        converted = _convert_one(kind.base, value, numbers)
    if converted is _UNSET:
        raise Misfit(
            f"argument {'input' if argument.name == 'self' else argument.name!r} "
            f"(position {position + 1}) must be {_say(argument)}, not {_describe(value)}"
            f"{_spelt(kind.base, value)}"
        )
    return converted


def _spelt(base: str, value: Any) -> str:
    """How to write what was meant: a dtype given by its name, an array where a tensor is due."""
    if base == "Tensor" and type(value).__module__ == "numpy" and hasattr(value, "__array__"):
        return ". Convert it with mortice.as_tensor(array)"
    if base != "ScalarType" or type(value) is not str:
        return ""
    names = {**dtypes.ALL, **dict.fromkeys(dtypes.ALIASES)}
    return f". Write mortice.{value}" if value in names else f".{nearest(value, names)}".rstrip(".")


def _convert_one(base: str, value: Any, numbers: bool) -> Any:
    if base == "Tensor":
        if hasattr(value, "_k") or (numbers and type(value) in NUMBERS):
            return value
        if numbers and _is_numpy_number(value):
            return value.item()
        if numbers and getattr(value, "_is_symbolic", False):
            return value
        return _UNSET
    return _CONVERSIONS[base](value) if base in _CONVERSIONS else value


def _convert_list(argument: Argument, value: Any, numbers: bool) -> Any:
    kind = argument.type
    if kind.length is not None and (is_int(value) or type(value) in NUMBERS):
        single = _convert_one(kind.base, value, numbers)
        return _UNSET if single is _UNSET else (single,) * kind.length
    if not isinstance(value, (list, tuple)):
        if not isinstance(value, Sequence) or isinstance(value, (str, bytes)):
            return _UNSET
        value = tuple(value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    optional_items = kind.form[0] == "?"
    items: list[Any] = []
    for item in value:  # pyright: ignore[reportUnknownVariableType]
        if item is None and optional_items:
            items.append(None)
            continue
        converted = _convert_one(kind.base, item, numbers)
        if converted is _UNSET:
            return _UNSET
        items.append(converted)
    return tuple(items)


def is_int(value: Any) -> bool:
    """Whether a value counts as an integer: int, numpy integer, symbolic integer; not bool."""
    kind = type(value)
    if kind is int:
        return True
    if kind is bool or kind is float or kind is str:
        return False
    return getattr(value, "_is_symbolic_int", False) or (
        hasattr(kind, "__index__") and kind is not bool and not hasattr(value, "_k")
    )


def _to_int(value: Any) -> Any:
    if type(value) is int:
        return value
    if getattr(value, "_is_symbolic_int", False):
        return value
    if isinstance(value, bool):
        return int(value)
    if hasattr(value, "_k"):
        if value.ndim == 0 and not value._t.differentiable and value._t.kind != dtypes.BOOL:
            found = value.item()
            return found if getattr(found, "_is_symbolic", False) else int(found)
        return _UNSET
    if isinstance(value, float) or not hasattr(type(value), "__index__"):
        return _UNSET
    return int(value.__index__())


def _to_float(value: Any) -> Any:
    if type(value) is float:
        return value
    if isinstance(value, (int, float)):
        return float(value)
    if getattr(value, "_is_symbolic", False):
        return value.as_float()
    if hasattr(value, "_k") and value.ndim == 0:
        return float(value.item())
    if _is_numpy_number(value):
        return float(value)
    return _UNSET


def _to_bool(value: Any) -> Any:
    if isinstance(value, bool):
        return value
    if getattr(value, "_number_type", None) is bool:
        return bool(value)
    if type(value).__name__ in ("bool_", "bool"):  # numpy's
        return bool(value)
    if hasattr(value, "_k") and value.ndim == 0:
        return bool(value.item())
    return _UNSET


def _to_scalar(value: Any) -> Any:
    if type(value) in NUMBERS:
        return value
    if isinstance(value, (int, float, complex)):
        return value
    if hasattr(value, "_k") and value.ndim == 0:
        return value.item()
    if _is_numpy_number(value):
        return value.item()
    if getattr(value, "_is_symbolic", False):
        return value
    return _UNSET


def _is_numpy_number(value: Any) -> bool:
    return type(value).__module__ == "numpy" and hasattr(value, "item") and value.ndim == 0


_PYTHON_TYPES = {float: "float32", int: "int64", bool: "bool", complex: "complex64"}


def _to_dtype(value: Any) -> Any:
    if value.__class__ is dtypes.DType:
        return value
    if value is float:
        return dtypes.default.dtype
    return dtypes.ALL[_PYTHON_TYPES[value]] if value in _PYTHON_TYPES else _UNSET


def _to_device(value: Any) -> Any:
    if value.__class__ is Device:
        return value
    return Device(value) if isinstance(value, (str, int)) else _UNSET


def _instance(cls: Any) -> Callable[[Any], Any]:
    return lambda value: value if isinstance(value, cls) else _UNSET


_CONVERSIONS: dict[str, Callable[[Any], Any]] = {
    "int": _to_int,
    "SymInt": _to_int,
    "float": _to_float,
    "SymFloat": _to_float,
    "bool": _to_bool,
    "SymBool": _to_bool,
    "Scalar": _to_scalar,
    "number": _to_scalar,
    "str": _instance(str),
    "ScalarType": _to_dtype,
    "Device": _to_device,
    "Layout": _instance(layout.Layout),
    "MemoryFormat": _instance(layout.MemoryFormat),
}

_NAMES = {
    "Tensor": "Tensor",
    "Scalar": "Number",
    "SymInt": "int",
    "ScalarType": "mortice.dtype",
    "Device": "mortice.device",
    "Layout": "mortice.layout",
    "MemoryFormat": "mortice.memory_format",
}


def _say(argument: Argument) -> str:
    kind = argument.type
    base = _NAMES.get(kind.base, kind.base)
    if kind.is_list:
        base = f"tuple of {base}s" if kind.length is None else f"{base} or tuple of {base}s"
    return f"{base} or None" if kind.is_optional else base


def _describe(value: Any) -> str:
    if isinstance(value, (list, tuple)) and value:
        inner = {type(x).__name__ for x in value}  # pyright: ignore[reportUnknownVariableType]
        return f"{type(value).__name__} of ({', '.join(sorted(inner))})"  # pyright: ignore[reportUnknownArgumentType]
    return type(value).__name__
