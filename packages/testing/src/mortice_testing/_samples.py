"""``make_tensor``: random values that suit a dtype."""

from __future__ import annotations

from typing import Any

import mortice
from mortice.errors import ArgumentError, InvalidValue
from mortice_testing._host import dtype_name

# [low, high) by kind of dtype, as torch.testing.make_tensor has them.
_DEFAULTS: dict[str, tuple[int, int]] = {"bool": (0, 2), "uint": (0, 10), "int": (-9, 10)}
_FLOATING_DEFAULT = (-9, 9)


def make_tensor(
    *shape: Any,
    dtype: Any,
    device: Any = "cpu",
    low: float | None = None,
    high: float | None = None,
    requires_grad: bool = False,
    noncontiguous: bool = False,
    exclude_zero: bool = False,
    memory_format: Any = None,
) -> Any:
    """Return a tensor of uniform random values from ``[low, high)``.

    Args:
        *shape: Sizes, one by one or as one sequence.
        dtype: dtype of the result.
        device: Where it lies.
        low: Least value; by default -9, for unsigned integers and bool 0.
        high: Bound above, exclusive; by default 9 for floating kinds, 10 for integers, 2 for bool.
        requires_grad: Whether gradients are recorded; floating and complex dtypes only.
        noncontiguous: Whether the elements lie with gaps (no effect with fewer than two elements).
        exclude_zero: Whether zeros are replaced by the least positive value of the dtype, one for
            integers.
        memory_format: Memory format of the result; not together with ``noncontiguous``.

    Raises:
        InvalidValue: (a ValueError) ``low`` is not below ``high``, or options exclude each other.
        ArgumentError: (a TypeError) The dtype has no random values.
    """
    if noncontiguous and memory_format is not None:
        raise InvalidValue(
            "make_tensor: noncontiguous=True and memory_format exclude each other; give one"
        )
    sizes = tuple(shape[0]) if len(shape) == 1 and not isinstance(shape[0], int) else tuple(shape)
    inexact = dtype.is_floating_point or dtype.is_complex
    if requires_grad and not inexact:
        raise InvalidValue(f"make_tensor: requires_grad needs a floating or complex dtype, {dtype}")
    start, stop = _bounds(dtype, low, high)
    drawn = (*sizes[:-1], 2 * sizes[-1]) if noncontiguous and _many(sizes) else sizes
    result = _draw(drawn, dtype, device, start, stop)
    if exclude_zero:
        least = mortice.finfo(dtype).tiny if inexact else 1
        result = mortice.where(result == 0, mortice.full_like(result, least), result)
    if drawn is not sizes:
        result = result[..., ::2]
    if memory_format is not None:
        result = result.contiguous(memory_format=memory_format)
    return result.requires_grad_() if requires_grad else result


def _many(sizes: tuple[int, ...]) -> bool:
    return bool(sizes) and all(n > 0 for n in sizes) and any(n > 1 for n in sizes)


def _bounds(dtype: Any, low: float | None, high: float | None) -> tuple[float, float]:
    name = dtype_name(dtype)
    default = next(
        (pair for kind, pair in _DEFAULTS.items() if name.startswith(kind)), _FLOATING_DEFAULT
    )
    start = default[0] if low is None else low
    stop = default[1] if high is None else high
    if not start < stop:
        raise InvalidValue(f"make_tensor: low must be below high, found low={start}, high={stop}")
    return start, stop


def _draw(sizes: tuple[int, ...], dtype: Any, device: Any, low: float, high: float) -> Any:
    name = dtype_name(dtype)
    if name == "bool" or "int" in name:
        first, last = int(-(-low // 1)), int(-(-high // 1))
        if name == "bool":
            return mortice.randint(first, last, sizes, device=device).to(mortice.bool)
        return mortice.randint(first, last, sizes, dtype=dtype, device=device)
    if dtype.is_complex:
        part = mortice.float32 if name == "complex64" else mortice.float64
        pair = [_draw(sizes, part, device, low, high) for _ in range(2)]
        return mortice.complex(*pair)
    if not dtype.is_floating_point:
        raise ArgumentError(f"make_tensor: no random values for {dtype}; use a plain dtype")
    wide = mortice.float64 if name == "float64" else mortice.float32
    unit = mortice.rand(sizes, dtype=wide, device=device)
    return (unit * (high - low) + low).to(dtype)
