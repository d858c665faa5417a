"""Emits a loop-IR kernel as an LLVM module: the loops, and an entry with plain C parameters.

The module has ``NAME`` (C parameters: buffers, dims, strides, scalars) which packs its
parameters and shares rows out to threads by ``mortice_parallel_for``, and ``NAME_range(args, lo,
hi)`` which does a part. Loads of one vector come before its stores, so an output may be the same
memory as an input wherever ``Kernel.may_alias`` holds.
"""

from __future__ import annotations

from ..dtypes import DTYPES
from ..errors import CompileError
from ..ir.nodes import Buffer, Instr, Kernel, Region
from ..target import Target
from .casts import bitcast, cast, from_memory, to_memory
from .functions import emit_op
from .lanes import Lanes, Text
from .reductions import Accumulator, State

# Below this many elements a kernel runs in the calling thread; above, in parts of CHUNK.
GRAIN = 32768
CHUNK = 16384
PARALLEL_FOR = "mortice_parallel_for"


def attributes(target: Target) -> str:
    """Function attributes: no unwinding; the full vector width where registers have it."""
    wide = ' "min-legal-vector-width"="512" "prefer-vector-width"="512"'
    return f"attributes #0 = {{ nounwind{wide if target.name == 'avx512' else ''} }}"


def emit_kernel(kernel: Kernel, target: Target) -> str:
    """Returns LLVM text for a verified kernel."""
    text = Text(target)
    text.declare(f"declare void @{PARALLEL_FOR}(ptr, ptr, i64, i64)")
    text.declare("declare i64 @llvm.umin.i64(i64, i64)")
    text.declare("declare i64 @llvm.umax.i64(i64, i64)")
    _Body(kernel, text).emit()
    _emit_entry(kernel, text)
    return text.module() + attributes(target) + "\n"


def _emit_entry(kernel: Kernel, text: Text) -> None:
    """The function that callers see."""
    scalar_types = {"f64": "double", "i64": "i64"}
    params = [("ptr", b.name) for b in kernel.buffers]
    params += [("i64", n) for n in (*kernel.sizes(), *kernel.symbols())]
    params += [(scalar_types[s.dtype], s.name) for s in kernel.scalars]
    given = ", ".join(f"{t} %{n}" for t, n in params)
    text.lines.append(f"define void @{kernel.name}({given}) #0 {{")
    text.label("entry")
    args = text.value(f"alloca [{len(params)} x i64], align 8")
    for k, (type_, name) in enumerate(params):
        slot = text.value(f"getelementptr i64, ptr {args}, i64 {k}")
        text.do(f"store {type_} %{name}, ptr {slot}, align 8")
    units, total, chunk = _share(kernel, text)
    small = text.value(f"icmp ule i64 {total}, {GRAIN}")
    body = f"@{kernel.name}_range"
    text.do(f"br i1 {small}, label %alone, label %shared")
    text.label("alone")
    text.do(f"call void {body}(ptr {args}, i64 0, i64 {units})")
    text.do("ret void")
    text.label("shared")
    text.do(f"call void @{PARALLEL_FOR}(ptr {body}, ptr {args}, i64 {units}, i64 {chunk})")
    text.do("ret void")
    text.lines.append("}")


def _share(kernel: Kernel, text: Text) -> tuple[str, str, str]:
    """(units of work, all element steps, units in a chunk); a unit is a row, or an element of a
    kernel of one dimension.
    """
    *outer, inner = (f"%{d}" for d in kernel.dims)
    factors = [inner] if outer else []
    factors += [f"%{kernel.over}"] if kernel.over else []

    def product(numbers: list[str]) -> str:
        out = numbers[0] if numbers else "1"
        for n in numbers[1:]:
            out = text.value(f"mul i64 {out}, {n}")
        return out

    units, cost = product(outer or [inner]), product(factors)
    if not factors:
        return units, units, str(CHUNK)
    total = text.value(f"mul i64 {units}, {cost}")
    least = text.value(f"call i64 @llvm.umax.i64(i64 {cost}, i64 1)")
    part = text.value(f"udiv i64 {CHUNK}, {least}")
    chunk = text.value(f"call i64 @llvm.umax.i64(i64 {part}, i64 1)")
    if not outer:  # whole vectors
        up = text.value(f"add i64 {chunk}, {text.target.width - 1}")
        chunk = text.value(f"and i64 {up}, {-text.target.width}")
    return units, total, chunk


