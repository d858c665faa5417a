"""Emits loop-IR kernels as an LLVM module: entries with plain C parameters, and their rows.

For each kernel the module has ``NAME`` (C parameters: buffers, sizes, strides, scalars), which
packs its parameters and shares rows out to threads by ``mortice_parallel_for``, and
``NAME_range(args, lo, hi)``, which does a part. Who packs them itself and knows the sizes
(``shares``) needs no ``NAME``. A kernel of blocks is one function,
``NAME(args, row, row end, column, column end)``, whose caller has packed the parameters; rows are
counted through all outer dimensions. Loads of one vector come before its stores, so an
output may be the same memory as an input wherever ``Kernel.may_alias`` holds.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Protocol, TypeVar

from ..dtypes import DTYPES
from ..ir.nodes import Buffer, Instr, Kernel, Region
from ..target import Target
from .casts import cast, from_memory, to_memory
from .lanes import Lanes, Text
from .loop import Loop
from .plain import plain
from .values import Value, spread, varying

# Below this many elements a kernel runs in the calling thread; above, in parts of CHUNK.
GRAIN = 32768
CHUNK = 16384
#: Elements in the longest vectors of any target.
VECTOR = 64
#: Bytes that a cache fetches at once.
LINE = 64
PARALLEL_FOR = "mortice_parallel_for"


def attributes(target: Target) -> str:
    """Function attributes: no unwinding; the full vector width where registers have it."""
    wide = ' "min-legal-vector-width"="512" "prefer-vector-width"="512"'
    # Windows would have large frames call a routine of its C library.
    probe = ' "no-stack-arg-probe"' if sys.platform == "win32" else ""
    return f"attributes #0 = {{ nounwind{wide if target.name == 'avx512' else ''}{probe} }}"


def emit_module(kernels: Sequence[Kernel], target: Target, *, entries: bool = True) -> str:
    """Returns LLVM text for verified kernels with distinct names, with or without ``NAME``."""
    text = Text(target)
    text.declare(f"declare void @{PARALLEL_FOR}(ptr, ptr, i64, i64)")
    text.declare("declare i64 @llvm.umin.i64(i64, i64)")
    text.declare("declare i64 @llvm.umax.i64(i64, i64)")
    for kernel in kernels:
        Body(kernel, text).emit()
        if entries and not kernel.blocks:
            _emit_entry(kernel, text)
    return text.module() + attributes(target) + "\n"


def emit_kernel(kernel: Kernel, target: Target) -> str:
    """Returns LLVM text for one verified kernel."""
    return emit_module([kernel], target)


def _parameters(kernel: Kernel) -> list[tuple[str, str]]:
    """(LLVM type, name) of the entry's parameters."""
    out = [("ptr", b.name) for b in kernel.buffers]
    out += [("i64", n) for n in (*kernel.sizes(), *kernel.symbols())]
    return out + [("double" if s.dtype == "f64" else "i64", s.name) for s in kernel.scalars]


def _emit_entry(kernel: Kernel, text: Text) -> None:
    """The function that callers see."""
    params = _parameters(kernel)
    given = ", ".join(f"{t} %{n}" for t, n in params)
    text.lines.append(f"define void @{kernel.name}({given}) #0 {{")
    text.label("entry")
    args = text.value(f"alloca [{len(params)} x i64], align 8")
    for k, (type_, name) in enumerate(params):
        slot = text.value(f"getelementptr i64, ptr {args}, i64 {k}")
        text.do(f"store {type_} %{name}, ptr {slot}, align 8")
    units, total, chunk = _share(kernel, _Emitted(text))
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


N = TypeVar("N")


class _Sums(Protocol[N]):
    """Arithmetic on sizes, known or emitted."""

    def size(self, name: str) -> N: ...
    def number(self, n: int) -> N: ...
    def times(self, a: N, b: N) -> N: ...
    def over(self, a: N, b: N) -> N: ...
    def plus(self, a: N, n: int) -> N: ...
    def at_least_one(self, a: N) -> N: ...


class _Emitted:
    def __init__(self, text: Text) -> None:
        self.text = text

    def size(self, name: str) -> str:
        return f"%{name}"

    def number(self, n: int) -> str:
        return str(n)

    def times(self, a: str, b: str) -> str:
        return self.text.value(f"mul i64 {a}, {b}")

    def over(self, a: str, b: str) -> str:
        return self.text.value(f"udiv i64 {a}, {b}")

    def plus(self, a: str, n: int) -> str:
        return self.text.value(f"add i64 {a}, {n}")

    def at_least_one(self, a: str) -> str:
        return self.text.value(f"call i64 @llvm.umax.i64(i64 {a}, i64 1)")


