"""Instructions that touch no memory."""

from __future__ import annotations

from ..ir.nodes import Instr
from .casts import bitcast, cast
from .functions import emit_op
from .lanes import Lanes
from .words import word


def plain(v: Lanes, i: Instr, names: list[str], given: list[str]) -> str:
    """Emits an instruction without memory access; ``v`` has the result's dtype, ``given`` are
    the operands' dtypes.
    """
    if i.op == "const":
        return v.c(i.attr)  # type: ignore[arg-type]
    if i.op == "cast":
        return cast(v.like(given[0]), names[0], v)
    if i.op == "bitcast":
        return bitcast(v.like(given[0]), names[0], v)
    if i.op == "select":
        return v.select(*names)
    if i.op == "philox":
        return word(v, *names)
    return emit_op(i.op, v.like(given[0]), names)
