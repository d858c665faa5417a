"""Products: tiles or BLAS, and what follows a product as a part of it.

An elementwise kernel that reads a product by tiles at its own elements is the product's epilogue:
tiles run it on each block of the result as they finish it, while the block lies in the cache. The
product's own result then lies where one of the epilogue's lies, if that has its dtype and rows of
consecutive elements, and is no buffer of its own; or where it would lie anyhow, if somebody else
reads it. BLAS gives no blocks, so what follows it stays a kernel; so does what follows a small product.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mortice_llvm import blas
from mortice_llvm.gemm import prefers_blas

from ..ir import index as ix
from ..ir.cells import Buffer, Evaluator, Misfit, cells_under
from ..ir.index import Expr
from ..ir.values import Value
from ..lowering.matrix import Side, side
from .fuse import Fusion, Kernel, Step, place_of, store_expression

if TYPE_CHECKING:
    from ..ir.values import Shape
    from ..settings import Log

#: Results of at most FEW elements lie in the cache anyhow: there, if k is below SHORT, calls for
#: blocks take longer (up to 6%) than one kernel for all.
FEW, SHORT = 32768, 128

#: BLAS's routine by element type.
ROUTINES = {"f32": "cblas_sgemm", "f64": "cblas_dgemm"}


def by_tiles(v: Value, log: Log) -> bool:
    """Whether tiles do the product ``v``, with the reason in the log."""
    m, n = v.shape[-2:]
    k = v.attr[2]
    shape = f"{v.where}: ({m}, {k}) x ({k}, {n})"
    reason = prefers_blas(v.dtype, m, n, k)
    if reason is None:
        log(f"{shape} by tiles")
        return True
    if blas.routine(ROUTINES[v.dtype]) is None:
        log(f"{shape} by tiles: numpy brings no BLAS whose routines can be called")
        return True
    log(f"{shape} by BLAS: {reason}; what follows it is a kernel of its own")
    return False


def attach(fusion: Fusion) -> None:
    """Chooses how each product is done, and gives those by tiles their epilogues."""
    for step in fusion.work:
        if isinstance(step, Step) and step.value.op == "matmul":
            step.tiles = by_tiles(step.value, fusion.log)
    if not fusion.settings.fusion:
        return
    for step in reversed(fusion.work):
        if isinstance(step, Step) and step.tiles:
            _attach(fusion, step)


def _attach(fusion: Fusion, step: Step) -> None:
    readers = [w for w in fusion.work if isinstance(w, Kernel) and step.value.uid in w.reads]
    for kernel in readers:
        try:
            found = _epilogue(fusion, step, kernel)
        except Misfit as misfit:
            fusion.log(f"{kernel.name()} is no part of {step.value.where}: {misfit}")
            continue
        fusion.log(f"{kernel.name()} is a part of {step.value.where}, block by block")
        step.epilogue = found
        step.reads |= found.reads - {step.value.uid}
        fusion.work.remove(kernel)
        fusion.maker |= {v.uid: step for v in kernel.stores}
        return


def _epilogue(fusion: Fusion, step: Step, kernel: Kernel) -> Kernel:
    """The kernel over the product's own rows and columns; Misfit if it is no epilogue."""
    product = step.value
    if kernel.reduced:
        raise Misfit("it reduces")
    if product.numel <= FEW and product.attr[2] < SHORT:
        raise Misfit("the product is small")
    if kernel.overwrites:
        raise Misfit("it overwrites a placeholder")
    if fusion.depends(kernel.reads - {product.uid}, step):
        raise Misfit("it also needs what is made of the product elsewhere")
    made = Kernel(kernel.number, product.shape, ())
    made.stores = kernel.stores
    made.places = {v.uid: place_of(made, v) for v in made.stores}
    evaluator = Evaluator(made.sizes, fusion.buffers, made.places, {})
    cells = cells_under([evaluator.define(v, made.places[v.uid]) for v in made.stores])
    made.reads = evaluator.reads
    buffer = fusion.buffers[product.uid]
    own = ix.linear(made.row_index(), buffer.strides)
    for c in cells:
        reads = c.op in ("load", "gather") and c.attr[0] == buffer.number
        if reads and (c.op == "gather" or c.args or c.attr[1] != own):
            raise Misfit("it reads the product at other places than its own")
    for v in made.stores:
        if not _reached(store_expression(made, v, fusion.buffers[v.uid].strides), made.sizes):
            raise Misfit(f"{v.where or v.op} is stored in another order")
    return made


def _reached(e: Expr, sizes: Shape) -> bool:
    """True if loops over rows, which may be split, and over columns reach ``e``."""
    columns = len(sizes) - 1
    return not ix.is_tangled(e, sizes) and not any(
        columns in ix.variables(Expr(((atom, 1),), 0)) and not isinstance(atom.of, int)
        for atom, _ in e.terms
    )


def home(
    step: Step, buffers: dict[int, Buffer], stored: list[Value], needed: bool
) -> tuple[Buffer, Side]:
    """Where a product's result is written to, and how it lies there: in the memory of one of the
    values ``stored`` by its epilogue unless the result itself is ``needed``.
    """
    product = step.value
    own = buffers[product.uid]
    if step.epilogue is not None and not needed:
        for v in stored:
            found = side(product.shape, store_expression(step.epilogue, v, buffers[v.uid].strides))
            if v.dtype == own.dtype and _takes_blocks(found):
                assert found is not None
                return buffers[v.uid], found
    found = side(product.shape, ix.linear([ix.var(k) for k in range(len(product.shape))],
                                          ix.contiguous(product.shape)))  # fmt: skip
    assert found is not None
    return own, found


def _takes_blocks(found: Side | None) -> bool:
    return found is not None and not found.transposed and found.inner == 1 and not found.offset


def seen_by_epilogue(step: Step, where: Buffer, lies: Side) -> Buffer:
    """The product's result as its epilogue reads it, in memory that it shares with another value."""
    strides = (lies.outer_step, lies.lead, 1)[-len(step.value.shape) :]
    return Buffer(where.number, step.value, where.kind, strides)
