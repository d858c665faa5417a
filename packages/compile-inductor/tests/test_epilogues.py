"""What follows a matrix product is a part of it: which kernels, where results lie, and the numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from inductor_graphs import graph

import mortice
from mortice_inductor import compile_fx
from mortice_inductor.codegen import driver as dr
from mortice_inductor.compile import settings
from mortice_inductor.pipeline import Built, build
from mortice_inductor.specs import specs_of
from mortice_llvm.gemm import prefers_blas

Array = np.ndarray[Any, Any]


@pytest.fixture(autouse=True)
def by_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """All products by tiles, the small ones, too, with what follows."""
    monkeypatch.setattr("mortice_inductor.passes.epilogue.FEW", -1)
    monkeypatch.setattr("mortice_inductor.passes.epilogue.prefers_blas", lambda *given: None)


def numbers(*shape: int, dtype: str = "f4", seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def tensors(arrays: tuple[Any, ...]) -> list[Any]:
    return [mortice.from_numpy(a) if isinstance(a, np.ndarray) else a for a in arrays]


def built(body: Any, *arrays: Any) -> tuple[Built, list[str]]:
    """What the passes make of a graph, and what they say."""
    given = tensors(arrays)
    lines: list[str] = []
    how = settings(tuple(range(len(given))), lambda x: x)._replace(log=lines.append)
    return build(graph(body, len(given)), specs_of(given), how), lines


def kinds(made: Built) -> str:
    """P per product, F per product with an epilogue, K per kernel."""
    return "".join(
        "K" if not isinstance(p, dr.Product) else "P" if p.after is None else "F"
        for p in made.parts
    )


def run(body: Any, *arrays: Any) -> list[Array]:
    given = tensors(arrays)
    return [x.numpy() for x in compile_fx(graph(body, len(given)), given)(*given)]


def eager(body: Any, *arrays: Any) -> list[Array]:
    given = tensors(arrays)
    return [x.numpy() for x in graph(body, len(given))(*given)]


def same(body: Any, *arrays: Any, tol: float = 2e-5) -> None:
    """Compiled and eager agree, shapes, dtypes and strides included."""
    for found, expected in zip(run(body, *arrays), eager(body, *arrays), strict=True):
        assert found.dtype == expected.dtype
        assert found.shape == expected.shape
        assert np.allclose(found.astype("f8"), expected.astype("f8"), rtol=tol, atol=10 * tol)


def bias_relu(c: Any, x: Any, y: Any, b: Any) -> Any:
    return c("relu", c("add.Tensor", c("mm", x, y), b))


def test_the_product_lies_in_its_epilogues_result() -> None:
    made, lines = built(bias_relu, numbers(33, 64), numbers(64, 48), numbers(48))
    assert kinds(made) == "F"
    assert made.plan.arena == 0
    assert [row[2] for row in made.plan.slots].count("output") == 1
    assert any("(relu) is a part of mm, block by block" in line for line in lines)


def test_what_follows_a_small_product_is_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    made, lines = built(bias_relu, numbers(64, 16), numbers(16, 512), numbers(512))
    assert kinds(made) == "PK"
    if prefers_blas("f32", 64, 512, 16) is None:
        assert any("the product is small" in line for line in lines)


def test_without_fusion_there_are_no_epilogues() -> None:
    given = tensors((numbers(8, 8), numbers(8, 16), numbers(16)))
    how = settings((0, 1, 2), lambda x: x)._replace(fusion=False)
    assert kinds(build(graph(bias_relu, 3), specs_of(given), how)) == "PKK"


def test_blas_has_no_epilogue(monkeypatch: pytest.MonkeyPatch) -> None:
    if mortice_blas_is_missing():
        pytest.skip("numpy brings no BLAS whose routines can be called")
    monkeypatch.setattr("mortice_inductor.passes.epilogue.prefers_blas", lambda *given: "it is so")
    made, lines = built(bias_relu, numbers(8, 8), numbers(8, 16), numbers(16))
    assert kinds(made) == "PK"
    assert any("by BLAS: it is so; what follows it is a kernel" in line for line in lines)


def mortice_blas_is_missing() -> bool:
    from mortice_llvm import blas

    return blas.routine("cblas_sgemm") is None


SIZES = [(1, 1, 1), (3, 5, 7), (9, 65, 49), (67, 300, 33), (40, 520, 500), (130, 257, 193)]


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize(("m", "k", "n"), SIZES)
def test_sizes(m: int, k: int, n: int, dtype: str) -> None:
    a, b = numbers(m, k, dtype=dtype), numbers(k, n, dtype=dtype, seed=1)
    for bias in ((n,), (m, 1), (m, n), (1, 1), ()):
        z = numbers(*bias, dtype=dtype, seed=2)
        same(bias_relu, a, b, z)
        expected = np.maximum(a.astype("f8") @ b + z, 0)
        assert np.allclose(run(bias_relu, a, b, z)[0], expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("flip", [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_transposed_operands(flip: tuple[int, int]) -> None:
    a, b = (numbers(*s[:: -1 if f else 1], seed=f) for s, f in zip(((33, 70), (70, 101)), flip))

    def body(c: Any, x: Any, y: Any, z: Any) -> Any:
        x, y = (c("t", v) if f else v for v, f in zip((x, y), flip))
        return bias_relu(c, x, y, z)

    assert kinds(built(body, a, b, numbers(101))[0]) == "F"
    same(body, a, b, numbers(101))


@pytest.mark.parametrize(("beta", "alpha"), [(1, 1), (0, 1), (0.5, 2), (-1.5, 0.25), (1, 0)])
def test_alpha_and_beta(beta: float, alpha: float) -> None:
    def body(c: Any, x: Any, y: Any, z: Any) -> Any:
        return c("gelu", c("addmm", z, x, y, beta=beta, alpha=alpha))

    given = numbers(13, 70), numbers(70, 50, seed=1), numbers(13, 50, seed=2)
    assert kinds(built(body, *given)[0]) == "F"
    same(body, *given)


def test_a_product_that_others_read_is_kept() -> None:
    """By the caller; by a reduction; by a kernel in another order."""
    a, b = numbers(20, 30), numbers(30, 40, seed=1)

    def returned(c: Any, x: Any, y: Any) -> Any:
        p = c("mm", x, y)
        return p, c("sigmoid", p)

    def reduced(c: Any, x: Any, y: Any) -> Any:
        p = c("mm", x, y)
        return c("exp", p), c("sum.dim_IntList", p, [1])

    def flipped(c: Any, x: Any, y: Any) -> Any:
        p = c("mm", x, y)
        return c("exp", p), c("clone", c("t", p)), c("sum.dim_IntList", c("t", p), [1])

    for body in (returned, reduced, flipped):
        same(body, a, b)
    assert kinds(built(returned, a, b)[0]) == "F"


def test_several_results_and_other_dtypes() -> None:
    a, b = numbers(33, 64), numbers(64, 130, seed=1)

    def several(c: Any, x: Any, y: Any) -> Any:
        p = c("mm", x, y)
        return c("gt.Scalar", p, 0.5), c("exp", p), c("tanh", p)

    def narrow(c: Any, x: Any, y: Any) -> Any:
        return c("gt.Scalar", c("mm", x, y), 0.5)

    assert kinds(built(several, a, b)[0]) == "F"
    same(several, a, b)
    made, _ = built(narrow, a, b)
    assert kinds(made) == "F"
    assert made.plan.arena > 0  # a bool does not hold a float
    same(narrow, a, b)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_16_bits(dtype: str) -> None:
    kind = getattr(mortice, dtype)
    a, b, z = (mortice.from_numpy(numbers(*s, seed=k)).to(kind)
               for k, s in enumerate(((40, 64), (64, 100), (100,))))  # fmt: skip

    def body(c: Any, x: Any, y: Any, z: Any) -> Any:
        return c("gelu", c("addmm", z, x, y))

    assert kinds(built(body, a, b, z)[0]).count("F") == 1
    found = compile_fx(graph(body, 3), [a, b, z])(a, b, z)[0]
    assert found.dtype is kind
    x, y, w = (t.float().numpy().astype("f8") for t in (a, b, z))
    want = _gelu(x @ y + w)
    assert np.allclose(found.float().numpy(), want, rtol=1e-2, atol=1e-2)


def _gelu(x: Array) -> Array:
    from math import erf

    return x * (1 + np.vectorize(erf)(x / 2**0.5)) / 2


def test_batches_and_residuals() -> None:
    a, b, z = numbers(5, 13, 70), numbers(5, 70, 60, seed=1), numbers(5, 13, 60, seed=2)

    def body(c: Any, x: Any, y: Any, z: Any) -> Any:
        return c("mul.Tensor", c("tanh", c("bmm", x, y)), z)

    assert kinds(built(body, a, b, z)[0]) == "F"
    for residual in (z, z[:1].copy(), z[:, :, :1].copy(), z[0, 0].copy()):
        same(body, a, b, residual)


def test_linear_on_more_dimensions() -> None:
    x, w, b, r = numbers(4, 6, 20), numbers(50, 20, seed=1), numbers(50), numbers(4, 1, 50, seed=3)

    def body(c: Any, x: Any, w: Any, b: Any, r: Any) -> Any:
        flat = c("addmm", b, c("view", x, [24, 20]), c("t", w))
        return c("add.Tensor", c("gelu", c("view", flat, [4, 6, 50])), r)

    assert kinds(built(body, x, w, b, r)[0]) == "F"
    same(body, x, w, b, r)


def test_two_products_in_one_kernel() -> None:
    a, b, d = numbers(20, 30), numbers(30, 64, seed=1), numbers(30, 64, seed=2)

    def body(c: Any, x: Any, y: Any, z: Any) -> Any:
        return c("mul.Tensor", c("silu", c("mm", x, y)), c("mm", x, z))

    assert sorted(kinds(built(body, a, b, d)[0])) == ["F", "P"]
    same(body, a, b, d)


def test_an_epilogue_that_waits_for_something_made_of_the_product_is_none() -> None:
    a, b = numbers(20, 64), numbers(64, 64, seed=1)

    def body(c: Any, x: Any, y: Any) -> Any:
        p = c("mm", x, y)
        q = c("mm", p, y)
        return c("add.Tensor", c("exp", p), q)

    assert kinds(built(body, a, b)[0]) == "PF"
    same(body, a, b)


def test_a_placeholder_is_not_overwritten_by_an_epilogue() -> None:
    """Other blocks may still need it: here it is an operand."""
    w, g = numbers(48, 48), numbers(48, 48, seed=1)

    def body(c: Any, w: Any, g: Any) -> Any:
        new = c("sub.Tensor", w, c("mm", w, g))
        return c("copy_", w, new)

    made, lines = built(body, w, g)
    assert kinds(made) == "PK"
    assert any("it overwrites a placeholder" in line for line in lines)
    given = tensors((w.copy(), g))
    compile_fx(graph(body, 2), given)(*given)
    assert np.allclose(given[0].numpy(), w - w.astype("f8") @ g, rtol=1e-4, atol=1e-4)


def test_a_strided_result_is_written_in_place() -> None:
    """A bias that repeats along rows in groups splits the rows' loop."""
    x, w, r = numbers(24, 20), numbers(20, 50, seed=1), numbers(6, 50, seed=2)

    def body(c: Any, x: Any, w: Any, r: Any) -> Any:
        return c("add.Tensor", c("view", c("mm", x, w), [4, 6, 50]), r)

    assert kinds(built(body, x, w, r)[0]) == "F"
    same(body, x, w, r)


