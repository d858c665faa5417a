"""What tells a recorded call from others at its place, and what a later call must bring to be it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mortice._capture.kernels import Call, same
from mortice._capture.refusals import POWERS, accepted, looks_at
from mortice._tensor.array import PendingArray
from mortice._tensor.make import storage_of
from mortice._tensor.storage import Storage

if TYPE_CHECKING:
    from mortice._capture.recorder import Recorder

#: Python's numbers that are inputs of graphs.
_INPUT_NUMBERS = (int, float, complex)


def signature_of(
    recorder: Recorder, call: Call, args: tuple[Any, ...]
) -> tuple[Any, list[Any], list[Any]]:
    """(what tells the call from others here, what a later call must bring, new leaf tensors)."""
    parts: list[Any] = [call]
    wants: list[Any] = []
    fresh: list[Any] = []
    for kind, x in zip(call.kinds, args):
        if hasattr(x, "_k"):
            part, want = _operand(recorder, x, fresh)
        elif kind == "L" and isinstance(x, (list, tuple)):
            found = [(None, None) if t is None else _operand(recorder, t, fresh) for t in x]  # pyright: ignore[reportUnknownVariableType]
            part = tuple(p for p, _ in found)
            want = tuple(w for _, w in found)
        elif x is not None and (
            (
                kind in "NO"
                or (kind == "F" and not _is_default(call, len(wants), x))
                or (kind == "Z" and call.op.name in POWERS)
            )
            and (found := _number(recorder, call, args, x, len(wants))) is not None
        ):
            want = found
            part = (want, type(x))
        elif kind == "G":
            part = want = None
        else:
            part, want = _plain(x), x
        parts.append(part)
        wants.append(want)
    return tuple(parts), wants, fresh


def _operand(recorder: Recorder, t: Any, fresh: list[Any]) -> tuple[Any, Any]:
    a = t._a
    if type(a) is PendingArray:
        return a, a
    leaf = recorder.leaf_of(t)
    if leaf is not None:
        return leaf, leaf
    for i, other in enumerate(fresh):
        if other is t:
            return i, ("fresh", i)
    fresh.append(t)
    s = storage_of(t)
    cell = s.owner or s
    first: Any = None
    if cell.pending is recorder:
        first = recorder.leaf_over(cell)
    for i, other in enumerate(fresh[:-1]):
        if first is None and cell_of(other) is cell:
            first = ("fresh", i)
    a = t._a  # with the strides that it has beside its storage
    part = (t._k, t._t, tuple(a.shape), tuple(a.strides), type(a), t.device, first)
    return part, ("fresh", len(fresh) - 1)


def _number(recorder: Recorder, call: Call, args: Any, x: Any, position: int) -> Any:
    """What a later call must bring for a number that is an input; None if it is part of the recording."""
    if not looks_at(call.op, args, x):
        return type(x) if type(x) in _INPUT_NUMBERS else x
    varied = recorder.tree.varied
    if call not in varied:
        if not any(
            type(w := step.wants[position]) is type(x) and not same(w, x)
            for step in recorder.at.children.values()
            if step.call is call
        ):
            return None
        varied.add(call)
    return accepted(call.op, args, x)


def cell_of(t: Any) -> Storage:
    s = storage_of(t)
    return s.owner or s


def _is_default(call: Call, position: int, value: Any) -> bool:
    """Whether a number is its argument's default: such a one is part of the recording."""
    default = call.op.schema.arguments[position].default
    return type(value) is type(default) and value == default


def _plain(x: Any) -> Any:
    """A plain argument as a key: 1, 1.0 and True differ, as do 0.0 and -0.0."""
    kind = type(x)
    if kind is float or kind is complex:
        return kind, repr(x)
    if kind is tuple or kind is list:
        return tuple(_plain(y) for y in x)
    if kind is int or kind is bool:
        return kind, x
    return x
