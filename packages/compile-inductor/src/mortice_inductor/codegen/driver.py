"""Writes the driver: a function that calls the kernels of a graph one after another.

It takes one table of 64-bit words: first the addresses of buffers, then numbers given at run time,
then constants (sizes, strides, offsets). Its text has positions in the table only, so that graphs
that differ in sizes alone share their code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from mortice_llvm.ir import Kernel as LoopKernel

from . import gemm
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
    #: By tiles of our own; else by BLAS.
    tile: bool
    #: What is done to blocks of the result as tiles finish them: a kernel of blocks.
    after: Code | None = None

    def touched(self) -> list[int]:
        """Numbers of the buffers that it, and what follows it, reads and writes."""
        own = [p[1] for p in self.params if p[0] == "buffer"]
        return own + (self.after.touched() if self.after else [])

    @property
    def routine(self) -> str:
        """What does one part of it."""
        if self.tile:
            return f"tile_{self.dtype}"
        return "cblas_sgemm" if self.dtype == "f32" else "cblas_dgemm"


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


def distinct(parts: Sequence[Native]) -> dict[str, LoopKernel]:
    """The loop kernels of all parts, by name, each once."""
    out: dict[str, LoopKernel] = {}
    for part in parts:
        code = part if isinstance(part, Code) else part.after
        if code is not None:
            out.setdefault(code.kernel.name, code.kernel)
    return out


class Driver:
    """The text of the functions ``segment0``, ``segment1``, .. (one per run of native parts)."""

    def __init__(
        self, table: Table, slots: dict[int, int], integer_bits: int, own_threads: bool
    ) -> None:
        self.table = table
        #: Whether the number of BLAS's threads can be set, so that products are shared out here.
        self.own_threads = own_threads
        self.kinds: dict[str, gemm.Kind] = {}
        self.slots = slots
        self.integer = f"i{integer_bits}"
        self.lines: list[str] = []
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
        large = [p for p in parts if isinstance(p, Product) and _is_large(p)]
        threads, found, setter = "1", "", ""
        if large and self.own_threads:
            found = self._new(f"call i32 {self._word(self.blas_slots['get_threads'], 'ptr')}()")
            threads = self._new(f"zext i32 {found} to i64")
            if not all(p.tile for p in large):
                setter = self._word(self.blas_slots["set_threads"], "ptr")
                self.lines.append(f"  call void {setter}(i32 1)")
        for part in parts:
            if isinstance(part, Code):
                self._call(part)
            else:
                self._product(part, threads)
        if setter:
            self.lines.append(f"  call void {setter}(i32 {found})")
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

    def _given(self, code: Code) -> list[str]:
        """A kernel's parameters, with their types."""
        from mortice_llvm.dtypes import DTYPES

        sizes = iter(DTYPES[b.dtype].size for b in code.kernel.buffers)
        return [
            " ".join(self._param(p, next(sizes) if p[0] == "buffer" else 1)) for p in code.params
        ]

    def _call(self, code: Code) -> None:
        """Packs the kernel's parameters, and shares its rows out to threads."""
        from mortice_llvm.emit.kernel import PARALLEL_FOR, shares

        kernel = code.kernel
        row = self._row(self._given(code))
        sizes = code.params[len(kernel.buffers) :]
        shared = shares(kernel, {name: p[1] for name, p in zip(kernel.sizes(), sizes)})
        units, chunk = (self._word(self.table.place(n)) for n in shared)
        self.lines.append(
            f"  call void @{PARALLEL_FOR}(ptr @{kernel.name}_range, ptr {row}, "
            f"i64 {units}, i64 {chunk})"
        )

    def _row(self, words: Sequence[str]) -> str:
        """The address of words in a row; each is given with its type."""
        row = self._new(f"alloca [{len(words)} x i64], align 8")
        for k, word in enumerate(words):
            at = self._new(f"getelementptr i64, ptr {row}, i64 {k}")
            self.lines.append(f"  store {word}, ptr {at}, align 8")
        return row

    def _product(self, p: Product, threads: str) -> None:
        """Puts the product's words in a row, and calls its function."""
        kind = gemm.Kind(p.dtype, p.trans_a, p.trans_b, self.integer, p.tile)
        self.kinds[kind.name] = kind
        size = 4 if p.dtype == "f32" else 8
        fn = self._word(self.blas_slots[p.routine], "ptr")
        a, b, c = (self._param(q, size)[1] for q in p.params[:3])
        numbers = [self.table.place(q[1]) for q in p.params[3:]]  # they lie in a row already
        first = self._new(f"getelementptr i64, ptr %t, i64 {numbers[0]}")
        follows = ("null", "null")
        if p.after is not None:
            follows = (f"@{p.after.kernel.name}", self._row(self._given(p.after)))
        row = self._row([f"ptr {x}" for x in (fn, a, b, c, *follows, first)])
        self.lines.append(f"  call void @{kind.name}(ptr {row}, i64 {threads})")

    def text(self) -> str:
        """All functions."""
        products = [line for kind in self.kinds.values() for line in gemm.functions(kind)]
        return "\n".join([*products, *self.lines, ""])


def _is_large(part: Product) -> bool:
    """True for a product that threads may share."""
    batch, m, n, k = (p[1] for p in part.params[3:7])
    results = batch * m * n
    return results * k >= gemm.LEAST or (
        part.after is not None and results > gemm.LEAST_FOLLOWED
    )  # fmt: skip


#: What a module of kernels declares anyhow.
_DECLARED = f"""declare void @{gemm.PARALLEL_FOR}(ptr, ptr, i64, i64)
declare i64 @llvm.umin.i64(i64, i64)
"""


def source(kernels: dict[str, LoopKernel], driver: str) -> bytes:
    """What determines the machine code, as a cache key; names say what their kernels do."""
    return "\n".join(["graph", *kernels, driver]).encode()


def module_text(kernels: dict[str, LoopKernel], driver: str, target: Any) -> str:
    """LLVM text of the kernels and the driver."""
    from mortice_llvm.emit.kernel import emit_module

    if not kernels:
        return _DECLARED + driver
    return emit_module(list(kernels.values()), target, entries=False) + driver