class _Body:
    """Emits ``NAME_range``."""

    def __init__(self, kernel: Kernel, text: Text) -> None:
        self.kernel = kernel
        self.text = text
        self.target = text.target
        # Values that are the same for the whole row: number -> (scalar name, dtype).
        self.uniform: dict[int, tuple[str, str]] = {}
        self.base: dict[str, str] = {}
        self.number: dict[str, str] = {}

    def emit(self) -> None:
        k, t = self.kernel, self.text
        t.lines.append(f"define internal void @{k.name}_range(ptr %args, i64 %lo, i64 %hi) #0 {{")
        t.label("entry")
        self._unpack()
        if len(k.dims) == 1:
            self._regions("%lo", "%hi")
        else:
            some = t.value("icmp ult i64 %lo, %hi")
            t.do(f"br i1 {some}, label %rows, label %done")
            t.label("rows")
            phi = t.later()
            self._enter_row("%row")
            self._regions("0", self.number[k.dims[-1]])
            t.do("%row.next = add nuw i64 %row, 1")
            t.do("%row.more = icmp ult i64 %row.next, %hi")
            t.do("br i1 %row.more, label %rows, label %done")
            phi.append(f"  %row = phi i64 [%lo, %entry], [%row.next, %{t.block}]")
            t.label("done")
        t.do("ret void")
        t.lines.append("}")

    def _unpack(self) -> None:
        t, k = self.text, self.kernel
        names = [("ptr", b.name) for b in k.buffers]
        names += [("i64", n) for n in (*k.sizes(), *k.symbols())]
        names += [("double" if s.dtype == "f64" else "i64", s.name) for s in k.scalars]
        for n, (type_, name) in enumerate(names):
            slot = t.value(f"getelementptr i64, ptr %args, i64 {n}")
            value = t.value(f"load {type_}, ptr {slot}, align 8")
            (self.base if type_ == "ptr" else self.number)[name] = value
        self.whole = dict(self.base)

    def stride(self, s: int | str) -> str:
        return str(s) if isinstance(s, int) else self.number[s]

    def _enter_row(self, row: str) -> None:
        """Splits the row number into outer indices and moves each buffer's base pointer."""
        t, k = self.text, self.kernel
        outer = k.dims[:-1]
        index: dict[int, str] = {0: row}
        for d in range(len(outer) - 1, 0, -1):
            size = self.number[outer[d]]
            index[d] = t.value(f"urem i64 {index[0]}, {size}")
            index[0] = t.value(f"udiv i64 {index[0]}, {size}")
        for b in k.buffers:
            offset = ""
            for d in range(len(outer)):
                if b.strides[d] == 0:
                    continue
                part = t.value(f"mul i64 {index[d]}, {self.stride(b.strides[d])}")
                offset = t.value(f"add i64 {offset}, {part}") if offset else part
            self.base[b.name] = self._element(b, self.whole[b.name], offset or "0")

    def _element(self, b: Buffer, base: str, offset: str) -> str:
        if offset == "0":
            return base
        return self.text.value(f"getelementptr {DTYPES[b.dtype].memory}, ptr {base}, i64 {offset}")

    # -- regions -------------------------------------------------------------------------------

    def _regions(self, start: str, stop: str) -> None:
        folds: list[Region] = []
        for region in self.kernel.regions:
            if region.kind == "row":
                self._row(region)
            elif region.kind == "fold":
                folds.append(region)
            else:
                _Loop(self, region, folds).emit(start, stop)
                folds = []

    def _row(self, region: Region) -> None:
        for i in region.instrs:
            v = Lanes(self.text, i.dtype, 1)
            args = [self.uniform[a] for a in i.args]
            if i.op == "store":
                raw = to_memory(v, args[0][0])
                self.text.do(
                    f"store {v.dtype.memory} {raw}, ptr {self.base[str(i.attr)]}, "
                    f"align {v.dtype.size}"
                )
            else:
                self.uniform[i.id] = (self.scalar(i, args), i.dtype)

    def scalar(self, i: Instr, args: list[tuple[str, str]]) -> str:
        """Emits one instruction on scalars."""
        v = Lanes(self.text, i.dtype, 1)
        if i.op == "load":
            raw = self.text.value(
                f"load {v.dtype.memory}, ptr {self.base[str(i.attr)]}, align {v.dtype.size}"
            )
            return from_memory(v, raw)
        if i.op == "param":
            given = next(s for s in self.kernel.scalars if s.name == i.attr)
            return cast(v.like(given.dtype), self.number[given.name], v)
        return plain(v, i, args)


