"""Making steps: an operator's results inferred, and how a later call of the same kind gets them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mortice._autograd.pending import PENDING, edges_of_parts
from mortice._capture import infer
from mortice._capture.effects import MAY_RAISE_ON_INTEGERS
from mortice._capture.kernels import Call
from mortice._capture.refusals import is_number
from mortice._capture.signature import cell_of
from mortice._capture.tree import Leaf, Output, Step, start_of
from mortice._capture.writes import check_write
from mortice._dispatch import keys as K
from mortice._tensor.array import PendingArray
from mortice._types.shapes import dense_strides_like, has_overlap
from mortice.fx.stack import user_frame

if TYPE_CHECKING:
    from mortice._capture.recorder import Recorder


def make_step(
    recorder: Recorder, call: Call, args: tuple[Any, ...], wants: list[Any], fresh: list[Any]
) -> Step | None:
    """The step of a call that has not been made at this place; None if it cannot be recorded."""
    op = call.op
    if infer.depends_on_values(op, args):
        return None
    if op.name == "as_strided" and not _counts_inside(args[0], args[3]):
        return None
    if call.form != "view" and not infer.is_computed(op, call.beneath, args):
        return None
    if call.form == "view":
        geometry = infer.views(op, args)
        specs: Any = None
    elif call.form == "inplace":
        check_write(call, args)
        if has_overlap(args[0]._a.shape, args[0].stride()):
            return None  # what is written where is the kernel's own
        infer.check_inplace(op, args)
        specs, geometry = [], None
    else:
        specs, geometry = infer.results(op, args), None
        if specs is None:
            return None
    leaves = _new_leaves(recorder, fresh)
    step = Step(recorder.at, call, _resolve(wants, leaves))
    step.new_leaves = tuple(leaves)
    step.leaves += len(leaves)
    step.number_positions = tuple(
        i for i, (k, w) in enumerate(zip(call.kinds, step.wants)) if k in "NFOZ" and is_number(w)
    )
    step.numbers += len(step.number_positions)
    step.generators += call.generator is not None
    if recorder.place is not None:
        step.line = recorder.place() or step.line
    else:
        step.line = user_line() or step.line
    if geometry is not None:
        _plan_views(recorder, step, args, geometry)
    elif specs:
        _plan_fresh(recorder, step, specs)
    step.made += sum(o is not None for o in step.outputs)
    tensors = infer.tensors_in(args)
    keys = K.RECORD
    for t in tensors:
        keys |= t._k
    step.by_keys = keys == call.keys
    step.ends = call.raises or (
        op.name in MAY_RAISE_ON_INTEGERS and not any(t._t.differentiable for t in tensors)
    )
    _finish(step)
    return step


def user_line() -> tuple[str, int, str] | None:
    """(file, line, function) of the user's call that is being recorded."""
    frame = user_frame(2)
    if frame is None:
        return None
    return frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name


def _is_made(t: Any) -> bool:
    """Whether the path makes a tensor's memory."""
    return type(t._a) is PendingArray and t._a.output.leaf is None


def _counts_inside(t: Any, offset: Any) -> bool:
    """Whether a recording has the memory in which ``as_strided`` of ``t`` counts: of memory from
    outside it knows what the tensor shows, and what is written to between elements gets lost.
    """
    strides = tuple(t.stride())
    return dense_strides_like(t._a.shape, strides) == strides and (offset is None or _is_made(t))


def _new_leaves(recorder: Recorder, fresh: list[Any]) -> list[Leaf]:
    leaves: list[Leaf] = []
    for t in fresh:
        cell = cell_of(t)
        first = recorder.leaf_over(cell) if cell.pending is recorder else None
        for leaf, other in zip(leaves, fresh):
            if first is None and cell_of(other) is cell:
                first = leaf.cell
        leaves.append(Leaf(len(recorder.leaves) + len(leaves), t, first))
    return leaves


def _resolve(wants: list[Any], leaves: list[Leaf]) -> tuple[Any, ...]:
    """Operands with their new leaves in place."""
    found: list[Any] = []
    for w in wants:
        if type(w) is tuple and len(w) == 2 and w[0] == "fresh":
            found.append(leaves[w[1]])
        elif type(w) is tuple:
            found.append(_resolve(list(w), leaves))
        else:
            found.append(w)
    return tuple(found)


def _plan_fresh(recorder: Recorder, step: Step, specs: list[Any]) -> None:
    grads = infer.differentiable(step.call.op, specs) if step.call.grad else None
    number = step.made
    for i, spec in enumerate(specs):
        if spec is None:
            step.outputs.append(None)
            continue
        sizes, dtype, strides, device = spec
        handle = PendingArray(recorder.tree, sizes, dtype, device, strides)
        key = K.device_bit(device.type) | K.RECORD
        tracked = grads is not None and grads[i]
        if tracked:
            key |= K.AUTOGRAD
        edge = PENDING if tracked else None
        step.outputs.append(Output(step, number, handle, key, edge))
        number += 1


def _plan_views(recorder: Recorder, step: Step, args: tuple[Any, ...], geometry: list[Any]) -> None:
    call, base = step.call, args[0]
    want = step.wants[0]
    source: Any = want if isinstance(want, Leaf) else want.output
    leaf = source if isinstance(source, Leaf) else source.leaf
    tracked = call.grad and call.op.row.derivative != "none"
    many = len(geometry) > 1 or call.op.schema.returns[0].type.is_list
    edges = edges_of_parts(call.op.name, len(geometry)) if many else [PENDING]
    for i, (sizes, strides, offset, dtype) in enumerate(geometry):
        begins = (
            offset
            if leaf is None
            else offset - start_of(base if leaf.tensor is None else leaf.tensor, dtype)
        )
        handle = PendingArray(recorder.tree, sizes, dtype, base.device, strides, begins)
        on = tracked and dtype.differentiable
        key = (base._k & ~K.FUNCTIONALITY_MASK) | K.RECORD | (K.AUTOGRAD if on else 0)
        if call.op.name != "detach":
            key |= K.VIEW
        edge = edges[i] if on else None
        number = step.made + i
        step.outputs.append(Output(step, number, handle, key, edge, source, i if many else None))


def _finish(step: Step) -> None:
    """How the step's results are handed out: alone, or as a tuple."""
    call = step.call
    returns = call.op.schema.returns
    first = step.outputs[0] if step.outputs else None
    if (
        step.call.form == "fresh"
        and len(returns) == 1
        and first is not None
        and not (returns[0].type.is_list)
    ):
        step.simple = not (step.ends or call.draws)
        step.handle, step.key, step.edge = first.handle, first.key, first.edge
        step.result = first.dtype
    elif len(returns) != 1 or returns[0].type.is_list:
        step.result = tuple
    if not step.simple and step.result is not tuple:
        step.result = None
