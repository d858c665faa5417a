"""Gradients of operators from outside core: ``register_autograd``."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Sequence
from typing import Any, cast

from mortice._autograd.function import FunctionCtx, saved, zeros
from mortice._autograd.grad_mode import no_grad
from mortice._autograd.node import Info, Node, attach_many, attach_single
from mortice._base.errors import AutogradError, RegistrationError
from mortice._dispatch.bind import default_of
from mortice._dispatch.operator import Kernel, Operator
from mortice._library.registration import Library, get_operator, kept_library
from mortice._library.tags import Tag


def register_autograd(
    op: Any,
    backward: Any,
    /,
    *,
    setup_context: Any = None,
    lib: Library | None = None,
) -> None:
    """Give an operator a gradient: ``backward(ctx, *grads)``, one result for each input.

    ``setup_context(ctx, inputs, output)`` saves what backward needs. ``backward=None`` declares the
    operator non-differentiable. Only for operators that write to none of their arguments.
    """
    operator = get_operator(op, "register_autograd")
    _check_functional(operator)
    if setup_context is not None:
        _check_setup(operator, setup_context)
    if backward is not None and not callable(backward):
        raise TypeError(
            f"register_autograd: backward must be callable, not {type(backward).__name__}"
        )
    factory = _factory(backward, setup_context)
    operator.register("Derivative", factory)
    library = lib or kept_library(operator.schema.namespace, "FRAGMENT")
    library._undo.append(lambda: operator.unregister("Derivative", factory))  # pyright: ignore[reportPrivateUsage]


def _check_functional(op: Operator) -> None:
    schema = op.schema
    if Tag.out in op.row.tags:
        raise RegistrationError(
            f"register_autograd: {op.qualified} is tagged with Tag.out. Out variants do not support "
            "autograd; register the formula of the operator that returns new tensors."
        )
    if schema.mutated or not schema.returns:
        raise RegistrationError(
            f"Cannot register autograd formula for non-functional operator {op.qualified} with schema "
            f"{schema}. Please create a functional operator and register an autograd formula for that."
        )
    if any(a.kwarg_only and a.type.is_tensor for a in schema.arguments):
        raise NotImplementedError(
            f"register_autograd with kwarg-only Tensor args: in the original definition of {op.qualified} "
            f"the schema is {schema}. Please make them positional."
        )


def _check_setup(op: Operator, setup_context: Any) -> None:
    wanted = ["ctx", "inputs", "output"]
    if any(a.kwarg_only for a in op.schema.arguments):
        wanted.append("keyword_only_inputs")
    try:
        signature = inspect.signature(setup_context)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(**dict.fromkeys(wanted))
    except TypeError as error:
        raise RegistrationError(
            f"setup_context of {op.qualified} is called with the keywords {', '.join(wanted)}, which "
            f"its signature {signature} does not take: {error}. Name its parameters so."
        ) from None


def _factory(backward: Any, setup_context: Any) -> Any:
    """What the dispatcher binds to the next kernel: ``factory(next, op) -> kernel``."""

    def factory(nxt: Kernel, op: Operator) -> Kernel:
        if backward is None:
            return nxt
        return _recording(nxt, op, backward, setup_context)

    return factory


class _CustomNode(Node):
    """A node of a custom operator; ``ctx`` is what its functions are given."""

    __slots__ = ("__dict__", "ctx", "structure")


def _recording(nxt: Kernel, op: Operator, backward: Any, setup_context: Any) -> Kernel:
    schema = op.schema
    positional = schema.positional
    keyword_names = tuple(a.name for a in schema.arguments[positional:])
    info = Info(f"{schema.namespace}_{schema.name}_{schema.overload or 'default'}Backward",
                _run_backward, (op, backward))  # fmt: skip

    defaults = _trailing_defaults(op)

    def recorded(*values: Any) -> Any:
        with no_grad():  # as a Function's forward, so that x.numpy() is allowed
            result = nxt(*values)
        node = _CustomNode()
        node.info = info
        node.ctx = ctx = FunctionCtx()
        edges: list[Any] = []
        structure: list[int] = []
        for value in values[: _given(values, positional, defaults)]:
            if isinstance(value, (list, tuple)) and any(hasattr(x, "_k") for x in value):
                edges += [getattr(x, "_g", None) for x in value]
                structure.append(len(value))
            else:
                edges.append(getattr(value, "_g", None))
                structure.append(-1)
        node.edges = tuple(edges)
        node.structure = tuple(structure)
        ctx.needs_input_grad = _needs(edges, structure)
        single = len(schema.returns) == 1 and not schema.returns[0].type.is_list
        if single:
            if not result._t.differentiable:
                return result
            node.saved = ()
            attach_single(node, result)
        else:
            node.saved = ()
            attach_many(node, [x if hasattr(x, "_k") else None for x in result])
        if setup_context is not None:
            given: dict[str, Any] = {
                "ctx": ctx,
                "inputs": tuple(values[:positional]),
                "output": result,
            }
            if keyword_names:
                given["keyword_only_inputs"] = dict(zip(keyword_names, values[positional:]))
            with no_grad():
                setup_context(**given)
        outputs = [result] if single else list(result)
        ctx._outputs = [_zero_spec(x) for x in outputs]
        ctx._node = weakref.ref(node)
        node.saved = tuple(saved(x, cast("Any", node)) for x in ctx._to_save)
        return result

    return recorded


def _trailing_defaults(op: Operator) -> tuple[Any, ...]:
    """Defaults of the positional arguments, the last one first, up to one that has none."""
    found: list[Any] = []
    for argument in reversed(op.schema.arguments[: op.schema.positional]):
        if not argument.has_default:
            break
        found.append(default_of(argument))
    return tuple(found)


def _given(values: Sequence[Any], count: int, defaults: tuple[Any, ...]) -> int:
    """How many positional arguments there are, trailing ones left away that are their defaults."""
    for default in defaults:
        value = values[count - 1]
        if hasattr(value, "_k") or value != default:
            break
        count -= 1
    return count


def _zero_spec(x: Any) -> Any:
    return (tuple(x._a.shape), x._t, x.device) if hasattr(x, "_k") else None


def _needs(edges: Sequence[Any], structure: Sequence[int]) -> tuple[Any, ...]:
    out: list[Any] = []
    at = 0
    for n in structure:
        if n < 0:
            out.append(edges[at] is not None)
            at += 1
        else:
            out.append([e is not None for e in edges[at : at + n]])
            at += n
    return tuple(out)


def _run_backward(node: Any, grads: Any) -> Any:
    op, backward = node.info.op
    schema = op.schema
    given = list(grads)
    if node.ctx._materialize:
        given = [zeros(spec) if g is None else g for g, spec in zip(given, node.ctx._outputs)]
    if len(schema.returns) == 1 and schema.returns[0].type.is_list:
        given = [given]
    found = backward(node.ctx, *given)
    if not isinstance(found, tuple):
        found = (found,)
    n, all_inputs = len(node.structure), schema.positional
    if len(found) == all_inputs:
        _refuse_gradients(op, found[n:])
        found = found[:n]
    if len(found) != n:
        wanted = f"{n}" if n == all_inputs else f"{n} or {all_inputs}"
        raise AutogradError(
            f"{op.qualified}: backward returned an incorrect number of gradients (expected {wanted}, "
            f"got {len(found)}): it returns one for each input, None for those without; trailing inputs "
            "that had their defaults may be left away."
        )
    out: list[Any] = []
    for i, (value, count) in enumerate(zip(found, node.structure)):
        if count < 0:
            out.append(_checked(op, i, value))
            continue
        items = (
            [None] * count
            if value is None
            else list(value)
            if isinstance(value, (list, tuple))
            else []
        )
        if len(items) != count:
            raise AutogradError(
                f"{op.qualified}: Expected the return from backward to be of the same structure as the "
                f"inputs: argument {i} is a list of {count} tensors."
            )
        out += [_checked(op, i, x) for x in items]
    return out


def _refuse_gradients(op: Operator, values: Sequence[Any]) -> None:
    """Inputs that were not given have no gradient."""
    if any(v is not None for v in values):
        raise AutogradError(
            f"{op.qualified}: backward returned a gradient for an input that was left at its default; "
            "return None for it."
        )


def _checked(op: Operator, position: int, value: Any) -> Any:
    if value is not None and not hasattr(value, "_k"):
        raise AutogradError(
            f"{op.qualified}: backward returned a {type(value).__name__} as the gradient for argument "
            f"{position}; expected a Tensor or None."
        )
    return value