def plain(v: Lanes, i: Instr, args: list[tuple[str, str]]) -> str:
    """Emits an instruction without memory access; ``v`` has the result's dtype."""
    names = [a[0] for a in args]
    if i.op == "const":
        return v.c(i.attr)  # type: ignore[arg-type]
    if i.op == "cast":
        return cast(v.like(args[0][1]), names[0], v)
    if i.op == "bitcast":
        return bitcast(v.like(args[0][1]), names[0], v)
    if i.op == "select":
        return v.select(*names)
    return emit_op(i.op, v.like(args[0][1]), names)


class _Loop:
    """Emits one ``each`` region with the folds before it: hoisted values, then vectors, then what
    is left over.
    """

    def __init__(self, body: _Body, region: Region, folds: list[Region]) -> None:
        self.body = body
        self.kernel = body.kernel
        self.text = body.text
        self.region = region
        self.folds = folds
        instrs = [i for r in (*folds, region) for i in r.instrs]
        wide = any(DTYPES[i.dtype].bits == 64 for i in instrs if i.op != "param")
        self.width = body.target.width // (2 if wide else 1)
        dtypes: dict[int, str] = {i.id: i.dtype for i in instrs}
        dtypes |= {n: d for n, (_, d) in body.uniform.items()}
        self.reductions = {
            i.id: (Accumulator(i.op[7:], dtypes[i.args[0]]), i.args[0])
            for i in region.instrs
            if i.op.startswith("reduce_")
        }
        self.hoisted: dict[int, tuple[str, str]] = {}

    def _is_uniform(self, i: Instr) -> bool:
        if i.op == "load":
            inner = len(self.kernel.dims) - 1
            return not any(self.kernel.buffer(str(i.attr)).strides[inner:])
        return i.op == "param"

    def emit(self, start: str, stop: str) -> None:
        t = self.text
        for i in (i for r in (*self.folds, self.region) for i in r.instrs):
            if self._is_uniform(i):
                self.hoisted[i.id] = (self.body.scalar(i, []), i.dtype)
        state = {n: self._lanes(n, self.width).neutral_state for n in self.reductions}
        if self.body.target.masked:
            state = self._vectors(start, stop, self.width, state, masked=True)
            state = self._fold(state)
        else:
            count = t.value(f"sub i64 {stop}, {start}")
            whole = t.value(f"and i64 {count}, {-self.width}")
            middle = t.value(f"add i64 {start}, {whole}")
            state = self._vectors(start, middle, self.width, state, masked=False)
            state = self._fold(state)
            state = self._vectors(middle, stop, 1, state, masked=False)
        self._publish(state)

    def _lanes(self, ident: int, width: int) -> _AccLanes:
        return _AccLanes(self.reductions[ident][0], self.text, width)

    def _fold(self, state: dict[int, State]) -> dict[int, State]:
        return {
            n: acc.fold(Lanes(self.text, acc.dtype, self.width), state[n])
            for n, (acc, _) in self.reductions.items()
        }

    def _publish(self, state: dict[int, State]) -> None:
        """Makes the reductions' results visible to later regions."""
        for n, (acc, _) in self.reductions.items():
            value = state[n][-1]
            if acc.positional:
                value = self.text.value(f"zext i32 {value} to i64")
                self.body.uniform[n] = (value, "i64")
            else:
                self.body.uniform[n] = (value, acc.dtype)

    def _vectors(
        self, start: str, stop: str, width: int, state: dict[int, State], *, masked: bool
    ) -> dict[int, State]:
        """One loop from ``start`` to ``stop`` by ``width``; returns the accumulators after it."""
        t = self.text
        tag = t.fresh()
        loop, after, i = f"loop{tag}", f"after{tag}", f"%i{tag}"
        splats = self._splats(width)
        some = t.value(f"icmp slt i64 {start}, {stop}")
        before = t.block
        t.do(f"br i1 {some}, label %{loop}, label %{after}")
        t.label(loop)
        phis = t.later()
        held = {n: tuple(f"%a{tag}.{n}.{k}" for k in range(len(s))) for n, s in state.items()}
        new = _Iteration(self, width, i, stop, splats, masked).emit(held)
        t.do(f"{i}.next = add nsw i64 {i}, {width}")
        t.do(f"{i}.more = icmp slt i64 {i}.next, {stop}")
        t.do(f"br i1 {i}.more, label %{loop}, label %{after}")
        last = t.block
        phis.append(f"  {i} = phi i64 [{start}, %{before}], [{i}.next, %{last}]")
        t.label(after)
        out: dict[int, State] = {}
        for n in state:
            types = self._lanes(n, width).types
            for k, type_ in enumerate(types):
                phis.append(
                    f"  {held[n][k]} = phi {type_} [{state[n][k]}, %{before}], "
                    f"[{new[n][k]}, %{last}]"
                )
            out[n] = tuple(
                t.value(f"phi {type_} [{state[n][k]}, %{before}], [{new[n][k]}, %{last}]")
                for k, type_ in enumerate(types)
            )
        return out

    def _splats(self, width: int) -> dict[int, tuple[str, str]]:
        """Row values and hoisted loads that this region uses, in every lane."""
        needed = {a for r in (*self.folds, self.region) for i in r.instrs for a in i.args}
        out: dict[int, tuple[str, str]] = {}
        for n, (value, dtype) in (self.body.uniform | self.hoisted).items():
            if n in needed:
                out[n] = (Lanes(self.text, dtype, width).splat(value), dtype)
        return out


