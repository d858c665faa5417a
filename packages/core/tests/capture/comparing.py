"""Whether compiled and eager gave the same."""

from __future__ import annotations

from typing import Any

import numpy as np

import mortice


def same(a: Any, b: Any) -> None:
    """Equal to the last bit, in dtype, shape and strides too."""
    assert type(a) is type(b)
    if isinstance(a, (tuple, list)):
        assert len(a) == len(b)
        for x, y in zip(a, b):
            same(x, y)
    elif isinstance(a, mortice.Tensor):
        assert (a.dtype, a.shape, a.stride()) == (b.dtype, b.shape, b.stride())
        assert a.requires_grad == b.requires_grad
        assert np.array_equal(
            a.detach().numpy(), b.detach().numpy(), equal_nan=a.is_floating_point()
        )
    else:
        assert a == b or (a != a and b != b)


def tensors(tree: Any) -> list[Any]:
    if isinstance(tree, mortice.Tensor):
        return [tree]
    if isinstance(tree, (tuple, list)):
        return [t for x in tree for t in tensors(x)]
    return []


def aliases(*trees: Any) -> Any:
    """Which tensors are one object, and which share memory at which offsets."""
    found = [t for tree in trees for t in tensors(tree)]
    objects = [next(i for i, o in enumerate(found) if o is t) for t in found]
    memory = [
        next(i for i, o in enumerate(found) if o.untyped_storage() is t.untyped_storage())
        for t in found
    ]
    return objects, memory, [t.storage_offset() for t in found], [t._is_view() for t in found]
