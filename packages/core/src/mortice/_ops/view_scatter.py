"""A copy with one view of it replaced: ``select_scatter`` and its kind. Declared in ``indexing.yaml``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mortice._base.errors import ShapeError
from mortice._ops import view as views
from mortice._ops.formulas import call
from mortice._types import layout, shapes


def _shape(x: Any) -> tuple[int, ...]:
    return tuple(x._a.shape)


def _fits(view: Sequence[int], src: Any, name: str) -> None:
    if tuple(view) != _shape(src):
        raise ShapeError(
            f"expected src to have a size equal to the {name} of self. src size = "
            f"{list(src.shape)}, {name} size = {list(view)}"
        )


def _cloned(self: Any) -> Any:
    return _shape(self), self._t, shapes.dense_strides_like(self._a.shape, self.stride())


def select_scatter(self: Any, src: Any, dim: int, index: int) -> Any:
    _fits(views.select(self, dim, index)[0], src, "slice")
    return _cloned(self)


def slice_scatter(self: Any, src: Any, dim: int, start: Any, end: Any, step: int) -> Any:
    sizes = views.slice_(self, dim, start, end, step)[0]
    shapes.expand_strides(_shape(src), src.stride(), sizes)
    return _cloned(self)


def diagonal_scatter(self: Any, src: Any, offset: int, dim1: int, dim2: int) -> Any:
    _fits(views.diagonal(self, offset, dim1, dim2)[0], src, "slice")
    return _cloned(self)


def as_strided_scatter(self: Any, src: Any, size: Any, stride: Any, offset: Any) -> Any:
    _fits(tuple(size), src, "slice")
    if shapes.has_overlap(self._a.shape, self.stride()):
        return _shape(self), self._t
    return _shape(self), self._t, self.stride()


def _with(self: Any, src: Any, name: str, *args: Any) -> Any:
    out = call("clone", self, None)
    call("copy_", call(name, out, *args), src, False)
    return out


def select_scatter_by_copy(self: Any, src: Any, dim: int, index: int) -> Any:
    select_scatter(self, src, dim, index)
    return _with(self, src, "select.int", dim, index)


def slice_scatter_by_copy(self: Any, src: Any, dim: int, start: Any, end: Any, step: int) -> Any:
    return _with(self, src, "slice.Tensor", dim, start, end, step)


def diagonal_scatter_by_copy(self: Any, src: Any, offset: int, dim1: int, dim2: int) -> Any:
    diagonal_scatter(self, src, offset, dim1, dim2)
    return _with(self, src, "diagonal", offset, dim1, dim2)


def as_strided_scatter_by_copy(self: Any, src: Any, size: Any, stride: Any, offset: Any) -> Any:
    as_strided_scatter(self, src, size, stride, offset)
    out = _with_its_gaps(self)
    call("copy_", call("as_strided", out, size, stride, offset), src, False)
    return out


def _with_its_gaps(self: Any) -> Any:
    """A copy with the same strides and offset, and with what lies between its elements."""
    if shapes.has_overlap(self._a.shape, self.stride()):
        return call("clone", self, layout.contiguous_format)
    extent = shapes.storage_extent(self._a.shape, self.stride(), self.storage_offset())
    memory = call("clone", call("as_strided", self, (extent,), (1,), 0), None)
    return call("as_strided", memory, _shape(self), self.stride(), self.storage_offset())


__all__ = [name for name in dir() if not name.startswith("_")]
