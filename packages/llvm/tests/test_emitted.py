"""How much text a kernel becomes: LLVM's time follows from it."""

from __future__ import annotations

import re

import pytest

from mortice_llvm.emit import emit_kernel
from mortice_llvm.emit.kernel import GRAIN, _Emitted, _share, shares
from mortice_llvm.ir import Build, Kernel
from mortice_llvm.target import named


def pointwise(op: str) -> Kernel:
    k = Build("k", ("n",))
    k.out("y", "f32")
    k.input("x", "f32")
    k.each()
    k.store("y", k.op(op, k.load("x")) / 3.0)
    return k.done()


def twice(op: str, other: str) -> Kernel:
    k = Build("k", ("n",))
    k.out("y", "f32")
    k.input("x", "f32")
    k.each()
    k.store("y", k.op(other, k.op(op, k.load("x"))))
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


def column_sum() -> Kernel:
    k = Build("k", ("n",), over="m")
    k.out("y", "f32", (1, 0))
    k.input("x", "f32", (1, "n"))
    k.fold()
    total = k.reduce("sum", k.load("x"))
    k.each()
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


def constants(text: str) -> tuple[int, int]:
    """(multiply-adds with constants as they stand, loads of constants)."""
    as_they_are = re.findall(r"llvm\.fma.*splat \(", text)
    return len(as_they_are), len(re.findall(r"= load float, ptr %t\d+$", text, re.MULTILINE))


def test_many_constants_are_loaded_each_once_in_a_block() -> None:
    text = emit_kernel(twice("erf", "erf"), named("avx512"))
    once = emit_kernel(pointwise("erf"), named("avx512"))
    assert constants(text) == constants(once)
    assert constants(text)[0] == 0
    assert constants(text)[1] > 10
    assert text.count("@floats = internal constant") == 1


def test_few_constants_stay_in_registers() -> None:
    as_they_are, loaded = constants(emit_kernel(pointwise("exp"), named("avx512")))
    assert as_they_are > 5
    assert loaded == 0


class Calculated:
    """Stands for a text: does at once what would be emitted."""

    def value(self, line: str) -> str:
        a, b = (int(n) for n in re.findall(r"(?<!\w)\d+", line))
        done = {"mul": a * b, "add": a + b, "umax": max(a, b)}
        word = next(w for w in ("udiv", *done) if w in line)
        return str(a // b if word == "udiv" else done[word])


class Given(_Emitted):
    def __init__(self, sizes: dict[str, int]) -> None:
        super().__init__(Calculated())  # type: ignore[arg-type]
        self.sizes = sizes

    def size(self, name: str) -> str:
        return str(self.sizes[name])


@pytest.mark.parametrize("tile", [1, 4])
@pytest.mark.parametrize("rows", [0, 1, 7, 5000])
@pytest.mark.parametrize("cols", [0, 1, 100, 40000])
def test_known_sizes_are_shared_out_as_emitted_code_does(tile: int, rows: int, cols: int) -> None:
    for kernel in (pointwise("exp"), row_sum()._replace(tile=tile), column_sum()):
        sizes = dict(zip(kernel.sizes(), (rows, cols, 3), strict=False))
        units, total, chunk = map(int, _share(kernel, Given(sizes)))
        assert shares(kernel, sizes) == (units, units if total <= GRAIN else chunk)
