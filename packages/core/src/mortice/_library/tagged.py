"""Operators that are tagged ``inplace`` or ``out``: their returns, checks and fakes follow.

An operator with ``Tag.inplace`` writes to its first argument and returns it; one with ``Tag.out`` writes
to tensors given by keyword and returns them, in order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mortice._autograd.grad_mode import is_grad_enabled
from mortice._base.errors import AutogradError, InvalidValue, SchemaMismatch
from mortice._dispatch.operator import Operator
from mortice._dispatch.schema import FunctionSchema, Type, parse
from mortice._library.tags import Tag


def tag_of(tags: Any) -> Tag | None:
    """``Tag.inplace`` or ``Tag.out`` if it is among ``tags``; InvalidValue if both are."""
    given = (tags,) if isinstance(tags, str) else tuple(tags)
    found = [tag for tag in (Tag.inplace, Tag.out) if tag in given]
    if len(found) > 1:
        raise InvalidValue("Tag.inplace and Tag.out are mutually exclusive; give one of them.")
    return found[0] if found else None


def with_returns(text: str, tag: Tag) -> str:
    """A schema without alias marks on its returns, such as infer_schema makes, with those of the tag."""
    schema = parse(f"op{text}")
    wrong = _WRITES[tag](schema) or _wrong_returns(text, schema, tag)
    if wrong:
        raise InvalidValue(f"infer_schema(func): mortice.{tag} {wrong}. Got {text}")
    marked = [f"Tensor({schema.arguments[i].type.alias})" for i in schema.mutated]
    returns = marked[0] if len(marked) == 1 else f"({', '.join(marked)})"
    return f"{text.rpartition(' -> ')[0]} -> {returns}"


def check_schema(schema: FunctionSchema, tag: Tag) -> None:
    """InvalidValue if a schema does not do what the tag says."""
    wrong = _WRITES[tag](schema)
    declared = [r.type.alias for r in schema.returns]
    written = [schema.arguments[i].type.alias for i in schema.mutated]
    if not wrong and declared != written:
        wrong = "return must alias what is written to, in order: " + ", ".join(
            f"Tensor({alias})" for alias in written
        )
    if wrong:
        raise InvalidValue(f"A schema tagged with mortice.{tag}: {wrong}. Got: {schema}")


def _wrong_inplace(schema: FunctionSchema) -> str:
    if not schema.positional:
        return "needs a positional Tensor argument, the one that is written to"
    if not _is_tensor(schema.arguments[0].type):
        return "needs a Tensor as its first positional argument"
    if schema.mutated != (0,):
        return (
            "needs mutates_args to name its first argument and no other "
            f"({schema.arguments[0].name!r})"
        )
    return ""


def _wrong_out(schema: FunctionSchema) -> str:
    written = [schema.arguments[i] for i in schema.mutated]
    if not written:
        return "needs at least one keyword-only Tensor argument that is written to"
    if not all(a.kwarg_only for a in written):
        return "needs the arguments that are written to to be keyword-only"
    if not all(_is_tensor(a.type) for a in written):
        return "only supports Tensor arguments that are written to"
    return ""


_WRITES: dict[Tag, Callable[[FunctionSchema], str]] = {
    Tag.inplace: _wrong_inplace,
    Tag.out: _wrong_out,
}


def _is_tensor(kind: Type) -> bool:
    return kind.is_tensor and not kind.form


def _wrong_returns(text: str, schema: FunctionSchema, tag: Tag) -> str:
    n = len(schema.mutated)
    wanted = "Tensor" if n == 1 else f"({', '.join(['Tensor'] * n)})"
    if text.endswith(f" -> {wanted}"):
        return ""
    return f"needs the return annotation to be what is written to: {wanted}"


# -- kernels ---------------------------------------------------------------------------------------


def checked(op: Operator, tag: Tag, function: Callable[..., Any]) -> Callable[..., Any]:
    """``function``, which must return the very tensors that it was given to write to."""
    names = [op.schema.arguments[i].name for i in op.schema.mutated]
    at = op.schema.mutated[0]

    def inplace(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if result is not args[at]:
            raise SchemaMismatch(
                f"{op.qualified}: an operator tagged with mortice.{tag} must return its first argument, "
                f"{names[0]!r} itself. Its kernel returned another {type(result).__name__}."
            )
        return result

    def out(*args: Any, **kwargs: Any) -> Any:
        if is_grad_enabled():
            refuse_gradients(op, (*args, *kwargs.values()))
        result = function(*args, **kwargs)
        found = result if isinstance(result, (tuple, list)) else (result,)
        wanted = [kwargs[name] for name in names]
        if len(found) != len(wanted) or any(a is not b for a, b in zip(found, wanted)):  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
            raise SchemaMismatch(
                f"{op.qualified}: an operator tagged with mortice.{tag} must return its mutable "
                f"keyword-only arguments themselves, in order: {', '.join(names)}."
            )
        return result

    return inplace if tag is Tag.inplace else out


def fake(op: Operator) -> Callable[..., Any]:
    """On tensors without data: what is written to is returned."""
    schema = op.schema

    def returned(*args: Any, **kwargs: Any) -> Any:
        found = [
            args[i] if i < len(args) else kwargs[schema.arguments[i].name] for i in schema.mutated
        ]
        return found[0] if len(found) == 1 else tuple(found)

    return returned


def refuse_gradients(op: Operator, values: Any) -> None:
    """AutogradError where an ``out=`` operator is given tensors that require gradients."""
    if any(getattr(v, "requires_grad", False) for v in values):
        raise AutogradError(
            f"{op.qualified}: functions with out=... arguments don't support automatic "
            "differentiation, but one of the arguments requires grad. Detach it, or call within "
            "mortice.no_grad()."
        )
