"""How much text a kernel becomes: LLVM's time follows from it."""

from __future__ import annotations

import re

import pytest

from mortice_llvm.emit import emit_kernel
from mortice_llvm.ir import Build, Kernel
from mortice_llvm.target import named


def pointwise(op: str) -> Kernel:
    k = Build("k", ("n",))
    k.out("y", "f32")
    k.input("x", "f32")
    k.each()
    k.store("y", k.op(op, k.load("x")) / 3.0)
    return k.done()


def row_sum() -> Kernel:
    k = Build("k", ("rows", "cols"))
    k.out("y", "f32", (1, 0))
    k.input("x", "f32")
    k.each()
    total = k.reduce("sum", k.load("x") / 3.0)
    k.row()
    k.store("y", total)
    return k.done()


def widths(text: str) -> list[int]:
    """Lanes of each division of vectors, in order."""
    return [int(n) for n in re.findall(r"fdiv <(\d+) x float>", text)]


def test_a_long_body_is_there_once_where_masks_are_cheap() -> None:
    assert widths(emit_kernel(pointwise("exp"), named("avx512"))) == [64]


def test_a_short_body_is_there_once_more_for_what_is_left_over() -> None:
    assert sum(widths(emit_kernel(pointwise("neg"), named("avx512")))) == 64 + 16
    assert sum(widths(emit_kernel(pointwise("neg"), named("avx2")))) == 32


def test_lanes_are_summed_up_once() -> None:
    text = emit_kernel(row_sum(), named("avx512"))
    # In the loops; then 64 lanes to 16, and, with what was left over, to one.
    sums = re.findall(r"fadd (?:<(\d+) x )?float", text)
    assert sums == ["64", "32", "16", "16", "8", "4", "2", ""]


@pytest.mark.parametrize("kernel", [pointwise("exp"), pointwise("neg"), row_sum()])
@pytest.mark.parametrize("level", ["avx512", "avx2", "sse2", "neon"])
def test_the_course_of_counters_is_hidden_from_llvm(kernel: Kernel, level: str) -> None:
    text = emit_kernel(kernel, named(level))
    steps = re.findall(r"%i\d+\.next = (\S+ \S+ \S+)", text)
    assert steps
    assert set(steps) == {"call i64 @llvm.uadd.sat.i64(i64"}
