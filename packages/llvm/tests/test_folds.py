from __future__ import annotations

import numpy as np
import pytest

from mortice_llvm import kernels
from mortice_llvm.ir import Build


@pytest.mark.parametrize(("rows", "cols"), [(1, 1), (5, 3), (300, 130), (1000, 64)])
def test_columns(level, call, rows, cols):
    rng = np.random.default_rng(rows)
    dy, x = (rng.standard_normal((rows, cols)).astype(np.float32) for _ in range(2))
    mean, rstd = (rng.uniform(0.5, 1, rows).astype(np.float32) for _ in range(2))
    out, dw, db = (np.empty(cols, np.float32) for _ in range(3))
    call(kernels.column("sum"), out, x, cols, rows)
    assert np.allclose(out, x.sum(0, dtype=np.float64), rtol=1e-5, atol=1e-4)
    call(kernels.column("layer_norm_params_backward"), dw, db, dy, x, mean, rstd, cols, rows)
    xhat = (x.astype(np.float64) - mean[:, None]) * rstd[:, None]
    assert np.allclose(dw, (dy * xhat).sum(0), rtol=1e-4, atol=1e-4)
    assert np.allclose(db, dy.sum(0, dtype=np.float64), rtol=1e-5, atol=1e-4)
    call(kernels.column("rms_norm_params_backward"), dw, dy, x, rstd, cols, rows)
    assert np.allclose(dw, (dy * (x * rstd[:, None])).sum(0), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("n", "c", "hw"), [(1, 1, 1), (4, 3, 49), (8, 16, 100), (64, 5, 1)])
def test_batch_norm_from_its_parts(level, call, n, c, hw):
    rng = np.random.default_rng(n)
    x, dy = (rng.standard_normal((n, c, hw)).astype(np.float32) for _ in range(2))
    weight, bias = (rng.uniform(0.5, 1.5, c) for _ in range(2))
    mean, var, s, sx = (np.empty(c, np.float32) for _ in range(4))
    step = c * hw
    call(kernels.channel("stats"), mean, var, x, c, hw, n, step)
    wide = x.astype(np.float64)
    assert np.allclose(mean, wide.mean((0, 2)), rtol=1e-5, atol=1e-6)
    assert np.allclose(var, wide.var((0, 2)), rtol=1e-5, atol=1e-6)
    rstd = 1 / np.sqrt(wide.var((0, 2)) + 1e-5)
    scale = (weight * rstd).astype(np.float32)
    shift = (bias - mean * scale).astype(np.float32)
    y = np.empty_like(x)
    call(kernels.channel("affine"), y, x, scale, shift, n, c, hw, step)
    xhat = (wide - wide.mean((0, 2), keepdims=True)) * rstd[:, None]
    assert np.allclose(y, xhat * weight[:, None] + bias[:, None], rtol=1e-4, atol=1e-5)
    call(kernels.channel("backward_sums"), s, sx, dy, x, mean, c, hw, n, step)
    assert np.allclose(s, dy.sum((0, 2), dtype=np.float64), rtol=1e-4, atol=1e-4)
    m = n * hw
    a = (weight * rstd).astype(np.float32)
    b = (-weight * rstd**3 * sx / m).astype(np.float32)
    d = (-a * s / m - b * mean).astype(np.float32)
    dx = np.empty_like(x)
    call(kernels.channel("affine_backward"), dx, dy, x, a, b, d, n, c, hw, step)
    g = dy * weight[:, None]
    want = rstd[:, None] * (
        g - g.mean((0, 2), keepdims=True) - xhat * (g * xhat).mean((0, 2), keepdims=True)
    )
    assert np.allclose(dx, want, rtol=1e-3, atol=1e-4 * max(1, rstd.max()))


def test_a_fold_stores_along_its_dimension(level, call):
    """Columns scaled by their sums: the second fold writes while it walks."""
    b = Build("scale", ("cols",), over="rows")
    b.out("y", "f32", (1, "cols"))
    b.input("x", "f32", (1, "cols"))
    b.fold()
    total = b.reduce("sum", b.load("x"))
    b.fold()
    b.store("y", b.load("x") / total)
    b.each()
    x = np.random.default_rng(0).random((7, 70), np.float32)
    y = np.zeros_like(x)
    call(kernels.custom(b.done()), y, x, 70, 7)
    np.testing.assert_allclose(y, x / x.sum(0), rtol=1e-5)
