"""Memory that somebody outside may write to at any time: it is never read late."""

from __future__ import annotations

from typing import Any

import numpy as np

from mortice._base.holders import ONE_LOCAL, counted
from mortice._capture import infer
from mortice._capture.kernels import Call
from mortice._dispatch import keys as K
from mortice._tensor.make import empty, wrap
from mortice._types.device import CPU

#: Such memory is copied when it is recorded, up to this many bytes; operators on more run at once.
SNAPSHOT_BYTES = 64 * 1024


def is_exported(t: Any) -> bool:
    """Whether somebody outside may write to a tensor's memory."""
    s = t._s
    if s is None:
        return False
    cell = s.owner or s
    if not cell.exported:
        return False
    root = cell.root
    if cell.exported is not True or type(root) is not np.ndarray or root.base is not None:
        return True
    # Held by the variable, the tensor, its storage, maybe as bytes too: by nobody outside any more.
    if t._a is root and counted(root) <= ONE_LOCAL + (2 if cell._bytes is None else 3):
        cell.exported = False
        return False
    return True


def snapshots(call: Call, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """The arguments with copies of exported tensors, or None if the operator must run at once."""
    for i in call.op.schema.mutated:
        if any(is_exported(t) for t in infer.tensors_in((args[i],))):
            return None
    if call.form == "view":
        return None
    kept: dict[int, Any] = {}

    def replaced(x: Any) -> Any:
        if hasattr(x, "_k"):
            return _snapshot(x, kept) if is_exported(x) else x
        if isinstance(x, (list, tuple)):
            return type(x)(replaced(y) for y in x)  # pyright: ignore[reportUnknownVariableType]
        return x

    for t in infer.tensors_in(args):
        large = t._a.nbytes > SNAPSHOT_BYTES or t._k & K.AUTOGRAD or not t.is_cpu
        if large and is_exported(t):
            return None
    return tuple(replaced(x) for x in args)


def _snapshot(t: Any, kept: dict[int, Any]) -> Any:
    found = kept.get(id(t))
    if found is None:
        found = kept[id(t)] = _copied(t)
    return found


def _copied(t: Any) -> Any:
    """A copy with the original's strides, from which those of results follow."""
    if t._a.flags.c_contiguous:
        return wrap(t._a.copy(), t._t)
    made = empty(t._a.shape, t._t, CPU, t.stride())
    np.copyto(made._a, t._a)
    return made
