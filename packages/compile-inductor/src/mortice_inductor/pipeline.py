"""The compiler as a list of passes: a graph in, a plan for the runtime and machine code out.

1. decompose: operators become values of a few kinds (``lowering``).
2. simplify: constants are folded, conversions and identities fall away (``passes.simplify``);
   equal values are one from the start, and what no output needs is never visited. Large
   reductions are cut in two stages (``passes.split``).
3. fuse: what gets memory, and which operations share a kernel (``passes.fuse``); which kernels
   are a part of a matrix product (``passes.epilogue``).
4. schedule: an order of kernels and foreign operators (``passes.schedule``).
5. emit: loop IR per kernel, and a driver that calls them (``codegen``).
6. plan memory: offsets in one arena for what lies between kernels (``passes.memory``).
7. load: machine code from the cache, else compiled (``mortice_llvm.runtime``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from mortice.errors import CompileError
from mortice_llvm.dtypes import DTYPES

from .codegen import driver as dr
from .codegen.kernel import Code, Param, Unfit
from .codegen.kernel import emit as emit_kernel
from .codegen.matmul import product_of
from .ir import index as ix
from .ir.cells import Buffer
from .ir.roots import Roots, replaced
from .ir.values import Value, is_dense, walk
from .lowering.graph import Lowered, lower
from .lowering.matrix import Side
from .passes import epilogue, memory
from .passes.fuse import Cycle, Fusion, Kernel, Step, Work, materialised, needed_outside
from .passes.schedule import schedule
from .passes.simplify import simplify
from .passes.split import split_reductions
from .plan import CallStep, Plan
from .settings import Settings
from .specs import Spec, TensorSpec, number_words

Log = Callable[[str], None]


class Built(NamedTuple):
    """What the passes make of a graph. ``parts``: kernels, products and calls in order.

    ``constants``: tensors that the graph holds. ``checkpoints``: (node, buffer that holds its
    result, kernel that wrote it).
    """

    plan: Plan
    driver: dr.Driver
    kernels: Any
    parts: tuple[Any, ...]
    constants: tuple[Any, ...]
    checkpoints: tuple[tuple[str, int, str], ...]
    #: What needs memory; the plan has no arena before ``memory.placed``.
    lives: memory.Lives


def build(gm: Any, specs: tuple[Spec, ...], settings: Settings) -> Built:
    """Runs passes 1 to 6, sizes being numbers."""
    made = emitted(gm, specs, settings)
    return made._replace(plan=memory.placed(made.plan, made.lives))


def emitted(gm: Any, specs: tuple[Spec, ...], settings: Settings) -> Built:
    """Runs passes 1 to 5, in which sizes may be symbolic (``templates``)."""
    lowered = lower(
        gm, specs, table=settings.lowerings, fallbacks=settings.fallbacks, log=settings.log,
        numbers=settings.numbers,
    )  # fmt: skip
    roots = simplify(lowered, settings.keep_casts)
    roots = split_reductions(lowered.trace, roots)
    fused = fuse(lowered, roots, settings)
    return emit(lowered, fused, settings)


class Fused(NamedTuple):
    """The result of fusion and scheduling."""

    roots: Roots
    work: list[Work]
    maker: dict[int, Work]
    buffers: dict[int, Buffer]
    codes: dict[int, Code]
    #: Where the results of products lie, by the number of the step.
    places: dict[int, tuple[Buffer, Side]]


def fuse(lowered: Lowered, roots: Roots, settings: Settings) -> Fused:
    """Passes 3 and 4. Where writes wait for each other, or a reduction has no loop nest, the
    values in question are laid down in memory and the passes run again.
    """
    cautious = False
    for _ in range(64):
        attempt = _Attempt(lowered, roots, settings, cautious)
        try:
            return attempt.run()
        except Cycle:
            if cautious:
                raise
            cautious = True
            settings.log("writes read what they overwrite: their values are kept in memory first")
        except _Apart as reason:
            if not settings.fusion:
                raise CompileError(
                    f"no order of loops was found for this graph: {reason}."
                ) from None
            settings = settings._replace(fusion=False)
            settings.log(f"each operator has a kernel of its own: {reason}")
        except _Relay as relay:
            roots = _relaid(lowered, roots, relay.value)
            settings.log(f"{relay.value.where}: operand is laid down in memory: {relay.reason}")
    raise CompileError("no order of loops was found for the reductions of this graph.")


class _Apart(Exception):
    """What shares an elementwise kernel has no loops in common after all."""


class _Relay(Exception):
    def __init__(self, value: Value, reason: str) -> None:
        super().__init__(reason)
        self.value = value
        self.reason = reason


class _Attempt:
    def __init__(self, lowered: Lowered, roots: Roots, settings: Settings, cautious: bool) -> None:
        self.lowered = lowered
        self.roots = roots
        self.settings = settings
        self.buffers: dict[int, Buffer] = {}
        self.number = 0
        self.cautious = cautious
        self.fixed = _strided(roots)
        self.outputs = {
            v.uid: s for v, s in zip(roots.outputs, lowered.strides) if isinstance(v, Value)
        }
        self.outputs |= {c.value.uid: None for c in roots.checks}

    def run(self) -> Fused:
        t = self.lowered.trace
        for v in walk([*self.roots.values(), *self._placeholders()]):
            if v.op == "input":
                self.buffers[v.uid] = self._buffer(v, "input")
        writes = [
            t.make("write", (t.make("keep", (v,), v.shape, v.dtype) if self.cautious else v,),
                   v.shape, v.dtype, k)
            for k, v in self.roots.writes
        ]  # fmt: skip
        wanted = [v for v in self.roots.values() if v not in [w for _, w in self.roots.writes]
                  or v.uid in self.outputs]  # fmt: skip
        for w in writes:
            own = next(b for b in self.buffers.values()
                       if b.kind == "input" and b.value.attr == w.attr)  # fmt: skip
            self.buffers[w.uid] = Buffer(own.number, w, "input", own.strides)
        sinks = materialised([*wanted, *writes], self.settings)
        if self.settings.pre_fusion:
            sinks = self.settings.pre_fusion(sinks)
        fusion = Fusion(self.buffers, self.settings, self._aliases, self.cautious)
        self.foreign = {a.uid for v in sinks if v.op == "call" for a in v.args}
        fusion.add(sinks, lambda v: self._buffer(v, self._kind(v)))
        epilogue.attach(fusion)
        sizes = {uid: ix_bytes(b) for uid, b in self.buffers.items() if b.kind == "temp"}
        work = schedule(fusion.work, fusion.maker, sizes)
        if self.settings.post_fusion:
            work = self.settings.post_fusion(work)
        codes, places = self._emit_all(work, fusion.maker)
        return Fused(self.roots, work, fusion.maker, self.buffers, codes, places)

    def _placeholders(self) -> list[Value]:
        t = self.lowered.trace
        return [
            t.make("input", (), spec.shape, spec.dtype, k)
            for k, spec in enumerate(self.lowered.specs)
            if isinstance(spec, TensorSpec)
        ]

    def _aliases(self, placeholder: int) -> set[int]:
        same = self.settings.aliases(placeholder)
        return {
            u for u, b in self.buffers.items()
            if b.kind == "input" and b.value.op == "input" and b.value.attr in same
        }  # fmt: skip

    def _kind(self, v: Value) -> str:
        if v.op == "result":
            return "result"
        if v.uid in self.outputs:
            return "output"
        return "boundary" if v.uid in self.foreign else "temp"

    def _buffer(self, v: Value, kind: str) -> Buffer:
        if v.op == "write":
            return self.buffers[v.uid]
        strides = None
        if kind == "input":
            spec = self.lowered.specs[v.attr] if v.attr < len(self.lowered.specs) else None
            if isinstance(spec, TensorSpec):
                strides = spec.strides
            else:
                strides = self.lowered.constants[v.attr - len(self.lowered.specs)].stride()
        elif (
            kind == "output" and v.uid not in self.fixed and is_dense(v.shape, self.outputs[v.uid])
        ):
            strides = self.outputs[v.uid]
        elif kind == "result":
            strides = v.args[0].attr.call.results[v.attr][2]
        self.number += 1
        return Buffer(self.number - 1, v, kind, strides)

    def _emit_all(
        self, work: list[Work], maker: dict[int, Work]
    ) -> tuple[dict[int, Code], dict[int, tuple[Buffer, Side]]]:
        codes: dict[int, Code] = {}
        places: dict[int, tuple[Buffer, Side]] = {}
        wanted = set(self.outputs)
        for w in work:
            kernel = w if isinstance(w, Kernel) else w.epilogue
            made = [*kernel.reductions, *kernel.stores] if kernel else []
            stored = [
                v for v in made if v.op == "write" or needed_outside(v, work, maker, wanted)
            ]  # fmt: skip
            buffers = self.buffers
            if isinstance(w, Step) and w.value.op == "matmul":
                needed = needed_outside(w.value, work, maker, wanted)
                places[w.number] = place = epilogue.home(w, buffers, stored, needed)
                buffers = buffers | {w.value.uid: epilogue.seen_by_epilogue(w, *place)}
            if kernel is None or not stored:
                continue
            try:
                codes[w.number] = emit_kernel(kernel, buffers, stored, isinstance(w, Step))
            except Unfit as unfit:
                if not kernel.reductions:
                    raise _Apart(str(unfit)) from None
                first = min(kernel.reductions, key=_is_laid_down)
                raise _Relay(first, str(unfit)) from None
        return codes, places


def _strided(roots: Roots) -> set[int]:
    """Values whose strides were counted on when the graph was lowered: operands of products."""
    return {a.uid for v in walk(roots.values()) if v.op == "matmul" for a in v.args}


def _is_laid_down(v: Value) -> bool:
    """Whether a reduction's operands are in memory in the order of its loops."""
    seen = (a.args[0] if a.op == "view" else a for a in v.args)
    return all(a.op == "keep" for a in seen)


