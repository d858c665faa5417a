"""Making and copying tensors: shape rules and gradients."""

from __future__ import annotations

from typing import Any

from mortice._ops.formulas import call
from mortice._types import dtypes, layout
from mortice._types.shapes import dense_strides_like, strides_for


def sized_format(size: Any, dtype: Any, layout_: Any, device: Any, pin: Any, fmt: Any) -> Any:
    return tuple(size), dtype or dtypes.default.dtype, strides_for(size, fmt)


def strided(size: Any, stride: Any, dtype: Any, *rest: Any) -> Any:
    return tuple(size), dtype or dtypes.default.dtype, tuple(stride)


def sized(size: Any, dtype: Any, *rest: Any) -> Any:
    return tuple(size), dtype or dtypes.default.dtype


def filled(size: Any, value: Any, dtype: Any, *rest: Any) -> Any:
    return tuple(size), dtype or dtypes.of_number(value)


def like(self: Any, memory_format: Any) -> Any:
    return tuple(self._a.shape), self._t, _strides(self, memory_format)


def copied(self: Any, dtype: Any, layout_: Any, device: Any, pin: Any, nb: Any, fmt: Any) -> Any:
    return tuple(self._a.shape), dtype or self._t, _strides(self, fmt)


def _strides(self: Any, memory_format: Any) -> Any:
    if memory_format is None or memory_format is layout.preserve_format:
        return dense_strides_like(self._a.shape, self.stride())
    return strides_for(self._a.shape, memory_format)


def to_like(grad: Any, dtype: Any, device: Any) -> Any:
    """A gradient back in its input's dtype and on its device."""
    return call("_to_copy", grad, dtype, None, device, None, False, None)


__all__ = [name for name in dir() if not name.startswith("_")]
