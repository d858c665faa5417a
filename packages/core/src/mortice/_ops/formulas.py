"""Helpers that gradient formulas of several families use. All are made of public operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mortice._base.errors import AutogradError
from mortice._dispatch import keys as K
from mortice._dispatch.operator import get
from mortice._dispatch.state import THREAD


def call(name: str, *args: Any) -> Any:
    """An operator by registry name, with every schema argument given; its errors are precise."""
    return get(name)(*args)


def ones_like(x: Any) -> Any:
    return call("full", tuple(x._a.shape), 1, x._t, None, x.device, None)


def zeros_like(x: Any) -> Any:
    return call("full", tuple(x._a.shape), 0, x._t, None, x.device, None)


def zeros(shape: Sequence[int], dtype: Any, device: Any) -> Any:
    return call("full", tuple(shape), 0, dtype, None, device, None)


def has_values(x: Any) -> bool:
    """Whether a tensor has elements to look at, as tensors on device meta and fake ones have not.

    Nor have those of a program that is traced. Checks of values are left to tensors that have some.
    """
    if x._k & (K.FAKE | K.META):
        return False
    return not any(mode.hides_values for mode in THREAD.dispatch_modes)


def conj(x: Any) -> Any:
    """The complex conjugate; real tensors and numbers are returned as they are."""
    t = getattr(x, "_t", None)
    if t is None:
        return x.conjugate() if isinstance(x, complex) else x
    return x.conj() if t.is_complex else x


def sum_to(grad: Any, shape: Sequence[int], node: Any = None) -> Any:
    """Undo broadcasting: sum a gradient down to ``shape``."""
    have = tuple(grad._a.shape)
    shape = tuple(shape)
    if have == shape:
        return grad
    gap = len(have) - len(shape)
    dims = list(range(gap))
    fits = gap >= 0
    if fits:
        for i, n in enumerate(shape):
            if n == 1 and have[i + gap] != 1:
                dims.append(i + gap)
            elif n != have[i + gap]:
                fits = False
    if not fits:
        name = node.name() if node is not None else "a function"
        raise AutogradError(
            f"{name} received a gradient of shape {list(have)}, which does not fit its output's "
            f"shape {list(shape)}."
        )
    if dims:
        grad = call("sum.dim_IntList", grad, tuple(dims), True, None)
    return grad.view(shape) if gap else grad


def real_if(grad: Any, dtype: Any) -> Any:
    """The real part where the input was real."""
    return grad.real if grad._t.is_complex and not dtype.is_complex else grad


def scaled(grad: Any, factor: Any) -> Any:
    """``grad * factor``, free when the factor is 1."""
    return grad if factor == 1 else grad * conj(factor)


def as_strided_grad(
    grad: Any, base_shape: Sequence[int], size: Any, stride: Any, offset: int
) -> Any:
    """Gradient of ``as_strided`` for a base that is contiguous: add into the places read from.

    An element read several times receives the sum, by an index_add over flat positions. What was
    read before or behind the base's own elements (which may be part of a storage) gives nothing.
    """
    from mortice._types.shapes import numel, storage_extent

    count = numel(base_shape)
    before = max(-offset, 0)
    behind = max(storage_extent(size, stride, 0) + offset - count, 0)
    flat = call("full", (before + count + behind,), 0, grad._t, None, grad.device, None)
    positions = strided_positions(size, stride, offset + before, grad.device)
    flat = call("index_put", flat, (positions,), grad.reshape(-1), True)
    if before or behind:
        flat = call("slice.Tensor", flat, 0, before, before + count, 1)
    return flat.view(tuple(base_shape))


def strided_positions(size: Any, stride: Any, offset: int, device: Any) -> Any:
    """Flat int64 positions of a strided view's elements, in row-major order."""
    if any(type(n) is not int for n in (*size, *stride, offset)):
        return _symbolic_positions(size, stride, offset, device)
    import numpy as np

    from mortice._tensor.make import lifted, wrap
    from mortice._types import dtypes

    positions = np.full((), offset, np.int64)
    for n, s in zip(size, stride):
        positions = positions[..., None] + np.arange(n, dtype=np.int64) * s
    result = lifted(wrap(np.ascontiguousarray(positions.reshape(-1)), dtypes.int64))
    return result if device.type == "cpu" else result.to(device)


def _symbolic_positions(size: Any, stride: Any, offset: Any, device: Any) -> Any:
    from mortice._types import dtypes

    positions = call("full", (), offset, dtypes.int64, None, device, None)
    for n, step in zip(size, stride):
        along = call("arange", n, dtypes.int64, None, device, None) * step
        positions = positions.unsqueeze(-1) + along
    return positions.reshape(-1)