@pytest.mark.parametrize(("m", "k", "n"), [(0, 3, 4), (3, 0, 4), (3, 4, 0)])
def test_empty(m: int, k: int, n: int) -> None:
    same(bias_relu, numbers(m, k), numbers(k, n), numbers(n))


def test_nothing_leaks_between_blocks() -> None:
    a, b = np.abs(numbers(19, 300)) + 1, np.abs(numbers(300, 210, seed=1)) + 1
    a[2, 3], b[7, 20] = np.inf, np.nan
    found = run(bias_relu, a, b, numbers(210))[0]
    assert np.isnan(found[:, 20]).all()
    assert np.isposinf(np.delete(found[2], 20)).all()
    assert np.isfinite(np.delete(np.delete(found, 2, 0), 20, 1)).all()


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize(
    ("m", "k", "n"), [(64, 300, 512), (900, 200, 40), (129, 131, 137), (300, 4, 500)]
)
def test_threads_do_not_change_a_bit(m: int, k: int, n: int) -> None:
    given = numbers(m, k), numbers(k, n, seed=1), numbers(n, seed=2)
    shared = run(bias_relu, *given)[0]
    assert np.allclose(
        shared, np.maximum(given[0].astype("f8") @ given[1] + given[2], 0), 1e-5, 1e-4
    )
    mortice.set_num_threads(1)
    assert np.array_equal(run(bias_relu, *given)[0], shared)


