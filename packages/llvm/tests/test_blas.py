from __future__ import annotations

import ctypes

import numpy as np
import pytest

from mortice_llvm import blas


def test_sgemm_by_address():
    found = blas.routine("cblas_sgemm")
    if found is None:
        pytest.skip("numpy was built without the OpenBLAS of its wheels")
    integer = ctypes.c_int64 if found.integer_bits == 64 else ctypes.c_int32
    f, p, e = ctypes.c_float, ctypes.c_void_p, ctypes.c_int
    gemm = ctypes.CFUNCTYPE(
        None, e, e, e, integer, integer, integer, f, p, integer, p, integer, f, p, integer
    )(found.address)
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s).astype(np.float32) for s in ((5, 7), (7, 3)))
    c = np.zeros((5, 3), np.float32)
    gemm(blas.ROW_MAJOR, blas.NO_TRANS, blas.NO_TRANS, 5, 3, 7, 1.0, a.ctypes.data, 7,
         b.ctypes.data, 3, 0.0, c.ctypes.data, 3)  # fmt: skip
    assert np.allclose(c, a @ b, rtol=1e-5, atol=1e-6)
    assert blas.routine("cblas_nothing") is None


def test_no_library_is_no_error(monkeypatch):
    monkeypatch.setattr(blas, "_candidates", lambda: ["/nonexistent/libblas.so"])
    monkeypatch.setattr(blas, "_searched", False)
    monkeypatch.setattr(blas, "_library", None)
    assert blas.routine("cblas_sgemm") is None
    assert not blas.set_num_threads(1)
