from __future__ import annotations

import numpy as np
import pytest

from mortice_llvm import kernels

SHAPES = ((1, 1), (3, 5), (7, 64), (5, 130), (70, 1001), (0, 4))


def _data(rows, cols, count):
    rng = np.random.default_rng(rows * 1000 + cols)
    return [rng.standard_normal((rows, cols)).astype(np.float32) for _ in range(count)]


@pytest.mark.parametrize(("rows", "cols"), SHAPES)
def test_softmax_family(level, call, ref, rows, cols):
    x, dy = _data(rows, cols, 2)
    wide = x.astype(np.float64)
    soft = ref.softmax(wide)
    y, dx, again = np.empty_like(x), np.empty_like(x), x.copy()
    call(kernels.row("softmax"), y, x, rows, cols)
    assert np.allclose(y, soft, rtol=1e-5, atol=1e-7)
    call(kernels.row("softmax"), again, again, rows, cols)
    assert np.array_equal(y, again)
    call(kernels.row("softmax_backward"), dx, dy, y, rows, cols)
    dot = (dy * soft).sum(-1, keepdims=True)
    assert np.allclose(dx, soft * (dy - dot), rtol=1e-4, atol=1e-6)
    call(kernels.row("log_softmax"), y, x, rows, cols)
    assert np.allclose(y, np.log(soft), rtol=1e-5, atol=3e-6)
    call(kernels.row("log_softmax_backward"), dx, dy, y, rows, cols)
    want = dy - soft * dy.sum(-1, keepdims=True, dtype=np.float64)
    assert np.allclose(dx, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("rows", "cols"), SHAPES)
def test_layer_norm(level, call, rows, cols):
    x, dy = _data(rows, cols, 2)
    weight, bias = (np.linspace(-1, 2, cols, dtype=np.float32) for _ in range(2))
    wide = x.astype(np.float64)
    mean = wide.mean(-1, keepdims=True)
    rstd = 1 / np.sqrt(wide.var(-1, keepdims=True) + 1e-5)
    xhat = (wide - mean) * rstd
    y, dx = np.empty_like(x), np.empty_like(x)
    m, s = np.empty(rows, np.float32), np.empty(rows, np.float32)
    call(kernels.row("layer_norm"), y, m, s, x, rows, cols, 1e-5)
    assert np.allclose(y, xhat, rtol=1e-4, atol=1e-5)
    call(kernels.row("layer_norm_affine"), y, m, s, x, weight, bias, rows, cols, 1e-5)
    assert np.allclose(y, xhat * weight + bias, rtol=1e-4, atol=1e-5)
    assert np.allclose(m, mean[:, 0], rtol=1e-5, atol=1e-6)
    assert np.allclose(s, rstd[:, 0], rtol=1e-5)
    call(kernels.row("layer_norm_affine_backward"), dx, dy, x, m, s, weight, rows, cols)
    g = dy * weight.astype(np.float64)
    want = rstd * (g - g.mean(-1, keepdims=True) - xhat * (g * xhat).mean(-1, keepdims=True))
    assert np.allclose(dx, want, rtol=1e-3, atol=2e-5 * max(1, np.abs(rstd).max(initial=0)))
    call(kernels.row("rms_norm_affine"), y, s, x, weight, rows, cols, 1e-5)
    want = wide / np.sqrt((wide * wide).mean(-1, keepdims=True) + 1e-5) * weight
    assert np.allclose(y, want, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("rows", "cols"), SHAPES)
def test_reductions(level, call, rows, cols):
    (x,) = _data(rows, cols, 1)
    out, at = np.empty(rows, np.float32), np.empty(rows, np.int64)
    for name in ("sum", "mean", "max", "min", "prod"):
        call(kernels.row(name), out, x, rows, cols)
        want = getattr(x.astype(np.float64), name)(-1)
        assert np.allclose(out, want, rtol=1e-5, atol=3e-5), name
    for name in ("argmax", "argmin"):
        call(kernels.row(name), at, x, rows, cols)
        assert np.array_equal(at, getattr(x, name)(-1)), name


def test_positions_take_the_first_of_equals_and_nan_first(level, call):
    x = np.zeros((5, 200), np.float32)
    x[1, [50, 150]] = 2
    x[2, [70, 170]] = np.nan
    x[2, 10] = np.inf
    x[3] = -np.inf
    x[4, 199] = 1
    at = np.empty(5, np.int64)
    call(kernels.row("argmax"), at, x, *x.shape)
    assert at.tolist() == np.argmax(x, -1).tolist() == [0, 50, 70, 0, 199]
    call(kernels.row("argmin"), at, x, *x.shape)
    assert at.tolist() == np.argmin(x, -1).tolist()


def test_special_rows(level, call):
    x = np.zeros((4, 70), np.float32)
    x[0] = -np.inf
    x[1, 3] = np.inf
    x[2, 69] = np.nan
    x[3] = -np.inf
    x[3, 5] = 3
    y = np.empty_like(x)
    call(kernels.row("softmax"), y, x, *x.shape)
    assert np.isnan(y[0]).all()
    assert np.isnan(y[1, 3])
    assert np.isnan(y[2]).all()
    assert y[3].tolist() == [1.0 if k == 5 else 0.0 for k in range(70)]
    top = np.empty(4, np.float32)
    call(kernels.row("max"), top, x, *x.shape)
    assert np.array_equal(top, x.max(-1), equal_nan=True)
    call(kernels.row("logsumexp"), top, x, *x.shape)
    assert np.array_equal(top, np.array([-np.inf, np.inf, np.nan, 3], np.float32), equal_nan=True)


def test_integer_rows(level, call):
    x = np.random.default_rng(0).integers(-1000, 1000, (9, 333), np.int64)
    out = np.empty(9, np.int64)
    for name in ("sum", "max", "argmin"):
        call(kernels.row(name, "int64"), out, x, *x.shape)
        assert np.array_equal(out, getattr(x, name)(-1)), name


@pytest.mark.parametrize("n", [0, 1, 100, 16384, 50_001])
def test_whole_arrays(level, call, n):
    x = np.random.default_rng(n).standard_normal(n).astype(np.float32)
    out = np.empty(1, np.float32)
    call(kernels.whole("sum"), out, x, n)
    assert np.allclose(out, x.sum(dtype=np.float64), rtol=1e-5, atol=1e-4)
    if n:
        call(kernels.whole("max"), out, x, n)
        assert out[0] == x.max()
        x[-1] = np.nan
        call(kernels.whole("min"), out, x, n)
        assert np.isnan(out[0])
    whole = np.arange(n, dtype=np.int64)
    total = np.empty(1, np.int64)
    call(kernels.whole("sum", "int64"), total, whole, n)
    assert total[0] == whole.sum()
