"""Fusion: which values get memory, and which operations share a kernel.

First, ``materialised`` says which values must lie in memory, or had better: outputs, operands of
foreign code, tables that are looked up, and what is dear to compute and used more than once. Each
of these, and each reduction, is a sink. Then, in order, every sink joins the latest kernel in
which it can be computed: one over the same elements, whose reductions it uses only in their own
row, and without a way from that kernel to the sink through another. What is neither is computed
where it is used. A sink without elements has memory (of no bytes) and no code.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ..ir import index as ix
from ..ir.cells import Buffer, Cell, Evaluator, Misfit, cells_under
from ..ir.index import Expr
from ..ir.values import SCALARS, Shape, Value, walk

if TYPE_CHECKING:
    from ..settings import Settings

#: Relative costs of scalar operations; those not named count 1. A load counts 1 as well, so that
#: something dearer than CHEAP is stored rather than computed twice.
COSTS = dict.fromkeys("exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc sigmoid gelu gelu_slope pow atan2 hypot fmod remainder".split(), 20) | {"div": 4, "sqrt": 4, "rsqrt": 8, "reciprocal": 4, "floor_div": 8}  # fmt: skip
CHEAP = 10
PHILOX_COST = 40
#: What is computed where it is used, unless it is kept in memory.
INLINE = ("fn", "cast", "bitcast", "select", "masked", "view", "take", "iota", "philox")


class Cycle(Exception):
    """Steps wait for each other, or one for itself: writes need copies of their values."""


class Kernel:
    """One loop nest: elements ``kept`` x ``reduced``, what it reduces and what it stores."""

    def __init__(self, number: int, kept: Shape, reduced: Shape) -> None:
        self.number = number
        self.kept = kept
        self.reduced = reduced
        self.reductions: list[Value] = []
        self.stores: list[Value] = []
        #: Where in the iteration a stored value's element lies.
        self.places: dict[int, tuple[Expr, ...]] = {}
        self.rows: dict[int, tuple[Expr, ...]] = {}
        self.reads: set[int] = set()
        self.operands: dict[int, tuple[Expr, ...]] = {}
        #: Placeholders that it writes: who reads them must run before.
        self.overwrites: set[int] = set()

    @property
    def sizes(self) -> Shape:
        """Sizes of all loop variables, kept ones first."""
        return self.kept + self.reduced

    def row_index(self) -> tuple[Expr, ...]:
        """The variables that are kept."""
        return tuple(ix.var(k) for k in range(len(self.kept)))

    def makes(self, uid: int) -> bool:
        """True if this kernel computes that value for itself or for others."""
        return uid in self.places or uid in self.rows

    def name(self) -> str:
        """The operators in it, for the log."""
        words = dict.fromkeys(v.where or v.op for v in (*self.reductions, *self.stores))
        return f"kernel {self.number} ({', '.join(words)})"


class Step:
    """Foreign code: ``value`` is a ``matmul`` or ``call``, or a ``join`` of parts."""

    def __init__(self, number: int, value: Value) -> None:
        self.number = number
        self.value = value
        self.reads = {a.uid for a in value.args}
        self.overwrites: set[int] = set()
        #: The step that draws random numbers before this one does.
        self.after: Step | None = None
        #: Of a product (``passes.epilogue``): whether tiles do it, and the elementwise kernel that
        #: is applied to its blocks.
        self.tiles = False
        self.epilogue: Kernel | None = None

    def makes(self, uid: int) -> bool:
        """True for its own value, and what its epilogue makes."""
        return uid == self.value.uid or (self.epilogue is not None and self.epilogue.makes(uid))


Work = Kernel | Step


def cost(v: Value, memo: dict[int, int], stop: set[int]) -> int:
    """What computing one element takes, down to memory and reductions."""
    found = memo.get(v.uid)
    if found is not None:
        return found
    own = 0
    if v.op == "fn":
        own = COSTS.get(v.attr, 1)
    elif v.op in ("cast", "select", "masked", "take"):
        own = 1
    elif v.op == "philox":
        own = PHILOX_COST
    if v.op in INLINE:
        own += sum(0 if a.uid in stop else cost(a, memo, stop) for a in v.args)
    memo[v.uid] = own
    return own


def materialised(roots: list[Value], settings: Settings) -> list[Value]:
    """The values that get memory or are reduced, in an order in which they can be made."""
    # In the order of the graph, in which operands come first, too.
    order = sorted(walk(roots), key=lambda v: v.uid)
    wanted = {r.uid for r in roots}
    users: dict[int, int] = {}
    for v in order:
        for a in set(v.args):
            users[a.uid] = users.get(a.uid, 0) + 1
        if v.op in ("matmul", "call", "join"):
            wanted |= {a.uid for a in v.args}
        elif v.op == "take":
            wanted.add(v.args[0].uid)
        elif v.op == "keep":
            wanted.add(v.uid)
    wide = _widened(order)
    memo: dict[int, int] = {}
    fixed = wanted | {v.uid for v in order if v.op not in INLINE}
    for v in order:
        if v.uid in fixed or v.op in ("view", "iota"):
            continue
        price = cost(v, memo, fixed)
        dear = price > settings.recompute_cost or not settings.fusion
        shared = users.get(v.uid, 0) > 1 or v.uid in wide or not settings.fusion
        if dear and shared:
            fixed.add(v.uid)
            wanted.add(v.uid)
            memo[v.uid] = 0
            settings.log(f"{v.where or v.op}: kept, since it costs {price} and is used "
                f"{users.get(v.uid, 0)} times")  # fmt: skip
    made = ("matmul", "call", "result", "join")
    return [
        v for v in order
        if v.op == "reduce" or v.op in made or (v.uid in wanted and v.op not in ("input", *SCALARS))
    ]  # fmt: skip


def _widened(order: list[Value]) -> set[int]:
    """Values that a view repeats along a dimension."""
    return {
        u.args[0].uid for u in order if u.op == "view" and u.numel > u.args[0].numel > 1
    }  # fmt: skip


class Fusion:
    """Sorts sinks into kernels; ``work`` are these and the foreign steps, as they were made."""

    def __init__(
        self, buffers: dict[int, Buffer], settings: Settings, aliases: Callable[[int], set[int]],
        cautious: bool,
    ) -> None:  # fmt: skip
        self.buffers = buffers
        self.settings = settings
        self.log = settings.log
        #: The values of all placeholders that may share memory with that of a write.
        self.aliases = aliases
        #: Writes get kernels of their own: where they would otherwise wait for each other.
        self.cautious = cautious
        self.work: list[Work] = []
        self.maker: dict[int, Work] = {}
        self.last_call: Step | None = None

    def add(self, sinks: Iterable[Value], kind: Callable[[Value], Buffer]) -> None:
        """Places every sink; ``kind`` makes the buffer of a value."""
        for v in sinks:
            if v.op in ("matmul", "call", "join"):
                step = Step(len(self.work), v)
                if v.op == "call":
                    step.after, self.last_call = self.last_call, step
                self.work.append(step)
                self.maker[v.uid] = step
                if v.op != "call":
                    self.buffers[v.uid] = kind(v)
            elif v.op == "write":
                self._place(v)
            elif v.op == "result":
                self.maker[v.uid] = self.maker[v.args[0].uid]
                self.buffers[v.uid] = kind(v)
            else:
                self._place(v)
                self.buffers[v.uid] = kind(v)

    def _place(self, v: Value) -> None:
        if not v.numel:  # a kernel with nothing in it, which the schedule leaves out
            self.maker[v.uid] = kernel = Kernel(len(self.work), *domain(v))
            self.work.append(kernel)
            return
        candidates = [w for w in self.work[-self.settings.reach :] if isinstance(w, Kernel)]
        if not self.settings.fusion:
            candidates = []
        if self.cautious:
            candidates = [] if v.op == "write" else [w for w in candidates if not w.overwrites]
        for kernel in reversed(candidates):
            reason = self._refusal(kernel, v)
            if reason is None:
                self.log(f"{v.where or v.op}: joins {kernel.name()}")
                self._enter(kernel, v)
                return
            self.log(f"{v.where or v.op}: not in {kernel.name()}: {reason}")
        kept, reduced = domain(v)
        kernel = Kernel(len(self.work), kept, reduced)
        if v.op == "write" and self._read_elsewhere(kernel, v):
            raise Cycle
        self.work.append(kernel)
        self._enter(kernel, v)
        self.log(f"{v.where or v.op}: starts kernel {kernel.number} over {kept} x {reduced}")
        if reduced:
            for other in candidates:
                self._absorb(kernel, other)

    def _absorb(self, kernel: Kernel, other: Kernel) -> None:
        """Takes over the stores of an elementwise kernel that feeds this new reduction."""
        if other.reductions or other.overwrites or not kernel.reads & set(other.places):
            return
        if any(v.op == "keep" for v in other.stores):
            return
        try:
            found = self._together(kernel, other)
        except Misfit as misfit:
            self.log(f"{other.name()} not taken into {kernel.name()}: {misfit}")
            return
        if self.depends(found - set(other.places), other):
            self.log(f"{other.name()} not taken into {kernel.name()}: another step lies between")
            return
        self.log(f"{other.name()} is taken into {kernel.name()}")
        kernel.reads -= set(other.places)
        for v in other.stores:
            kernel.places[v.uid] = place_of(kernel, v)
        kernel.reads |= found - set(other.places)
        for v in other.stores:
            kernel.stores.append(v)
            self.maker[v.uid] = kernel
        other.stores, other.places, other.reads = [], {}, set()

    def _together(self, kernel: Kernel, other: Kernel) -> set[int]:
        """What the kernel would read with the other's stores among its own; Misfit if it cannot
        compute them, or it looks them up or reads them at other places.
        """
        places = {v.uid: place_of(kernel, v) for v in other.stores}
        evaluator = Evaluator(kernel.sizes, self.buffers, {**kernel.places, **places}, kernel.rows)
        for v in other.stores:
            _check_lookups(kernel, v, evaluator.define(v, places[v.uid]))
        for v in kernel.stores:
            evaluator.define(v, kernel.places[v.uid])
        for r in kernel.reductions:
            for a in r.args:
                evaluator.of(a, kernel.operands[r.uid])
        return evaluator.reads

    def _refusal(self, kernel: Kernel, v: Value) -> str | None:
        """Why ``v`` cannot be computed in ``kernel``, or None."""
        if v.op == "keep" and kernel.reduced:
            return "it is to be laid down in memory first"
        try:
            found = self._trial(kernel, v)
        except Misfit as misfit:
            return str(misfit)
        reason = None
        if v.op == "write":
            reason = self._write_refusal(kernel, v)
        elif kernel.overwrites:
            reason = self._read_elsewhere(kernel, v) if v.op != "reduce" else "it writes in place"
        if reason:
            return reason
        if not self._related(kernel, v, found):
            return "has nothing to do with it"
        if self.depends(found, kernel):
            return "another step lies between"
        if not self._fits_loops(kernel, v):
            return "its order of elements is another"
        return None

    def _write_refusal(self, kernel: Kernel, v: Value) -> str | None:
        """Why a placeholder cannot be overwritten by this kernel, or None."""
        touched = self.aliases(v.attr)
        if any(
            self._reaches(w, kernel) for w in self.work if w is not kernel and w.reads & touched
        ):
            return "a later step reads the placeholder"
        return self._read_elsewhere(kernel, v)

    def _read_elsewhere(self, kernel: Kernel, v: Value) -> str | None:
        """Why joining ``v`` would have the kernel read overwritten memory, or None: it must read
        each placeholder only where it then writes that one, in its only pass.
        """
        writes = [u for u in (*kernel.stores, v) if u.op == "write"]
        touched = set().union(*(self.aliases(u.attr) for u in writes))
        evaluator = Evaluator(kernel.sizes, self.buffers, dict(kernel.places), dict(kernel.rows))
        roots = [evaluator.define(u, place_of(kernel, u)) for u in (*kernel.stores, v)]
        if evaluator.reads & touched and kernel.reduced:
            return "it overwrites a placeholder and makes several passes"
        own: dict[int, Expr] = {}
        for u in writes:
            buffer = next(self.buffers[k] for k in self.aliases(u.attr)
                          if self.buffers[k].value.attr == u.attr)  # fmt: skip
            own[buffer.number] = store_expression(kernel, u, buffer.strides)
        numbers = {self.buffers[k].number for k in touched if k in self.buffers}
        for c in cells_under(roots):
            if c.op not in ("load", "gather") or c.attr[0] not in numbers:
                continue
            if c.op == "gather" or c.args or own.get(c.attr[0]) != c.attr[1]:
                return "it reads a placeholder at other places than it writes it"
        return None

    def _reaches(self, w: Work, kernel: Kernel) -> bool:
        """True if ``w`` can only run after ``kernel``."""
        return self.depends(w.reads, kernel)

    def _trial(self, kernel: Kernel, v: Value) -> set[int]:
        """The values in memory that ``v`` needs when computed in ``kernel``."""
        places, rows = dict(kernel.places), dict(kernel.rows)
        evaluator = Evaluator(kernel.sizes, self.buffers, places, rows)
        if v.op == "reduce":
            index = operand_index(kernel, v)
            for a in v.args:
                evaluator.of(a, index)
            return evaluator.reads
        _check_lookups(kernel, v, evaluator.define(v, place_of(kernel, v)))
        return evaluator.reads

    def _fits_loops(self, kernel: Kernel, v: Value) -> bool:
        """False if what ``v`` reads is in order in its own loops, and not in this kernel's."""
        return not self._tangled(kernel, v) or self._tangled(Kernel(-1, *domain(v)), v)

    def _tangled(self, kernel: Kernel, v: Value) -> bool:
        evaluator = Evaluator(kernel.sizes, self.buffers, kernel.places, kernel.rows)
        if v.op == "reduce":
            index = operand_index(kernel, v)
            roots = [evaluator.of(a, index) for a in v.args]
        else:
            roots = [evaluator.define(v, place_of(kernel, v))]
        return any(
            c.op == "load" and ix.is_tangled(c.attr[1], kernel.sizes) for c in cells_under(roots)
        )

    def _related(self, kernel: Kernel, v: Value, reads: set[int]) -> bool:
        """True if sharing the loop saves memory traffic: ``v`` uses what the kernel makes or
        reads.
        """
        return bool(reads & kernel.reads) or any(
            kernel.makes(u.uid) for u in walk_until(v, self.buffers, kernel)
        )

    def depends(self, reads: set[int], kernel: Work) -> bool:
        """True if something that ``reads`` holds can only be made after ``kernel``."""
        seen: set[int] = set()
        stack: list[Work] = [self.maker[u] for u in reads if u in self.maker]
        while stack:
            w = stack.pop()
            if w is kernel:
                return True
            if w.number in seen:
                continue
            seen.add(w.number)
            stack += before(w, self.maker, self.work)
        return False

    def _enter(self, kernel: Kernel, v: Value) -> None:
        if v.op == "reduce":
            kernel.operands[v.uid] = operand_index(kernel, v)
        kernel.reads |= self._trial(kernel, v)
        if v.op == "reduce":
            kernel.reductions.append(v)
            kernel.rows[v.uid] = ix.reshape(kernel.row_index(), kernel.kept, v.shape, kernel.sizes)
        else:
            kernel.stores.append(v)
            kernel.places[v.uid] = place_of(kernel, v)
        if v.op == "write":
            kernel.overwrites |= self.aliases(v.attr)
        self.maker[v.uid] = kernel


