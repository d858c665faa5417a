"""Every operation on every dtype and target has code without foreign calls, or is refused by name.

LLVM ends the process where it has no code for something; what is accepted here never gets there.
"""

from __future__ import annotations

import numpy as np
import pytest

from mortice_llvm import kernels, target
from mortice_llvm.dtypes import DTYPES, computes_as
from mortice_llvm.emit import emit_kernel, emit_module
from mortice_llvm.errors import NotAvailable
from mortice_llvm.ir import Build, Kernel
from mortice_llvm.kernels.build import build
from mortice_llvm.kernels.table import SIZES, entry
from mortice_llvm.runtime import elf
from mortice_llvm.runtime.compiler import check_externs, compile_text
from mortice_llvm.scalar import OPS

# What is refused on purpose.
REFUSED = {("sse2", "f64", name) for name in ("fmod", "remainder", "floor_div")}


def check(made: list[Kernel], level: target.Target) -> None:
    obj = compile_text(emit_module(made, level), level)
    if obj[:4] == b"\x7fELF":
        check_externs(elf.externs([obj]))


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d not in ("f16", "bf16")])
@pytest.mark.parametrize("name", target.TARGETS)
def test_scalar_operations(name, dtype):
    level = target.named(name)
    made: list[Kernel] = []
    for op in OPS.values():
        if DTYPES[dtype].kind not in op.by_kind:
            continue
        kernel = build(entry("pointwise", op.name), op.name, dtype)
        if (name, dtype, op.name) in REFUSED:
            with pytest.raises(NotAvailable):
                emit_kernel(kernel, level)
        else:
            made.append(kernel)
    check(made, level)


@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize("name", target.TARGETS)
def test_named_kernels(name, dtype):
    level = target.named(name)
    made = [
        build(entry(family, kernel), f"{family}_{kernel}", dtype)
        for family in SIZES
        for kernel in kernels.names(family)
        if kernel not in OPS
    ]
    check(made, level)


def _cast(a: str, b: str) -> Kernel:
    k = Build(f"from_{a}_to_{b}", ("n",))
    k.out("y", b)
    k.input("x", a)
    k.each()
    k.store("y", k.load("x"))
    return k.done()


@pytest.mark.parametrize("name", target.TARGETS)
def test_casts_compile(name):
    check([_cast(a, b) for a in DTYPES for b in DTYPES], target.named(name))


def test_casts_convert_as_numpy(level, call):
    kinds = {d: np.dtype({"bool": "bool", "bf16": "u2", "f16": "f2"}.get(d, d[0] + d[1:]
             .replace("64", "8").replace("32", "4").replace("16", "2"))) for d in DTYPES
             if d not in ("i8", "u8")}  # fmt: skip
    kinds |= {"i8": np.dtype("i1"), "u8": np.dtype("u1")}
    numbers = np.array([0, 1, 2, 3, 100, 127, -1, -2, -100, -128] * 9, np.float64)
    for a in DTYPES:
        for b in DTYPES:
            if "bf16" in (a, b):
                continue
            source = numbers if DTYPES[a].kind in "fi" else np.abs(numbers)
            x = source.astype(kinds[a])
            if DTYPES[a].kind == "f" and DTYPES[b].kind == "u":
                x = np.abs(x)
            y = np.zeros(x.size, kinds[b])
            call(kernels.custom(_cast(a, b)), y, x, x.size)
            assert np.array_equal(y, x.astype(kinds[b])), (a, b)


def test_what_halves_compute_in():
    assert computes_as("f16") == computes_as("bf16") == "f32"
