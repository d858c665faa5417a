"""Operators that only move elements, as copies within the device: every device has them.

Each function fills ``out``, which the operator's shape rule has sized; the rule has checked the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

from mortice._dispatch.operator import get
from mortice._tensor.make import restride, wrap_device
from mortice._tensor.memory import allocate, one_device
from mortice._tensor.transfer import copy_between, fill
from mortice._types import shapes


def _seen(x: Any, sizes: Sequence[int], steps: Sequence[int], offset: int = 0) -> Any:
    """``x``'s memory, without history, through other sizes and strides, ``offset`` elements on."""
    return wrap_device(restride(x, tuple(sizes), tuple(steps), x._a.offset + offset))


def _block(x: Any, starts: Sequence[int], sizes: Sequence[int]) -> Any:
    """The part of ``x`` that begins at ``starts``."""
    strides = x._a.strides
    return _seen(x, sizes, strides, sum(n * s for n, s in zip(starts, strides)))


def _cat(out: Any, tensors: Any, dim: int) -> None:
    rank = out._a.ndim
    dim = shapes.wrap_dim(dim, rank)
    starts = [0] * rank
    for t in tensors:
        sizes = t._a.shape
        if len(sizes) != rank:
            continue  # of one dimension and no elements: it joins anything
        copy_between(_block(out, starts, sizes), t)
        starts[dim] += sizes[dim]


def _stack(out: Any, tensors: Any, dim: int) -> None:
    dim = shapes.wrap_dim(dim, out._a.ndim)
    sizes = (*out._a.shape[:dim], *out._a.shape[dim + 1 :])
    steps = (*out._a.strides[:dim], *out._a.strides[dim + 1 :])
    for i, t in enumerate(tensors):
        copy_between(_seen(out, sizes, steps, i * out._a.strides[dim]), t)


def _repeat(out: Any, self: Any, repeats: Any) -> None:
    """One copy: both seen as (repeats[0], size[0], repeats[1], size[1], ...)."""
    new = len(repeats) - self._a.ndim
    sizes = (*(1,) * new, *self._a.shape)
    own = (*(0,) * new, *self._a.strides)
    shape = [n for pair in zip(repeats, sizes) for n in pair]
    to = [n for size, step in zip(sizes, out._a.strides) for n in (size * step, step)]
    of = [n for step in own for n in (0, step)]
    copy_between(_seen(out, shape, to), _seen(self, shape, of))


def _roll(out: Any, self: Any, shifts: Any, dims: Any) -> None:
    """Two blocks along each dimension."""
    if not dims:  # as if it were flat
        if not self.is_contiguous():
            whole = allocate(tuple(self._a.shape), self._t, self.device)
            copy_between(whole, self)
            self = whole
        out, self = (_seen(x, (x._a.size,), (1,)) for x in (out, self))
        dims = (0,)
    sizes = list(self._a.shape)
    shift = [0] * len(sizes)
    for s, d in zip(shifts, dims):
        d = shapes.wrap_dim(d, len(sizes))
        shift[d] += s
    along = []
    for n, s in zip(sizes, shift):
        s = s % n if n else 0
        along.append([(0, s, n - s), (n - s, 0, s)] if s else [(0, 0, n)])
    for block in product(*along):
        source, target, counts = zip(*block) if block else ((), (), ())
        copy_between(_block(out, target, counts), _block(self, source, counts))


def _constant_pad_nd(out: Any, self: Any, pad: Any, value: Any) -> None:
    """Fill, then copy what is kept."""
    rank = self._a.ndim
    kept, source, target = list(self._a.shape), [0] * rank, [0] * rank
    for i in range(len(pad) // 2):
        before, after, dim = pad[2 * i], pad[2 * i + 1], rank - 1 - i
        kept[dim] += min(before, 0) + min(after, 0)
        source[dim], target[dim] = max(-before, 0), max(before, 0)
    fill(out, value)
    if min(kept, default=1) > 0:
        copy_between(_block(out, target, kept), _block(self, source, kept))


_FILLS: dict[str, Callable[..., None]] = {
    "cat": _cat,
    "stack": _stack,
    "repeat": _repeat,
    "roll": _roll,
    "constant_pad_nd": _constant_pad_nd,
}


def _kernel(name: str, moved: Callable[..., None]) -> Callable[..., Any]:
    def move(*args: Any) -> Any:
        sizes, dtype = get(name).shape_rule()(*args)[:2]  # type: ignore[misc]
        tensors = list(args[0]) if isinstance(args[0], (list, tuple)) else [args[0]]
        where = one_device(f"aten::{name}", tensors, tensors[0].device.type)
        out = allocate(tuple(sizes), dtype, where)
        moved(out, *args)
        return out

    return move


KERNELS = {name: _kernel(name, moved) for name, moved in _FILLS.items()}
