"""Fakes: what an operator does to sizes and dtypes, for tensors without data."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Generator
from typing import Any

from mortice._base.errors import DynamicOutputShape, InvalidValue, RegistrationError
from mortice._dispatch.operator import Operator
from mortice._library.registration import Library, adapted, caller, get_operator, kept_library

_FAKES: dict[str, list[tuple[Any, str]]] = {}
_CONTEXT: list[Any] = []


class FakeContext:
    """What ``get_ctx()`` gives a fake: sizes that depend on data."""

    def __init__(self, new_size: Any = None) -> None:
        self._new_size = new_size

    def new_dynamic_size(self, *, min: int = 0, max: int | None = None) -> Any:
        """A size that is not known before the operator has run, within [min, max]."""
        if min < 0:
            raise InvalidValue(
                f"expected min to be greater than or equal to 0: got {min}. A size is never negative."
            )
        if self._new_size is None:
            raise DynamicOutputShape(
                "You're trying to run this operator with meta Tensors (as opposed to FakeTensors), but "
                "this operator may return an output Tensor with data-dependent shape. Meta Tensors "
                "don't support operators with outputs that have data-dependent shapes. Please use "
                "FakeTensorMode."
            )
        return self._new_size(min, max)

    def create_unbacked_symint(self, *, min: int = 2, max: int | None = None) -> Any:
        """The old name of ``new_dynamic_size``."""
        import warnings

        warnings.warn(
            "create_unbacked_symint is deprecated; use new_dynamic_size instead.",
            FutureWarning,
            stacklevel=2,
        )
        return self.new_dynamic_size(min=min, max=max)


def get_ctx() -> FakeContext | None:
    """The context of the fake that is running, or None outside of fakes."""
    return _CONTEXT[-1] if _CONTEXT else None


@contextlib.contextmanager
def fake_context(new_size: Any = None) -> Generator[None, None, None]:
    """Within, fakes can ask for data-dependent sizes by ``new_size(min, max)``."""
    _CONTEXT.append(FakeContext(new_size))
    try:
        yield
    finally:
        _CONTEXT.pop()


def check_signature(op: Operator, fn: Any, what: str) -> None:
    """RegistrationError if ``fn`` cannot be called with the schema's arguments."""
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):
        return
    n = op.schema.positional
    args: list[Any] = [None] * n
    kwargs = {a.name: None for a in op.schema.arguments[n:]}
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise RegistrationError(
            f"{what} of {op.qualified} has signature {signature}, which does not fit the operator's "
            f"schema {op.schema}: {error}."
        ) from None


def register_fake(
    op: Any,
    func: Any = None,
    /,
    *,
    lib: Library | None = None,
    allow_override: bool = True,
) -> Any:
    """Say what an operator does to tensors without data; a decorator if ``func`` is left away."""
    operator = get_operator(op, "register_fake")

    def register(fn: Any) -> Any:
        check_signature(operator, fn, "the fake")
        _check_replaceable(operator, allow_override)
        where = caller()
        kernel = _meta_kernel(operator, fn)
        entry = (fn, where)
        library = lib or kept_library(operator.schema.namespace, "FRAGMENT")
        _FAKES.setdefault(operator.name, []).append(entry)
        operator.register("Meta", kernel)

        def undo() -> None:
            entries = _FAKES.get(operator.name, [])
            if entry in entries:
                entries.remove(entry)
            operator.unregister("Meta", kernel)

        library._undo.append(undo)  # pyright: ignore[reportPrivateUsage]
        return fn

    return register if func is None else register(func)


def _check_replaceable(op: Operator, allow_override: bool) -> None:
    if op.registered("CompositeImplicitAutograd") is not None:
        raise RegistrationError(
            f"{op.qualified} already has a CompositeImplicitAutograd kernel, from which its fake "
            "follows. Register fakes for the operators that it is made of."
        )
    if allow_override:
        return
    entries = _FAKES.get(op.name)
    if entries:
        raise RegistrationError(
            f"{op.qualified} already has a fake impl registered at {entries[-1][1]}. Pass "
            "allow_override=True to replace it."
        )
    if op.registered("Meta") is not None:
        raise RegistrationError(f"{op.qualified} already has a Meta kernel.")


def _meta_kernel(op: Operator, fn: Any) -> Any:
    run = adapted(op, fn)

    def on_meta(*values: Any) -> Any:
        if _CONTEXT:
            return run(*values)
        with fake_context():
            return run(*values)

    return on_meta


def has_fake(op: Operator) -> bool:
    """Whether an operator can run on tensors without data."""
    if (
        op.row.shape
        or op.row.body
        or op.row.decomposition
        or op.row.kind in ("view", "inplace", "out")
    ):
        return True
    keys = ("Meta", "CompositeImplicitAutograd")
    return any(op.registered(k) is not None for k in keys) or not op.schema.returns
