"""``opcheck``: does an operator do what its schema, its fake and its gradient promise?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import mortice
from mortice import Tensor
from mortice.errors import InvalidValue, nearest
from mortice_testing._comparison import assert_close


class OpCheckError(AssertionError):
    """An operator breaks a promise; the message says which and what to change."""


def opcheck(
    op: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    test_utils: str | Sequence[str] = (),
    raise_exception: bool = True,
) -> dict[str, str]:
    """Check an operator on one set of arguments.

    ``op`` is an overload (``mortice.ops.ns.name.default``), a packet with one overload, or what
    ``mortice.library.custom_op`` returns. The checks, all of them unless ``test_utils`` names some:

    - ``test_schema``: arguments without ``!`` in the schema keep their values, and no output shares
      memory with an input unless the schema says so;
    - ``test_autograd_registration``: outputs for inputs that require grad require it too;
    - ``test_faketensor``: on device ``meta`` the sizes and dtypes are those of the real outputs.

    Returns the result of each check, ``"SUCCESS"`` or the exception's text. Raises the first
    failure, an OpCheckError if a promise was broken, if ``raise_exception``.
    """
    names = (test_utils,) if isinstance(test_utils, str) else tuple(test_utils) or tuple(_CHECKS)
    results: dict[str, str] = {}
    for name in names:
        if name not in _CHECKS:
            raise InvalidValue(f"opcheck has no check {name!r}.{nearest(name, _CHECKS)}")
        try:
            _CHECKS[name](_overload(op), tuple(args), dict(kwargs or {}))
        except Exception as error:
            if raise_exception:
                raise
            results[name] = f"{type(error).__name__}: {error}"
        else:
            results[name] = "SUCCESS"
    return results


def _overload(op: Any) -> Any:
    found = getattr(op, "_opoverload", op)
    if not hasattr(found, "_schema"):
        names = list(found.overloads()) if hasattr(found, "overloads") else []
        if len(names) != 1:
            raise InvalidValue(
                f"opcheck needs one overload, found {op!r} with {names or 'none'}. Name one, such as "
                "mortice.ops.ns.name.default."
            )
        found = getattr(found, names[0])
    return found


# -- the checks ----------------------------------------------------------------------------------


def _check_schema(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    args, kwargs = _mapped(_copy, args), _mapped(_copy, kwargs)
    given = list(_given(op, args, kwargs))
    before = [(argument, t, t.detach().clone()) for argument, t in given]
    outputs = list(_tensors(op(*args, **kwargs)))
    for argument, t, was in before:
        if not argument.type.is_mutable and not _same(t, was):
            raise OpCheckError(
                f"{op}: argument {argument.name!r} was written to, but its schema says "
                f"{argument.type}. Write to a copy, or declare Tensor(a!) {argument.name} "
                "(mutates_args of custom_op)."
            )
        if not argument.type.alias and any(_shares(t, r) for r in outputs):
            raise OpCheckError(
                f"{op}: an output shares memory with argument {argument.name!r}, which its schema "
                f"does not say. Return a copy: {argument.name}.clone()."
            )


def _check_gradient(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if any(a.type.is_mutable for a in op._schema.arguments):
        return  # a leaf that requires grad may not be written to
    args, kwargs = _mapped(_leaf, args), _mapped(_leaf, kwargs)
    if not any(t.requires_grad for _, t in _given(op, args, kwargs)):
        return
    outputs = [r for r in _tensors(op(*args, **kwargs)) if _differentiable(r)]
    if outputs and not any(r.requires_grad for r in outputs):
        raise OpCheckError(
            f"{op}: no output requires grad although an input does, so that gradients would be lost "
            "without a word. Register a gradient (register_autograd), or write the operator with "
            "public operators."
        )


def _check_fake(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    real = list(_tensors(op(*_mapped(_copy, args), **_mapped(_copy, kwargs))))
    fake = list(_tensors(op(*_mapped(_meta, args), **_mapped(_meta, kwargs))))
    if len(real) != len(fake):
        raise OpCheckError(f"{op}: {len(real)} outputs, but {len(fake)} on device meta.")
    for i, (r, f) in enumerate(zip(real, fake)):
        if (tuple(r.shape), r.dtype) != (tuple(f.shape), f.dtype):
            raise OpCheckError(
                f"{op}: output {i} is {r.dtype!r} of shape {tuple(r.shape)}, but on device meta "
                f"{f.dtype!r} of shape {tuple(f.shape)}. Correct its fake (register_fake)."
            )


_CHECKS: dict[str, Callable[[Any, tuple[Any, ...], dict[str, Any]], None]] = {
    "test_schema": _check_schema,
    "test_autograd_registration": _check_gradient,
    "test_faketensor": _check_fake,
}


# -- tensors in arguments and results ------------------------------------------------------------


def _given(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[Any, Tensor]]:
    """(the schema's argument, tensor) for every tensor that is passed."""
    arguments = op._schema.arguments
    for argument, value in zip(arguments, args):
        yield from ((argument, t) for t in _tensors(value))
    for argument in arguments[len(args) :]:
        yield from ((argument, t) for t in _tensors(kwargs.get(argument.name)))


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)


def _mapped(function: Callable[[Tensor], Tensor], value: Any) -> Any:
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, dict):
        return {key: _mapped(function, item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_mapped(function, item) for item in value)
    return value


def _copy(t: Tensor) -> Tensor:
    return t.detach().clone()


def _meta(t: Tensor) -> Tensor:
    return t.detach().to("meta")


def _differentiable(t: Tensor) -> bool:
    return t.is_floating_point() or t.is_complex()


def _leaf(t: Tensor) -> Tensor:
    return _copy(t).requires_grad_(_differentiable(t))


def _shares(a: Tensor, b: Tensor) -> bool:
    at = a.untyped_storage().data_ptr()
    return bool(at) and at == b.untyped_storage().data_ptr()


def _same(a: Tensor, b: Tensor) -> bool:
    with mortice.no_grad():
        try:
            assert_close(a, b, rtol=0, atol=0, equal_nan=True)
        except AssertionError:
            return False
    return True
