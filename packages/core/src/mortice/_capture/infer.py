"""What a recorded operator gives: sizes, strides and dtypes by its shape rule, and the checks that
eager makes before it runs.
"""

from __future__ import annotations

from typing import Any

from mortice._autograd.grad_mode import no_grad
from mortice._base.errors import DynamicOutputShape
from mortice._capture import effects
from mortice._capture.refusals import looks_at
from mortice._dispatch.operator import Operator, get
from mortice._dispatch.state import unrecorded
from mortice._tensor import rows
from mortice._types import shapes
from mortice._types.device import CPU, Device, current_default
from mortice._types.dtypes import ALL
from mortice._types.promotion import NUMBERS
from mortice._types.shapes import contiguous_strides

_MASKS = frozenset(("bool", "uint8"))
#: (sizes, dtype, strides, device) of one result.
Spec = tuple[Any, Any, Any, Device]


def tensors_in(args: Any) -> list[Any]:
    """The tensors among arguments, those in lists included."""
    found: list[Any] = []
    for x in args:
        if hasattr(x, "_k"):
            found.append(x)
        elif isinstance(x, (list, tuple)):
            found += [y for y in x if hasattr(y, "_k")]  # pyright: ignore[reportUnknownVariableType]
    return found


_MASKED = frozenset(("index.Tensor", "index_put", "index_put_", "_index_put_impl_"))


def depends_on_values(op: Operator, args: Any) -> bool:
    """Whether the sizes of results, or the elements that are met, depend on the values of a mask."""
    return op.name in _MASKED and any(t._t.name in _MASKS for t in tensors_in((args[1],)))


def device_of(op: Operator, args: Any) -> Device:
    """Where the results will be."""
    position = op.schema.by_name.get("device")
    if position is not None and args[position] is not None:
        return Device(args[position])
    for t in tensors_in(args):
        return t.device
    return current_default()


def results(op: Operator, args: Any) -> list[Spec | None] | None:
    """What a call makes; None where the rule gives no tensors."""
    if not op.schema.returns:
        return []
    device = device_of(op, args)
    meta = op.registered("Meta")
    if meta is not None:
        return _from_meta(meta, args, device)
    found = by_rule(op, args)
    if type(found) is list:
        return [None if one is None else _spec(one, device) for one in found]
    if type(found) is tuple:
        return [_spec(found, device)]
    return None


def by_rule(op: Operator, args: Any) -> Any:
    """What the shape rule says; operators that it calls itself run, unrecorded."""
    if not op.row.shape:
        return None
    with unrecorded(flush=False):
        return rows.spec_rule(op)(*args)


def _spec(found: Any, device: Device) -> Spec:
    sizes, dtype = tuple(found[0]), found[1]
    strides = found[2] if len(found) > 2 and found[2] is not None else contiguous_strides(sizes)
    return sizes, dtype, tuple(strides), device


def _from_meta(kernel: Any, args: Any, device: Device) -> list[Spec | None] | None:
    """By a registered fake: it makes tensors on device meta, or of the sizes it is given.

    None where sizes depend on values.
    """
    from mortice._tensor.make import meta

    def stand_in(x: Any) -> Any:
        if hasattr(x, "_k"):
            return meta(tuple(x._a.shape), x._t, tuple(x.stride()))
        if isinstance(x, (list, tuple)):
            return type(x)(stand_in(y) for y in x)  # pyright: ignore[reportUnknownVariableType]
        return x

    try:
        with unrecorded(flush=False):
            made = kernel(*[stand_in(x) for x in args])
    except DynamicOutputShape:
        return None
    if made is None:
        return []
    many = made if isinstance(made, (list, tuple)) else (made,)
    if not all(m is None or hasattr(m, "_k") for m in many):
        return None
    return [
        None if m is None else (tuple(m._a.shape), m._t, tuple(m.stride()), device) for m in many
    ]


#: (operator, key set, dtypes and numbers' types) -> whether the device computes it.
_COMPUTED: dict[Any, bool] = {}


