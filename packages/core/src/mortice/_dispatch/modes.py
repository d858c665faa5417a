"""Overriding what operators do: function overrides, dispatch modes and dispatch subclasses.

Function overrides (``__mortice_function__``) see public functions as they are called, above
everything. Dispatch overrides (``__mortice_dispatch__``) see overloads, below autograd, composites
already taken apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mortice._base.errors import InvalidState, SchemaMismatch
from mortice._dispatch import keys as K
from mortice._dispatch.operator import Kernel, Operator, mark_composite
from mortice._dispatch.state import THREAD, refresh

# -- function overrides --------------------------------------------------------------------------


def disabled_function(func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    """A class whose ``__mortice_function__`` is this one takes part as a plain tensor does."""
    return NotImplemented


def overrides_functions(cls: type) -> bool:
    """Whether calls with an instance of ``cls`` go through its ``__mortice_function__``."""
    from mortice._tensor.tensor import Tensor

    found = getattr(cls, "__mortice_function__", None)
    return cls is not Tensor and found is not None and found is not disabled_function


def _overloaded(values: Iterable[Any]) -> list[Any]:
    """One argument per overriding type, subclasses before their bases, else from left to right."""
    found: list[Any] = []
    types: set[type] = set()
    for value in values:
        cls = type(value)
        if cls in types or not overrides_functions(cls):
            continue
        types.add(cls)
        position = next((i for i, x in enumerate(found) if issubclass(cls, type(x))), len(found))
        found.insert(position, value)
    return found


def flat(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """Arguments, those inside lists and tuples included."""
    values: list[Any] = []
    for value in (*args, *kwargs.values()):
        if isinstance(value, (list, tuple)):
            values.extend(value)  # pyright: ignore[reportUnknownArgumentType]
        else:
            values.append(value)
    return values


class NoImplementation(TypeError):
    """All handlers returned NotImplemented; Python operators then try the other operand's."""


def _handler(value: Any, warning: type[Warning]) -> Any:
    """``__mortice_function__`` of an argument's class; one that is a plain method is warned of."""
    found = value.__mortice_function__
    if getattr(found, "__self__", None) is value and not isinstance(value, type):
        import warnings

        warnings.warn(
            f"{type(value).__name__}.__mortice_function__ is a plain method; make it a classmethod.",
            warning,
            stacklevel=4,
        )
    return found