@pytest.mark.usefixtures("two_threads")
def test_batches_are_shared_out() -> None:
    def body(c: Any, x: Any, y: Any) -> Any:
        return c("exp", c("bmm", x, y))

    a, b = numbers(16, 64, 40) / 9, numbers(16, 40, 96, seed=1)
    assert np.allclose(run(body, a, b)[0], np.exp(a.astype("f8") @ b), rtol=1e-5)


def test_sizes_that_change_share_code_and_stay_right() -> None:
    @mortice.compile(dynamic=True)
    def f(x: Any, w: Any, b: Any) -> Any:
        return mortice.ops.aten.gelu(mortice.matmul(x, w) + b)

    for m, k, n in ((8, 16, 32), (9, 300, 200), (1, 5, 17), (64, 64, 16)):
        x, w, b = numbers(m, k), numbers(k, n, seed=1), numbers(n, seed=2)
        found = f(*tensors((x, w, b))).numpy()
        assert np.allclose(found, _gelu(x.astype("f8") @ w + b), rtol=1e-4, atol=1e-4)


def test_dropout_in_an_epilogue_draws_as_eager_does() -> None:
    def body(c: Any, x: Any, y: Any) -> Any:
        p = c("mm", x, y)
        return c("mul.Tensor", p, c("lt.Scalar", c("rand_like", p), 0.5))

    given = numbers(20, 30), numbers(30, 210, seed=1)
    assert kinds(built(body, *given)[0]) == "F"
    mortice.manual_seed(3)
    found = run(body, *given)[0]
    mortice.manual_seed(3)
    assert np.allclose(found, eager(body, *given)[0], rtol=1e-5, atol=1e-5)


