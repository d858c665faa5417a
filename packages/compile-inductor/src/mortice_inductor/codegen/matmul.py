"""Matrix products: where their numbers are found."""

from __future__ import annotations

from ..ir.cells import Buffer
from ..lowering.matrix import Side
from ..passes.fuse import Step
from .driver import Product
from .kernel import Code


def product_of(
    step: Step, buffers: dict[int, Buffer], place: tuple[Buffer, Side], after: Code | None
) -> Product:  # fmt: skip
    """The product of a ``matmul`` step whose operands lie in memory and whose result goes to
    ``place``, followed by ``after``.
    """
    v = step.value
    left, right, k = v.attr
    a, b = (buffers[x.uid] for x in v.args)
    out, result = place
    *batch, m, n = v.shape
    places = [
        ("buffer", a.number, left.offset), ("buffer", b.number, right.offset),
        ("buffer", out.number, result.offset),
    ]  # fmt: skip
    numbers = [batch[0] if batch else 1, m, n, k, left.lead, right.lead, result.lead]
    for side in (left, right, result):
        numbers += [side.inner, side.outer_step, side.inner_step]
    params = (*places, *(("int", x) for x in numbers))
    label = v.where if after is None else f"{v.where}, {after.label}"
    return Product(v.dtype, left.transposed, right.transposed, params, label, step.tiles, after)
