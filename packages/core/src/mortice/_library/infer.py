"""Schemas from Python signatures."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Iterable, Sequence
from typing import Any, Literal, Union

from mortice._base.errors import InvalidValue
from mortice._library import tagged
from mortice._types.device import Device
from mortice._types.dtypes import DType
from mortice._types.promotion import NUMBERS

Number = Union[int, float, bool]  # noqa: UP007  compared with, so spelt as users spell it


class _Unreadable(Exception):
    """An annotation has no schema type; the text says why."""


def _base_types() -> dict[Any, str]:
    from mortice._tensor.tensor import Tensor

    return {
        Tensor: "Tensor",
        int: "SymInt",
        float: "float",
        bool: "bool",
        str: "str",
        DType: "ScalarType",
        Device: "Device",
        Number: "Scalar",
    }


_LIST_ITEMS = ("Tensor", "SymInt", "float", "bool", "Scalar")


def infer_schema(
    prototype_function: Any,
    /,
    *,
    mutates_args: Any,
    op_name: str | None = None,
    tags: Any = (),
) -> str:
    """The schema of a function from its annotations: ``"(Tensor x, SymInt n=1) -> Tensor"``.

    ``mutates_args`` names the tensor arguments that are written to, or is ``"unknown"``. With
    ``Tag.inplace`` or ``Tag.out`` among ``tags``, what is written to is also what is returned.
    InvalidValue says which parameter cannot be read and why.
    """
    signature = inspect.signature(prototype_function)

    def fail(text: str) -> InvalidValue:
        return InvalidValue(f"infer_schema(func): {text} Got func with signature {signature})")

    if isinstance(mutates_args, str) and mutates_args != "unknown":
        raise fail("mutates_args must either be a sequence of the names of the arguments that are "
                   "mutated or the string 'unknown'.")  # fmt: skip
    if not isinstance(mutates_args, str):
        mutates_args = tuple(mutates_args)
    hints = _hints(prototype_function)
    parts: list[str] = []
    seen: set[str] = set()
    star = False
    for index, (name, parameter) in enumerate(signature.parameters.items()):
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise fail("We do not support positional-only args, varargs, or varkwargs.")
        if parameter.kind is parameter.KEYWORD_ONLY and not star:
            parts.append("*")
            star = True
        if parameter.annotation is inspect.Parameter.empty:
            raise fail(f"Parameter {name} must have a type annotation.")
        try:
            kind = _argument_type(hints.get(name, parameter.annotation))
        except _Unreadable as error:
            raise fail(
                f"Parameter {name} has unsupported type {parameter.annotation}. {error}"
            ) from None
        if mutates_args == "unknown":
            mutated = kind.startswith("Tensor")
        else:
            mutated = name in mutates_args
        if mutated:
            if not kind.startswith("Tensor"):
                raise fail(f"Parameter {name} is in mutates_args but only Tensors or collections "
                           "of Tensors can be mutated.")  # fmt: skip
            kind = f"Tensor(a{index}!){kind[len('Tensor') :]}"
        seen.add(name)
        parts.append(f"{kind} {name}{_default(parameter, fail)}")
    if mutates_args != "unknown":
        missing = set(mutates_args) - seen
        if missing:
            raise fail(f"{sorted(missing)} in mutates_args were not found in the custom op's "
                       "signature.")  # fmt: skip
    if signature.return_annotation is inspect.Signature.empty:
        raise fail("No return type annotation was provided. Please add one.")
    try:
        returns = _return_type(hints.get("return", signature.return_annotation))
    except _Unreadable as error:
        raise fail(f"Return has unsupported type {signature.return_annotation}. {error}") from None
    text = f"({', '.join(parts)}) -> {returns}"
    tag = tagged.tag_of(tags)
    return (op_name or "") + (text if tag is None else tagged.with_returns(text, tag))


def _hints(function: Any) -> dict[str, Any]:
    """Annotations evaluated where the function was written: its globals, closure and callers."""
    target = inspect.unwrap(function)
    if not hasattr(target, "__annotations__"):
        target = type(target).__call__ if not inspect.isfunction(target) else target
    names: dict[str, Any] = {}
    frame = inspect.currentframe()
    while frame is not None:  # names imported locally by the function that defines the operator
        if (
            frame.f_code.co_name != "<module>"
            and "/mortice/_library/" not in frame.f_code.co_filename
        ):
            for key, value in frame.f_locals.items():
                names.setdefault(key, value)
        frame = frame.f_back
    code = getattr(target, "__code__", None)
    cells: Any = getattr(target, "__closure__", None)
    if code is not None and cells:
        for key, cell in zip(code.co_freevars, cells):
            try:
                names[key] = cell.cell_contents
            except ValueError:
                continue
    try:
        return typing.get_type_hints(target, localns=names)
    except (NameError, TypeError) as error:
        raise InvalidValue(
            f"infer_schema(func): an annotation cannot be evaluated: {error}. Names in annotations "
            f"must be visible where {getattr(target, '__qualname__', target)} is defined."
        ) from None


def _argument_type(annotation: Any) -> str:
    base = _base_types()
    annotation = _plain(annotation)
    if annotation in base:
        return base[annotation]
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Literal:
        if all(isinstance(a, str) for a in arguments):
            return "str"
        raise _Unreadable("Literal is supported for strings only.")
    if _is_union(origin):
        inner = [a for a in arguments if a is not type(None)]
        if len(inner) == 1 and len(arguments) == 2:
            return _argument_type(inner[0]) + "?"
        if set(inner) <= NUMBERS and len(inner) > 1:
            return "Scalar" + ("?" if type(None) in arguments else "")
        raise _Unreadable("Only Optional[T] unions are supported.")
    if origin in (list, Sequence, typing.Sequence) or annotation is list:
        if len(arguments) != 1:
            raise _Unreadable("Give the type of the elements, such as list[int].")
        item = _argument_type(arguments[0])
        if item.rstrip("?") not in _LIST_ITEMS or (item.endswith("?") and item != "Tensor?"):
            raise _Unreadable(f"Lists of {item} are not supported.")
        return item + "[]"
    if origin is tuple or annotation is tuple:
        raise _Unreadable("Tuple inputs are not supported; use list[...] instead.")
    raise _Unreadable("Supported: Tensor, int, float, bool, str, Number, dtype, device, lists and "
                      "Optional of these.")  # fmt: skip


def _plain(annotation: Any) -> Any:
    if annotation in (Union[int, float], Union[int, float, complex]):  # noqa: UP007
        return Number
    return annotation


def _is_union(origin: Any) -> bool:
    import types

    return origin is Union or origin is getattr(types, "UnionType", ())


def _default(parameter: inspect.Parameter, fail: Any) -> str:
    value = parameter.default
    if value is inspect.Parameter.empty:
        return ""
    if value is None or isinstance(value, (bool, int, float)):
        return f"={value}"
    if isinstance(value, str):
        return f"='{value}'"
    if isinstance(value, DType):
        return f"={value.name}"
    if isinstance(value, Device):
        return f"='{value}'"
    raise fail(
        f"Parameter {parameter.name} has an unsupported default value type {type(value)}. Please "
        "file an issue if you need one."
    )


def _return_type(annotation: Any) -> str:
    from mortice._tensor.tensor import Tensor

    if annotation is None or annotation is type(None):
        return "()"
    single = {Tensor: "Tensor", int: "SymInt", float: "float", bool: "bool", Number: "Scalar"}
    annotation = _plain(annotation)
    if annotation in single:
        return single[annotation]
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is list and arguments == (Tensor,):
        return "Tensor[]"
    if origin is tuple:
        if not arguments or Ellipsis in arguments:
            raise _Unreadable("Tuples must have a fixed number of elements.")
        return f"({', '.join(_return_type(a) for a in arguments)})"
    raise _Unreadable("Supported: Tensor, list[Tensor], int, float, bool, Number, tuples of these, "
                      "None.")  # fmt: skip


def literal_choices(function: Any) -> dict[str, tuple[str, ...]]:
    """Parameters annotated ``Literal["a", "b"]`` and what they may be."""
    found: dict[str, tuple[str, ...]] = {}
    for name, hint in _hints(function).items():
        if typing.get_origin(hint) is Literal:
            found[name] = tuple(typing.get_args(hint))
    return found


__all__ = ["Iterable", "infer_schema", "literal_choices"]
