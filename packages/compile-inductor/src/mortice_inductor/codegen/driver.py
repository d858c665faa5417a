"""Writes the driver: a function that calls the kernels of a graph one after another.

It takes one table of 64-bit words: first the addresses of buffers, then numbers given at run time,
then constants (sizes, strides, offsets). Its text has positions in the table only, so that graphs
that differ in sizes alone share their code.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from mortice_llvm.ir import Kernel as LoopKernel
from mortice_llvm.ir import text as kernel_text

from .kernel import Code, Param


class Product(NamedTuple):
    """A matrix product: element type, transpositions, and where its numbers are found.

    ``params``: a, b, c, then batch, m, n, k, lda, ldb, ldc, and for each of a, b and c three
    numbers (inner, s, r): matrix i of the batch lies (i // inner) s + (i % inner) r further.
    """

    dtype: str
    trans_a: bool
    trans_b: bool
    params: tuple[Param, ...]
    label: str


Native = Code | Product


class Table:
    """Positions of constants in the table, from ``first`` on."""

    def __init__(self, first: int) -> None:
        self.first = first
        self.constants: list[int] = []
        self._known: dict[int, int] = {}

    def place(self, n: int) -> int:
        """A constant of its own for every use: which of them are equal depends on the sizes."""
        self.constants.append(n)
        return self.first + len(self.constants) - 1


def kernel_name(kernel: LoopKernel) -> str:
    """A name that follows from what the kernel does."""
    digest = hashlib.blake2b(kernel_text(kernel).encode(), digest_size=10).hexdigest()
    return f"k{digest}"


def distinct(parts: Sequence[Native]) -> dict[str, LoopKernel]:
    """The loop kernels of all parts, by name, each once."""
    out: dict[str, LoopKernel] = {}
    for part in parts:
        if isinstance(part, Code):
            name = kernel_name(part.kernel)
            out.setdefault(name, part.kernel._replace(name=name))
    return out


class Driver:
    """The text of the functions ``segment0``, ``segment1``, .. (one per run of native parts)."""

    def __init__(self, table: Table, slots: dict[int, int], integer_bits: int) -> None:
        self.table = table
        self.slots = slots
        self.integer = f"i{integer_bits}"
        self.lines: list[str] = []
        self.declared: set[str] = set()
        self._count = 0
        self.blas_slots: dict[str, int] = {}

    def _new(self, text: str) -> str:
        self._count += 1
        name = f"%v{self._count}"
        self.lines.append(f"  {name} = {text}")
        return name

    def segment(self, name: str, parts: Sequence[Native]) -> None:
        """Adds a function that runs ``parts`` in order."""
        self.lines += [f"define void @{name}(ptr %t) nounwind {{"]
        for part in parts:
            if isinstance(part, Code):
                self._call(part)
            else:
                self._product(part)
        self.lines += ["  ret void", "}"]

    def _word(self, slot: int, kind: str = "i64") -> str:
        at = self._new(f"getelementptr i64, ptr %t, i64 {slot}")
        return self._new(f"load {kind}, ptr {at}, align 8")

    def _param(self, p: Param, element: int = 1) -> tuple[str, str]:
        """(LLVM type, operand) of a parameter."""
        if p[0] == "buffer":
            base = self._word(self.slots[p[1]], "ptr")
            offset = self._word(self.table.place(p[2] * element))
            return "ptr", self._new(f"getelementptr i8, ptr {base}, i64 {offset}")
        if p[0] == "int":
            return "i64", self._word(self.table.place(p[1]))
        kind = "double" if p[2] == "f64" else "i64"
        return kind, self._word(p[1], kind)

    def _call(self, code: Code) -> None:
        from mortice_llvm.dtypes import DTYPES

        sizes = iter(DTYPES[b.dtype].size for b in code.kernel.buffers)
        given: list[str] = []
        for p in code.params:
            kind, operand = self._param(p, next(sizes) if p[0] == "buffer" else 1)
            given.append(f"{kind} {operand}")
        self.lines.append(f"  call void @{kernel_name(code.kernel)}({', '.join(given)})")

    def _product(self, p: Product) -> None:
        """A loop over the batch that calls BLAS by its address."""
        size = 4 if p.dtype == "f32" else 8
        real = "float" if p.dtype == "f32" else "double"
        routine = "cblas_sgemm" if p.dtype == "f32" else "cblas_dgemm"
        fn = self._word(self.blas_slots[routine], "ptr")
        words = [self._param(q, size)[1] for q in p.params]
        a, b, c, batch = words[:4]
        numbers = [self._narrow(w) for w in words[4:10]]
        tag = self._count
        entry = f"enter{tag}"
        self.lines += [f"  br label %{entry}", f"{entry}:", f"  br label %loop{tag}", f"loop{tag}:"]
        i = f"%i{tag}"
        self.lines.append(f"  {i} = phi i64 [0, %{entry}], [{i}.next, %loop{tag}]")
        places = [
            self._matrix(base, i, size, words[at : at + 3])
            for base, at in zip((a, b, c), (10, 13, 16))
        ]
        m, n, k, lda, ldb, ldc = (f"{self.integer} {w}" for w in numbers)
        ta, tb = (112 if t else 111 for t in (p.trans_a, p.trans_b))
        self.lines.append(
            f"  call void {fn}(i32 101, i32 {ta}, i32 {tb}, {m}, {n}, {k}, {real} 1.0, "
            f"ptr {places[0]}, {lda}, ptr {places[1]}, {ldb}, {real} 0.0, ptr {places[2]}, {ldc})"
        )
        self.lines.append(f"  {i}.next = add i64 {i}, 1")
        self.lines.append(f"  {i}.more = icmp slt i64 {i}.next, {batch}")
        self.lines.append(f"  br i1 {i}.more, label %loop{tag}, label %left{tag}")
        self.lines.append(f"left{tag}:")

    def _matrix(self, base: str, i: str, size: int, words: list[str]) -> str:
        """Where matrix ``i`` of a batch lies."""
        inner, outer_step, inner_step = words
        outer = self._new(f"mul i64 {self._new(f'udiv i64 {i}, {inner}')}, {outer_step}")
        within = self._new(f"mul i64 {self._new(f'urem i64 {i}, {inner}')}, {inner_step}")
        offset = self._new(f"mul i64 {self._new(f'add i64 {outer}, {within}')}, {size}")
        return self._new(f"getelementptr i8, ptr {base}, i64 {offset}")

    def _narrow(self, word: str) -> str:
        return word if self.integer == "i64" else self._new(f"trunc i64 {word} to i32")

    def text(self) -> str:
        """All functions."""
        return "\n".join([*self.lines, ""])


def source(kernels: dict[str, LoopKernel], driver: str) -> bytes:
    """What determines the machine code, as a cache key."""
    parts = [kernel_text(k) for k in kernels.values()]
    return "\n".join(["graph", *parts, driver]).encode()


def module_text(kernels: dict[str, LoopKernel], driver: str, target: Any) -> str:
    """LLVM text of the kernels and the driver."""
    from mortice_llvm.emit.kernel import emit_module

    if not kernels:
        return driver
    return emit_module(list(kernels.values()), target) + driver
