"""Properties and functions over views that are not ATen overloads of their own."""

from __future__ import annotations

from typing import Any

import numpy as np

from mortice._dispatch.call import Packet, call, seen_as_itself
from mortice._dispatch.operator import get
from mortice._types import layout

_contiguous = Packet("contiguous", True)
_broadcast_tensors = Packet("broadcast_tensors")


def contiguous(self: Any, memory_format: Any = layout.contiguous_format) -> Any:
    """The tensor itself if its elements lie in the given order without gaps, else a copy."""
    a = self._a
    if memory_format is layout.contiguous_format and type(a) is np.ndarray and a.flags.c_contiguous:
        return self
    return call(_contiguous, (self,), {"memory_format": memory_format})


_contiguous.public = contiguous


def broadcast_tensors(*tensors: Any) -> Any:
    """All tensors expanded to the shape in which they meet."""
    if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)):
        tensors = tuple(tensors[0])
    return call(_broadcast_tensors, (tensors,), {})


_broadcast_tensors.public = broadcast_tensors


def broadcast_shapes(*shapes: Any) -> Any:
    """The shape in which tensors of the given shapes meet; a shape may be a plain integer."""
    from mortice._types.shapes import Size, broadcast_all

    return Size(broadcast_all([(s,) if isinstance(s, int) else tuple(s) for s in shapes]))


def split(tensor: Any, split_size_or_sections: Any, dim: int = 0) -> Any:
    """Views of consecutive parts along ``dim``, of one size or of a list of sizes."""
    if isinstance(split_size_or_sections, (list, tuple)):
        return call(_split_sizes, (tensor, split_size_or_sections, dim), {})
    return call(_split, (tensor, split_size_or_sections, dim), {})


@seen_as_itself
def split_method(self: Any, split_size: Any, dim: int = 0) -> Any:
    """As ``mortice.split``."""
    return split(self, split_size, dim)


_split = Packet("split")
_split_sizes = Packet("split_with_sizes")
_split.public = _split_sizes.public = split


def _property(name: str, doc: str) -> Any:
    return property(lambda self: get(name)(self), doc=doc)


METHODS: dict[str, Any] = {
    "contiguous": contiguous,
    "split": split_method,
    "T": _property("numpy_T", "The tensor with its dimensions reversed."),
    "mT": _property("mT", "The tensor with its last two dimensions swapped."),
    "H": _property("matrix_H", "The conjugate transpose of a matrix."),
    "mH": _property("mH", "The conjugate of the tensor with its last two dimensions swapped."),
}

FUNCTIONS: dict[str, Any] = {
    "split": split,
    "broadcast_tensors": broadcast_tensors,
    "broadcast_shapes": broadcast_shapes,
}