class _Known:
    def __init__(self, sizes: Mapping[str, int]) -> None:
        self.sizes = sizes

    def size(self, name: str) -> int:
        return self.sizes[name]

    def number(self, n: int) -> int:
        return n

    def times(self, a: int, b: int) -> int:
        return a * b

    def over(self, a: int, b: int) -> int:
        return a // b

    def plus(self, a: int, n: int) -> int:
        return a + n

    def at_least_one(self, a: int) -> int:
        return max(a, 1)


def shares(kernel: Kernel, sizes: Mapping[str, int]) -> tuple[int, int]:
    """(units of work, units in a chunk) where the sizes are known, as ``NAME`` has them."""
    units, total, chunk = _share(kernel, _Known(sizes))
    return units, units if total <= GRAIN else chunk


def _share(kernel: Kernel, on: _Sums[N]) -> tuple[N, N, N]:
    """(units of work, all element steps, units in a chunk).

    A unit is a tile of rows, or an element of a kernel of one dimension.
    """
    *outer, inner = map(on.size, kernel.dims)
    factors = [inner] if outer else []
    factors += [on.size(kernel.over)] if kernel.over else []
    if kernel.tile > 1:
        factors.append(on.number(kernel.tile))
        outer[-1] = on.over(on.plus(outer[-1], kernel.tile - 1), on.number(kernel.tile))
    units = reduce(on.times, outer or [inner])
    if not factors:
        return units, units, on.number(CHUNK)
    cost = reduce(on.times, factors)
    chunk = on.at_least_one(on.over(on.number(CHUNK), on.at_least_one(cost)))
    if not outer:  # whole vectors
        vectors = on.over(on.plus(chunk, VECTOR - 1), on.number(VECTOR))
        chunk = on.times(vectors, on.number(VECTOR))
    return units, on.times(units, cost), chunk


def tiles(text: Text, rows: str, tile: int) -> str:
    """How many tiles cover ``rows`` rows."""
    if tile == 1:
        return rows
    return text.value(f"udiv i64 {text.value(f'add i64 {rows}, {tile - 1}')}, {tile}")


