"""Writes a fused kernel as loop IR.

Cells that do not depend on the vector loop (or the fold) are computed once per row. Reductions are
emitted in stages: each stage is a pass over the row that computes all reductions whose operands
are known, and what may be stored by then. What a later pass needs again is computed again, unless
it is dear and an output can keep it.
"""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

from mortice_llvm.ir import Build
from mortice_llvm.ir import Expr as Place
from mortice_llvm.ir import Kernel as LoopKernel
from mortice_llvm.ir import text as kernel_text

from ..ir import index as ix
from ..ir.cells import Buffer, Cell, Evaluator, Misfit, cells_under
from ..ir.index import Expr
from ..ir.values import Value
from ..passes.fuse import CHEAP, COSTS, Kernel, store_expression
from .nest import Nest, Space, arrange, settle

# How a caller finds a parameter: ("buffer", number, element offset), ("int", n),
# ("number", slot, "f64" or "i64").
Param = tuple[Any, ...]


class Code(NamedTuple):
    """A kernel's loop IR and, in the order of its C parameters, what to pass."""

    kernel: LoopKernel
    params: tuple[Param, ...]
    label: str

    def touched(self) -> list[int]:
        """Numbers of the buffers that it reads and writes."""
        return [p[1] for p in self.params if p[0] == "buffer"]


class Unfit(Exception):
    """No loop nest computes this kernel; the text says why."""


class Job(NamedTuple):
    """A store or a reduction to emit: its cell (or cells), place, and stage."""

    value: Value
    cells: tuple[Cell, ...]
    place: Expr
    buffer: Buffer | None
    stage: int
    per_row: bool


def emit(
    kernel: Kernel, buffers: dict[int, Buffer], stored: list[Value], blocks: bool = False
) -> Code:  # fmt: skip
    """Loop IR for ``kernel``, which writes the values ``stored`` to their buffers.

    ``blocks``: it is called for blocks of rows and columns, which are those of its last variable.
    """
    return _Writer(kernel, buffers, stored, blocks).write()


