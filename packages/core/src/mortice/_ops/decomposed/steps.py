"""What decompositions share: selection, and precision of half types."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from mortice._ops.formulas import call
from mortice._types import dtypes


def where(condition: Any, a: Any, b: Any) -> Any:
    """``a`` where the condition holds, else ``b``; numbers take the other's dtype."""
    if getattr(a, "_t", None) is dtypes.bool_ and type(b) is int:
        b = bool(b)
    if getattr(b, "_t", None) is dtypes.bool_ and type(a) is int:
        a = bool(a)
    return call("where.self", condition, a, b)


def _is_half(x: Any) -> bool:
    return getattr(x, "_t", None) in (dtypes.float16, dtypes.bfloat16)


def widened(x: Any) -> Any:
    """Half precision as float32."""
    return x.to(dtypes.float32) if _is_half(x) else x


def in_float32(function: Callable[..., Any]) -> Any:
    """Half-precision arguments are computed with in float32, and results are rounded once."""

    @functools.wraps(function)
    def decomposition(*args: Any) -> Any:
        halves = [x._t for x in args if _is_half(x)]
        if not halves:
            return function(*args)
        result = function(*map(widened, args))
        if isinstance(result, tuple):
            return tuple(_narrow(x, halves[0]) for x in result)  # pyright: ignore[reportUnknownVariableType]
        return _narrow(result, halves[0])

    return decomposition


def _narrow(x: Any, dtype: Any) -> Any:
    return x.to(dtype) if x is not None and x._t is dtypes.float32 else x


def floating(x: Any) -> Any:
    """Integers as numbers of the default floating dtype."""
    return x if x._t.differentiable else x.to(dtypes.default.dtype)


def shape_of(x: Any) -> tuple[Any, ...]:
    return tuple(x._a.shape)


def full(like: Any, value: Any, shape: Sequence[Any] = (), dtype: Any = None) -> Any:
    """A tensor of one value on the device of ``like``, of its dtype unless given."""
    return call("full", tuple(shape), value, dtype or like._t, None, like.device, None)


def arange(like: Any, end: Any, dtype: Any = None, start: Any = 0) -> Any:
    """``start``, ``start + 1``, ... below ``end`` on the device of ``like``."""
    return call("arange.start_step", start, end, 1, dtype or dtypes.int64, None, like.device, None)


def total(x: Any, dims: Sequence[int], keepdim: bool = False, dtype: Any = None) -> Any:
    return call("sum.dim_IntList", x, tuple(dims), keepdim, dtype)


def mean(x: Any, dims: Sequence[int], keepdim: bool = True) -> Any:
    return call("mean.dim", x, tuple(dims), keepdim, None)


def all_dims(x: Any) -> tuple[int, ...]:
    return tuple(range(len(x._a.shape)))
