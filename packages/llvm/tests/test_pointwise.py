from __future__ import annotations

import math

import numpy as np
import pytest

from mortice_llvm import kernels, target
from mortice_llvm.emit import emit_kernel
from mortice_llvm.errors import NotAvailable, UnknownKernel
from mortice_llvm.kernels.build import build
from mortice_llvm.kernels.table import entry

SIZES = (0, 1, 15, 64, 65, 1000, 40_003)


def _gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _slope(fn, x):
    h = 1e-6
    return (fn(x + h) - fn(x - h)) / (2 * h)


@pytest.mark.parametrize("n", SIZES)
def test_every_element_is_written_and_none_beyond(level, call, n):
    x = np.random.default_rng(n).standard_normal(n).astype(np.float32)
    y = np.full(n + 3, 7, np.float32)
    call(kernels.pointwise("square"), y, x, n)
    assert np.array_equal(y[:n], x * x)
    assert (y[n:] == 7).all()


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_a_long_body_writes_every_element_and_none_beyond(level, call, dtype, n):
    kind = {"f32": np.float32, "f64": np.float64}[dtype]
    x = np.random.default_rng(n).standard_normal(n).astype(kind)
    y = np.full(n + 3, 7, kind)
    call(kernels.pointwise("exp", dtype), y, x, n)
    assert np.allclose(y[:n], np.exp(x), rtol=1e-6)
    assert (y[n:] == 7).all()


def test_a_long_body_is_there_once():
    """Compiling it takes most of the time."""
    masked = target.TARGETS["avx512"]
    for name, loops in (("exp", 1), ("square", 2)):
        text = emit_kernel(build(entry("pointwise", name), "k", "f32"), masked)
        assert text.count(" phi i64 [") == loops, name


def test_activations(level, call, ref):
    x = np.random.default_rng(0).uniform(-8, 8, 5001).astype(np.float32)
    wide = x.astype(np.float64)
    half = math.sqrt(0.5)
    expected = {
        "gelu": 0.5 * wide * (1 + ref.erf(wide * half)),
        "gelu_tanh": _gelu_tanh(wide),
        "silu": wide * ref.sigmoid(wide),
        "relu": np.maximum(wide, 0),
        "sigmoid": ref.sigmoid(wide),
        "tanh": np.tanh(wide),
        "hardswish": wide * np.clip(wide + 3, 0, 6) / 6,
        "hardsigmoid": np.clip(wide + 3, 0, 6) / 6,
    }
    for name, want in expected.items():
        y = np.empty_like(x)
        call(kernels.pointwise(name), y, x, x.size)
        assert np.allclose(y, want, rtol=2e-6, atol=2e-6), name


def test_backwards_are_the_slopes(level, call, ref):
    rng = np.random.default_rng(1)
    x = rng.uniform(-6, 6, 3000).astype(np.float32)
    g = rng.standard_normal(3000).astype(np.float32)
    wide = x.astype(np.float64)
    forward = {
        "gelu_backward": lambda v: 0.5 * v * (1 + ref.erf(v * math.sqrt(0.5))),
        "gelu_tanh_backward": _gelu_tanh,
        "silu_backward": lambda v: v * ref.sigmoid(v),
    }
    for name, fn in forward.items():
        dx = np.empty_like(x)
        call(kernels.pointwise(name), dx, g, x, x.size)
        assert np.allclose(dx, g * _slope(fn, wide), rtol=1e-4, atol=3e-6), name
    for name, fn in (("sigmoid", ref.sigmoid), ("tanh", np.tanh)):
        y = fn(wide).astype(np.float32)
        dx = np.empty_like(x)
        call(kernels.pointwise(name + "_backward"), dx, g, y, x.size)
        assert np.allclose(dx, g * _slope(fn, wide), rtol=1e-4, atol=3e-6), name


def test_in_place(level, call):
    x = np.random.default_rng(2).standard_normal(777).astype(np.float32)
    y = np.empty_like(x)
    call(kernels.pointwise("gelu"), y, x, x.size)
    call(kernels.pointwise("gelu"), x, x, x.size)
    assert np.array_equal(x, y)


def test_numbers_and_comparisons(level, call):
    x = np.array([-2, -0.0, 0.5, np.nan, np.inf] * 20, np.float32)
    y = np.empty_like(x)
    call(kernels.pointwise("leaky_relu"), y, x, x.size, 0.25)
    assert np.array_equal(y, np.where(x > 0, x, x * np.float32(0.25)), equal_nan=True)
    call(kernels.pointwise("hardtanh"), y, x, x.size, -1.0, 1.0)
    assert np.array_equal(y, np.clip(x, -1, 1), equal_nan=True)
    less = np.empty(x.size, np.bool_)
    call(kernels.pointwise("lt"), less, x, y, x.size)
    assert np.array_equal(less, x < y)