def before(w: Work, maker: dict[int, Work], work: list[Work]) -> list[Work]:
    """Steps that must run before ``w``: what it reads, and who reads what it overwrites."""
    out = [maker[u] for u in w.reads if u in maker and maker[u] is not w]
    if isinstance(w, Step) and w.after is not None:
        out.append(w.after)
    if w.overwrites:
        out += [x for x in work if x is not w and x.reads & w.overwrites]
    return out


def walk_until(v: Value, buffers: dict[int, Buffer], kernel: Kernel) -> list[Value]:
    """``v`` and what it is computed from, down to values in memory."""
    seen: set[int] = set()
    out: list[Value] = []
    stack = list(v.args)
    while stack:
        u = stack.pop()
        if u.uid in seen:
            continue
        seen.add(u.uid)
        out.append(u)
        if u.uid not in buffers:
            stack += u.args
    return out


def domain(v: Value) -> tuple[Shape, Shape]:
    """The iteration space of a kernel that starts with ``v``: kept and reduced sizes."""
    if v.op != "reduce":
        return v.shape, ()
    dims = v.attr[1]
    shape = v.args[0].shape
    return v.shape, tuple(shape[d] for d in dims)


def operand_index(kernel: Kernel, v: Value) -> tuple[Expr, ...]:
    """Where a reduction's operand is read in the kernel's iteration; Misfit if it has another."""
    dims = v.attr[1]
    shape = v.args[0].shape
    kept = v.shape
    reduced = tuple(shape[d] for d in dims)
    if math.prod(kept) != math.prod(kernel.kept) or math.prod(reduced) != math.prod(kernel.reduced):
        raise Misfit(f"has {kept} x {reduced} elements, not {kernel.kept} x {kernel.reduced}")
    sizes = kernel.sizes
    rows = ix.reshape(kernel.row_index(), kernel.kept, kept, sizes)
    inner_vars = tuple(ix.var(len(kernel.kept) + k) for k in range(len(kernel.reduced)))
    inner = ix.reshape(inner_vars, kernel.reduced, reduced, sizes)
    found = dict(zip(dims, inner))
    kept_parts = iter(rows)
    return tuple(found[d] if d in found else next(kept_parts) for d in range(len(shape)))