class Body:
    """Emits ``NAME_range`` (of blocks ``NAME``): the loop over rows (or tiles of rows), and the regions in it."""

    def __init__(self, kernel: Kernel, text: Text) -> None:
        self.kernel = kernel
        self.text = text
        self.target = text.target
        self.varying = varying(kernel)
        # Values that are the same along the row, as scalars.
        self.uniform: dict[int, Value] = {}
        # Where each buffer's row starts (one address, or one per row of the tile), and its start.
        self.base: dict[str, tuple[str, ...]] = {}
        self.whole: dict[str, str] = {}
        # Sizes, strides and scalars that the caller gave.
        self.number: dict[str, str] = {}
        # The index along each outer dimension.
        self.index: dict[str, tuple[str, ...]] = {}

    def emit(self) -> None:
        """Emits the function."""
        k, t = self.kernel, self.text
        kind, name, columns = "internal ", f"{k.name}_range", ""
        if k.blocks:
            kind, name, columns = "", k.name, ", i64 %start, i64 %stop"
        t.lines.append(f"define {kind}void @{name}(ptr %args, i64 %lo, i64 %hi{columns}) #0 {{")
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
            if k.blocks:
                self._ahead()
            inner = ("%start", "%stop") if k.blocks else ("0", self.number[k.dims[-1]])
            self._regions(*inner)
            t.do("%row.next = add nuw i64 %row, 1")
            t.do("%row.more = icmp ult i64 %row.next, %hi")
            t.do("br i1 %row.more, label %rows, label %done")
            phi.append(f"  %row = phi i64 [%lo, %entry], [%row.next, %{t.block}]")
            t.label("done")
        t.do("ret void")
        t.lines.append("}")

    def _ahead(self) -> None:
        """Asks for the inputs of the next row: those of a block lie apart, which the hardware does
        not foresee (a matrix that is added to a product cost 3% of the whole).
        """
        t, at, row = self.text, len(self.kernel.dims) - 1, len(self.kernel.dims) - 2
        read = [b for b in self.kernel.buffers
                if b.mode == "in" and b.strides[at] == 1 and b.strides[row] != 0]  # fmt: skip
        if not read:
            return
        t.declare("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        step = LINE // max(DTYPES[b.dtype].size for b in read)
        tag, before = t.fresh(), t.block
        ahead, i = f"ahead{tag}", f"%i{tag}"
        t.do(f"br label %{ahead}")
        t.label(ahead)
        t.do(f"{i} = phi i64 [%start, %{before}], [{i}.next, %{ahead}]")
        for b in read:
            place = t.value(f"add i64 {i}, {self.stride(b.strides[row])}")
            address = t.value(
                f"getelementptr {DTYPES[b.dtype].memory}, ptr {self.base[b.name][0]}, i64 {place}"
            )
            t.do(f"call void @llvm.prefetch.p0(ptr {address}, i32 0, i32 3, i32 1)")
        t.do(f"{i}.next = add nsw i64 {i}, {step}")
        t.do(f"{i}.more = icmp slt i64 {i}.next, %stop")
        t.do(f"br i1 {i}.more, label %{ahead}, label %begin{tag}")
        t.label(f"begin{tag}")

    def _unpack(self) -> None:
        t = self.text
        for n, (type_, name) in enumerate(_parameters(self.kernel)):
            slot = t.value(f"getelementptr i64, ptr %args, i64 {n}")
            value = t.value(f"load {type_}, ptr {slot}, align 8")
            (self.whole if type_ == "ptr" else self.number)[name] = value
        self.base = {n: (p,) for n, p in self.whole.items()}

    def stride(self, s: int | str) -> str:
        """A stride as an operand."""
        return str(s) if isinstance(s, int) else self.number[s]

    def _enter_row(self, unit: str) -> None:
        """Splits the number of a tile into indices, and moves each buffer's row addresses."""
        t, k = self.text, self.kernel
        outer = k.dims[:-1]
        last = len(outer) - 1
        rows = self.number[outer[last]]
        counts = [self.number[d] for d in outer[:-1]] + [tiles(t, rows, k.tile)]
        index: list[str] = [unit] * len(outer)
        for d in range(last, 0, -1):
            index[d] = t.value(f"urem i64 {index[0]}, {counts[d]}")
            index[0] = t.value(f"udiv i64 {index[0]}, {counts[d]}")
        self.index = {d: (index[n],) for n, d in enumerate(outer)}
        if k.tile > 1:
            self.index[outer[last]] = self._tile_rows(index[last], rows)
        for b in k.buffers:
            self.base[b.name] = self._row_addresses(b, outer)

    def _tile_rows(self, tile: str, rows: str) -> tuple[str, ...]:
        """The tile's rows. Beyond the last row it is that one again: done twice, the same."""
        t = self.text
        first = t.value(f"mul i64 {tile}, {self.kernel.tile}")
        bound = t.value(f"sub i64 {rows}, 1")
        return tuple(
            t.value(f"call i64 @llvm.umin.i64(i64 {t.value(f'add i64 {first}, {j}')}, "
                    f"i64 {bound})")
            for j in range(self.kernel.tile)
        )  # fmt: skip

    def _row_addresses(self, b: Buffer, outer: tuple[str, ...]) -> tuple[str, ...]:
        t = self.text
        addresses = (self.whole[b.name],)
        for d, name in enumerate(outer):
            if b.strides[d] == 0:
                continue
            parts = [t.value(f"mul i64 {i}, {self.stride(b.strides[d])}") for i in self.index[name]]
            memory = DTYPES[b.dtype].memory
            addresses = tuple(
                t.value(f"getelementptr {memory}, ptr {addresses[0]}, i64 {p}") for p in parts
            )
        return addresses

    # -- regions -------------------------------------------------------------------------------

    def _regions(self, start: str, stop: str) -> None:
        folds: list[Region] = []
        for region in self.kernel.regions:
            if region.kind == "row":
                self._row(region)
            elif region.kind == "fold":
                folds.append(region)
            else:
                Loop(self, region, folds).emit(start, stop)
                folds = []

    def _row(self, region: Region) -> None:
        for i in region.instrs:
            v = Lanes(self.text, i.dtype, 1)
            args = [self.uniform[a] for a in i.args]
            if i.op != "store":
                self.uniform[i.id] = self.scalar(i, args)
                continue
            addresses = Value(self.base[str(i.attr)], "")
            for j in range(max(len(addresses.names), len(args[0].names))):
                raw = to_memory(v, args[0].at(j))
                self.text.do(f"store {v.dtype.memory} {raw}, ptr {addresses.at(j)}, "
                             f"align {v.dtype.size}")  # fmt: skip

    def scalar(self, i: Instr, args: list[Value]) -> Value:
        """Emits one instruction on scalars."""
        v = Lanes(self.text, i.dtype, 1)
        if i.op == "load":
            return Value(tuple(self.load_scalar(v, a) for a in self.base[str(i.attr)]), i.dtype)
        if i.op == "index":
            return Value(self.index[str(i.attr)], i.dtype)
        if i.op == "param":
            given = next(s for s in self.kernel.scalars if s.name == i.attr)
            return Value((cast(v.like(given.dtype), self.number[given.name], v),), i.dtype)
        given = [a.dtype for a in args]
        return spread(args, i.dtype, lambda names: plain(v, i, names, given))

    def load_scalar(self, v: Lanes, address: str) -> str:
        """One element at an address, as a register value."""
        memory, size = v.dtype.memory, v.dtype.size
        return from_memory(v, self.text.value(f"load {memory}, ptr {address}, align {size}"))
