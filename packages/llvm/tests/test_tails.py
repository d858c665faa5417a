"""Loops of every length up to two vectors and one element: right, and nothing beside is written."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from mortice_llvm import kernels
from mortice_llvm.ir import Build, Kernel

LENGTHS = range(2 * 64 + 2)
NUMPY = {"f32": "f4", "f64": "f8", "i8": "i1", "i32": "i4", "i64": "i8", "u8": "u1"}
PAD = 8


def pointwise(dtype: str, stride: int, body: Callable[..., object]) -> Kernel:
    k = Build("k", ("n",))
    k.out("y", dtype, (stride,))
    k.input("x", dtype, (stride,))
    k.input("z", dtype, (stride,))
    k.each()
    k.store("y", body(k, k.load("x"), k.load("z")))  # type: ignore[arg-type]
    return k.done()


def reduction(how: str, dtype: str, *, long: bool) -> Kernel:
    k = Build("k", ("rows", "n"))
    k.out("y", "i64" if how.startswith("arg") else dtype, (1, 0))
    k.input("x", dtype)
    k.each()
    x = k.load("x")
    total = k.reduce(how, k.op("exp", x) if long else x)
    k.row()
    k.store("y", total)
    return k.done()


def columns(dtype: str) -> Kernel:
    k = Build("k", ("n",), over="m")
    k.out("y", dtype, (1, 0))
    k.input("x", dtype, (1, "n"))
    k.fold()
    total = k.reduce("sum", k.load("x"))
    k.each()
    k.store("y", total)
    return k.done()


def numbers(dtype: str, count: int) -> np.ndarray:
    drawn = np.random.default_rng(count).uniform(-3, 3, count)
    return drawn.astype(NUMPY[dtype])


def check(call, kernel: Kernel, dtype: str, stride: int, want, *, in_place: bool = False) -> None:
    fn = kernels.custom(kernel)
    for n in LENGTHS:
        size = PAD + n * stride + PAD
        x, z, y = numbers(dtype, size), numbers(dtype, size + 1)[1:], numbers(dtype, size)
        before, given = y.copy(), x.copy()
        out = x if in_place else y
        if in_place:
            before = x.copy()
        call(fn, out[PAD:], x[PAD:], z[PAD:], n)
        there = slice(PAD, PAD + n * stride, stride)
        expected = before.copy()
        expected[there] = want(given[there], z[there])
        assert np.allclose(out, expected, rtol=2e-6, atol=0), n
        untouched = np.ones(size, bool)
        untouched[there] = False
        assert np.array_equal(out[untouched], before[untouched]), n


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("dtype", NUMPY)
def test_short_bodies(level, call, dtype, stride):
    kernel = pointwise(dtype, stride, lambda k, x, z: x + z)
    check(call, kernel, dtype, stride, lambda x, z: x + z)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_long_bodies(level, call, dtype, stride):
    kernel = pointwise(dtype, stride, lambda k, x, z: k.op("exp", x) + z * z)
    check(call, kernel, dtype, stride, lambda x, z: np.exp(x) + z * z)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_bodies_with_many_constants(level, call, dtype):
    kernel = pointwise(dtype, 1, lambda k, x, z: k.op("tanh", x) + k.op("exp", z) + 3.0)
    check(call, kernel, dtype, 1, lambda x, z: np.tanh(x) + np.exp(z) + 3)


@pytest.mark.parametrize("op", ["neg", "exp"])
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_in_place(level, call, op, dtype):
    kernel = pointwise(dtype, 1, lambda k, x, z: k.op(op, x) + 5.0)
    want = {"neg": np.negative, "exp": np.exp}[op]
    check(call, kernel, dtype, 1, lambda x, z: want(x) + 5, in_place=True)


@pytest.mark.parametrize("how", ["sum", "max", "argmax"])
@pytest.mark.parametrize(
    ("dtype", "long"),
    [("f32", False), ("f32", True), ("f64", False), ("f64", True), ("i32", False)],
)
def test_reductions(level, call, dtype, how, long):
    fn = kernels.custom(reduction(how, dtype, long=long))
    for n in LENGTHS[1:]:
        x = numbers(dtype, 3 * n).reshape(3, n)
        y = np.zeros(3, "i8" if how == "argmax" else NUMPY[dtype])
        call(fn, y, x, 3, n)
        wide = np.exp(x.astype("f8")) if long else x
        assert np.allclose(y, getattr(wide, how)(1), rtol=1e-5, atol=1e-5), n


@pytest.mark.parametrize("dtype", ["f32", "f64", "i64"])
def test_sums_of_columns(level, call, dtype):
    fn = kernels.custom(columns(dtype))
    for n in LENGTHS[1:]:
        x, y = numbers(dtype, 5 * n).reshape(5, n), np.zeros(n, NUMPY[dtype])
        call(fn, y, x, n, 5)
        assert np.allclose(y, x.sum(0), rtol=1e-5, atol=1e-5), n