def test_the_log_says_what_is_no_part_and_why() -> None:
    a, b = numbers(8, 8), numbers(8, 32)
    lines = built(lambda c, x, y: c("_softmax", c("mm", x, y), 1, False), a, b)[1]
    assert any("is no part of mm: it reduces" in line for line in lines), lines


ELEMENTWISE = ("relu", "tanh", "sigmoid", "neg", "abs", "gelu")


def _random_graph(seed: int, dtype: str) -> tuple[Any, list[Array]]:
    """Two products in a graph of elementwise operators, views, reductions and several results."""
    random = np.random.default_rng(seed)
    m, k, n = (int(random.integers(1, 70)) for _ in range(3))
    n = int(random.choice([n, 200, 193]))
    shapes = [(m, k), (k, n), (n, n), (n,), (m, 1), (m, n), (1, n), ()]
    arrays = [numbers(*s, dtype=dtype, seed=seed + j) for j, s in enumerate(shapes)]
    plan = [(int(random.integers(0, 8)), random.integers(0, 1 << 30, 3)) for _ in range(9)]

    def body(c: Any, x: Any, y: Any, z: Any, *others: Any) -> Any:
        made = [c("mul.Tensor", c("mm", x, y), 0.2)]
        for kind, draw in plan:
            a, b = (made[d % len(made)] for d in draw[:2])
            if kind == 0:
                a = c("mul.Tensor", c("mm", a, z), 0.1)
            elif kind == 1:
                a = c("add.Tensor", a, b)
            elif kind in (2, 3):
                a = c("mul.Tensor", a, others[draw[2] % len(others)])
            elif kind == 4:
                a = c("sub.Tensor", a, c("mean.dim", b, [int(draw[2] % 2)], True))
            elif kind == 5:
                a = c("t", c("clone", c("t", a)))
            else:
                a = c(ELEMENTWISE[draw[2] % len(ELEMENTWISE)], a)
            made.append(a)
        return made[-1], made[-3], c("sum.dim_IntList", made[-2], [0])

    return body, arrays


@pytest.mark.parametrize(("dtype", "tol"), [("f4", 1e-4), ("f8", 1e-10)])
@pytest.mark.parametrize("seed", range(30))
def test_random_graphs(seed: int, dtype: str, tol: float) -> None:
    body, arrays = _random_graph(100 * seed, dtype)
    for found, expected in zip(run(body, *arrays), eager(body, *arrays), strict=True):
        assert np.abs(found - expected).max() <= tol * (np.abs(expected).max() + 1)