class _AccLanes:
    """An accumulator's types and initial state at one width."""

    def __init__(self, acc: Accumulator, text: Text, width: int) -> None:
        v = Lanes(text, acc.dtype, width)
        self.types = acc.types(v)
        self.neutral_state = acc.neutral(v)


class _Iteration:
    """Emits the body of a loop for one vector."""

    def __init__(
        self,
        loop: _Loop,
        width: int,
        i: str,
        stop: str,
        splats: dict[int, tuple[str, str]],
        masked: bool,
    ) -> None:
        self.loop = loop
        self.text = loop.text
        self.base = dict(loop.body.base)
        self.width = width
        self.i = i
        self.values = dict(splats)
        self.mask = self._mask(stop) if masked else None

    def _mask(self, stop: str) -> str:
        """Lanes below ``stop``."""
        t, words = self.text, Lanes(self.text, "u32", self.width)
        left = t.value(f"sub i64 {stop}, {self.i}")
        few = t.value(f"call i64 @llvm.umin.i64(i64 {left}, i64 {self.width})")
        count = t.value(f"trunc i64 {few} to i32")
        return words.cmp("ult", words.iota(), words.splat(count))

    def emit(self, held: dict[int, State]) -> dict[int, State]:
        """Emits all instructions; returns the new accumulators."""
        for region in self.loop.folds:
            self._fold(region)
        return self._run(self.loop.region, held, self.loop.reductions)

    def _fold(self, region: Region) -> None:
        """The loop over ``over``: every lane reduces for itself."""
        t, tag = self.text, self.text.fresh()
        dtypes = {i.id: i.dtype for i in region.instrs}
        dtypes |= {n: d for n, (_, d) in self.values.items()}
        reductions = {
            i.id: (Accumulator(i.op[7:], dtypes[i.args[0]]), i.args[0])
            for i in region.instrs
            if i.op.startswith("reduce_")
        }
        lanes = {n: _AccLanes(acc, t, self.width) for n, (acc, _) in reductions.items()}
        count = self.loop.body.number[self.loop.kernel.over]
        loop, after, k = f"fold{tag}", f"folded{tag}", f"%k{tag}"
        some = t.value(f"icmp sgt i64 {count}, 0")
        before, kept, base = t.block, dict(self.values), dict(self.base)
        t.do(f"br i1 {some}, label %{loop}, label %{after}")
        t.label(loop)
        phis = t.later()
        held = {n: (f"%f{tag}.{n}",) for n in reductions}
        for b in self.loop.kernel.buffers:
            if b.strides[-1] != 0:
                offset = t.value(f"mul i64 {k}, {self.loop.body.stride(b.strides[-1])}")
                memory = DTYPES[b.dtype].memory
                self.base[b.name] = t.value(
                    f"getelementptr {memory}, ptr {base[b.name]}, i64 {offset}"
                )
        new = self._run(region, held, reductions)
        self.base, self.values = base, kept
        t.do(f"{k}.next = add nsw i64 {k}, 1")
        t.do(f"{k}.more = icmp slt i64 {k}.next, {count}")
        t.do(f"br i1 {k}.more, label %{loop}, label %{after}")
        last = t.block
        phis.append(f"  {k} = phi i64 [0, %{before}], [{k}.next, %{last}]")
        t.label(after)
        for n, (acc, _) in reductions.items():
            type_, start = lanes[n].types[0], lanes[n].neutral_state[0]
            ends = f"phi {type_} [{start}, %{before}], [{new[n][0]}, %{last}]"
            phis.append(f"  {held[n][0]} = {ends}")
            self.values[n] = (t.value(ends), acc.dtype)

    def _run(
        self, region: Region, held: dict[int, State], reductions: dict[int, tuple[Accumulator, int]]
    ) -> dict[int, State]:
        """Emits a region's instructions for this vector."""
        new: dict[int, State] = {}
        for i in region.instrs:
            v = Lanes(self.text, i.dtype, self.width)
            if i.op == "store":
                value = to_memory(v, self.values[i.args[0]][0])
                self._store(v, self.loop.kernel.buffer(str(i.attr)), value)
            elif i.id in reductions:
                masked = region.kind == "each"
                new[i.id] = self._accumulate(reductions[i.id][0], i, held[i.id], masked)
            elif i.id not in self.values:
                if i.op == "load":
                    value = self._load(v, self.loop.kernel.buffer(str(i.attr)))
                elif i.op == "index":
                    value = v.add(v.splat(self.i), v.iota())
                elif self.loop._is_uniform(i):  # an unused hoisted value
                    continue
                else:
                    value = plain(v, i, [self.values[a] for a in i.args])
                self.values[i.id] = (value, i.dtype)
        return new

    def _accumulate(self, acc: Accumulator, i: Instr, held: State, masked: bool) -> State:
        value, dtype = self.values[i.args[0]]
        v = Lanes(self.text, dtype, self.width)
        words = v.like("u32")
        state: State = (value,)
        if acc.positional:
            at = self.text.value(f"trunc i64 {self.i} to i32")
            state = (value, words.add(words.splat(at), words.iota()))
        if masked and self.mask is not None:
            empty = acc.neutral(v)
            kinds = (v, words)
            state = tuple(kinds[k].select(self.mask, s, empty[k]) for k, s in enumerate(state))
        return acc.combine(v, held, state)

    # -- memory --------------------------------------------------------------------------------

    def _inner_stride(self, b: Buffer) -> int | str:
        return b.strides[len(self.loop.kernel.dims) - 1]

    def _addresses(self, b: Buffer) -> tuple[str, bool]:
        """The address of a vector (consecutive elements), or of each lane (True)."""
        stride = self.loop.body.stride(self._inner_stride(b))
        memory = DTYPES[b.dtype].memory
        base = self.base[b.name]
        if stride == "1" or self.width == 1:
            offset = self.i
            if stride != "1":
                offset = self.text.value(f"mul i64 {self.i}, {stride}")
            return self.text.value(f"getelementptr {memory}, ptr {base}, i64 {offset}"), False
        longs = Lanes(self.text, "i64", self.width)
        at = longs.add(longs.splat(self.i), longs.iota())
        step = longs.splat(stride) if not stride.lstrip("-").isdigit() else longs.c(int(stride))
        at = longs.mul(at, step)
        return self.text.value(f"getelementptr {memory}, ptr {base}, {longs.type} {at}"), True

    def _names(self, v: Lanes) -> tuple[str, str, str]:
        """(vector type in memory, intrinsic suffix, mask)."""
        memory = v.dtype.memory
        short = {"float": "f32", "double": "f64"}.get(memory, memory)
        mask = self.mask or "splat (i1 true)"
        return f"<{self.width} x {memory}>", f"v{self.width}{short}", mask

    def _load(self, v: Lanes, b: Buffer) -> str:
        if self._inner_stride(b) == 0:
            one = Lanes(self.text, v.dtype.name, 1)
            address = self.base[b.name]
            raw = self.text.value(f"load {one.dtype.memory}, ptr {address}, align {one.dtype.size}")
            return v.splat(from_memory(one, raw))
        return from_memory(v, self._load_vector(v, b))

    def _load_vector(self, v: Lanes, b: Buffer) -> str:
        """A vector in memory form: consecutive, or gathered."""
        address, scattered = self._addresses(b)
        size = v.dtype.size
        if self.width == 1:
            return self.text.value(f"load {v.dtype.memory}, ptr {address}, align {size}")
        vector, suffix, mask = self._names(v)
        pointers = f"<{self.width} x ptr>" if scattered else "ptr"
        if not scattered and self.mask is None:
            return self.text.value(f"load {vector}, ptr {address}, align {size}")
        name = f"gather.{suffix}.v{self.width}p0" if scattered else f"load.{suffix}.p0"
        masks = f"<{self.width} x i1>"
        self.text.declare(
            f"declare {vector} @llvm.masked.{name}({pointers}, i32, {masks}, {vector})"
        )
        return self.text.value(
            f"call {vector} @llvm.masked.{name}({pointers} {address}, i32 {size}, "
            f"{masks} {mask}, {vector} zeroinitializer)"
        )

    def _store(self, v: Lanes, b: Buffer, value: str) -> None:
        if self._inner_stride(b) == 0:
            raise CompileError(f"buffer {b.name} has stride 0 along the loop and is stored to")
        address, scattered = self._addresses(b)
        size = v.dtype.size
        if self.width == 1:
            self.text.do(f"store {v.dtype.memory} {value}, ptr {address}, align {size}")
            return
        vector, suffix, mask = self._names(v)
        if not scattered and self.mask is None:
            self.text.do(f"store {vector} {value}, ptr {address}, align {size}")
            return
        pointers = f"<{self.width} x ptr>" if scattered else "ptr"
        name = f"scatter.{suffix}.v{self.width}p0" if scattered else f"store.{suffix}.p0"
        masks = f"<{self.width} x i1>"
        self.text.declare(f"declare void @llvm.masked.{name}({vector}, {pointers}, i32, {masks})")
        self.text.do(
            f"call void @llvm.masked.{name}({vector} {value}, {pointers} {address}, "
            f"i32 {size}, {masks} {mask})"
        )
