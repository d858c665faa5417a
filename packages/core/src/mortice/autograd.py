"""Gradients: ``backward``, ``grad``, modes, hooks on saved tensors, and functions of one's own."""

from __future__ import annotations

from typing import Any

from mortice._autograd import graph
from mortice._autograd.engine import backward, grad
from mortice._autograd.function import Function, FunctionCtx, once_differentiable
from mortice._autograd.grad_mode import (
    enable_grad,
    inference_mode,
    no_grad,
    set_grad_enabled,
)
from mortice._autograd.graph import detect_anomaly, set_detect_anomaly

__all__ = [
    "Function",
    "FunctionCtx",
    "backward",
    "detect_anomaly",
    "enable_grad",
    "grad",
    "gradcheck",  # noqa: F822 - by __getattr__
    "gradgradcheck",  # noqa: F822 - by __getattr__
    "graph",
    "inference_mode",
    "no_grad",
    "once_differentiable",
    "set_detect_anomaly",
    "set_grad_enabled",
]


def __getattr__(name: str) -> Any:
    # gradcheck lives in mortice-testing; here is where PyTorch has it.
    if name in ("gradcheck", "gradgradcheck"):
        from mortice import testing

        return getattr(testing, name)
    if name == "function":
        from mortice._autograd import function

        return function
    if name == "functional":
        from mortice._autograd import functional

        return functional
    from mortice.errors import UnknownName, nearest

    raise UnknownName(
        f"module 'mortice.autograd' has no attribute {name!r}.{nearest(name, __all__)}"
    )