def through_function_overrides(packet: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Offer a call to the function modes, then to the overriding arguments."""
    return call_overridden(packet.public, flat(args, kwargs), args, kwargs, str(packet))


def call_overridden(
    public: Any,
    relevant: Sequence[Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    name: str,
    warning: type[Warning] = UserWarning,
) -> Any:
    """The protocol of ``__mortice_function__``: the first result that is not NotImplemented."""
    overloaded = [] if THREAD.subclasses_disabled else _overloaded(relevant)
    types = tuple(type(x) for x in overloaded)
    modes = THREAD.function_modes
    asked = bool(modes) and not THREAD.functions_disabled
    if asked:
        mode = modes.pop()
        refresh()
        try:
            result = mode.__mortice_function__(public, types, tuple(args), dict(kwargs))
        finally:
            modes.append(mode)
            refresh()
        if result is not NotImplemented:
            return result
    for value in overloaded:
        result = _handler(value, warning)(public, types, tuple(args), dict(kwargs))
        if result is not NotImplemented:
            return result
    if not overloaded and not asked:
        with no_function_modes():
            return public(*args, **kwargs)
    shown = ", ".join(t.__name__ for t in types)
    raise NoImplementation(
        f"no implementation found for '{name}' on types that implement __mortice_function__: "
        f"[{shown}]. All returned NotImplemented; handle the function in one of them."
    )


class _Setting:
    """Context manager that sets a field of THREAD and restores it."""

    field = ""
    value: Any = True

    def __enter__(self) -> Any:
        self.previous = getattr(THREAD, self.field)
        setattr(THREAD, self.field, self.value)
        refresh()
        return self

    def __exit__(self, *exc: object) -> None:
        setattr(THREAD, self.field, self.previous)
        refresh()


class no_function_subclasses(_Setting):
    """Within, subclasses' ``__mortice_function__`` is not called; modes are."""

    field = "subclasses_disabled"


class no_function_modes(_Setting):
    """Within, neither function modes nor ``__mortice_function__`` of subclasses are called."""

    field = "functions_disabled"


class FunctionMode:
    """Base of modes that see every public function called inside ``with mode:``.

    Override ``__mortice_function__(self, func, types, args, kwargs)``; while it runs the mode is
    off, so that calling ``func`` goes on to the next mode outwards.
    """

    def __enter__(self) -> Any:
        _refuse_classmethod(self, "__mortice_function__")
        THREAD.function_modes.append(self)
        refresh()
        return self

    def __exit__(self, *exc: object) -> None:
        _pop(THREAD.function_modes, self)

    def __mortice_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        raise NotImplementedError(
            f"{type(self).__name__} must define __mortice_function__(self, func, types, args, kwargs)"
        )


def _refuse_classmethod(mode: Any, name: str) -> None:
    if isinstance(type(mode).__dict__.get(name), classmethod):
        raise InvalidState(
            f"classmethod is not supported: define {name}(self, func, types, args, kwargs) on "
            f"{type(mode).__name__} as a plain method."
        )


def _pop(stack: list[Any], mode: Any) -> None:
    if not stack or stack[-1] is not mode:
        raise InvalidState(
            f"{type(mode).__name__} is left in another order than it was entered: modes nest."
        )
    stack.pop()
    refresh()


# -- dispatch overrides --------------------------------------------------------------------------


def as_call(op: Operator, values: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Schema-order values as (args, kwargs), values that are their default left out."""
    from mortice._dispatch.bind import default_of

    schema = op.schema
    n = schema.positional
    args = list(values[:n])
    while args:
        last = schema.arguments[len(args) - 1]
        if not last.has_default or not _is_same(args[-1], default_of(last)):
            break
        args.pop()
    kwargs = {
        a.name: v
        for a, v in zip(schema.arguments[n:], values[n:])
        if not (a.has_default and _is_same(v, default_of(a)))
    }
    return tuple(args), kwargs


def _is_same(value: Any, default: Any) -> bool:
    if value is default:
        return True
    return type(value) is type(default) and not hasattr(value, "_k") and bool(value == default)


class DispatchMode:
    """Base of modes that see every operator overload called inside ``with mode:``.

    Override ``__mortice_dispatch__(self, func, types, args, kwargs)``. It runs below autograd, on
    overloads that are not composite; while it runs the mode is off.

    Attributes:
        keeps_differentiable: Also on composites that have a derivative of their own (``linear``),
            which are otherwise taken apart as all are.
        hides_values: What runs inside may not look at tensors' values to check them.
    """

    keeps_differentiable = False
    hides_values = False

    def __enter__(self) -> Any:
        _refuse_classmethod(self, "__mortice_dispatch__")
        THREAD.dispatch_modes.append(self)
        refresh()
        return self

    def __exit__(self, *exc: object) -> None:
        _pop(THREAD.dispatch_modes, self)

    def reads(self, tensor: Any, reader: str) -> None:
        """Called inside before a tensor's memory is read without an operator: numpy(), tolist()."""

    def __mortice_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        raise NotImplementedError(
            f"{type(self).__name__} must define __mortice_dispatch__(self, func, types, args, kwargs)"
        )


def overload_of(op: Operator) -> Any:
    """The ``mortice.ops`` object of an operator."""
    from importlib import import_module

    schema = op.schema
    ops = import_module("mortice.ops")
    packet = getattr(getattr(ops, schema.namespace), schema.name)
    return getattr(packet, schema.overload or "default")


def _wrapper_types(values: Sequence[Any]) -> tuple[type, ...]:
    found: list[type] = []
    for value in flat(values, {}):
        cls = type(value)
        if getattr(value, "_k", 0) & K.PYTHON and cls not in found:
            place = next((i for i, x in enumerate(found) if issubclass(cls, x)), len(found))
            found.insert(place, cls)  # subclasses are asked before their bases
    return tuple(found)


def kernel_for_modes(op: Operator) -> Kernel | None:
    """Hand a call to the innermost dispatch mode; composites are taken apart first."""
    body = op.registered("CompositeImplicitAutograd") or op.body()
    kept = op.registered("CompositeExplicitAutograd") is not None or _is_core(op)
    if body is None or kept:
        return _through_mode(op)
    if op.row.derivative in ("", "none"):
        return mark_composite(body)
    whole = _through_mode(op)

    def as_wanted(*values: Any) -> Any:
        modes = THREAD.dispatch_modes
        return (whole if modes and modes[-1].keeps_differentiable else body)(*values)

    return mark_composite(as_wanted)


def _is_core(op: Operator) -> bool:
    """Core ATen operators with a shape rule are what graphs are made of, composite or not."""
    return "core" in op.row.tags and bool(op.row.shape)


def _through_mode(op: Operator) -> Kernel:
    func: list[Any] = []

    def through_mode(*values: Any) -> Any:
        if not func:
            func.append(overload_of(op))
        args, kwargs = as_call(op, values)
        mode = THREAD.dispatch_modes.pop()
        refresh()
        try:
            rule = op.dispatch_rules.get(type(mode))
            types = _wrapper_types(values)
            if rule is not None:
                result = rule(mode, func[0], types, args, kwargs)
            else:
                result = mode.__mortice_dispatch__(func[0], types, args, kwargs)
        finally:
            THREAD.dispatch_modes.append(mode)
            refresh()
        if result is NotImplemented:
            result = _ask_subclasses(op, func[0], types, args, kwargs)
        if result is NotImplemented:
            raise _not_handled(op, [type(mode), *types])
        return check_result(op, result)

    return mark_composite(through_mode)


def _ask_subclasses(op: Operator, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
    """The first result of the classes' handlers that is not NotImplemented."""
    for cls in types:
        rule = op.dispatch_rules.get(cls)
        if rule is not None:
            result = rule(cls, func, types, args, kwargs)
        else:
            result = cls.__mortice_dispatch__(func, types, args, kwargs)
        if result is not NotImplemented:
            return result
    return NotImplemented


def kernel_for_subclasses(op: Operator) -> Kernel | None:
    """Hand a call to the tensor subclasses among its arguments."""
    body = op.registered("CompositeImplicitAutograd") or op.body()
    if body is not None and op.registered("CompositeExplicitAutograd") is None:
        return mark_composite(body)
    func: list[Any] = []

    def through_subclass(*values: Any) -> Any:
        if not func:
            func.append(overload_of(op))
        args, kwargs = as_call(op, values)
        types = _wrapper_types(values)
        result = _ask_subclasses(op, func[0], types, args, kwargs)
        if result is NotImplemented:
            raise _not_handled(op, types)
        return check_result(op, result)

    return mark_composite(through_subclass)


def _not_handled(op: Operator, types: Sequence[type]) -> TypeError:
    shown = ", ".join(t.__name__ for t in types)
    return TypeError(
        f"Multiple dispatch failed for '{op.qualified}'; all __mortice_dispatch__ handlers returned "
        f"NotImplemented: {shown}."
    )


def check_result(op: Operator, result: Any) -> Any:
    """What a Python kernel returned, as the schema's returns want it.

    SchemaMismatch names the operator, and the counts or types that differ.
    """
    returns = op.schema.returns
    if len(returns) == 1:
        return _checked(op, returns[0], result, "its result")
    if not returns:
        if result is not None:
            raise SchemaMismatch(
                f"{op.qualified}: expected no return value, as its schema says '-> ()', but its "
                f"kernel returned a {type(result).__name__}."
            )
        return None
    if not isinstance(result, (tuple, list)):
        raise SchemaMismatch(
            f"{op.qualified}: expected {len(returns)} outputs but its kernel returned "
            f"{'None' if result is None else 'one ' + type(result).__name__}. Return a tuple of "
            f"{len(returns)}."
        )
    if len(result) != len(returns):  # pyright: ignore[reportUnknownArgumentType]
        raise SchemaMismatch(
            f"{op.qualified}: expected {len(returns)} outputs but its kernel returned {len(result)}."  # pyright: ignore[reportUnknownArgumentType]
        )
    return tuple(_checked(op, r, x, f"output {i}") for i, (r, x) in enumerate(zip(returns, result)))  # pyright: ignore[reportUnknownArgumentType]


def _checked(op: Operator, spec: Any, value: Any, what: str) -> Any:
    kind = spec.type
    if kind.base != "Tensor" or kind.is_list:
        if kind.is_list and isinstance(value, list):
            return tuple(value)  # pyright: ignore[reportUnknownArgumentType]
        return value
    if value is None or hasattr(value, "_k"):
        return value
    raise SchemaMismatch(
        f"{op.qualified}: Unable to cast {type(value).__name__} to Tensor: {what} must be a Tensor."
    )
