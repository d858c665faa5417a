"""What an in-place operator does at once, while its values wait: versions, histories, refusals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mortice._autograd import inplace
from mortice._autograd.pending import PENDING, PendingEdge
from mortice._autograd.views import check_write as check_view_write
from mortice._capture.kernels import Call
from mortice._capture.tree import Step
from mortice._dispatch import keys as K
from mortice._dispatch.state import THREAD
from mortice._tensor.array import PendingArray
from mortice._tensor.make import ViewInfo, base_of
from mortice._tensor.storage import Storage

if TYPE_CHECKING:
    from mortice._capture.recorder import Recorder


def check_write(call: Call, args: tuple[Any, ...]) -> None:
    """Autograd's refusals, as eager has them."""
    if not THREAD.grad_enabled or call.keys & K.BELOW_AUTOGRAD:
        return
    for i in call.op.schema.mutated:
        t = args[i]
        if t is None:
            continue
        if call.grad:
            if t._k & K.AUTOGRAD or t._k & K.VIEW:
                inplace.check_inplace(t, call.op)
        elif t._k & K.VIEW:
            check_view_write(t, call.op)


def write(recorder: Recorder, step: Step, args: tuple[Any, ...]) -> Any:
    """The effects of an in-place operator that do not wait: versions and histories."""
    call = step.call
    if call.grad or (args[0] is not None and args[0]._k & K.VIEW):
        check_write(call, args)
    target = None
    for i in call.op.schema.mutated:
        target = args[i]
        if target is None:
            continue
        s = recorder.shared(target)
        s.version += 1
        if call.grad and call.form == "inplace" and target._t.differentiable:
            _rebase(recorder, target, s)
    return args[call.op.schema.mutated[0]] if call.form == "inplace" else None


def _rebase(recorder: Recorder, t: Any, s: Storage) -> None:
    """A tensor written to with history: it, and what it is a view of, have a new one to come."""
    base = base_of(t)
    _replace_history(recorder, t)
    s.epoch += 1
    if base is not None:
        _replace_history(recorder, base)
        t._b = ViewInfo(base, s.epoch)
        info = base._b
        if info.__class__ is ViewInfo:
            info.epoch = s.epoch
    inplace.views_may_be_stale()


def _replace_history(recorder: Recorder, t: Any) -> None:
    if t._g.__class__ is not PendingEdge and type(t._a) is not PendingArray:
        recorder.histories.append((t, t._g, t._k & K.AUTOGRAD))
    t._g = PENDING
    t._k |= K.AUTOGRAD
