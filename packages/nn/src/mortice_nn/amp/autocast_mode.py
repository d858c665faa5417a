"""custom_fwd and custom_bwd: autocast inside an ``autograd.Function``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import mortice
from mortice import Tensor, autocast
from mortice.errors import ArgumentError, PluginError


def is_autocast_available(device_type: str) -> bool:
    """Whether autocast has a dtype for this device type, which means that the device exists."""
    try:
        mortice.get_autocast_dtype(device_type)
    except PluginError:
        return False
    return True


def custom_fwd(
    fwd: Callable[..., Any] | None = None, *, device_type: str, cast_inputs: Any = None
) -> Callable[..., Any]:
    """Decorate ``forward`` of an ``autograd.Function``.

    ``cast_inputs`` None: forward runs with autocast as it is at the call. A dtype: in an autocast
    region the floating tensors among the arguments are cast to it and forward runs without
    autocast. ``custom_bwd`` gives backward the same state.
    """
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)
    _check(device_type)

    @functools.wraps(fwd)
    def decorated(*args: Any, **kwargs: Any) -> Any:
        context = args[0]
        context._autocast_dtype = mortice.get_autocast_dtype(device_type)
        enabled = mortice.is_autocast_enabled(device_type)
        if cast_inputs is None:
            context._autocast_enabled = enabled
            return fwd(*args, **kwargs)
        context._autocast_enabled = False
        if not enabled:
            return fwd(*args, **kwargs)
        with autocast(device_type, enabled=False):
            return fwd(*_cast(args, cast_inputs), **_cast(kwargs, cast_inputs))

    return decorated


def custom_bwd(bwd: Callable[..., Any] | None = None, *, device_type: str) -> Callable[..., Any]:
    """Decorate ``backward`` of a Function whose forward has ``custom_fwd``."""
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)
    _check(device_type)

    @functools.wraps(bwd)
    def decorated(*args: Any, **kwargs: Any) -> Any:
        context = args[0]
        with autocast(
            device_type, enabled=context._autocast_enabled, dtype=context._autocast_dtype
        ):
            return bwd(*args, **kwargs)

    return decorated


def _check(device_type: Any) -> None:
    if not isinstance(device_type, str):
        raise ArgumentError(
            f"Expected `device_type` of type `str`, got: {type(device_type).__name__}"
        )


def _cast(value: Any, dtype: Any) -> Any:
    """Floating tensors, float64 apart, in ``dtype``; through mappings, lists and tuples."""
    if isinstance(value, Tensor):
        narrow = value.is_floating_point() and value.dtype is not mortice.float64
        return value.to(dtype) if narrow else value
    if isinstance(value, Mapping):
        return {key: _cast(item, dtype) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_cast(item, dtype) for item in value)
    return value