def test_maximum_passes_nan_on_and_fmax_does_not(level, call):
    a = np.array([1, np.nan, 3, np.nan], np.float32)
    b = np.array([2, 2, np.nan, np.nan], np.float32)
    y = np.empty_like(a)
    for name in ("maximum", "minimum", "fmax", "fmin"):
        call(kernels.pointwise(name), y, a, b, 4)
        assert np.array_equal(y, getattr(np, name)(a, b), equal_nan=True), name


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "uint32", "uint64"])
def test_integers(level, call, dtype):
    rng = np.random.default_rng(3)
    info = np.iinfo(dtype)
    a = rng.integers(info.min, info.max, 300, dtype, endpoint=True)
    b = rng.integers(max(info.min, -9), 9, 300, dtype)
    b[b == 0] = 3
    y = np.empty_like(a)
    with np.errstate(over="ignore"):
        for name, fn in {
            "add": np.add,
            "sub": np.subtract,
            "mul": np.multiply,
            "maximum": np.maximum,
            "floor_div": np.floor_divide,
            "remainder": np.remainder,
            "fmod": np.fmod,
            "xor": np.bitwise_xor,
        }.items():
            call(kernels.pointwise(name, dtype), y, a, b, a.size)
            assert np.array_equal(y, fn(a, b)), name


def test_division_by_zero_of_integers_does_not_trap(level, call):
    a = np.array([5, np.iinfo(np.int32).min], np.int32)
    b = np.array([0, -1], np.int32)
    y = np.empty_like(a)
    call(kernels.pointwise("div", "int32"), y, a, b, 2)
    assert y.tolist() == [5, np.iinfo(np.int32).min]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rounding(level, call, dtype):
    x = np.array(
        [
            -2.5,
            -1.5,
            -0.5,
            -0.0,
            0.4,
            0.5,
            1.5,
            2.5,
            1e30,
            -1e30,
            np.inf,
            np.nan,
            8388609,
            4503599627370497.5,
            0.49999997,
        ]
        * 9,
        dtype,
    )
    y = np.empty_like(x)
    for name, fn in (
        ("floor", np.floor),
        ("ceil", np.ceil),
        ("trunc", np.trunc),
        ("round", np.round),
    ):
        call(kernels.pointwise(name, dtype), y, x, x.size)
        want = fn(x)
        assert np.array_equal(y, want, equal_nan=True), name
        assert np.array_equal(np.signbit(y), np.signbit(want)), name


def test_sixteen_bit_floats_round_to_nearest_even(level, call):
    halves = np.arange(65536, dtype=np.uint16)
    out = np.empty_like(halves)
    zero = np.zeros_like(halves)
    call(kernels.pointwise("add", "float16"), out, halves, zero, halves.size)
    with np.errstate(invalid="ignore"):
        want = (halves.view(np.float16) + np.float16(0)).view(np.uint16)
    nan = np.isnan(halves.view(np.float16))
    assert np.array_equal(out[~nan], want[~nan])
    assert np.isnan(out[nan].view(np.float16)).all()
    rng = np.random.default_rng(4)
    a, b = (rng.integers(0, 65536, 20_000, np.uint16) for _ in range(2))
    out = np.empty_like(a)
    call(kernels.pointwise("mul", "float16"), out, a, b, a.size)
    with np.errstate(all="ignore"):
        product = a.view(np.float16).astype(np.float32) * b.view(np.float16).astype(np.float32)
        want = product.astype(np.float16)
    assert np.array_equal(out.view(np.float16), want, equal_nan=True)


def test_bfloat16(level, call):
    rng = np.random.default_rng(5)
    a, b = (rng.integers(0, 65536, 20_000, np.uint16) for _ in range(2))
    out = np.empty_like(a)
    call(kernels.pointwise("mul", "bfloat16"), out, a, b, a.size)
    with np.errstate(all="ignore"):
        x, y = ((v.astype(np.uint32) << 16).view(np.float32) for v in (a, b))
        bits = (x * y).view(np.uint32).astype(np.uint64)
        want = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
        nan = np.isnan(x * y)
    assert np.array_equal(out[~nan], want[~nan])
    assert ((out[nan] & 0x7FFF) > 0x7F80).all()


def test_optimisers_in_place(level, call):
    rng = np.random.default_rng(6)
    p, g, m, v = (rng.standard_normal(501).astype(np.float32) for _ in range(4))
    v = np.abs(v)
    lr, b1, b2, eps, t, decay = 1e-2, 0.9, 0.999, 1e-8, 3, 0.1
    P, G, M, V = (a.astype(np.float64) for a in (p, g, m, v))
    P = P * (1 - lr * decay)
    M = b1 * M + (1 - b1) * G
    V = b2 * V + (1 - b2) * G * G
    P = P - lr / (1 - b1**t) * M / (np.sqrt(V) / math.sqrt(1 - b2**t) + eps)
    call(
        kernels.pointwise("adam"),
        p,
        m,
        v,
        p,
        m,
        v,
        g,
        p.size,
        lr / (1 - b1**t),
        b1,
        b2,
        eps,
        math.sqrt(1 - b2**t),
        0.0,
        1 - lr * decay,
    )
    for got, want in ((p, P), (m, M), (v, V)):
        assert np.allclose(got, want, rtol=1e-5, atol=1e-6)


def test_unknown_names_are_refused_with_the_nearest():
    with pytest.raises(UnknownKernel, match="'gelu'"):
        kernels.pointwise("gelo")
    with pytest.raises(UnknownKernel, match="float32"):
        kernels.pointwise("gelu", "float31")
    with pytest.raises(UnknownKernel, match="'softmax'"):
        kernels.row("softmx")


def test_what_has_no_code_is_refused_before_it_runs():
    with pytest.raises(NotAvailable, match="complex64"):
        kernels.pointwise("add", "complex64")
    with pytest.raises(NotAvailable, match="exp does not take i32"):
        kernels.pointwise("exp", "int32")
