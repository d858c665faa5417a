"""Matrix products by BLAS: which operands are passed transposed, and with which leading sizes."""

from __future__ import annotations

from ..ir.cells import Buffer
from ..ir.values import Value
from .driver import Product


def orientation(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[bool, int] | None:
    """(transposed, leading size) for the last two dimensions; None where BLAS takes neither."""
    rows, cols = shape[-2:]
    down, along = strides[-2:]
    if along == 1 and (down >= max(cols, 1) or rows == 1):
        return False, max(down, cols, 1)
    if down == 1 and (along >= max(rows, 1) or cols == 1):
        return True, max(along, rows, 1)
    if cols == 1 and rows == 1:
        return False, 1
    return None


def product_of(v: Value, buffers: dict[int, Buffer]) -> Product:
    """The product for a ``matmul`` value whose operands lie in memory."""
    a, b = (buffers[x.uid] for x in v.args)
    out = buffers[v.uid]
    ta, lda = _oriented(a)
    tb, ldb = _oriented(b)
    *_, m, k = a.shape
    n = b.shape[-1]
    batch = a.shape[0] if len(a.shape) == 3 else 1
    steps = [x.strides[0] if len(x.shape) == 3 else 0 for x in (a, b, out)]
    numbers = [batch, m, n, k, lda, ldb, n, *steps]
    params = [("buffer", x.number, 0) for x in (a, b, out)]
    return Product(v.dtype, ta, tb, (*params, *(("int", x) for x in numbers)), v.where)


def _oriented(b: Buffer) -> tuple[bool, int]:
    found = orientation(b.shape, b.strides)
    assert found is not None, "the operand was to be laid down in memory"
    return found
