from __future__ import annotations

import numpy as np
import pytest

from mortice_llvm import kernels
from mortice_llvm.emit import emit_module
from mortice_llvm.errors import InvalidKernel
from mortice_llvm.ir import Build, parse, text
from mortice_llvm.kernels.build import build
from mortice_llvm.kernels.table import entry
from mortice_llvm.runtime.compiler import compile_text
from mortice_llvm.runtime.library import load_object
from mortice_llvm.target import host


def matmul(tile: int, *, epilogue: bool = True):
    """y = relu(a @ b + bias) with a row-major (m, k), b (k, n)."""
    b = Build(f"matmul{tile}", ("m", "n"), over="k", tile=tile)
    b.out("y", "f32", ("n", 1, 0))
    b.input("a", "f32", ("k", 0, 1))
    b.input("b", "f32", (0, 1, "n"))
    b.input("bias", "f32", (0, 1, 0))
    b.fold()
    total = b.dot(b.load("a"), b.load("b"))
    b.each()
    y = total + b.load("bias")
    b.store("y", b.op("relu", y) if epilogue else y)
    return b.done()


@pytest.mark.parametrize("tile", [1, 2, 6])
@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (7, 130, 5), (64, 64, 64), (13, 10, 300)])
def test_matrix_products_with_an_epilogue(level, call, tile, m, n, k):
    kernel = matmul(tile)
    assert parse(text(kernel)) == kernel
    rng = np.random.default_rng(m)
    a, b, bias = (rng.standard_normal(s).astype(np.float32) for s in ((m, k), (k, n), (n,)))
    y = np.full((m, n), np.nan, np.float32)
    call(kernels.custom(kernel), y, a, b, bias, m, n, k)
    want = np.maximum(a.astype(np.float64) @ b + bias, 0)
    assert np.allclose(y, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["softmax", "layer_norm_affine", "argmax", "sum"])
@pytest.mark.parametrize(("rows", "cols"), [(1, 5), (8, 100), (11, 65)])
def test_any_row_kernel_may_be_tiled(level, call, name, rows, cols):
    plain = build(entry("row", name), f"{name}_plain", "f32")
    tiled = plain._replace(name=f"{name}_tiled", tile=4)
    rng = np.random.default_rng(0)
    x, w, b = (rng.standard_normal(s).astype(np.float32) for s in ((rows, cols), cols, cols))
    results = []
    for kernel in (plain, tiled):
        outs = [np.zeros((rows, cols), np.int64) for o in kernel.buffers if o.mode == "out"]
        ins = [x, w, b][: len(kernel.buffers) - len(outs)]
        numbers = [1e-5] if kernel.scalars else []
        call(kernels.custom(kernel), *outs, *ins, rows, cols, *numbers)
        results.append(outs)
    for got, want in zip(*results, strict=True):
        assert np.array_equal(got, want)


def test_a_tile_needs_rows():
    one = parse("kernel k(n) tile 2\n  out y f32 [1]\neach\nend\n")
    with pytest.raises(InvalidKernel, match="at least two dims"):
        kernels.custom(one)


def test_indices_of_all_dimensions(level, call):
    b = Build("where", ("a", "b", "c"))
    b.out("y", "i64", ("bc", "c", 1))
    b.each()
    first, second, third = b.index("a"), b.index("b"), b.index()
    b.store("y", first * 10000 + second * 100 + third)
    y = np.zeros((3, 4, 90), np.int64)
    call(kernels.custom(b.done()), y, 3, 4, 90, 4 * 90)
    i, j, k = np.indices(y.shape)
    assert np.array_equal(y, i * 10000 + j * 100 + k)


def test_indices_along_a_fold(level, call):
    b = Build("weighted", ("cols",), over="rows")
    b.out("y", "i64", (1, 0))
    b.input("x", "i64", (1, "cols"))
    b.fold()
    total = b.reduce("sum", b.load("x") * b.index("rows"))
    b.each()
    b.store("y", total)
    x = np.random.default_rng(0).integers(-99, 99, (7, 70))
    y = np.zeros(70, np.int64)
    call(kernels.custom(b.done()), y, x, 70, 7)
    assert np.array_equal(y, (x * np.arange(7)[:, None]).sum(0))


@pytest.mark.parametrize("dtype", ["f32", "f64", "i8", "bool"])
def test_loads_and_stores_at_offsets(level, call, dtype):
    """Rows of a table by number, as an embedding; zeros for negative numbers; scattered back."""
    b = Build(f"lookup_{dtype}", ("n", "d"))
    b.out("y", dtype)
    b.out("back", dtype, (0, 0))
    b.input("table", dtype, (0, 0))
    b.input("number", "i64", (1, 0))
    b.each()
    row = b.load("number")
    offset = row * 70 + b.index()
    found = b.load_at("table", offset, row >= 0)
    b.store("y", found)
    b.store_at("back", b.index("n") * 70 + b.index(), found)
    rng = np.random.default_rng(0)
    kind = {"f32": np.float32, "f64": np.float64, "i8": np.int8, "bool": np.bool_}[dtype]
    table = (rng.standard_normal((9, 70)) * 3).astype(kind)
    number = np.array([3, -1, 8, 0, -(2**60), 3])
    y, back = np.ones((6, 70), kind), np.ones((6, 70), kind)
    call(kernels.custom(b.done()), y, back, table, number, 6, 70)
    want = np.where((number >= 0)[:, None], table[np.maximum(number, 0)], 0).astype(kind)
    assert np.array_equal(y, want)
    assert np.array_equal(back, want)


@pytest.mark.parametrize(("change", "message"), [
    (("index i64 a", "index i64 q"), "no dimension 'q'"),
    (("load_at f32 x, %0", "load_at f32 x, %1"), "expected an i64 offset"),
    (("each", "row"), "not possible in a 'row' region"),
])  # fmt: skip
def test_the_rules_of_offsets_and_indices(change, message):
    source = (
        "kernel k(a, b)\n  out y f32 [b, 1]\n  in x f32 [0, 0]\neach\n  %0 = index i64 a\n"
        "  %1 = const f32 1.0\n  %2 = load_at f32 x, %0\n  store f32 y, %2\nend\n"
    )
    kernels.custom(parse(source))
    with pytest.raises(InvalidKernel, match=message):
        kernels.custom(parse(source.replace(*change)))


def test_several_kernels_in_one_object(call):
    pair = [build(entry("pointwise", n), n, "f32") for n in ("sin", "cos")]
    made = load_object(compile_text(emit_module(pair, host()), host()))
    x = np.linspace(-1e6, 1e6, 77, dtype=np.float32)
    y = np.empty_like(x)
    p, n = kernels.ctypes.c_void_p, kernels.ctypes.c_int64
    for name in ("sin", "cos"):
        call(made.function(name, p, p, n), y, x, x.size)
        assert np.allclose(y, getattr(np, name)(x.astype(np.float64)), rtol=1e-5, atol=1e-6)