def _relaid(lowered: Lowered, roots: Roots, v: Value) -> Roots:
    """The roots with reduction ``v`` over the last dimension of an operand in memory; where it is so
    already, and what shares its loops is not, with its result in memory before that.
    """
    t = lowered.trace
    how, dims = v.attr
    if _is_laid_down(v):
        return replaced(t, roots, {v.uid: t.make("keep", (v,), v.shape, v.dtype)})
    shape = v.args[0].shape
    kept = [d for d in range(len(shape)) if d not in dims]
    flat = [t.permute(a, [*kept, *dims]) for a in v.args]
    rows, cols = v.numel, v.args[0].numel // max(v.numel, 1)
    laid = [t.reshape(t.make("keep", (a,), a.shape, a.dtype), (rows, cols)) for a in flat]
    new = t.reshape(t.reduce(how, (1,), *laid), v.shape)
    return replaced(t, roots, {v.uid: new})


# -- emission ------------------------------------------------------------------------------------


def emit(lowered: Lowered, fused: Fused, settings: Settings) -> Built:
    """Pass 5."""
    return _Emission(lowered, fused, settings).run()


class _Emission:
    """Numbers the words of the table: run-time numbers, default draws, BLAS, buffers, constants."""

    def __init__(self, lowered: Lowered, fused: Fused, settings: Settings) -> None:
        self.lowered = lowered
        self.fused = fused
        self.settings = settings
        self.used: dict[int, Buffer] = {}
        self.by_number = {b.number: b for b in fused.buffers.values()}

    def run(self) -> Built:
        parts = self._parts()
        first = number_words(self.lowered.specs) + 2 * self.lowered.draws
        products = [p for p in parts if isinstance(p, dr.Product)]
        names = dict.fromkeys(["get_threads", "set_threads", *(p.routine for p in products)])
        blas = {name: first + k for k, name in enumerate(names)}
        first += len(names)
        slots = {n: first + k for k, n in enumerate(self.used)}
        table = dr.Table(first + len(slots))
        driver = dr.Driver(table, slots, self.settings.integer_bits, self.settings.blas_threads)
        driver.blas_slots = blas
        steps: list[Any] = []
        run: list[dr.Native] = []
        count = 0

        def flush() -> None:
            nonlocal count
            if run:
                driver.segment(f"segment{count}", run)
                steps.append(("native", f"segment{count}", tuple(p.label for p in run)))
                count += 1
                run.clear()

        for part in parts:
            if isinstance(part, CallStep):
                flush()
                steps.append(part)
            else:
                run.append(part)
        flush()
        natives = [p for p in parts if not isinstance(p, CallStep)]
        plan = Plan(
            words=table.first + len(table.constants),
            specs=tuple(s for s in self.lowered.specs),
            draws=self.lowered.draws,
            draw_slot=number_words(self.lowered.specs),
            blas=blas if products else {},
            constants=(table.first, tuple(table.constants)),
            slots=tuple(
                (n, slots[n], b.kind, b.shape, b.strides, b.dtype, self._source(b))
                for n, b in self.used.items()
            ),
            arena=0,
            offsets=(),
            blocks=(),
            lent=(),
            steps=tuple(steps),
            outputs=tuple(self._output(v) for v in self.fused.roots.outputs),
            checks=tuple(
                (self._number(c.value), *c.refusal) for c in self.fused.roots.checks
            ),
        )  # fmt: skip
        return Built(plan, driver, dr.distinct(natives), tuple(parts), self.lowered.constants,
                     self._checkpoints(), self._lives(parts))  # fmt: skip

    def _checkpoints(self) -> tuple[tuple[str, int, str], ...]:
        out: list[tuple[str, int, str]] = []
        for name, v in self.fused.roots.named:
            b = self.fused.buffers.get(v.uid)
            if b is not None and b.number in self.used and b.kind in ("temp", "output", "boundary"):
                maker = self.fused.maker[v.uid]
                label = maker.name() if isinstance(maker, Kernel) else f"step {v.where}"
                out.append((name, b.number, label))
        return tuple(out)

    def _source(self, b: Buffer) -> int:
        """Which input fills an input's buffer."""
        return b.value.attr if b.kind == "input" else -1

    def _number(self, v: Value) -> int:
        return self.fused.buffers[v.uid].number

    def _output(self, v: Any) -> Any:
        if isinstance(v, Value):
            return ("buffer", self._use(v))
        if isinstance(v, tuple) and len(v) == 2 and v[0] == "input":
            return v
        return ("object", v)

    def _use(self, v: Value) -> int:
        b = self.fused.buffers[v.uid]
        self.used.setdefault(b.number, b)
        return b.number

    def _use_all(self, numbers: list[int]) -> None:
        for n in numbers:
            self.used.setdefault(n, self.by_number[n])

    def _parts(self) -> list[Any]:
        out: list[Any] = []
        for v in self.fused.roots.outputs:
            if isinstance(v, Value):
                self._use(v)
        for c in self.fused.roots.checks:
            self._use(c.value)
        for w in self.fused.work:
            if isinstance(w, Kernel):
                code = self.fused.codes.get(w.number)
                if code is not None:
                    out.append(code)
                    self._use_all(code.touched())
            elif w.value.op == "matmul":
                code = self.fused.codes.get(w.number)
                place = self.fused.places[w.number]
                out.append(product_of(w, self.fused.buffers, place, code))
                self._use_all(out[-1].touched())
            elif w.value.op == "call":
                out.append(self._call(w.value))
        return out

    def _call(self, v: Value) -> CallStep:
        call = v.attr.call
        args = tuple(self._use(a) for a in v.args)
        results: list[int] = []
        for k, (shape, dtype, _) in enumerate(call.results):
            found = self.lowered.trace.make("result", (v,), shape, dtype, k)
            b = self.fused.buffers.get(found.uid)
            if b is None:
                results.append(-1)
                continue
            results.append(b.number)
            self.used.setdefault(b.number, b)
        return CallStep(call.target, call.args, call.kwargs, args, tuple(results), call.single,
                        v.where)  # fmt: skip

    def _lives(self, parts: list[Any]) -> memory.Lives:
        first: dict[int, int] = {}
        last: dict[int, int] = {}
        for at, part in enumerate(parts):
            if isinstance(part, CallStep):
                touched = [*part.args, *part.results]
            else:
                touched = part.touched()
            for n in touched:
                first.setdefault(n, at)
                last[n] = at
        if self.settings.validate:  # every value stays until the end
            first, last = dict.fromkeys(first, 0), dict.fromkeys(last, len(parts))
        used = [(n, b) for n, b in self.used.items() if n in first]
        temps = [
            memory.Life(n, ix_bytes(b), first[n], last[n]) for n, b in used if b.kind == "temp"
        ]
        donors = self._donors(parts, first, last)
        outputs = [
            memory.Life(n, ix_bytes(b), first[n], len(parts)) for n, b in used
            if donors and b.kind == "output"
        ]  # fmt: skip
        return memory.Lives(tuple(temps), tuple(outputs), tuple(donors))

    def _donors(
        self, parts: list[Any], first: dict[int, int], last: dict[int, int]
    ) -> list[memory.Life]:
        """Inputs that are donated, and neither written to nor given back; none where Python runs some
        of the steps, since an operator may hand out views of what it is given.
        """
        roots = self.fused.roots
        seen = {k for k, _ in roots.writes} | {v[1] for v in roots.outputs if type(v) is tuple}
        if self.settings.validate or any(isinstance(part, CallStep) for part in parts):
            return []
        free = self.lowered.donated - seen
        return [
            memory.Life(b.value.attr, ix_bytes(b), first[n], last[n])
            for n, b in self.used.items()
            if n in last and b.kind == "input" and b.value.attr in free
        ]


def ix_bytes(b: Buffer) -> int:
    """Bytes of a buffer of ours."""
    count = 1
    for n in b.shape:
        count *= n
    return count * (DTYPES[b.dtype].size if b.dtype in DTYPES else 16)


__all__ = ["Param", "Settings", "build", "fuse", "ix"]
