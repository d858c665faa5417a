from __future__ import annotations

import ctypes

import numpy as np
import pytest

from mortice_llvm import kernels
from mortice_llvm.emit import emit_kernel
from mortice_llvm.emit.functions import FUNCTIONS
from mortice_llvm.errors import InvalidKernel
from mortice_llvm.ir import Build, parse, text, verify
from mortice_llvm.kernels.build import build
from mortice_llvm.kernels.table import SIZES, entry, names
from mortice_llvm.runtime.library import load
from mortice_llvm.scalar import OPS

AXPY = """\
kernel axpy(n)
  out y f32 [1]
  in x f32 [1]
  in z f32 [1]
  scalar a f64
each
  %0 = load f32 x
  %1 = load f32 z
  %2 = param f32 a
  %3 = fma f32 %2, %0, %1
  store f32 y, %3
end
"""


def test_text_is_read_back_to_the_same_kernel():
    assert text(parse(AXPY)) == AXPY
    for family in SIZES:
        for name in names(family):
            kernel = build(
                entry(family, name),
                "k",
                "i32" if name in ("and", "or", "xor", "shl", "shr", "not") else "f32",
            )
            assert parse(text(kernel)) == kernel, name


def test_constants_survive_printing():
    b = Build("c", ("n",))
    b.out("y", "f64")
    b.each()
    for value in (float("inf"), 0.1, 1e-300, -0.0):
        b.store("y", b.const(value, "f64"))
    kernel = b.done()
    assert text(parse(text(kernel))) == text(kernel)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("%3 = fma f32 %2, %0, %1", "%3 = fma f32 %2, %0, %9"), "%9 is not defined"),
        (("%3 = fma f32", "%3 = fma f64"), "expected dtype f32"),
        (("%3 = fma f32 %2, %0, %1", "%3 = fmq f32 %2, %0, %1"), "Did you mean"),
        (("%1 = load f32 z", "%0 = load f32 z"), "defined twice"),
        (("store f32 y", "store f32 x"), "cannot take"),
        (("load f32 z", "load f32 w"), "no buffer called 'w'"),
        (("in z f32 [1]", "in z f32 [1, 1]"), "expected 1 strides"),
        (("%3 = fma f32 %2, %0, %1", "%3 = add f32 %2"), "not 2 operands"),
        (("scalar a f64", "scalar a f16"), "passed as f64 or i64"),
        (("each", "row"), None),
    ],
)
def test_the_verifier_names_the_place(change, message):
    source = AXPY.replace(*change)
    if message is None:
        parse(source)
        return
    with pytest.raises(InvalidKernel, match=message):
        kernels.custom(parse(source))


def test_the_parser_names_the_line():
    with pytest.raises(InvalidKernel, match="line 7"):
        parse(AXPY.replace("%0 = load f32 x", "%0 = load"))
    with pytest.raises(InvalidKernel, match="closes with 'end'"):
        parse(AXPY.replace("end\n", ""))


def test_a_custom_kernel(level, call):
    x, z = (np.random.default_rng(k).standard_normal(200).astype(np.float32) for k in range(2))
    y = np.empty_like(x)
    call(kernels.custom(parse(AXPY)), y, x, z, x.size, 2.0)
    assert np.allclose(y, 2 * x + z, rtol=1e-6, atol=1e-6)


