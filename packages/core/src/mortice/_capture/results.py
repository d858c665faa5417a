"""The tensors that a replayed segment makes: as the recorded call had them, with new memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mortice._capture.segment import without_gradient
from mortice._capture.tree import Leaf, Output
from mortice._dispatch import keys as K
from mortice._tensor.make import ViewInfo, storage_of
from mortice._tensor.storage import device_storage
from mortice._tensor.tensor import Tensor
from mortice._types.shapes import contiguous_strides

_new = object.__new__
_ndarray = np.ndarray

#: ``make(outs, tensors)``: what the path made, by number; None where nothing was kept.
Maker = Callable[[Sequence[Any], Sequence[Any]], Sequence[Any]]


def maker(plan: Any, count: int, any_sizes: bool = False) -> Maker:
    """How the tensors of a recorded path are made from a segment's outputs and leaves."""
    if any_sizes:
        return _row_major(plan, count)
    return _general(plan, count) if _has_views(plan) else _adopting(plan, count)


def _has_views(plan: Any) -> bool:
    several = any(seen or len(whole) != 1 for _, whole, seen in plan.fills)
    return bool(several or plan.outside or plan.rebased)


def adopted(plan: Any) -> dict[int, tuple[int, int]] | None:
    """For each tensor made: which output of the graph it is, and its number of dimensions.

    None unless every output is one tensor by itself, row-major.
    """
    if _has_views(plan) or not all(_is_row_major(whole[0].handle) for _, whole, _ in plan.fills):
        return None
    return {w[0].number: (number, len(w[0].handle.shape)) for number, w, _ in plan.fills}


def _is_row_major(handle: Any) -> bool:
    return tuple(handle.strides) == contiguous_strides(handle.shape)


def _adopting(plan: Any, count: int) -> Maker:
    """Each output of the graph is one tensor: take it as it is if its memory is laid out so."""
    general = _general(plan, count)
    untracked = not plan.tracked
    rows = [
        (number, whole[0].number, *_layout(whole[0]), whole[0].key & K.AUTOGRAD)
        for number, whole, _ in plan.fills
    ]

    def make(outs: Sequence[Any], tensors: Sequence[Any]) -> Sequence[Any]:
        made: list[Any] = [None] * count
        for number, place, shape, strides, tracked in rows:
            out = outs[number]
            a = out._a
            if type(a) is not _ndarray or a.strides != strides or a.shape != shape:
                return general(outs, tensors)
            if tracked & ~out._k:  # overwritten by what has no history: it keeps one
                return general(outs, tensors)
            if untracked:
                out._s = None  # how it was computed does not count as writes
            made[place] = out
        return made

    return make


def _row_major(plan: Any, count: int) -> Maker:
    """Each output of the graph is one tensor, row-major, whatever its sizes."""
    rows = [(number, whole[0].number, whole[0].key & K.AUTOGRAD) for number, whole, _ in plan.fills]
    untracked = not plan.tracked

    def make(outs: Sequence[Any], tensors: Sequence[Any]) -> Sequence[Any]:
        made: list[Any] = [None] * count
        for number, place, tracked in rows:
            out = outs[number]
            if tracked & ~out._k:
                without_gradient(out)
            if type(out._a) is _ndarray and not out._a.flags.c_contiguous:
                out._a = np.ascontiguousarray(out._a)
            if untracked:
                out._s = None  # how it was computed does not count as writes
            made[place] = out
        return made

    return make


def _layout(o: Output) -> tuple[Any, Any]:
    h = o.handle
    return tuple(h.shape), tuple(s * h.dtype.itemsize for s in h.strides)


def _general(plan: Any, count: int) -> Maker:
    outputs: list[Output] = []
    for _, whole, seen in plan.fills:
        outputs += [*whole, *seen]
    outputs += plan.outside
    outputs.sort(key=lambda o: o.number)

    def make(outs: Sequence[Any], tensors: Sequence[Any]) -> Sequence[Any]:
        made: list[Any] = [None] * count
        storages: dict[Any, Any] = {}
        for o in outputs:
            made[o.number] = _tensor(o, made, tensors, storages)
        plan.fill(made, outs, tensors)
        return made

    return make


def _tensor(o: Output, made: Sequence[Any], tensors: Sequence[Any], storages: Any) -> Any:
    """A tensor as the recorder makes it, before it has memory."""
    r = _new(Tensor)
    r._a = o.handle
    r._k = o.key
    r._t = o.dtype
    r._g = o.edge
    r._s = r._b = None
    if o.base is None:
        return r
    base = _base(o, made, tensors)
    if base is None:  # a view whose base nobody holds: they share memory all the same
        r._s = storages.get(o.cell)
        if r._s is None:
            r._s = storages[o.cell] = device_storage(None, 0, o.handle.device)
        return r
    r._s = s = storage_of(base)
    if s.pending is not None:
        s.pending = None
    if o.key & K.VIEW:
        root = base._b
        r._b = root if root is not None else base if not s.epoch else ViewInfo(base, s.epoch)
    return r


def _base(o: Output, made: Sequence[Any], tensors: Sequence[Any]) -> Any:
    """The innermost tensor that is there and that ``o`` is a view of."""
    at: Any = o.base
    while True:
        if isinstance(at, Leaf):
            return tensors[at.number]
        if made[at.number] is not None or at.base is None:
            return made[at.number]
        at = at.base
