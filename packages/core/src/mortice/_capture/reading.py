"""Reading memory while something is recorded: what must run first, and what need not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mortice._base.errors import InvalidState
from mortice._capture import breaks
from mortice._capture.refusals import is_number
from mortice._capture.tree import Leaf
from mortice._dispatch import keys as K
from mortice._dispatch.state import THREAD, unrecorded
from mortice._tensor.array import PendingArray
from mortice._tensor.make import host_array, wrap
from mortice._tensor.storage import Storage
from mortice._types.promotion import NUMBERS

if TYPE_CHECKING:
    from mortice._capture.recorder import Recorder

#: Who reads a tensor's memory and keeps no hold of it.
_ONLY_READING = frozenset(("tolist", "repr", "to_host", "deepcopy"))


def read_value(recorder: Recorder, op: Any, beneath: int, args: Any) -> Any:
    """Run an operator that gives Python a value; what was recorded runs first if it must."""
    if op.name == "_local_scalar_dense":
        t = args[0]
        if not is_stale(recorder, t):
            breaks.note(recorder, breaks.reading(op.name))
            with unrecorded(flush=False):
                return op.lookup(op.keys_of(args) & ~K.RECORD)(t)
        counted = _counted(recorder, t)
        if counted is not None:
            breaks.note(recorder, breaks.reading(op.name))
            if recorder.trace is not None:
                recorder.trace.immediate.append((len(recorder.trace.runs), "counter"))
            return counted
    return recorder.run_now(op, beneath, args)


def is_stale(recorder: Recorder, t: Any) -> bool:
    """Whether reading a tensor's memory now would miss what was recorded."""
    if type(t._a) is PendingArray:
        return True
    s = t._s
    if s is None:
        return False
    cell = s.owner or s
    if cell.pending is None:
        return False
    if cell.pending is not recorder:
        return True
    recorder.hazards.follow(recorder.at)
    return recorder.leaf_over(cell) in recorder.hazards.written


def in_memory(recorder: Recorder, t: Any) -> Any:
    """The elements of a tensor as a numpy array, if nothing recorded is yet to write them."""
    a = t._a
    if type(a) is PendingArray:  # perhaps a view of what is in memory
        cell = a.output.cell
        recorder.hazards.follow(recorder.at)
        if not isinstance(cell, Leaf) or cell in recorder.hazards.written or not t.is_cpu:
            return None
        return host_array(t._s, t._t, a.shape, a.strides, a.offset)
    return a if type(a) is np.ndarray and not is_stale(recorder, t) else None


def _counted(recorder: Recorder, t: Any) -> Any:
    """The value of a 0-d tensor that was only counted up since the segment began, else None.

    An optimizer counts its steps in such tensors, one per parameter, and reads each: that
    would make a segment of every parameter.
    """
    leaf = recorder.leaf_of(t)
    if leaf is None or leaf.shape or leaf.key & (K.AUTOGRAD | K.VIEW) or not t.is_cpu:
        return None
    with unrecorded(flush=False):
        value = wrap(t._a.copy(), t._t)
        for step in recorder.hazards.writers[leaf.cell]:
            if step.wants[0] is not leaf or step.call.form != "inplace":
                return None
            numbers = iter(recorder.numbers[step.numbers - len(step.number_positions) :])
            args = [next(numbers) if is_number(w) else w for w in step.wants[1:]]
            if not all(w is None or type(w) in NUMBERS or type(w) is str for w in args):
                return None
            op = step.call.op
            op.lookup(op.keys_of((value, *args)) & ~K.RECORD)(value, *args)
        return value._a.item()


def settle(what: Any, reader: str = "") -> None:
    """Bring a tensor's or a storage's memory up to date with what was recorded, in any thread."""
    mine = THREAD.recorder
    if reader in _ONLY_READING and mine is not None and not is_stale(mine, what):
        mine.value_read(what, reader, None)
        return
    s = what if isinstance(what, Storage) else what._s
    if s is not None:
        recorder = (s.owner or s).pending or s.pending
        if recorder is not None:
            recorder.flush(breaks.reading(reader), allowed=recorder is not mine)
    if not isinstance(what, Storage):
        a = what._a
        if type(a) is PendingArray:
            recorder = a.home.recorder
            if recorder is None:
                raise InvalidState("the tensor has no value: the compiled call that made it ended.")
            recorder.flush(breaks.reading(reader), allowed=recorder is not mine)
    if reader and mine is not None:
        mine.value_read(what, reader, None)
