"""Making tensors."""

from __future__ import annotations

from typing import Any

from mortice._ops.formulas import call
from mortice._types import dtypes


def _range(end: Any, device: Any, start: Any = 0, dtype: Any = dtypes.int64) -> Any:
    return call("arange.start_step", start, end, 1, dtype, None, device, None)


def eye(n: Any, m: Any, dtype: Any, layout: Any, device: Any, pin: Any) -> Any:
    on = _range(n, device).unsqueeze(1) == _range(m, device)
    return on.to(dtype or dtypes.default.dtype)


def linspace(
    start: Any, end: Any, steps: Any, dtype: Any, layout: Any, device: Any, pin: Any
) -> Any:
    """From both ends to the middle, so that both are met exactly."""
    dtype = dtype or dtypes.default.dtype
    inner = dtype if dtype.is_floating_point else dtypes.float64
    start, end = _ends(start, end, steps, dtype)
    i = _range(steps, device, dtype=inner)
    if steps == 1:
        return (i + start).to(dtype)
    step = (end - start) / (steps - 1)
    first = i < steps // 2
    return call("where.self", first, start + i * step, end - (steps - 1 - i) * step).to(dtype)


def _ends(start: Any, end: Any, steps: Any, dtype: Any) -> tuple[Any, Any]:
    """Between integers the ends are integers, too, but for a single one."""
    whole = not (dtype.is_floating_point or dtype.is_complex or steps == 1)
    return (int(start), int(end)) if whole else (start, end)


def logspace(
    start: Any, end: Any, steps: Any, base: float, dtype: Any, layout: Any, device: Any, pin: Any
) -> Any:
    dtype = dtype or dtypes.default.dtype
    inner = dtype if dtype.is_floating_point else dtypes.float64
    start, end = _ends(start, end, steps, dtype)
    powers = linspace(start, end, steps, inner, layout, device, pin)
    return call("pow.Scalar", base, powers).to(dtype)
