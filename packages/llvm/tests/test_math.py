"""Errors in units in the last place (ULP), over strided bit patterns and dense ranges.

float32 is compared with numpy's float64, float64 with numpy's longdouble (80 bits on x86-64; where
it is no wider than float64 a unit is added to the limits).
"""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest

from mortice_llvm import kernels
from mortice_llvm.errors import NotAvailable

_erf = np.vectorize(math.erf, otypes=[float])
_erfc = np.vectorize(math.erfc, otypes=[float])


def _sigmoid(x):
    return np.where(x < 0, np.exp(x) / (1 + np.exp(x)), 1 / (1 + np.exp(-x)))


# name: reference, limit for float32, for float64. The limits are those of docs/llvm.md.
FUNCTIONS = {
    "exp": (np.exp, 1.1, 1.1),
    "exp2": (np.exp2, 1.1, 1.1),
    "expm1": (np.expm1, 1.8, 1.8),
    "log": (np.log, 1.0, 1.0),
    "log2": (np.log2, 1.0, 1.0),
    "log10": (np.log10, 1.0, 1.0),
    "log1p": (np.log1p, 1.6, 1.4),
    "sin": (np.sin, 2.5, 1.6),
    "cos": (np.cos, 2.5, 1.6),
    "tan": (np.tan, 3.5, 2.7),
    "asin": (np.arcsin, 2.0, 1.7),
    "acos": (np.arccos, 1.5, 1.5),
    "atan": (np.arctan, 2.0, 1.5),
    "sinh": (np.sinh, 3.0, 2.7),
    "cosh": (np.cosh, 3.0, 2.7),
    "tanh": (np.tanh, 2.4, 1.5),
    "asinh": (np.arcsinh, 2.5, 2.5),
    "acosh": (np.arccosh, 2.5, 2.5),
    "atanh": (np.arctanh, 2.6, 2.5),
    "erf": (_erf, 1.9, 1.5),
    "erfc": (_erfc, 4.0, 4.0),
    "sigmoid": (_sigmoid, 2.6, 2.6),
    "sqrt": (np.sqrt, 0.5, 0.5),
    "rsqrt": (lambda x: 1 / np.sqrt(x), 1.6, 1.6),
}
SPECIAL = [0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 2.0, 0.5, -0.5, 3.0, 1e-30]


