"""Matrix products: where their numbers are found, and whether tiles or BLAS do them."""

from __future__ import annotations

from collections.abc import Callable

from mortice_llvm import blas
from mortice_llvm.gemm import prefers_blas

from ..ir.cells import Buffer
from ..ir.values import Value
from .driver import Product

#: BLAS's routine by element type.
ROUTINES = {"f32": "cblas_sgemm", "f64": "cblas_dgemm"}


def product_of(v: Value, buffers: dict[int, Buffer], log: Callable[[str], None]) -> Product:
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
    return Product(
        v.dtype, left.transposed, right.transposed, params, v.where, _by_tiles(v, m, n, k, log)
    )  # fmt: skip


def _by_tiles(v: Value, m: int, n: int, k: int, log: Callable[[str], None]) -> bool:
    """Whether tiles do the product, with the reason in the log."""
    shape = f"{v.where}: ({m}, {k}) x ({k}, {n})"
    reason = prefers_blas(v.dtype, m, n, k)
    if reason is None:
        log(f"{shape} by tiles; what follows it is a kernel of its own")
        return True
    if blas.routine(ROUTINES[v.dtype]) is None:
        log(f"{shape} by tiles: numpy brings no BLAS whose routines can be called")
        return True
    log(f"{shape} by BLAS: {reason}")
    return False
