"""Indices that are in memory already are checked when they are recorded, so that no segment ends.

An operator that refuses indices out of range would refuse when its segment runs, after what Python
does meanwhile. Where all its indices can be looked at now, and are in range, nothing can happen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from mortice._capture.reading import in_memory

#: (index tensor, size of the dim that it indexes, whether negative ones count from the end, an
#: index that stands for none, or None)
Lookup = tuple[Any, int, bool, int | None]


def _embedding(weight: Any, indices: Any, *rest: Any) -> Iterable[Lookup]:
    yield indices, weight._a.shape[0], False, None


def _along(self: Any, dim: int, index: Any, *rest: Any) -> Iterable[Lookup]:
    yield index, self._a.shape[dim] if self._a.shape else 1, False, None


def _subscript(self: Any, indices: Any, *rest: Any) -> Iterable[Lookup]:
    for d, index in enumerate(indices):
        if index is not None:
            yield index, self._a.shape[d], True, None


def _classes(
    self: Any, target: Any, weight: Any, reduction: Any, ignore_index: int
) -> Iterable[Lookup]:
    yield target, self._a.shape[1 if self.dim() > 1 else 0], False, ignore_index


_LOOKUPS: dict[str, Callable[..., Iterable[Lookup]]] = {
    "embedding": _embedding,
    "index.Tensor": _subscript,
    "index_put": _subscript,
    "index_put_": _subscript,
    "nll_loss_forward": _classes,
    **dict.fromkeys(
        (
            "index_select", "index_add", "index_add_", "index_copy", "index_copy_", "gather",
            "scatter.src", "scatter.value", "scatter_.src", "scatter_.value", "scatter_add",
            "scatter_add_", "index_fill.int_Scalar", "index_fill_.int_Scalar",
        ),
        _along,
    ),
}  # fmt: skip
_INTEGERS = frozenset(("int64", "int32"))


def hold(recorder: Any, name: str, args: Any) -> bool:
    """Whether all indices of a call are known to be in range; False where that cannot be told."""
    lookups = _LOOKUPS.get(name)
    return lookups is not None and all(_in_range(recorder, *lookup) for lookup in lookups(*args))


def _in_range(recorder: Any, index: Any, size: int, negative: bool, none: int | None) -> bool:
    a = in_memory(recorder, index) if index._t.name in _INTEGERS else None
    if a is None:
        return False
    if not a.size:
        return True
    if none is not None and not 0 <= none < size:
        a = a[a != none]
        if not a.size:
            return True
    return bool(a.min() >= (-size if negative else 0) and a.max() < size)
