"""Makes the loop-IR kernel of a table entry."""

from __future__ import annotations

from ..dtypes import computes_as
from ..dtypes import dtype as find_dtype
from ..errors import NotAvailable
from ..ir import Build, Kernel
from ..scalar import scalar_op
from . import fold_bodies, pointwise_bodies, row_bodies
from .table import Entry

_FAMILIES = {
    "row": row_bodies.build,
    "column": fold_bodies.build_column,
    "channel": fold_bodies.build_channel,
}


def build(e: Entry, symbol: str, dtype: str) -> Kernel:
    """Returns the kernel of entry ``e`` for ``dtype`` under the name ``symbol``."""
    made = _FAMILIES.get(e.family)
    if made is not None:
        return made(e, symbol, dtype)
    b = Build(symbol, ("n",))
    outs = [b.out(f"out{k}", "bool" if e.bool_out else dtype) for k in range(e.outs)]
    ins = [b.input(f"in{k}", dtype) for k in range(e.ins)]
    for s in e.scalars:
        b.scalar(s)
    b.each()
    compute = computes_as(dtype)
    values = [b.load(name, compute) for name in ins]
    body = getattr(pointwise_bodies, e.body, None)
    if body is None:
        _check_accepts(e.body, compute)
        results = [b.op(e.body, *values)]
    else:
        outcome = body(b, *values, *(b.param(s, compute) for s in e.scalars))
        results = list(outcome) if isinstance(outcome, tuple) else [outcome]
    for name, value in zip(outs, results, strict=True):
        b.store(name, value)
    return b.done()


def _check_accepts(op: str, compute: str) -> None:
    if find_dtype(compute).kind not in scalar_op(op).by_kind:
        raise NotAvailable(f"{op} does not take {compute}")
