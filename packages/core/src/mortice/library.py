"""``mortice.library``: adding operators, kernels, fakes and gradients from outside core."""

from __future__ import annotations

from typing import Any

from mortice._library.custom import (
    CustomOpDef,
    custom_op,
    get_kernel,
    register_autocast,
    register_mortice_dispatch,
)
from mortice._library.fakes import FakeContext, get_ctx, has_fake, register_fake
from mortice._library.gradient import register_autograd
from mortice._library.infer import infer_schema
from mortice._library.keysets import DispatchKeySet, after_autograd_keyset
from mortice._library.registration import (
    Library,
    define,
    fallthrough_kernel,
    impl,
    scoped_library,
    undefined,
)
from mortice._library.tags import Tag

__all__ = [
    "CustomOpDef",
    "DispatchKeySet",
    "FakeContext",
    "Library",
    "Tag",
    "after_autograd_keyset",
    "custom_op",
    "define",
    "fallthrough_kernel",
    "get_ctx",
    "get_kernel",
    "impl",
    "impl_abstract",
    "infer_schema",
    "missing",
    "opcheck",
    "register_autocast",
    "register_autograd",
    "register_fake",
    "register_kernel",
    "register_mortice_dispatch",
    "register_vmap",
    "scoped_library",
]


def register_vmap(op: Any, func: Any = None, /, *, lib: Library | None = None) -> Any:
    """Give an operator a batching rule, which ``mortice.vmap`` runs.

    ``func(info, in_dims, *args, **kwargs)`` returns (results, where they have the batch);
    ``info.batch_size`` and ``info.randomness`` are vmap's. A decorator if ``func`` is left away.
    """
    from mortice._library.vmap import register_vmap as register

    return register(op, func, lib=lib)


def impl_abstract(qualname: Any, func: Any = None, *, lib: Any = None) -> Any:
    """The old name of ``register_fake``."""
    import warnings

    warnings.warn(
        "mortice.library.impl_abstract was renamed to mortice.library.register_fake. Please use that "
        "instead.",
        FutureWarning,
        stacklevel=2,
    )
    return register_fake(qualname, func, lib=lib)


def register_kernel(
    op: Any, device_types: Any, func: Any = None, /, *, lib: Library | None = None
) -> Any:
    """Register a kernel of an operator for device types (None for all)."""
    if isinstance(op, CustomOpDef):
        return op.register_kernel(device_types, func) if func else op.register_kernel(device_types)
    from mortice._library.registration import get_operator

    operator = get_operator(op, "register_kernel")
    schema = operator.schema
    name = f"{schema.namespace}::{schema.name}" + (f".{schema.overload}" if schema.overload else "")
    types = "default" if device_types is None else device_types

    def register(fn: Any) -> Any:
        impl(name, types, fn, lib=lib)
        return fn

    return register if func is None else register(func)


def missing(rule: str, namespace: str | None = None) -> list[str]:
    """Operators from outside core that lack a rule: ``"fake"`` or ``"autograd"``.

    ``"definition"``: operators that have kernels, by ``Library.impl``, but that nothing defines.
    """
    from mortice._dispatch.operator import _OPERATORS  # pyright: ignore[reportPrivateUsage]

    if rule == "definition":
        names = (name if "::" in name else f"aten::{name}" for name in undefined())
        return sorted(n for n in names if namespace in (None, n.partition("::")[0]))
    if rule not in ("fake", "autograd"):
        raise ValueError(f"missing(): the rule is 'fake', 'autograd' or 'definition', not {rule!r}")
    found: list[str] = []
    for op in list(_OPERATORS.values()):
        space = op.schema.namespace
        if space == "aten" or (namespace is not None and space != namespace):
            continue
        if rule == "fake":
            lacks = not has_fake(op)
        else:
            keys = ("Derivative", "Autograd", "CompositeImplicitAutograd")
            lacks = not op.row.derivative and all(op.registered(k) is None for k in keys)
        if lacks:
            found.append(op.qualified)
    return sorted(found)


def opcheck(op: Any, args: Any, kwargs: Any = None, **options: Any) -> dict[str, Any]:
    """Check an operator's schema, gradient registration and fake; lives in mortice-testing."""
    from mortice import testing

    return testing.opcheck(op, args, kwargs, **options)
