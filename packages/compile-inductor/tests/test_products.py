"""Matrix products in compiled graphs against float64: forms, layouts, epilogues, threads, the choice."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from inductor_graphs import graph

import mortice
from mortice_inductor import compile_fx
from mortice_inductor.ir.values import Value
from mortice_inductor.passes.epilogue import by_tiles
from mortice_llvm import blas
from mortice_llvm.gemm import choice, prefers_blas


@pytest.fixture(params=["tiles", "BLAS"])
def by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """All products by tiles, or by BLAS."""

    def prefers(*given: Any) -> str | None:
        return None if request.param == "tiles" else "the test says so"

    monkeypatch.setattr("mortice_inductor.passes.epilogue.prefers_blas", prefers)
    return request.param


def numbers(*shape: int, dtype: str = "f4", seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def run(body: Any, *arrays: np.ndarray[Any, Any]) -> Any:
    given = [mortice.from_numpy(a) for a in arrays]
    return compile_fx(graph(body, len(given)), given)(*given)[0].numpy()


def close(found: Any, a: Any, b: Any, scale: float = 1.0, rest: Any = 0.0) -> None:
    """Within k + 2 roundings of scale * sum |a b| + |rest|, element by element."""
    a, b = a.astype("f8"), b.astype("f8")
    rest = np.asarray(rest).astype("f8")
    bound = abs(scale) * (np.abs(a) @ np.abs(b)) + np.abs(rest)
    error = np.abs(found - (scale * (a @ b) + rest))
    assert (error <= (a.shape[-1] + 2) * np.finfo(found.dtype).eps * bound).all(), error.max()


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize(
    ("m", "k", "n"),
    [(1, 1, 1), (3, 5, 7), (8, 64, 48), (9, 65, 49), (67, 300, 33), (130, 257, 101)],
)
def test_mm(by: str, m: int, k: int, n: int, dtype: str) -> None:
    a, b = numbers(m, k, dtype=dtype), numbers(k, n, dtype=dtype, seed=1)
    close(run(lambda c, x, y: c("mm", x, y), a, b), a, b)
    found = run(lambda c, x, y: c("mm", c("t", x), c("t", y)), a.T.copy(), b.T.copy())
    close(found, a, b)
    wide, tall = np.zeros((m, 2 * k), dtype), np.zeros((3 * k, n), dtype)
    wide[:, ::2], tall[::3] = a, b
    close(run(lambda c, x, y: c("mm", x, y), wide[:, ::2], tall[::3]), a, b)


@pytest.mark.parametrize(("beta", "alpha"), [(1, 1), (0, 1), (0.5, 2), (-1.5, 0.25), (1, 0)])
def test_addmm_and_baddbmm(by: str, beta: float, alpha: float) -> None:
    a, b, bias = numbers(13, 70), numbers(70, 50, seed=1), numbers(50, seed=2)
    for shape in ((50,), (13, 50), (13, 1), (1,)):
        z = numbers(*shape, seed=2)
        found = run(lambda c, x, y, z: c("addmm", z, x, y, beta=beta, alpha=alpha), a, b, z)
        close(found, a, b, alpha, beta * np.broadcast_to(z, (13, 50)))
    if beta == 0:  # what is not added may be anything
        bias[:] = np.nan
        found = run(lambda c, x, y, z: c("addmm", z, x, y, beta=0, alpha=alpha), a, b, bias)
        close(found, a, b, alpha)
    a, b, z = numbers(5, 13, 70), numbers(5, 70, 20, seed=1), numbers(5, 13, 20, seed=2)
    found = run(lambda c, x, y, z: c("baddbmm", z, x, y, beta=beta, alpha=alpha), a, b, z)
    close(found, a, b, alpha, beta * z)


def test_heads_of_attention(by: str) -> None:
    """Batches whose matrices lie within the rows of one wide matrix, one of them transposed."""
    z = numbers(2, 12, 3 * 2 * 8)

    def body(c: Any, z: Any) -> Any:
        q, k, v = (
            c("reshape", c("permute", c("reshape", c("slice.Tensor", z, 2, 16 * i, 16 * (i + 1)),
                                        [2, 12, 2, 8]), [0, 2, 1, 3]), [4, 12, 8])
            for i in range(3)
        )  # fmt: skip
        return c("bmm", c("relu", c("bmm", q, c("transpose.int", k, 1, 2))), v)

    q, k, v = (
        z[:, :, 16 * i : 16 * (i + 1)].reshape(2, 12, 2, 8).transpose(0, 2, 1, 3).reshape(4, 12, 8)
        for i in range(3)
    )
    scores = np.maximum(q.astype("f8") @ k.transpose(0, 2, 1), 0)
    assert np.allclose(run(body, z), scores @ v, rtol=1e-5, atol=1e-4)


def test_epilogues(by: str) -> None:
    a, b = numbers(33, 64), numbers(64, 48, seed=1)
    row, column = numbers(48, seed=2), numbers(33, 1, seed=3)

    def body(c: Any, x: Any, y: Any, r: Any, s: Any) -> Any:
        return c("mul.Tensor", c("relu", c("add.Tensor", c("mm", x, y), r)), s)

    expected = np.maximum(a.astype("f8") @ b + row, 0) * column
    assert np.allclose(run(body, a, b, row, column), expected, rtol=1e-5, atol=1e-5)


def test_nan_and_infinity(by: str) -> None:
    a, b = np.abs(numbers(9, 40)) + 1, np.abs(numbers(40, 50, seed=1)) + 1
    a[2, 3], b[7, 20] = np.inf, np.nan
    found = run(lambda c, x, y: c("mm", x, y), a, b)
    assert np.isnan(found[:, 20]).all()
    assert np.isposinf(np.delete(found[2], 20)).all()
    assert np.isfinite(np.delete(np.delete(found, 2, 0), 20, 1)).all()


@pytest.mark.parametrize(("m", "k", "n"), [(0, 3, 4), (3, 0, 4), (3, 4, 0)])
def test_empty(by: str, m: int, k: int, n: int) -> None:
    found = run(lambda c, x, y: c("mm", x, y), numbers(m, k), numbers(k, n))
    assert found.shape == (m, n)
    assert not found.any()


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize(("m", "k", "n"), [(64, 300, 512), (900, 200, 40), (129, 131, 137)])
def test_threads_do_not_change_a_bit(
    m: int, k: int, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mortice_inductor.passes.epilogue.prefers_blas", lambda *given: None)
    a, b = numbers(m, k), numbers(k, n, seed=1)
    shared = run(lambda c, x, y: c("mm", x, y), a, b)
    close(shared, a, b)
    mortice.set_num_threads(1)
    alone = run(lambda c, x, y: c("mm", x, y), a, b)
    assert np.array_equal(shared, alone)


def test_batches_are_shared_out(two_threads: None, by: str) -> None:
    a, b = numbers(16, 64, 40), numbers(16, 40, 96, seed=1)
    close(run(lambda c, x, y: c("bmm", x, y), a, b), a, b)


def test_the_log_says_who_does_a_product(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    v = graph_value()
    assert by_tiles(v, lines.append) is (prefers_blas("f32", 64, 64, 64) is None)
    monkeypatch.setattr(choice, "MEASURED", {})
    if blas.routine("cblas_sgemm") is not None:
        assert not by_tiles(v, lines.append)
        assert "by BLAS: tiles were not measured" in lines[-1]
    monkeypatch.setattr(blas, "routine", lambda name: None)
    assert by_tiles(v, lines.append)
    assert "by tiles: numpy brings no BLAS" in lines[-1]


def graph_value() -> Value:
    """A product's value, of which the log needs the operator's name."""
    v = Value("matmul", (), (64, 64), "f32", (None, None, 64), 0)
    v.where = "mm"
    return v