def is_computed(op: Operator, beneath: int, args: Any) -> bool:
    """Whether a device's kernel takes operands of these dtypes, and numbers that it may refuse, found
    by trying one element.

    Shape rules leave it to kernels to refuse dtypes, and a kernel would refuse late: after what
    Python does meanwhile. Elementwise operators and reductions alone can be tried so.
    """
    refusable = any(type(x) in NUMBERS and looks_at(op, args, x) for x in args)
    if op.row.functional:
        op = functional(op)
    if refusable:
        return _tried(op, args)
    if not _TRIED.intersection(op.row.tags) or _takes_floats(op, args):
        return True
    kinds = tuple(
        (x._t, x.dim()) if hasattr(x, "_k") else type(x) if type(x) in NUMBERS else x for x in args
    )
    try:
        found = _COMPUTED.get((op, beneath, kinds))
    except TypeError:
        return True  # a list of tensors
    if found is None:
        found = _COMPUTED[op, beneath, kinds] = _tried(op, args)
    return found


_TRIED = frozenset(("pointwise", "reduction"))
_PLAIN = frozenset((bool, int, float))
_FLOATS = (ALL["float32"], ALL["float64"])
#: Elementwise operators of which an operand must be a mask, or have no dimensions.
_CHOOSY = frozenset(("where.self", "masked_fill.Scalar", "masked_fill.Tensor", "fill.Tensor"))


def _takes_floats(op: Operator, args: Any) -> bool:
    """Whether it is known without a try: an elementwise operator with a derivative computes with
    float32 and float64 on the CPU. A try imports the device's kernels, which a compiled graph may
    never need.
    """
    if op.row.derivative in ("", "none") or op.name in _CHOOSY or "pointwise" not in op.row.tags:
        return False
    return all(
        (x._t is _FLOATS[0] or x._t is _FLOATS[1]) and x.device is CPU
        if hasattr(x, "_k")
        else type(x) in _PLAIN or (type(x) is str and x == op.schema.arguments[i].default)
        for i, x in enumerate(args)
    )


def _tried(op: Operator, args: Any) -> bool:
    from mortice._base import config
    from mortice._tensor.make import empty

    def single(x: Any) -> Any:
        if not hasattr(x, "_k"):
            return x
        made = empty((1,) * x.dim(), x._t, x.device)
        get("fill_.Scalar")(made, 1)
        return made

    # Where the device has no kernel, nothing leaves it by being tried: the compiled graph may have
    # code for it.
    with unrecorded(flush=False), no_grad(), config.override(fallback="silent"):
        try:
            op(*[single(x) for x in args])
        except Exception:
            return False
    return True


def views(op: Operator, args: Any) -> list[tuple[Any, Any, int, Any]]:
    """(sizes, strides, offset, dtype) of each view that a view operator makes."""
    found = by_rule(op, args)
    dtype = args[0]._t
    return [
        (tuple(one[0]), tuple(one[1]), one[2], one[3] if len(one) > 3 else dtype)
        for one in (found if type(found) is list else [found])
    ]


def check_inplace(op: Operator, args: Any) -> None:
    """The errors that eager raises before an in-place operator writes."""
    target = args[0]
    if op.name == "copy_":
        source = args[1]
        shapes.expand_strides(source._a.shape, source.stride(), target._a.shape)
        return
    found = by_rule(op, args)
    if type(found) is not tuple:
        return
    if tuple(found[0]) != tuple(target._a.shape):
        raise rows.broadcast_mismatch(op, target, found[0])
    if op.row.kind == "inplace":
        rows.check_cast(op, found[1], target._t)
    rows.check_overlap(op, target)


def differentiable(op: Operator, specs: list[Spec | None]) -> list[bool]:
    """Which results require grad where an operand does."""
    if op.row.derivative == "none":
        return [False] * len(specs)
    constant = effects.CONSTANT_OUTPUTS.get(op.name, ())
    return [
        s is not None and s[1].differentiable and i not in constant for i, s in enumerate(specs)
    ]


def functional(op: Operator) -> Operator:
    """The operator that computes what an in-place one writes."""
    return get(op.row.functional)
