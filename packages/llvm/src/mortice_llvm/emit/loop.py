"""Emits one ``each`` region, with the ``fold`` regions before it, as a loop over vectors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..dtypes import DTYPES
from ..errors import CompileError
from ..ir.nodes import Buffer, Instr, Region
from .functions import emit_op
from .lanes import Lanes
from .memory import Ending, Memory, lanes_below
from .plain import plain
from .reductions import Accumulator, State
from .values import Value, spread

if TYPE_CHECKING:
    from .kernel import Body

#: Operations of 15 to 60 instructions.
LONG = frozenset(
    "exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh "
    "atanh erf erfc sigmoid gelu gelu_slope pow atan2 fmod remainder".split()
)

#: Of these, operations with many constants.
MANY_CONSTANTS = frozenset("erf gelu gelu_slope".split())

#: Registers in a vector of the loop's widest elements, unless these are below 32 bits.
REGISTERS = 4

# Per reduction: its state, once or once per row of the tile.
States = dict[int, tuple[State, ...]]


class Loop:
    """Hoisted values, then vectors, then what is left over."""

    def __init__(self, body: Body, region: Region, folds: list[Region]) -> None:
        self.body = body
        self.kernel = body.kernel
        self.text = body.text
        self.region = region
        self.folds = folds
        self.instrs = [i for r in (*folds, region) for i in r.instrs]
        widest = max((DTYPES[i.dtype].bits for i in self.instrs if i.op != "param"), default=32)
        self.width = body.target.width // (2 if widest == 64 else 1)
        self.registers = max(REGISTERS * widest // (64 if widest == 64 else 32), 1)
        self.dtypes = {i.id: i.dtype for i in self.instrs}
        self.dtypes |= {n: v.dtype for n, v in body.uniform.items()}
        self.reductions = self.accumulators(region)
        self.hoisted: dict[int, Value] = {}

    def accumulators(self, region: Region) -> dict[int, Accumulator]:
        """The reductions of a region."""
        return {
            i.id: Accumulator(i.op[7:], self.dtypes[i.args[0]])
            for i in region.instrs
            if i.op.startswith("reduce_")
        }

    def inner_stride(self, b: Buffer) -> int | str:
        """The stride along the inner dimension."""
        return b.strides[len(self.kernel.dims) - 1]

    def is_uniform(self, i: Instr) -> bool:
        """True if the instruction's value is the same for the whole row."""
        if i.op == "load":
            inner = len(self.kernel.dims) - 1
            return not any(self.kernel.buffer(str(i.attr)).strides[inner:])
        if i.op == "index":
            return i.attr in self.kernel.dims[:-1]
        if i.op == "cast":  # a number as given to what is computed with
            return all(a in self.body.uniform or a in self.hoisted for a in i.args)
        return i.op == "param"

    def rows_of(self, ident: int) -> int:
        """How many rows of the tile a reduction keeps apart."""
        return self.kernel.tile if ident in self.body.varying else 1

    def lanes(self, acc: Accumulator, width: int) -> Lanes:
        """Lanes for an accumulator's values."""
        return Lanes(self.text, acc.dtype, width)

    def neutral(self, reductions: Mapping[int, Accumulator], width: int) -> States:
        """Initial states."""
        return {
            n: (acc.neutral(self.lanes(acc, width)),) * self.rows_of(n)
            for n, acc in reductions.items()
        }

    def emit(self, start: str, stop: str) -> None:
        """Emits the loop from ``start`` to ``stop`` and publishes its reductions."""
        t = self.text
        for i in self.instrs:
            if self.is_uniform(i):
                known = self.body.uniform | self.hoisted
                self.hoisted[i.id] = self.body.scalar(i, [known[a] for a in i.args])
        if self.body.target.masked and self.is_plain():
            self._vectors(start, stop, self.width, {}, masked=True)
            return
        count = t.value(f"sub i64 {stop}, {start}")
        whole = t.value(f"and i64 {count}, {-self.width}")
        middle = t.value(f"add i64 {start}, {whole}")
        state = self.neutral(self.reductions, self.width)
        state = self._vectors(start, middle, self.width, state, masked=False)
        # What is left over, one register at a time: masked, which would slow the whole loop down
        # by a fifth, and narrow, so that the second copy of the body is a quarter of the first.
        width = self.width // 4 if self.body.target.masked else 1
        state = self._fold_lanes(state, self.width, width)
        state = self._vectors(middle, stop, width, state, masked=width > 1)
        self._publish(self._fold_lanes(state, width, 1))

    def is_plain(self) -> bool:
        """Whether one loop does for whole vectors and the rest: a long body, consecutive elements, no
        reduction. The body is there once, which saves a fifth of the time to compile it.
        """
        if self.reductions or self.folds or not any(i.op in LONG for i in self.instrs):
            return False
        accessed = {str(i.attr) for i in self.instrs if i.op in ("load", "store")}
        return all(
            self.inner_stride(self.kernel.buffer(b)) in (0, 1) for b in accessed
        ) and not any(i.op in ("load_at", "store_at") for i in self.instrs)

    def has_many_constants(self) -> bool:
        """Whether there are more constants than 32 registers hold besides what is computed with; of
        ``erf`` alone there are. Not measured but on x86.
        """
        long = [i.op for i in self.instrs if i.op in LONG]
        many = len(long) > 1 or not MANY_CONSTANTS.isdisjoint(long)
        return self.body.target.arch == "x86_64" and many

    def is_short(self) -> bool:
        """Whether the loop does little with consecutive elements: its stores are then spread out.

        All at the end of a turn they take half as long again on Zen 5 where the addresses of an
        input and an output lie badly (one in four pairs of 4 MiB blocks; the same pages elsewhere in
        the address space do not).
        """
        stored = {i.attr for i in self.region.instrs if i.op == "store"}
        if self.reductions or self.folds or self.kernel.blocks or not stored:
            return False
        return not any(
            i.op in LONG
            or i.op in ("load_at", "store_at", "philox")
            or (i.op == "load" and i.attr in stored)
            for i in self.instrs
        )

    def _in_turn(self, turns: list[Iteration], held: States) -> States:
        """All loads of a vector (one part at a time they would be slower), then part by part."""
        if len(turns) > 1:
            for i in self.instrs:
                if i.op == "load" and not self.is_uniform(i):
                    for turn in turns:
                        turn.load(i)
        return [turn.emit(held) for turn in turns][-1]

    def _fold_lanes(self, state: States, width: int, to: int) -> States:
        return {
            n: tuple(acc.fold(self.lanes(acc, width), s, to) for s in state[n])
            for n, acc in self.reductions.items()
        }

    def _publish(self, state: States) -> None:
        """Makes the reductions' results visible to later regions."""
        for n, acc in self.reductions.items():
            names = [s[-1] for s in state[n]]
            if acc.positional:
                names = [self.text.value(f"zext i32 {x} to i64") for x in names]
            self.body.uniform[n] = Value(tuple(names), "i64" if acc.positional else acc.dtype)

    def _vectors(self, start: str, stop: str, width: int, state: States, *, masked: bool) -> States:
        """One loop from ``start`` to ``stop`` by ``width``; returns the states after it."""
        t = self.text
        tag = t.fresh()
        loop, after, i = f"loop{tag}", f"after{tag}", f"%i{tag}"
        parts = 1 if masked or width == 1 or not self.is_short() else self.registers
        splats = self._splats(width // parts)
        some = t.value(f"icmp slt i64 {start}, {stop}")
        before = t.block
        t.do(f"br i1 {some}, label %{loop}, label %{after}")
        t.label(loop)
        phis = t.later()
        held = held_names(f"%a{tag}", state)
        turns = [
            Iteration(self, width // parts, t.value(f"add nsw i64 {i}, {at}") if at else i, stop,
                      splats, masked)
            for at in range(0, width, width // parts)
        ]  # fmt: skip
        t.loads_constants = self.has_many_constants()
        new = self._in_turn(turns, held)
        t.loads_constants = False
        t.do(f"{i}.next = {t.step(i, width)}")
        t.do(f"{i}.more = icmp slt i64 {i}.next, {stop}")
        t.do(f"br i1 {i}.more, label %{loop}, label %{after}")
        last = t.block
        phis.append(f"  {i} = phi i64 [{start}, %{before}], [{i}.next, %{last}]")
        t.label(after)
        return self.join(self.reductions, width, held, state, new, (before, last), phis)

    def join(
        self, reductions: Mapping[int, Accumulator], width: int, held: States, old: States,
        new: States, blocks: tuple[str, str], phis: list[str],
    ) -> States:  # fmt: skip
        """Adds the phis of a loop's states, and those behind it; returns the latter."""
        out: States = {}
        for n, acc in reductions.items():
            types = acc.types(self.lanes(acc, width))
            rows: list[State] = []
            for h, a, b in zip(held[n], old[n], new[n], strict=True):
                ends = [
                    f"phi {type_} [{x}, %{blocks[0]}], [{y}, %{blocks[1]}]"
                    for type_, x, y in zip(types, a, b, strict=True)
                ]
                phis += [f"  {name} = {end}" for name, end in zip(h, ends, strict=True)]
                rows.append(tuple(self.text.value(end) for end in ends))
            out[n] = tuple(rows)
        return out

    def _splats(self, width: int) -> dict[int, Value]:
        """Row values and hoisted ones that this region uses, in every lane."""
        needed = {a for i in self.instrs if i.id not in self.hoisted for a in i.args}
        return {
            n: Value(
                tuple(Lanes(self.text, v.dtype, width).splat(x) for x in v.names), v.dtype
            )
            for n, v in (self.body.uniform | self.hoisted).items()
            if n in needed
        }  # fmt: skip


def held_names(prefix: str, state: States) -> States:
    """Names for the states inside a loop."""
    return {
        n: tuple(tuple(f"{prefix}.{n}.{j}.{k}" for k in range(len(s))) for j, s in enumerate(rows))
        for n, rows in state.items()
    }


class Iteration:
    """The instructions of a loop for one vector."""

    def __init__(
        self, loop: Loop, width: int, i: str, stop: str, splats: dict[int, Value], masked: bool
    ) -> None:
        self.loop = loop
        self.body = loop.body
        self.text = loop.text
        self.width = width
        self.i = i
        self.base = dict(loop.body.base)
        self.values = dict(splats)
        self.step = ""  # the index along ``over``, inside a fold
        self.memory = Memory(None)
        if masked and loop.is_plain():
            self.memory = Ending(self.text, i, stop, width)
        elif masked:
            self.memory = Memory(lanes_below(self.text, i, stop, width))

    def emit(self, held: States) -> States:
        """Emits all instructions; returns the new states."""
        for region in self.loop.folds:
            self._fold(region)
        return self._run(self.loop.region, held, self.loop.reductions)

    def load(self, i: Instr) -> None:
        """Emits a load before its place."""
        self.values[i.id] = self._value(Lanes(self.text, i.dtype, self.width), i)

    def _fold(self, region: Region) -> None:
        """The loop over ``over``: every lane reduces for itself."""
        t, loop = self.text, self.loop
        tag = t.fresh()
        reductions = loop.accumulators(region)
        count = self.body.number[loop.kernel.over]
        enter, after, k = f"fold{tag}", f"folded{tag}", f"%k{tag}"
        some = t.value(f"icmp sgt i64 {count}, 0")
        before, kept, base = t.block, dict(self.values), self.base
        t.do(f"br i1 {some}, label %{enter}, label %{after}")
        t.label(enter)
        phis = t.later()
        start = loop.neutral(reductions, self.width)
        held = held_names(f"%f{tag}", start)
        self.base, self.step = self._stepped(k), k
        new = self._run(region, held, reductions)
        self.base, self.values, self.step = base, kept, ""
        t.do(f"{k}.next = {t.step(k, 1)}")
        t.do(f"{k}.more = icmp slt i64 {k}.next, {count}")
        t.do(f"br i1 {k}.more, label %{enter}, label %{after}")
        last = t.block
        phis.append(f"  {k} = phi i64 [0, %{before}], [{k}.next, %{last}]")
        t.label(after)
        ends = loop.join(reductions, self.width, held, start, new, (before, last), phis)
        for n, acc in reductions.items():
            self.values[n] = Value(tuple(s[0] for s in ends[n]), acc.dtype)

    def _stepped(self, k: str) -> dict[str, tuple[str, ...]]:
        """Row addresses moved along ``over``."""
        out = dict(self.base)
        for b in self.loop.kernel.buffers:
            if b.strides[-1] != 0:
                offset = self.text.value(f"mul i64 {k}, {self.body.stride(b.strides[-1])}")
                memory = DTYPES[b.dtype].memory
                out[b.name] = tuple(
                    self.text.value(f"getelementptr {memory}, ptr {p}, i64 {offset}")
                    for p in out[b.name]
                )
        return out

    def _run(self, region: Region, held: States, reductions: dict[int, Accumulator]) -> States:
        """Emits a region's instructions for this vector."""
        new: States = {}
        for i in region.instrs:
            v = Lanes(self.text, i.dtype, self.width)
            if i.op == "store":
                self._store(v, self.loop.kernel.buffer(str(i.attr)), self.values[i.args[0]])
            elif i.op == "store_at":
                self._store_at(v, i)
            elif i.id in reductions:
                masked = region.kind == "each"
                new[i.id] = self._accumulate(reductions[i.id], i, held[i.id], masked)
            elif i.id not in self.values and not self.loop.is_uniform(i):
                self.values[i.id] = self._value(v, i)
        return new

    def _value(self, v: Lanes, i: Instr) -> Value:
        args = [self.values[a] for a in i.args]
        if i.op == "load":
            return self._load(v, self.loop.kernel.buffer(str(i.attr)))
        if i.op == "load_at":
            return self._load_at(v, i, args)
        if i.op == "index":
            if self.step and i.attr == self.loop.kernel.over:
                return Value((v.splat(self.step),), i.dtype)
            return Value((v.add(v.splat(self.i), v.iota()),), i.dtype)
        given = [a.dtype for a in args]
        return spread(args, i.dtype, lambda names: plain(v, i, names, given))

    def _accumulate(
        self, acc: Accumulator, i: Instr, held: tuple[State, ...], masked: bool
    ) -> tuple[State, ...]:
        value = self.values[i.args[0]]
        v = Lanes(self.text, value.dtype, self.width)
        words = v.like("u32")
        position: State = ()
        if acc.positional:
            at = self.text.value(f"trunc i64 {self.i} to i32")
            position = (words.add(words.splat(at), words.iota()),)
        active = self.memory.mask if masked else None
        if acc.how == "dot":
            other = self.values[i.args[1]]
            return tuple(
                (self._multiply_add(v, value.at(j), other.at(j), state[0], active),)
                for j, state in enumerate(held)
            )
        out: list[State] = []
        for j, state in enumerate(held):
            new: State = (value.at(j), *position)
            if active is not None:
                new = tuple(
                    lanes.select(active, s, e)
                    for lanes, s, e in zip((v, words), new, acc.neutral(v), strict=False)
                )
            out.append(acc.combine(v, state, new))
        return tuple(out)

    def _multiply_add(self, v: Lanes, a: str, b: str, sum_: str, active: str | None) -> str:
        new = emit_op("fma", v, [a, b, sum_])
        return new if active is None else v.select(active, new, sum_)

    # -- memory --------------------------------------------------------------------------------

    def _addresses(self, b: Buffer) -> tuple[list[str], bool]:
        """Addresses (one, or one per row) of a vector; True: each is a vector of addresses."""
        t = self.text
        stride = self.body.stride(self.loop.inner_stride(b))
        memory = DTYPES[b.dtype].memory
        if stride == "1" or self.width == 1:
            offset = f"i64 {self.i}"
            if stride != "1":
                offset = "i64 " + t.value(f"mul i64 {self.i}, {stride}")
        else:
            longs = Lanes(t, "i64", self.width)
            at = longs.add(longs.splat(self.i), longs.iota())
            number = stride.lstrip("-").isdigit()
            step = longs.c(int(stride)) if number else longs.splat(stride)
            offset = f"{longs.type} {longs.mul(at, step)}"
        found = [
            t.value(f"getelementptr {memory}, ptr {p}, {offset}") for p in self.base[b.name]
        ]  # fmt: skip
        return found, offset.startswith("<")

    def _load(self, v: Lanes, b: Buffer) -> Value:
        if self.loop.inner_stride(b) == 0:
            one = Lanes(self.text, v.dtype.name, 1)
            names = [v.splat(self.body.load_scalar(one, p)) for p in self.base[b.name]]
        else:
            addresses, scattered = self._addresses(b)
            names = [self.memory.load(v, a, scattered=scattered) for a in addresses]
        return Value(tuple(names), v.dtype.name)

    def _store(self, v: Lanes, b: Buffer, value: Value) -> None:
        if self.loop.inner_stride(b) == 0:
            raise CompileError(f"buffer {b.name} has stride 0 along the loop and is stored to")
        addresses, scattered = self._addresses(b)
        places = Value(tuple(addresses), "")
        for j in range(max(len(addresses), len(value.names))):
            self.memory.store(v, value.at(j), places.at(j), scattered=scattered)

    def _places(self, buffer: str, offset: str) -> str:
        """Addresses at computed offsets from a buffer's start."""
        longs = Lanes(self.text, "i64", self.width)
        memory = DTYPES[self.loop.kernel.buffer(buffer).dtype].memory
        start = self.body.whole[buffer]
        return self.text.value(f"getelementptr {memory}, ptr {start}, {longs.type} {offset}")

    def _load_at(self, v: Lanes, i: Instr, args: list[Value]) -> Value:
        def one(names: list[str]) -> str:
            places = self._places(str(i.attr), names[0])
            if len(names) > 1:
                return self.memory.load_where(v, places, names[1])
            return self.memory.load(v, places, scattered=True)

        return spread(args, i.dtype, one)

    def _store_at(self, v: Lanes, i: Instr) -> None:
        offset, value = (self.values[a] for a in i.args)
        for j in range(max(len(offset.names), len(value.names))):
            places = self._places(str(i.attr), offset.at(j))
            self.memory.store(v, value.at(j), places, scattered=True)