@functools.cache
def single(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and the reference for float32."""
    rng = np.random.default_rng(0)
    step = 60013 if name in ("erf", "erfc") else 15013
    parts = [np.arange(0, 2**32, step, dtype=np.uint64).astype(np.uint32).view(np.float32)]
    parts += [rng.uniform(-s, s, 20_000).astype(np.float32) for s in (1, 10, 100, 1e4)]
    parts.append(np.array(SPECIAL, np.float32))
    x = np.concatenate(parts)
    with np.errstate(all="ignore"):
        return x, FUNCTIONS[name][0](x.astype(np.float64))


@functools.cache
def double(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and the reference for float64."""
    rng = np.random.default_rng(1)
    parts = [rng.integers(0, 2**64, 10_000, np.uint64).view(np.float64)]
    parts += [rng.uniform(-s, s, 5_000) for s in (1, 10, 700, 1e6, 1e9)]
    parts.append(np.array(SPECIAL))
    x = np.concatenate(parts)
    with np.errstate(all="ignore"):
        wide = x if name in ("erf", "erfc") else x.astype(np.longdouble)
        return x, FUNCTIONS[name][0](wide)


def check(name, dtype, x, want, limit, call, ulp_error):
    y = np.empty_like(x)
    call(kernels.pointwise(name, dtype), y, x, x.size)
    error = ulp_error(y, want)
    at = int(error.argmax())
    assert error[at] <= limit, (x[at], y[at], want[at])
    # Signs of zeros, too.
    zero = (y == 0) & (want == 0)
    assert np.array_equal(np.signbit(y[zero]), np.signbit(want[zero]))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_single_precision(level, call, ulp_error, name):
    # Without a fused multiply-add some steps round twice.
    margin = 1.25 if level == "sse2" else 1.0
    check(name, "float32", *single(name), FUNCTIONS[name][1] * margin, call, ulp_error)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_double_precision(level, call, ulp_error, name):
    wide = np.finfo(np.longdouble).nmant > 60 and name not in ("erf", "erfc")
    margin = 1.25 if level == "sse2" else 1.0
    limit = FUNCTIONS[name][2] * margin + (0 if wide else 1)
    check(name, "float64", *double(name), limit, call, ulp_error)


def _normal(x):
    """Phi and phi, the lower tail without cancellation."""
    return 0.5 * _erfc(-x * math.sqrt(0.5)), np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gelu(level, call, ulp_error, dtype):
    """Above 0 in units in the last place, below by absolute error and, to -3, by relative error."""
    rng = np.random.default_rng(4)
    x = np.concatenate([rng.uniform(-9, 9, 40_000), np.exp(rng.uniform(-80, 60, 20_000))])
    x = np.concatenate([x, -x]).astype(dtype)
    wide = x.astype(np.float64)
    cdf, density = _normal(wide)
    want, slope = wide * cdf, cdf + wide * density
    y = np.empty_like(x)
    call(kernels.pointwise("gelu", dtype), y, x, x.size)
    eps = np.finfo(dtype).eps
    above = x > 0
    # The reference itself is float64's.
    assert ulp_error(y[above], want[above]).max() <= (2.0 if dtype == "float32" else 4.0)
    assert np.abs(y - want)[~above].max() <= (0.75 if dtype == "float32" else 2) * eps
    if dtype == "float32":
        near = (x < 0) & (x > -3)
        assert np.abs(y[near] / want[near] - 1).max() <= 4e-6
    call(kernels.pointwise("gelu_slope", dtype), y, x, x.size)
    assert np.abs(y - slope).max() <= 2 * eps


def test_gelu_of_special_numbers(level, call):
    x = np.array([0.0, -0.0, math.inf, math.nan, 1e30, -math.inf, -12.0, 1e-40, -1e-40], np.float32)
    y = np.empty_like(x)
    call(kernels.pointwise("gelu"), y, x, x.size)
    want = np.array([0, -0.0, math.inf, math.nan, 1e30, 0, 0, 5e-41, -5e-41], np.float32)
    assert np.array_equal(y, want, equal_nan=True) and np.signbit(y[1]) and not np.signbit(y[0])
    wide, out = np.array([-math.inf, math.inf, -12.0, -0.0]), np.empty(4)
    call(kernels.pointwise("gelu", "float64"), out, wide, 4)
    assert np.array_equal(out, [0, math.inf, 0, 0]) and np.signbit(out[3])
    call(kernels.pointwise("gelu_slope", "float64"), out, wide, 4)
    assert np.array_equal(out[[0, 1, 3]], [0, 1, 0.5])
    call(kernels.pointwise("gelu_slope"), y, x, x.size)
    want = np.array([0.5, 0.5, 1, math.nan, 1, 0, 0, 0.5, 0.5], np.float32)
    assert np.array_equal(y, want, equal_nan=True)


# (m, e, sin(m 2**e), cos(m 2**e)), by 1400-bit arithmetic; the first two lie as close to a
# multiple of pi/2 as float32 and float64 come.
ANGLES = [
    (16367173, 72, 1.0, -1.6147697982476211e-09),
    (6381956970095103, 797, 1.0, -4.687165924254628e-19),
    (1, 120, 0.377820109360752, -0.9258790228548379),
    (12345678, 0, -0.9035411460624643, -0.4285013388218624),
    (16777215, 104, -0.5218765233336585, 0.8530210398303042),
]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_great_angles(level, call, ulp_error, dtype):
    chosen = [a for a in ANGLES if dtype == "float64" or a[1] < 128]
    x = np.array([math.ldexp(m, e) for m, e, _, _ in chosen], dtype)
    for column, name in ((2, "sin"), (3, "cos")):
        want = np.array([a[column] for a in chosen])
        y = np.empty_like(x)
        call(kernels.pointwise(name, dtype), y, x, x.size)
        assert ulp_error(y, want).max() <= 2.5
        call(kernels.pointwise(name, dtype), y, -x, x.size)
        assert ulp_error(y, -want if name == "sin" else want).max() <= 2.5


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_powers(level, call, ulp_error, dtype):
    rng = np.random.default_rng(2)
    size = 80 if dtype == "float32" else 690
    x = [rng.uniform(0, 10, 20_000), rng.uniform(-10, 10, 5_000)]
    x += [np.exp(rng.uniform(-size, size, 20_000)), rng.uniform(0.99, 1.01, 5_000)]
    y = [rng.uniform(-30, 30, 20_000), rng.integers(-20, 20, 5_000)]
    y += [rng.uniform(-2, 2, 20_000), rng.uniform(-size * 100, size * 100, 5_000)]
    x, y = (np.concatenate(v).astype(dtype) for v in (x, y))
    z = np.empty_like(x)
    call(kernels.pointwise("pow", dtype), z, x, y, x.size)
    wide = np.float64 if dtype == "float32" else np.longdouble
    with np.errstate(all="ignore"):
        want = np.power(x.astype(wide), y.astype(wide))
    limit = 0.6 if dtype == "float32" else 1.1 if np.finfo(wide).nmant > 60 else 2.1
    assert ulp_error(z, want).max() <= limit


def _grid(dtype="float32") -> tuple[np.ndarray, np.ndarray]:
    values = [0.0, 1.0, 0.5, 2.0, 3.0, 1.5, 1e10, 16777217.0, 1e30, math.inf, math.nan]
    values += [-v for v in values]
    a, b = np.meshgrid(np.array(values, dtype), np.array(values, dtype))
    return a.ravel().copy(), b.ravel().copy()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["pow", "atan2", "hypot", "copysign"])