def test_strides_broadcasts_and_gathers(level, call):
    b = Build("strided", ("a", "b", "c"))
    b.out("y", "f32", ("ya", "yb", 1))
    b.input("x", "f32", ("xa", "xb", "xc"))
    b.input("col", "f64", (0, 0, 1))
    b.input("per", "i16", ("pa", 1, 0))
    b.each()
    b.store("y", b.load("x") + b.cast(b.load("col"), "f32") * b.load("per", "f32"))
    fn = kernels.custom(b.done())
    rng = np.random.default_rng(0)
    base = rng.standard_normal((5, 150, 4)).astype(np.float32)
    x = base.transpose(0, 2, 1)[:, ::-1]
    col, per = rng.standard_normal(150), rng.integers(-9, 9, (5, 4)).astype(np.int16)
    y = np.zeros((5, 4, 150), np.float32)
    strides = [s // 4 for s in y.strides[:2]] + [s // 4 for s in x.strides] + [4]
    fn(y.ctypes.data, x.ctypes.data, col.ctypes.data, per.ctypes.data, 5, 4, 150, *strides)
    want = x + col.astype(np.float32) * per[:, :, None]
    assert np.allclose(y, want, rtol=1e-6, atol=1e-6)


def test_scattered_stores(level, call):
    b = Build("turned", ("a", "b"))
    b.out("y", "f32", (1, "a"))
    b.input("x", "f32")
    b.each()
    b.store("y", b.load("x"))
    x = np.random.default_rng(0).standard_normal((7, 90)).astype(np.float32)
    y = np.zeros((90, 7), np.float32)
    call(kernels.custom(b.done()), y, x, 7, 90)
    assert np.array_equal(y, x.T)


COLUMNS = """\
kernel columns(cols; rows)
  out y f32 [1, 0]
  out z f32 [1, 0]
  in x f32 [1, cols]
  in m f32 [0, 1]
fold
  %0 = load f32 x
  %1 = load f32 m
  %2 = mul f32 %0, %1
  %3 = reduce_sum f32 %2
  %4 = reduce_max f32 %0
each
  %5 = neg f32 %4
  store f32 y, %3
  store f32 z, %5
end
"""


@pytest.mark.parametrize(("rows", "cols"), [(1, 1), (7, 100), (3000, 130), (0, 5)])
def test_columns_are_reduced_by_folding(level, call, rows, cols):
    kernel = parse(COLUMNS)
    assert text(kernel) == COLUMNS
    rng = np.random.default_rng(0)
    x, m = rng.standard_normal((rows, cols)).astype(np.float32), rng.standard_normal(rows)
    m = m.astype(np.float32)
    y, z = np.empty(cols, np.float32), np.empty(cols, np.float32)
    call(kernels.custom(kernel), y, z, x, m, cols, rows)
    wide = x.astype(np.float64)
    assert np.allclose(y, (wide * m[:, None]).sum(0), rtol=1e-4, atol=1e-4)
    assert np.array_equal(z, -x.max(0, initial=-np.inf))


def test_folds_and_lanes_reduce_together(level, call):
    """Sums over the first and last of three axes: each lane folds, then the lanes are summed."""
    b = Build("channels", ("c", "hw"), over="n")
    b.out("total", "f32", (1, 0, 0))
    b.input("x", "f32", ("hw", 1, "step"))
    b.fold()
    part = b.reduce("sum", b.load("x"))
    b.each()
    whole = b.reduce("sum", part)
    b.row()
    b.store("total", whole)
    x = np.random.default_rng(0).standard_normal((6, 5, 77)).astype(np.float32)
    out = np.empty(5, np.float32)
    call(kernels.custom(b.done()), out, x, 5, 77, 6, 5 * 77)
    assert np.allclose(out, x.sum((0, 2), dtype=np.float64), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("each\n", "row\n"), "after 'fold'"),
        (("(cols; rows)", "(cols)"), "strides"),
        (("  %3 = reduce_sum f32 %2\n", "  %3 = reduce_argmax i64 %2\n"), "not possible"),
        (("%5 = neg f32 %4", "%5 = neg f32 %2"), "not defined here"),
    ],
)
def test_the_rules_of_folds(change, message):
    with pytest.raises(InvalidKernel, match=message):
        kernels.custom(parse(COLUMNS.replace(*change)))


def test_which_buffers_may_be_the_same_memory():
    soft = build(entry("row", "softmax"), "k", "f32")
    assert soft.may_alias("y", "x")
    norm = build(entry("row", "layer_norm_affine"), "k", "f32")
    assert norm.may_alias("y", "x")
    assert not norm.may_alias("y", "weight")
    half = build(entry("row", "softmax"), "k", "bf16")
    assert half.may_alias("y", "x")
    twice = parse(AXPY.replace("end", "each\n  %4 = load f32 x\n  store f32 y, %4\nend"))
    assert not twice.may_alias("y", "x")
    assert twice.may_alias("y", "z")


def test_every_scalar_operation_has_code():
    wanted = {how[1:] for op in OPS.values() for how in op.by_kind.values() if how[0] == "@"}
    assert wanted == set(FUNCTIONS)


BLOCKS = """\
kernel shifted(rows, cols) blocks
  out y f32 [cols, 1]
  in x f32 [cols, 1]
  in z f32 [0, 1]
each
  %0 = load f32 x
  %1 = load f32 z
  %2 = index i64
  %3 = index i64 rows
  %4 = add i64 %2, %3
  %5 = cast f32 %4
  %6 = add f32 %0, %1
  %7 = add f32 %6, %5
  store f32 y, %7
end
"""


def test_a_kernel_of_blocks_does_the_rows_and_columns_that_it_is_told(level):
    kernel = parse(BLOCKS)
    assert text(kernel) == BLOCKS
    library = load(b"blocks of a test", lambda target: emit_kernel(kernel, target))
    i, p = ctypes.c_int64, ctypes.c_void_p
    call = library.function("shifted", p, i, i, i, i)
    random = np.random.default_rng(0)
    x, z = (random.standard_normal(shape, "f4") for shape in ((9, 300), 300))
    whole = x + z + (np.arange(9)[:, None] + np.arange(300)).astype("f4")
    for top, bottom, left, right in ((0, 9, 0, 300), (2, 5, 7, 8), (3, 9, 192, 300), (4, 4, 0, 9)):
        y = np.full_like(x, -1)
        given = (ctypes.c_int64 * 5)(y.ctypes.data, x.ctypes.data, z.ctypes.data, 9, 300)
        call(ctypes.addressof(given), top, bottom, left, right)
        block = slice(top, bottom), slice(left, right)
        assert np.array_equal(y[block], whole[block])
        y[block] = -1
        assert (y == -1).all()


def test_a_kernel_of_blocks_is_not_called_by_itself():
    with pytest.raises(InvalidKernel, match="walks all its elements"):
        kernels.custom(parse(BLOCKS))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("(rows, cols)", "(rows, cols; more)"), "neither a fold nor a tile"),
        (("cols) blocks", "cols) tile 4 blocks"), "neither a fold nor a tile"),
        (("%7 = add f32 %6, %5", "%7 = reduce_sum f32 %6"), "a part of the row"),
    ],
)
def test_what_a_kernel_of_blocks_cannot_have(change, message):
    with pytest.raises(InvalidKernel, match=message):
        verify(parse(BLOCKS.replace(*change)))