def place_of(kernel: Kernel, v: Value) -> tuple[Expr, ...]:
    """Where an element of ``v`` lies in the kernel's iteration; Misfit if there is no such place.

    A value with as many elements as the kernel has rows is per row; one with as many as the
    operand of its reductions is computed in that operand's order of dimensions.
    """
    if v.numel == math.prod(kernel.kept):
        return ix.reshape(kernel.row_index(), kernel.kept, v.shape, kernel.sizes)
    if kernel.reductions and v.numel == math.prod(kernel.sizes):
        first = kernel.reductions[0]
        shape = first.args[0].shape
        return ix.reshape(kernel.operands[first.uid], shape, v.shape, kernel.sizes)
    raise Misfit(f"has {v.numel} elements, not {math.prod(kernel.sizes)}")


def _check_lookups(kernel: Kernel, v: Value, cell: Cell) -> None:
    """Misfit if what ``v`` is computed from, once per row, is looked up, read under a mask or at
    places that no loop reaches.
    """
    if not kernel.reduced or v.numel != math.prod(kernel.kept):
        return
    for c in cells_under([cell]):
        if c.op == "gather" or (
            c.op == "load" and (c.args or ix.is_tangled(c.attr[1], kernel.sizes))
        ):
            raise Misfit("looks up elements once per row")


def store_expression(kernel: Kernel, v: Value, strides: Shape) -> Expr:
    """Where a stored value's element lies in its buffer. In a row-major buffer that is its place
    in the order of the loops, which is simpler than the place taken apart and put together.
    """
    if strides != ix.contiguous(v.shape):
        return ix.linear(kernel.rows.get(v.uid, kernel.places.get(v.uid, ())), strides)
    if v.numel == math.prod(kernel.kept):
        return ix.linear(kernel.row_index(), ix.contiguous(kernel.kept))
    first = kernel.reductions[0]
    return ix.linear(kernel.operands[first.uid], ix.contiguous(first.args[0].shape))


def needed_outside(v: Value, work: list[Work], maker: dict[int, Work], keep: set[int]) -> bool:
    """True if a value must be written to memory: it is wanted, or another step reads it."""
    if v.uid in keep:
        return True
    own = maker[v.uid]
    return any(v.uid in w.reads and w is not own for w in work)


def describe(work: list[Work]) -> list[str]:
    """One line per step, for the log."""
    out: list[str] = []
    for w in work:
        out.append(w.name() if isinstance(w, Kernel) else f"step {w.number} ({w.value.where})")
    return out