class _Writer:
    def __init__(
        self, kernel: Kernel, buffers: dict[int, Buffer], stored: list[Value], blocks: bool
    ) -> None:  # fmt: skip
        self.kernel = kernel
        self.blocks = blocks
        self.by_number = {b.number: b for b in buffers.values()}
        evaluator = Evaluator(kernel.sizes, buffers, kernel.places, kernel.rows)
        self.stage_of: dict[int, int] = {}
        self.jobs: list[Job] = []
        reductions = [(v, self._operands(evaluator, v)) for v in kernel.reductions]
        self.reduction_stage: dict[int, int] = {}
        for v, cells in reductions:
            self.reduction_stage[v.uid] = max(self._stage(c) for c in cells)
            self.jobs.append(
                Job(v, cells, ix.ZERO, None, self.reduction_stage[v.uid], per_row=False)
            )
        for v in stored:
            if v.uid in kernel.rows:
                place = kernel.rows[v.uid]
                cell = evaluator.of(v, place)
            else:
                place = kernel.places[v.uid]
                cell = evaluator.define(v, place)
            buffer = buffers[v.uid]
            expr = store_expression(kernel, v, buffer.strides)
            per_row = bool(kernel.reduced) and v.numel == _count(kernel.kept)
            self.jobs.append(Job(v, (cell,), expr, buffer, self._stage(cell), per_row))
        self._settle()

    def _operands(self, evaluator: Evaluator, v: Value) -> tuple[Cell, ...]:
        index = self.kernel.operands[v.uid]
        return tuple(evaluator.of(a, index) for a in v.args)

    def _stage(self, cell: Cell) -> int:
        """How many passes over the row come before this cell is known."""
        found = self.stage_of.get(cell.uid)
        if found is None:
            if cell.op == "reduced":
                found = self.reduction_stage[cell.attr] + 1
            else:
                found = max((self._stage(a) for a in cell.args), default=0)
            self.stage_of[cell.uid] = found
        return found

    # -- loops -----------------------------------------------------------------------------------

    def _settle(self) -> None:
        k = self.kernel
        self.space = Space(k.sizes, len(k.kept))
        roots = [c for job in self.jobs for c in job.cells]
        self.cells = cells_under(roots)
        leaves = [_expr_of(c) for c in self.cells if c.op in ("load", "gather", "index")]
        places = [job.place for job in self.jobs if job.buffer]
        settle(self.space, [*leaves, *places], self.blocks)
        positional = any(v.attr[0].startswith("arg") for v in k.reductions)
        memory = [_expr_of(c) for c in self.cells if c.op == "load"] + places
        nest = arrange(self.space, [self.space.apply(e) for e in memory], positional)
        if nest is None:
            raise Unfit("its reductions run over more loops than a kernel has")
        self.nest = self._with_rows(nest)
        self.varies = {c.uid: self._varies(c) for c in self.cells}

    def _with_rows(self, nest: Nest) -> Nest:
        """Adds a loop of one step where reductions have no row, or nothing is left to loop over."""
        if nest.inner < 0 or ((nest.reduces_inner or self.blocks) and not nest.rows):
            self.space.sizes.append(1)
            self.space.kept.append(True)
            extra = len(self.space.sizes) - 1
            if nest.inner < 0:
                return nest._replace(inner=extra)
            return nest._replace(rows=(extra,))
        return nest

    def _varies(self, cell: Cell) -> bool:
        """True if the cell changes within a row."""
        if cell.op == "gather":
            return True
        if cell.op in ("load", "index"):
            e = self.space.apply(_expr_of(cell))
            moving = ix.variables(e) & {self.nest.inner, self.nest.over}
            return bool(moving) or (cell.op == "load" and (bool(cell.args) or not ix.is_affine(e)))
        if cell.op == "index" and not ix.is_affine(self.space.apply(cell.attr)):
            return True
        return any(self._varies(a) for a in cell.args)

    # -- text ------------------------------------------------------------------------------------

    def write(self) -> Code:
        """The kernel's loop IR."""
        nest = self.nest
        names = [f"d{n}" for n in range(len(nest.rows) + 1)]
        self.dims = dict(zip((*nest.rows, nest.inner), names))
        over = "over" if nest.over >= 0 else ""
        if over:
            self.dims[nest.over] = over
        self.build = Build("kernel", tuple(names), over, blocks=self.blocks)
        self.buffer_params: dict[Any, tuple[str, int, int]] = {}
        self.symbols: dict[str, int] = {}
        self.scalars: dict[Any, tuple[str, Param]] = {}
        self.per_row: dict[int, Place] = {}
        self.reduced: dict[int, Place] = {}
        self._declare_outputs()
        stages = sorted({job.stage for job in self.jobs if not job.per_row})
        self.kept = self._kept_between_passes(stages)
        lanes = nest.over >= 0 and not nest.reduces_inner
        for stage in stages:
            self.stage = stage
            jobs = [job for job in self.jobs if job.stage == stage and not job.per_row]
            (self._fold_stage if nest.over >= 0 else self._each_stage)(jobs)
        self.kept = {}  # the outputs hold their own values now
        self._row_stores([job for job in self.jobs if job.per_row], lanes)
        return self._finished()

    def _kept_between_passes(self, stages: list[int]) -> dict[int, tuple[int, Job]]:
        """Dear cells that a later pass needs again -> the pass that computes them, and the output
        that holds them until its own values are stored.
        """
        free = [
            job for job in self.jobs
            if job.buffer is not None and not job.per_row and job.stage == stages[-1]
            and job.buffer.kind != "input"
        ]  # fmt: skip
        seen: dict[int, int] = {}
        found: dict[int, tuple[int, Job]] = {}
        for stage in stages:
            passing = (j for j in self.jobs if j.stage == stage and not j.per_row)
            roots = [c for job in passing for c in job.cells]
            again = [c for c in cells_under(roots) if c.uid in seen and self.varies[c.uid]]
            inner = {u.uid for c in again for a in c.args for u in cells_under([a])}
            for c in again:
                job = next((j for j in free if j.buffer and j.buffer.dtype == c.dtype), None)
                if c.uid in inner or c.uid in found or job is None or cell_cost(c) <= CHEAP:
                    continue
                free.remove(job)
                found[c.uid] = (seen[c.uid], job)
            for c in cells_under(roots):
                seen.setdefault(c.uid, stage)
        return found

    def _keep(self, stage: int, here: dict[int, Place]) -> None:
        """Stores what this pass computed and a later one needs."""
        for uid, (first, job) in self.kept.items():
            if first == stage and uid in here:
                assert job.buffer is not None
                name = self._buffer(job.buffer.number, self._store_expr(job), "out")
                self.build.store(name, here[uid])

    def _finished(self) -> Code:
        made = self.build.done()
        # A name that follows from what the kernel does.
        digest = hashlib.blake2b(kernel_text(made).encode(), digest_size=16).hexdigest()
        made = made._replace(name=f"k{digest}")
        params: list[Param] = [("buffer", *p[1:]) for p in self.buffer_params.values()]
        size = {name: self.space.sizes[k] for k, name in self.dims.items()}
        params += [("int", size[n]) for n in made.sizes()]
        params += [("int", self.symbols[n]) for n in made.symbols()]
        params += [p for _, p in self.scalars.values()]
        return Code(made, tuple(params), self.kernel.name())

    def _each_stage(self, jobs: list[Job]) -> None:
        self._rows_first(jobs)
        self.build.each()
        here: dict[int, Place] = {}
        self._read_all(jobs, here)
        for job in jobs:
            if job.buffer is None:
                self._reduce(job, here)
            else:
                self._store(job, here)
        self._keep(self.stage, here)

    def _read_all(self, jobs: list[Job], here: dict[int, Place]) -> None:
        """Reads everything before anything is stored: an output may be an input's memory, or hold
        what an earlier pass kept.
        """
        for job in jobs:
            for c in job.cells:
                self._cell(c, here)

    def _fold_stage(self, jobs: list[Job]) -> None:
        inner = self.nest.reduces_inner
        if inner:
            self._rows_first(jobs)
        self.build.fold()
        here: dict[int, Place] = {}
        partial: list[tuple[Job, Place]] = []
        self._read_all(jobs, here)
        for job in jobs:
            if job.buffer is None:
                partial.append((job, self._reduction(job, here)))
            else:
                self._store(job, here)
        self._keep(self.stage, here)
        if not inner:
            self.reduced |= {job.value.uid: place for job, place in partial}
            return
        self.build.each()
        for job, place in partial:
            how = job.value.attr[0]
            done = self.build.reduce("sum" if how == "dot" else how, place)
            self.reduced[job.value.uid] = done

    def _reduction(self, job: Job, here: dict[int, Place]) -> Place:
        values = [self._cell(c, here) for c in job.cells]
        how = job.value.attr[0]
        return self.build.dot(*values) if how == "dot" else self.build.reduce(how, values[0])

    def _reduce(self, job: Job, here: dict[int, Place]) -> None:
        self.reduced[job.value.uid] = self._reduction(job, here)

    def _rows_first(self, jobs: list[Job]) -> None:
        """Opens a ``row`` region for what these jobs need once per row, if there is any."""
        if not self.nest.rows:
            return
        wanted = [
            a
            for c in cells_under([c for job in jobs for c in job.cells])
            if self.varies[c.uid]
            for a in c.args
        ]
        wanted += [c for job in jobs for c in job.cells if not self.varies[c.uid]]
        self._rows(wanted)

    def _rows(self, wanted: list[Cell]) -> None:
        todo = [
            c for c in wanted
            if not self.varies[c.uid] and c.uid not in self.per_row
            and c.op not in ("const", "number", "size", "reduced", "load", "index")
        ]  # fmt: skip
        if not todo:
            return
        self.build.row()
        here: dict[int, Place] = {}
        for c in todo:
            self.per_row[c.uid] = self._cell(c, here)
        # Whatever else was computed on the way is visible, too.
        self.per_row |= here

    def _row_stores(self, jobs: list[Job], lanes: bool) -> None:
        if not jobs and self.nest.over < 0:
            return
        self._last = True
        if lanes or (self.nest.over >= 0 and not self.nest.reduces_inner):
            self.build.each()
        elif jobs:
            self.build.row()
        here: dict[int, Place] = {}
        for job in jobs:
            self._store(job, here)

    # -- cells -----------------------------------------------------------------------------------

    def _cell(self, cell: Cell, here: dict[int, Place]) -> Place:
        """The cell in the open region, which ``here`` remembers."""
        if cell.op == "reduced":
            return self.reduced[cell.attr]
        found = self.per_row.get(cell.uid) or here.get(cell.uid)
        kept = self.kept.get(cell.uid)
        if found is None and kept is not None and kept[0] < self.stage:
            buffer = kept[1].buffer
            assert buffer is not None
            name = self._buffer(buffer.number, self._store_expr(kept[1]), "out")
            found = here[cell.uid] = self.build.load(name)
        if found is None:
            found = here[cell.uid] = self._emit(cell, here)
        return found

    def _emit(self, cell: Cell, here: dict[int, Place]) -> Place:
        b = self.build
        if cell.op == "const":
            if cell.dtype in ("f16", "bf16"):
                return b.cast(b.const(cell.attr, "f32"), cell.dtype)
            return b.const(cell.attr, cell.dtype)
        if cell.op in ("number", "size"):
            return self._scalar(cell)
        if cell.op == "load":
            return self._load(cell, here)
        if cell.op == "gather":
            return self._gather(cell, here)
        if cell.op == "index":
            return self._index(self.space.apply(cell.attr))
        args = [self._cell(a, here) for a in cell.args]
        if cell.op == "fn":
            return b.op(cell.attr, *args)
        if cell.op == "cast":
            return b.cast(args[0], cell.dtype)
        if cell.op == "bitcast":
            return b.emit("bitcast", cell.dtype, (args[0],))
        if cell.op == "select":
            return b.select(args[0], args[1], args[2])
        if cell.op == "philox":
            return b.philox(*args)
        raise Misfit(f"no code for {cell.op}")

    def _scalar(self, cell: Cell) -> Place:
        key = (cell.op, cell.attr)
        if key not in self.scalars:
            if cell.op == "number":
                slot, kind = cell.attr
                param: Param = ("number", slot, kind)
            else:
                kind, param = "i64", ("int", cell.attr)
            self.scalars[key] = (self.build.scalar(f"c{len(self.scalars)}", kind), param)
        return self.build.param(self.scalars[key][0], cell.dtype)

    def _load(self, cell: Cell, here: dict[int, Place]) -> Place:
        number, expr = cell.attr
        e = self.space.apply(expr)
        if cell.args or not ix.is_affine(e):
            name = self._buffer(number, ix.ZERO, "in", flat=True)
            mask = self._cell(cell.args[0], here) if cell.args else None
            return self.build.load_at(name, self._index(e), mask)
        return self.build.load(self._buffer(number, e, "in"))

    def _gather(self, cell: Cell, here: dict[int, Place]) -> Place:
        number, expr, strides = cell.attr
        b = self.build
        offset = self._index(self.space.apply(expr))
        for arg, stride in zip(cell.args, strides):
            at = self._cell(arg, here)
            offset = offset + (at if stride == 1 else at * self._constant(stride))
        mask = self._cell(cell.args[-1], here) if len(cell.args) > len(strides) else None
        return b.load_at(self._buffer(number, ix.ZERO, "in", flat=True), offset, mask)

    def _constant(self, n: int) -> Place:
        """An integer that follows from sizes: a parameter, so that code is the same for all."""
        if n in (0, 1):
            return self.build.const(n, "i64")
        key = ("int", n)
        if key not in self.scalars:
            self.scalars[key] = (self.build.scalar(f"c{len(self.scalars)}", "i64"), ("int", n))
        return self.build.param(self.scalars[key][0], "i64")

    def _index(self, e: Expr) -> Place:
        """The value of an index expression."""
        b = self.build
        total: Place | None = None
        for atom, c in e.terms:
            if isinstance(atom.of, int):
                name = self.dims[atom.of]
                part = b.index(None if atom.of == self.nest.inner else name)
            else:
                how = "floor_div" if atom.kind == "/" else "remainder"
                part = b.op(how, self._index(atom.of), self._constant(atom.n))
            if c != 1:
                part = part * self._constant(c)
            total = part if total is None else total + part
        if total is None:
            return self._constant(e.const)
        return total + self._constant(e.const) if e.const else total

    def _declare_outputs(self) -> None:
        """Outputs come first among the parameters."""
        for job in self.jobs:
            if job.buffer is not None:
                self._buffer(job.buffer.number, self._store_expr(job), "out")

    def _store_expr(self, job: Job) -> Expr:
        e = self.space.apply(job.place)
        if not ix.is_affine(e):
            raise Unfit(f"{job.value.where} has no place that loops reach")
        return e

    def _store(self, job: Job, here: dict[int, Place]) -> None:
        assert job.buffer is not None
        name = self._buffer(job.buffer.number, self._store_expr(job), "out")
        self.build.store(name, self._cell(job.cells[0], here))

    def _buffer(self, number: int, e: Expr, mode: str, flat: bool = False) -> str:
        """The parameter for a buffer read or written at an affine expression."""
        steps = {atom.of: c for atom, c in e.terms}
        order = [*self.nest.rows, self.nest.inner]
        if self.nest.over >= 0:
            order.append(self.nest.over)
        # A loop of one step: its stride is free, and a vector loop that is stored to needs one.
        strides = tuple(
            1 if k == self.nest.inner and self.space.sizes[k] == 1 else steps.get(k, 0)
            for k in order
        )
        key = (number, strides, e.const, mode, flat)
        if key not in self.buffer_params:
            name = f"b{len(self.buffer_params)}"
            words = tuple(self._stride(s, f"{name}_{n}") for n, s in enumerate(strides))
            self.build.buffer(mode, name, self.by_number[number].dtype, words)
            self.buffer_params[key] = (name, number, e.const)
        return self.buffer_params[key][0]

    def _stride(self, s: int, name: str) -> int | str:
        if s in (0, 1):
            return s
        self.symbols[name] = s
        return name


def cell_cost(cell: Cell) -> int:
    """What computing a cell takes, down to memory and reductions."""
    costs = (COSTS.get(c.attr, 1) if c.op == "fn" else 1 for c in cells_under([cell]))
    return sum(costs)


def _expr_of(cell: Cell) -> Expr:
    return cell.attr if cell.op == "index" else cell.attr[1]


def _count(shape: tuple[int, ...]) -> int:
    out = 1
    for n in shape:
        out *= n
    return out
