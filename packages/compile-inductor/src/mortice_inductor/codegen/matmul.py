"""Matrix products by BLAS: where a product's numbers are found."""

from __future__ import annotations

from ..ir.cells import Buffer
from ..ir.values import Value
from .driver import Product


def product_of(v: Value, buffers: dict[int, Buffer]) -> Product:
    """The product for a ``matmul`` value whose operands lie in memory."""
    left, right, k = v.attr
    a, b = (buffers[x.uid] for x in v.args)
    out = buffers[v.uid]
    *batch, m, n = v.shape
    places = [
        ("buffer", a.number, left.offset), ("buffer", b.number, right.offset),
        ("buffer", out.number, 0),
    ]  # fmt: skip
    numbers = [batch[0] if batch else 1, m, n, k, left.lead, right.lead, n]
    for side in (left, right):
        numbers += [side.inner, side.outer_step, side.inner_step]
    numbers += [1, m * n, 0]
    params = (*places, *(("int", x) for x in numbers))
    return Product(v.dtype, left.transposed, right.transposed, params, v.where)
