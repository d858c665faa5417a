"""``opcheck``: an operator does what it declares: schema, gradient registration, fake, compiled."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import mortice
from mortice.errors import (
    ArgumentError,
    AutogradError,
    InvalidValue,
    MorticeError,
    SchemaMismatch,
    nearest,
)
from mortice_testing._host import is_tensor, to_numpy


class OpCheckError(MorticeError, AssertionError):
    """An operator does not do what it declares; the message names the test and the argument."""


def opcheck(
    op: Any,
    args: Sequence[Any],
    kwargs: dict[str, Any] | None = None,
    *,
    test_utils: str | Sequence[str] = (
        "test_schema",
        "test_autograd_registration",
        "test_faketensor",
        "test_aot_dispatch_dynamic",
    ),
    raise_exception: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
) -> dict[str, Any]:
    """Check an operator on sample arguments.

    - ``test_schema``: it writes to no argument that its schema does not mark as written to, and
      returns no tensor that shares memory with an argument without saying so.
    - ``test_autograd_registration``: if an argument requires grad, the results have a derivative.
    - ``test_faketensor``: on tensors without data it gives the same shapes, dtypes and strides, with
      the sizes at hand and with symbols in their place.
    - ``test_aot_dispatch_dynamic``: compiled with backend ``aot_eager`` and symbolic sizes it gives
      the same results, writes and gradients.
    - ``test_aot_dispatch_static``, only if asked for: the same with the sizes at hand.

    Args:
        op: A ``custom_op``, an overload of ``mortice.ops``, or a packet with one overload.
        args: Positional arguments; they are not changed.
        kwargs: Keyword arguments.
        test_utils: Names of the tests to run, or one of them, or "ALL".
        raise_exception: Whether to raise at the first test that fails.
        rtol: How far compiled results may be from the operator's own, relative to them.
        atol: The same, absolute; both are given or none.

    Returns:
        For each test "SUCCESS", or the exception if ``raise_exception`` is False.

    Raises:
        OpCheckError: A test fails.
        InvalidValue: (a ValueError) ``op`` is no operator, a test is not known, or one of ``rtol``
            and ``atol`` is given without the other.
    """
    if (rtol is None) != (atol is None):
        raise InvalidValue("opcheck: give both rtol and atol, or none of them")
    overload = _overload_of(op)
    names = [test_utils] if isinstance(test_utils, str) else list(test_utils)
    names = list(_TESTS) if names == ["ALL"] else names
    tolerances = _TOLERANCES if rtol is None or atol is None else (rtol, atol)
    for name in names:
        if name not in _TESTS:
            raise InvalidValue(
                f"opcheck: there is no test {name!r}.{nearest(name, _TESTS)} There are: "
                f"{', '.join(_TESTS)}"
            )
    results: dict[str, Any] = {}
    for name in names:
        try:
            _TESTS[name](overload, tuple(args), dict(kwargs or {}), tolerances)
            results[name] = "SUCCESS"
        except Exception as error:
            if raise_exception:
                text = f"opcheck({overload}, ...): {name} failed: {error}"
                raise OpCheckError(text) from error
            results[name] = error
    return results


def _overload_of(op: Any) -> Any:
    """The one overload that ``op`` stands for."""
    found = getattr(op, "_opoverload", op)
    if isinstance(found, mortice.ops.OpOverloadPacket):
        names = found.overloads()
        if len(names) != 1:
            raise InvalidValue(
                f"opcheck: {found} has several overloads; give one of "
                f"{', '.join(f'{found}.{name}' for name in names)}"
            )
        found = getattr(found, names[0])
    if not isinstance(found, mortice.ops.OpOverload):
        raise InvalidValue(
            f"opcheck: expected a custom_op or an operator of mortice.ops, found "
            f"{type(op).__name__}"
        )
    return found


# -- arguments ---------------------------------------------------------------------------------


def _map(value: Any, change: Callable[[Any], Any]) -> Any:
    """``change`` applied to the tensors of an argument."""
    if is_tensor(value):
        return change(value)
    if isinstance(value, (list, tuple)):
        return type(value)(_map(item, change) for item in value)
    return value


def _tensors(value: Any) -> Iterator[Any]:
    if is_tensor(value):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)


def _copy(tensor: Any) -> Any:
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)


def _bound(overload: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[Any, Any]]:
    """(declared argument, given value) for all that were given."""
    declared = overload._schema.arguments
    if len(args) > len(declared):
        raise ArgumentError(f"{overload} takes {len(declared)} arguments, {len(args)} were given")
    pairs = list(zip(declared, args, strict=False))
    pairs += [(a, kwargs[a.name]) for a in declared[len(args) :] if a.name in kwargs]
    return pairs


# -- tests -------------------------------------------------------------------------------------


#: Relative and absolute.
_TOLERANCES = (1e-5, 1e-6)
_Tolerances = tuple[float, float]


def _test_schema(
    overload: Any, args: tuple[Any, ...], kwargs: dict[str, Any], tolerances: _Tolerances
) -> None:
    args = tuple(_map(value, _copy) for value in args)
    kwargs = {name: _map(value, _copy) for name, value in kwargs.items()}
    given = _bound(overload, args, kwargs)
    before = [[to_numpy(t) for t in _tensors(value)] for _, value in given]
    with mortice.no_grad():
        results = overload(*args, **kwargs)
    for (argument, value), old in zip(given, before, strict=True):
        if argument.type.is_mutable:
            continue
        for tensor, was in zip(_tensors(value), old, strict=True):
            if not np.array_equal(to_numpy(tensor), was, equal_nan=was.dtype.kind in "fc"):
                raise SchemaMismatch(
                    f"argument {argument.name!r} was changed but its schema does not say so; "
                    f"declare it as Tensor(a!), or work on a clone. The schema is "
                    f"{overload._schema}"
                )
    _check_aliases(overload, given, results)


def _check_aliases(overload: Any, given: list[tuple[Any, Any]], results: Any) -> None:
    returns = overload._schema.returns
    listed = results if isinstance(results, tuple) and len(returns) > 1 else (results,)
    for number, result in enumerate(listed):
        declared = returns[number].type.alias if number < len(returns) else ""
        for out in _tensors(result):
            for argument, value in given:
                shares = any(_same_memory(out, tensor) for tensor in _tensors(value))
                if shares and not (declared and argument.type.alias):
                    raise SchemaMismatch(
                        f"result {number} shares memory with argument {argument.name!r} but the "
                        f"schema does not say so; return a clone. The schema is {overload._schema}"
                    )


def _same_memory(a: Any, b: Any) -> bool:
    if a.device != b.device or not a.numel() or not b.numel():
        return False
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


def _test_autograd(
    overload: Any, args: tuple[Any, ...], kwargs: dict[str, Any], tolerances: _Tolerances
) -> None:
    leaves = [t for value in (*args, *kwargs.values()) for t in _tensors(value) if t.requires_grad]
    if not leaves or any(a.type.is_mutable for a in overload._schema.arguments):
        return
    copies = {id(t): _copy(t) for t in leaves}

    def renewed(tensor: Any) -> Any:
        return copies.get(id(tensor), tensor)

    results = overload(
        *(_map(value, renewed) for value in args),
        **{name: _map(value, renewed) for name, value in kwargs.items()},
    )
    outputs = [t for t in _tensors(results) if t.requires_grad]
    if not outputs:
        if any(t.dtype.is_floating_point or t.dtype.is_complex for t in _tensors(results)):
            raise OpCheckError(
                "an argument requires grad but no result does; register a derivative with "
                "mortice.library.register_autograd"
            )
        return
    ones = [mortice.ones_like(t) for t in outputs]
    try:
        mortice.autograd.grad(outputs, list(copies.values()), ones, allow_unused=True)
    except AutogradError as error:
        raise OpCheckError(f"it does not have a working autograd kernel: {error}") from error


def _test_fake(
    overload: Any, args: tuple[Any, ...], kwargs: dict[str, Any], tolerances: _Tolerances
) -> None:
    real = overload(
        *(_map(value, _copy) for value in args),
        **{name: _map(value, _copy) for name, value in kwargs.items()},
    )
    for symbolic in (False, True):
        _compare_fake(overload, args, kwargs, list(_tensors(real)), symbolic=symbolic)


def _compare_fake(
    overload: Any, args: tuple[Any, ...], kwargs: dict[str, Any], real: list[Any], *, symbolic: bool
) -> None:
    """The fake against the real results, with the sizes at hand or with symbols in their place."""
    env = mortice.fake.ShapeEnv()
    mode = mortice.fake.FakeTensorMode(env)

    def fake(tensor: Any) -> Any:
        return mode.from_tensor(tensor, range(tensor.ndim) if symbolic else ())

    with mode:
        found = overload(
            *(_map(value, fake) for value in args),
            **{name: _map(value, fake) for name, value in kwargs.items()},
        )
    with_what = "with symbolic sizes " if symbolic else ""
    ours = list(_tensors(found))
    if len(ours) != len(real):
        raise OpCheckError(
            f"{with_what}the fake gives {len(ours)} tensors, the operator {len(real)}"
        )
    for number, (a, b) in enumerate(zip(ours, real, strict=True)):
        for what, read in _METADATA.items():
            if not _agrees(read(a), read(b)):
                raise OpCheckError(
                    f"result {number}: {with_what}the fake says {what} {read(a)}, the operator gives "
                    f"{read(b)}"
                )


def _agrees(ours: Any, theirs: Any) -> bool:
    """Whether metadata of a fake are the real ones; sizes that depend on values may be."""
    if isinstance(theirs, tuple):
        return len(ours) == len(theirs) and all(map(_agrees, ours, theirs))
    if not isinstance(ours, mortice.fake.SymInt):
        return bool(ours == theirs)
    if ours.hint is not None:
        return bool(ours.hint == theirs)
    low, high = ours.env.range_of(ours.expr)
    return low <= theirs <= high


def _test_aot(
    overload: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    tolerances: _Tolerances,
    *,
    dynamic: bool = True,
) -> None:
    def call(*a: Any, **k: Any) -> Any:
        return overload(*a, **k)

    def close(a: Any, b: Any) -> bool:
        return _is_close(a, b, *tolerances)

    compiled = mortice.compile(call, backend="aot_eager", dynamic=dynamic)
    wanted = _seen(overload, args, kwargs)
    for attempt in ("the first call", "a later call"):
        got = _seen(compiled, args, kwargs)
        for what, theirs in wanted.items():
            ours = got[what]
            if len(ours) != len(theirs) or not all(map(close, ours, theirs)):
                raise OpCheckError(
                    f"compiled with aot_eager, {attempt} gives other {what}: {ours}, and the "
                    f"operator gives {theirs}. If its fake and its derivative are right, it may "
                    "depend on something that is no argument."
                )


def _seen(call: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, list[Any]]:
    """Results, arguments afterwards, and gradients, as numpy arrays (None for no gradient)."""
    mortice.manual_seed(0)
    args = tuple(_map(value, _copy) for value in args)
    kwargs = {name: _map(value, _copy) for name, value in kwargs.items()}
    given = [t for value in (*args, *kwargs.values()) for t in _tensors(value)]
    leaves = [t for t in given if t.requires_grad]
    with mortice.set_grad_enabled(bool(leaves)):
        # In-place operators may not write to leaves.
        inputs = {id(t): t.clone() if t.requires_grad else t for t in given}
        results = call(
            *(_map(value, lambda t: inputs[id(t)]) for value in args),
            **{name: _map(value, lambda t: inputs[id(t)]) for name, value in kwargs.items()},
        )
    outputs = [t for t in _tensors(results) if t.requires_grad]
    grads: list[Any] = [None] * len(leaves)
    if outputs and leaves:
        seeds = [mortice.ones_like(t) for t in outputs]
        grads = list(mortice.autograd.grad(outputs, leaves, seeds, allow_unused=True))
    return {
        "results": [to_numpy(t) for t in _tensors(results)],
        "arguments": [to_numpy(t) for t in inputs.values()],
        "gradients": [None if g is None else to_numpy(g) for g in grads],
    }


def _is_close(a: Any, b: Any, rtol: float, atol: float) -> bool:
    if a is None or b is None:
        return a is b
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return np.allclose(a, b, rtol=rtol, atol=atol, equal_nan=a.dtype.kind in "fc")


_METADATA: dict[str, Callable[[Any], Any]] = {
    "shape": lambda t: tuple(t.shape),
    "dtype": lambda t: t.dtype,
    "stride": lambda t: tuple(t.stride()),
}

_TESTS: dict[str, Callable[[Any, tuple[Any, ...], dict[str, Any], _Tolerances], None]] = {
    "test_schema": _test_schema,
    "test_autograd_registration": _test_autograd,
    "test_faketensor": _test_fake,
    "test_aot_dispatch_dynamic": _test_aot,
    "test_aot_dispatch_static": functools.partial(_test_aot, dynamic=False),
}
