"""Products by register tiles against numpy in float64, on every instruction-set level."""

from __future__ import annotations

import ctypes
import functools
import itertools

import numpy as np
import pytest

from mortice_llvm import blas, target
from mortice_llvm.errors import NotAvailable
from mortice_llvm.gemm import choice, prefers_blas
from mortice_llvm.gemm.shape import SHAPES
from mortice_llvm.gemm.tile import KC, module_text
from mortice_llvm.runtime.compiler import compile_text

REAL = {"f32": np.float32, "f64": np.float64}
ROWS = sorted({1, 3, 13, 67} | {s.rows + d for s in SHAPES.values() for d in (-1, 0, 1)})
#: Widths in registers of the widest tile, of f32: 16 x 3; with primes and one more or less.
COLUMNS = (1, 2, 4, 15, 16, 17, 31, 47, 48, 49, 101)
DEPTHS = (1, 2, 7, 16, 33, KC, KC + 1, 2 * KC + 13)


@pytest.fixture(params=sorted(REAL))
def product(request, level, monkeypatch):
    """``product(a, b, a_flipped, b_flipped, out=None)``, and ``dtype``."""
    monkeypatch.setattr(blas, "_tile", functools.cache(blas._tile.__wrapped__))
    i, p = ctypes.c_int64, ctypes.c_void_p
    call = ctypes.CFUNCTYPE(None, i, i, i, p, i, i, p, i, ctypes.c_bool, p, i, p, p, i, i)(
        blas.routine(f"tile_{request.param}").address
    )

    def run(a, b, flip_a=False, flip_b=False, out=None, after=None, first=(0, 0)):
        """a is stored (k, m) if flipped; b is stored (n, k) if flipped; rows may be apart.
        ``after(given, row, row end, column, column end)`` is called for blocks.
        """
        m, k = a.shape[::-1] if flip_a else a.shape
        n = b.shape[0] if flip_b else b.shape[1]
        c = np.full((m, n), np.nan, REAL[request.param]) if out is None else out
        lead_a, lead_b, lead_c = (x.strides[0] // x.itemsize for x in (a, b, c))
        row, step = (1, lead_a) if flip_a else (lead_a, 1)
        call(
            m, n, k, a.ctypes.data, row, step, b.ctypes.data, lead_b, flip_b, c.ctypes.data, lead_c,
            after, 77, *first,
        )  # fmt: skip
        return c

    run.dtype = REAL[request.param]
    return run


def _numbers(shape, dtype, seed=0, apart=0):
    """Random numbers; ``apart`` more elements lie between the rows' ends, all NaN."""
    wide = np.full((shape[0], shape[1] + apart), np.nan, dtype)
    wide[:, : shape[1]] = np.random.default_rng(seed).standard_normal(shape)
    return wide[:, : shape[1]]


def _check(found, a, b):
    """Each element within k roundings of the sum of |a b|."""
    a, b = a.astype("f8"), b.astype("f8")
    eps = np.finfo(found.dtype).eps
    bound = (a.shape[1] + 1) * eps * (np.abs(a) @ np.abs(b))
    assert (np.abs(found - a @ b) <= bound).all()


@pytest.mark.parametrize("k", DEPTHS)
def test_sizes(product, k):
    for m, n in itertools.product(ROWS, COLUMNS):
        a, b = (_numbers(s, product.dtype, 1) for s in ((m, k), (k, n)))
        _check(product(a, b), a, b)


@pytest.mark.parametrize("flip_a", [False, True])
@pytest.mark.parametrize("flip_b", [False, True])
@pytest.mark.parametrize("apart", [0, 5])
def test_layouts(product, flip_a, flip_b, apart):
    for m, n, k in ((5, 19, 40), (66, 97, 64), (70, 50, KC + 5), (1, 1, 1)):
        a = _numbers((k, m) if flip_a else (m, k), product.dtype, 2, apart)
        b = _numbers((n, k) if flip_b else (k, n), product.dtype, 3, apart)
        _check(product(a, b, flip_a, flip_b), a.T if flip_a else a, b.T if flip_b else b)


def test_writes_nothing_else(product):
    frame = np.full((20, 60), 7, product.dtype)
    a, b = _numbers((17, 300), product.dtype), _numbers((300, 53), product.dtype)
    product(a, b, out=frame[1:18, 2:55])
    _check(frame[1:18, 2:55], a, b)
    frame[1:18, 2:55] = 7
    assert (frame == 7).all()


def test_empty(product):
    for m, n in ((0, 5), (5, 0)):
        assert product(np.ones((m, 3), product.dtype), np.ones((3, n), product.dtype)).size == 0


def test_nan_and_infinity_stay_in_their_row_and_column(product):
    a, b = _numbers((9, 30), product.dtype), _numbers((30, 50), product.dtype)
    a[3, 7], b[11, 20] = np.inf, np.nan
    found = product(a, b)
    with np.errstate(invalid="ignore"):
        expected = a.astype("f8") @ b.astype("f8")
    assert np.isnan(found[:, 20]).all()
    assert np.isinf(np.delete(found[3], 20)).all()
    rest = np.delete(np.delete(found, 3, 0), 20, 1)
    assert np.isfinite(rest).all()
    assert np.array_equal(np.sign(found[3, :20]), np.sign(expected[3, :20]))


def test_a_part_of_the_columns_or_rows_gives_the_same_bits(product):
    """However threads share a product out."""
    a, b = _numbers((96, KC + 9), product.dtype), _numbers((KC + 9, 160), product.dtype)
    whole = product(a, b)
    for cut in (16, 48, 80):
        assert np.array_equal(product(a, b[:, cut:]), whole[:, cut:])
        assert np.array_equal(product(a[:cut], b), whole[:cut])


@pytest.mark.parametrize("k", [1, KC, 2 * KC + 3])
@pytest.mark.parametrize(("m", "n"), [(1, 1), (9, 50), (70, 500), (17, 4 * 48), (16, 8 * 48 + 1)])
def test_what_follows_sees_every_element_once_and_finished(product, m, n, k):
    a, b = _numbers((m, k), product.dtype), _numbers((k, n), product.dtype)
    expected = product(a, b)
    c = np.full((m, n), np.nan, product.dtype)
    seen = np.zeros((m, n), int)

    def after(given, top, bottom, left, right):
        assert given == 77
        block = slice(top - 1000, bottom - 1000), slice(left - 20, right - 20)
        assert np.array_equal(c[block], expected[block])
        seen[block] += 1
        c[block] = np.nan  # nobody reads it again

    i, p = ctypes.c_int64, ctypes.c_void_p
    callback = ctypes.CFUNCTYPE(None, p, i, i, i, i)(after)
    product(a, b, out=c, after=ctypes.cast(callback, p), first=(1000, 20))
    assert (seen == 1).all()
    assert np.isnan(c).all()


@pytest.mark.parametrize("dtype", sorted(REAL))
@pytest.mark.parametrize("name", sorted(target.TARGETS))
def test_compiles_for_every_target(name, dtype):
    made = target.named(name)
    assert len(compile_text(module_text(made, dtype, "product"), made)) > 1000


def test_choice_follows_the_measured_limits(monkeypatch):
    avx512 = target.named("avx512")
    monkeypatch.setattr(choice, "MEASURED", {("avx512", "f32"): choice.Limits(4, 16, 256)})
    assert prefers_blas("f32", 4, 16, 100, avx512) is None
    assert "3 rows" in (prefers_blas("f32", 3, 16, 100, avx512) or "")
    assert "15 columns" in (prefers_blas("f32", 64, 15, 100, avx512) or "")
    assert "registers" in (prefers_blas("f32", 64, 33, 100, avx512) or "")
    assert prefers_blas("f32", 64, 257, 100, avx512) is None
    assert "not measured" in (prefers_blas("f64", 64, 64, 64, avx512) or "")


def test_other_types_are_refused():
    with pytest.raises(NotAvailable, match="f32 and f64"):
        blas.routine("tile_f16")