def test_special_values_of_two_operands(level, call, ulp_error, name, dtype):
    x, y = _grid(dtype)
    z = np.empty_like(x)
    call(kernels.pointwise(name, dtype), z, x, y, x.size)
    fn = {"pow": np.power, "atan2": np.arctan2}.get(name) or getattr(np, name)
    with np.errstate(all="ignore"):
        want = fn(x.astype(np.float64), y.astype(np.float64))
    error = ulp_error(z, want)
    at = int(error.argmax())
    assert error[at] <= 2.5, (x[at], y[at], z[at], want[at])
    sign = ~np.isnan(want)
    assert np.array_equal(np.signbit(z[sign]), np.signbit(want[sign]))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_remainders_are_exact(level, call, dtype):
    if level == "sse2" and dtype == "float64":
        with pytest.raises(NotAvailable, match="fused multiply-add"):
            kernels.pointwise("fmod", dtype)
        return
    rng = np.random.default_rng(4)
    top = 2**32 if dtype == "float32" else 2**64
    word = np.uint32 if dtype == "float32" else np.uint64
    a, b = (rng.integers(0, top, 20_000, word).view(dtype) for _ in range(2))
    near = rng.integers(-50, 50, 3000).astype(dtype)
    tenth = rng.integers(1, 9, 3000).astype(dtype) * np.array(0.1, dtype)
    p, q = _grid(dtype)
    a, b = np.concatenate([a, near, near, p]), np.concatenate([b, tenth, -tenth, q])
    y = np.empty_like(a)
    with np.errstate(all="ignore"):
        fmod = np.fmod(a, b)
        call(kernels.pointwise("fmod", dtype), y, a, b, a.size)
        assert np.array_equal(y, fmod, equal_nan=True)
        sign = ~np.isnan(fmod)
        assert np.array_equal(np.signbit(y[sign]), np.signbit(fmod[sign]))
        call(kernels.pointwise("remainder", dtype), y, a, b, a.size)
        wraps = (fmod != 0) & ((fmod < 0) != (b < 0))
        assert np.array_equal(y, np.where(wraps, fmod + b, fmod), equal_nan=True)
        call(kernels.pointwise("floor_div", dtype), y, near, tenth, near.size)
        assert np.array_equal(y[: near.size], np.floor_divide(near, tenth))


def test_lanes_agree_with_a_single_element(level, call):
    """The same bits wherever an element stands, also in the tail."""
    x = np.random.default_rng(3).uniform(-20, 20, 203).astype(np.float32)
    for name in FUNCTIONS:
        fn = kernels.pointwise(name)
        whole, alone = np.empty_like(x), np.empty_like(x)
        call(fn, whole, x, x.size)
        for k in range(0, x.size, 29):
            one = np.array([x[k]], np.float32)
            call(fn, one, one, 1)
            alone[k] = one[0]
            assert whole[k : k + 1].tobytes() == alone[k : k + 1].tobytes(), name
