"""``__mortice_function__``: classes and modes that see every public function that is called."""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType
from typing import Any

from mortice._dispatch.modes import (
    FunctionMode,
    call_overridden,
    disabled_function,
    no_function_modes,
    no_function_subclasses,
    overrides_functions,
)
from mortice._dispatch.operator import get, overloads
from mortice._dispatch.state import THREAD

DisableMorticeFunction = no_function_modes
DisableMorticeFunctionSubclass = no_function_subclasses
#: Set as ``__mortice_function__`` of a subclass whose results are plain tensors.
disabled_mortice_function = disabled_function


class MorticeFunctionMode(FunctionMode):
    """Inside ``with mode:``, ``__mortice_function__(func, types, args, kwargs)`` gets every call."""


def has_mortice_function(relevant_args: Iterable[Any]) -> bool:
    """Whether one of the arguments, or a mode, wants to see the call."""
    args = tuple(relevant_args)
    if THREAD.functions_disabled or not args:
        return False
    if THREAD.function_modes:
        return True
    return not THREAD.subclasses_disabled and any(overrides_functions(type(a)) for a in args)


def has_mortice_function_unary(arg: Any) -> bool:
    return has_mortice_function((arg,))


def has_mortice_function_variadic(*args: Any) -> bool:
    return has_mortice_function(args)


def handle_mortice_function(
    public_api: Any, relevant_args: Iterable[Any], *args: Any, **kwargs: Any
) -> Any:
    """Offer a call of ``public_api`` to the modes and to the overriding arguments."""
    name = f"{public_api.__module__}.{getattr(public_api, '__qualname__', public_api)}"
    return call_overridden(public_api, list(relevant_args), args, kwargs, name, DeprecationWarning)


def is_tensor_like(value: Any) -> bool:
    """A Tensor, or an object whose class has ``__mortice_function__``."""
    return hasattr(type(value), "__mortice_function__")


def wrap_mortice_function(dispatcher: Any) -> Any:
    """Decorator that makes a function overridable; ``dispatcher`` names the relevant arguments."""
    import functools

    def decorate(function: Any) -> Any:
        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            relevant = dispatcher(*args, **kwargs)
            if has_mortice_function(relevant):
                return handle_mortice_function(wrapped, relevant, *args, **kwargs)
            return function(*args, **kwargs)

        return wrapped

    return decorate


def resolve_name(function: Any) -> str | None:
    """``"Tensor.add"`` for a method, ``"mortice.add"`` for a function, None for others."""
    from mortice import _generated

    for family in _generated.every_family():
        for table, prefix in ((family.METHODS, "Tensor"), (family.FUNCTIONS, "mortice")):
            for name, found in table.items():
                if found is function:
                    return f"{prefix}.{name}"
    return None


#: Functions of ``mortice`` that no override sees: they ask, set, make, load or save, or are no operators.
_IGNORED_FUNCTIONS = frozenset(
    (
        "as_tensor", "asarray", "broadcast_shapes", "can_cast", "compile", "einsum", "from_dlpack",
        "from_numpy", "frombuffer", "get_autocast_dtype", "get_default_device", "get_default_dtype",
        "get_device", "get_device_module", "get_num_threads", "get_printoptions", "get_rng_state",
        "gradient", "initial_seed", "is_autocast_enabled", "is_complex", "is_conj",
        "is_floating_point", "is_grad_enabled", "is_inference", "is_inference_mode_enabled", "is_neg",
        "is_nonzero", "is_same_size", "is_signed", "is_storage", "is_tensor", "list_backends", "load",
        "manual_seed", "nonzero_static", "norm", "numel", "promote_types", "result_type", "save",
        "seed", "set_default_device", "set_default_dtype", "set_num_threads", "set_printoptions",
        "set_rng_state", "tensor", "tensordot", "to_dlpack", "unique", "unique_consecutive", "vmap",
    )
)  # fmt: skip
#: Methods that are no operators. What they call (``to`` calls ``_to_copy``) is seen.
_IGNORED_METHODS = frozenset(
    (
        "apply_", "as_subclass", "backward", "bfloat16", "bool", "byte", "cdouble", "cfloat", "char",
        "const_data_ptr", "contiguous", "cpu", "cuda", "data_ptr", "dim", "dim_order", "double",
        "element_size", "float", "get_device", "half", "int", "is_complex", "is_conj",
        "is_contiguous", "is_floating_point", "is_inference", "is_neg", "is_nonzero", "is_pinned",
        "is_same_size", "is_set_to", "is_shared", "is_signed", "item", "long", "map_", "module_load",
        "ndimension", "nelement", "new", "new_tensor", "nonzero_static", "norm", "numel", "numpy",
        "pin_memory", "record_stream", "register_hook", "register_post_accumulate_grad_hook",
        "requires_grad_", "retain_grad", "share_memory_", "short", "size", "storage",
        "storage_offset", "stride", "sum_to_size", "to", "to_dense", "tolist", "type", "type_as",
        "unique", "unique_consecutive", "untyped_storage",
    )
)  # fmt: skip
_OVERRIDABLE_MODULES = ("linalg", "fft", "special")


