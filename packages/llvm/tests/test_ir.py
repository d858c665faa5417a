from __future__ import annotations

import numpy as np
import pytest

from mortice_llvm import kernels
from mortice_llvm.emit.functions import FUNCTIONS
from mortice_llvm.errors import InvalidKernel
from mortice_llvm.ir import Build, parse, text
from mortice_llvm.kernels.build import build
from mortice_llvm.kernels.table import entry, names
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
    for family in ("pointwise", "row"):
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