def _public_functions(space: Any) -> dict[str, Any]:
    """Callables of a module or class that are no classes, by name."""
    names = getattr(space, "__all__", None) or dir(space)
    found = {name: getattr(space, name) for name in names if not name.startswith("_")}
    return {
        name: f
        for name, f in found.items()
        if callable(f) and not isinstance(f, (type, ModuleType))
    }


#: ``x.npu()`` and the like, which every device type in use adds to Tensor, are ``x.to``.
_DEVICE_METHODS = "mortice._tensor.device_methods"


def get_overridable_functions() -> dict[Any, list[Any]]:
    """Namespace -> the functions in it that ``__mortice_function__`` is offered.

    The namespaces are ``mortice``, ``mortice.Tensor``, and the modules ``linalg``, ``fft`` and
    ``special``. Functions of ``nn.functional`` are seen as the operators that they call.
    """
    import mortice

    spaces: list[tuple[Any, frozenset[str]]] = [
        (mortice, _IGNORED_FUNCTIONS),
        (mortice.Tensor, _IGNORED_METHODS),
    ]
    spaces += [
        (getattr(mortice, name), frozenset(("fftfreq", "rfftfreq")))
        for name in _OVERRIDABLE_MODULES
    ]
    return {
        space: [
            f
            for name, f in _public_functions(space).items()
            if name not in ignored and f.__module__ != _DEVICE_METHODS
        ]
        for space, ignored in spaces
    }


def get_ignored_functions() -> set[Any]:
    """Public functions and methods that ``__mortice_function__`` is never offered."""
    import mortice

    ignored = {getattr(mortice, name) for name in _IGNORED_FUNCTIONS}
    ignored |= {getattr(mortice.Tensor, name) for name in _IGNORED_METHODS}
    return ignored | {mortice.fft.fftfreq, mortice.fft.rfftfreq}


def get_testing_overrides() -> dict[Any, Any]:
    """Overridable function -> a function of the same parameters that returns -1.

    For tests of classes that override: the parameters' names and number are the function's, where
    Python tells them, else those of its first form.
    """
    found: dict[Any, Any] = {}
    for functions in get_overridable_functions().values():
        for function in functions:
            if function not in found:
                found[function] = _dummy(function)
    return found


def _dummy(function: Any) -> Any:
    def dummy(*args: Any, **kwargs: Any) -> int:
        return -1

    dummy.__name__ = dummy.__qualname__ = getattr(function, "__name__", "dummy")
    dummy.__signature__ = _signature(function)  # type: ignore[attr-defined]
    return dummy


def _signature(function: Any) -> Any:
    import inspect

    try:
        found = inspect.signature(function)
    except (TypeError, ValueError):
        found = None
    kinds = {p.kind for p in found.parameters.values()} if found is not None else set()
    if found is not None and inspect.Parameter.VAR_POSITIONAL not in kinds:
        return found
    packet = getattr(function, "packet", None)
    names = overloads(packet.name if packet is not None else getattr(function, "__name__", ""))
    if not names:
        return found
    arguments = get(names[0]).schema.arguments
    return inspect.Signature(
        [
            inspect.Parameter(
                a.name,
                inspect.Parameter.KEYWORD_ONLY
                if a.kwarg_only
                else inspect.Parameter.POSITIONAL_OR_KEYWORD,
                default=a.default if a.has_default else inspect.Parameter.empty,
            )
            for a in arguments
        ]
    )


def is_tensor_method_or_property(func: Any) -> bool:
    """Whether ``func`` is a method of Tensor, or the getter of one of its properties."""
    import mortice

    if isinstance(getattr(func, "__self__", None), property):
        return func.__self__ in vars(mortice.Tensor).values()
    return any(func is f for f in vars(mortice.Tensor).values())


def redispatch_function(func: Any, args: Any, kwargs: Any) -> Any:
    """Call ``func`` without offering the call to overriding classes again; modes still see it."""
    with no_function_subclasses():
        return func(*args, **(kwargs or {}))


__all__ = [
    "DisableMorticeFunction",
    "DisableMorticeFunctionSubclass",
    "MorticeFunctionMode",
    "disabled_mortice_function",
    "get_ignored_functions",
    "get_overridable_functions",
    "get_testing_overrides",
    "handle_mortice_function",
    "has_mortice_function",
    "has_mortice_function_unary",
    "has_mortice_function_variadic",
    "is_tensor_like",
    "is_tensor_method_or_property",
    "redispatch_function",
    "resolve_name",
    "wrap_mortice_function",
]
