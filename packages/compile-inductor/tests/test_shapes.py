"""Views, joining, padding, lookups, products and random numbers compared with eager."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from inductor_graphs import assert_same, check, graph

import mortice
import mortice.nn.functional
from mortice.errors import DimensionError
from mortice_inductor import compile_fx


def rand(*shape: int, dtype: str = "float32", seed: int = 0) -> Any:
    mortice.manual_seed(seed)
    return mortice.randn(*shape, dtype=mortice.float64).to(getattr(mortice, dtype))


def kernels(compiled: Any) -> int:
    return sum(len(s[2]) for s in compiled.plan.steps if s[0] == "native")


def calls(compiled: Any) -> int:
    return sum(s[0] != "native" for s in compiled.plan.steps)


VIEWS: dict[str, Any] = {
    "view": lambda c, a: c("reshape", a, [8, 15]),
    "view across": lambda c, a: c("reshape", a, [2, 3, 20]),
    "view of permuted": lambda c, a: c("reshape", c("permute", a, [2, 0, 1]), [10, 12]),
    "permute": lambda c, a: c("permute", a, [2, 0, 1]),
    "transpose": lambda c, a: c("transpose.int", a, 0, -1),
    "slice": lambda c, a: c("slice.Tensor", a, 1, 1, -1, 2),
    "select": lambda c, a: c("select.int", a, 2, -2),
    "squeeze": lambda c, a: c("squeeze", c("unsqueeze", a, 1)),
    "flip": lambda c, a: c("flip", a, [0, 2]),
    "expand": lambda c, a: c("expand", c("unsqueeze", a, 0), [3, -1, -1, -1]),
    "diagonal": lambda c, a: c("diagonal", a, 1, 1, 2),
    "unfold": lambda c, a: c("unfold", a, 2, 3, 2),
    "repeat": lambda c, a: c("repeat", a, [2, 1, 2]),
    "roll": lambda c, a: c("roll", a, [2, -1], [0, 2]),
    "tril": lambda c, a: c("tril", a, 1),
    "triu": lambda c, a: c("triu", a, -1),
    "pad": lambda c, a: c("constant_pad_nd", a, [1, 2, 0, 3], 0.5),
    "crop": lambda c, a: c("constant_pad_nd", a, [-1, 2, 1, -1], -1.0),
    "cat": lambda c, a: c("cat", [a, c("exp", a), a], 1),
    "cat rows": lambda c, a: c("cat", [c("neg", a), a], 0),
    "cat of five": lambda c, a: c("cat", [a] * 5, 2),
    "stack": lambda c, a: c("stack", [a, c("exp", a)], 1),
    "slice_scatter": lambda c, a: c("slice_scatter", a, c("slice.Tensor", a, 1, 0, 2), 1, 2, 4),
    "select_scatter": lambda c, a: c("select_scatter", a, c("select.int", a, 0, 1), 0, 3),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_between_elementwise_operators(name: str) -> None:
    x = rand(6, 4, 5)

    def body(c: Any, a: Any) -> Any:
        return c("mul.Scalar", VIEWS[name](c, c("sin", a)), 3.0)

    check(body, x)
    check(body, rand(5, 4, 6).permute(2, 1, 0))
    check(lambda c, a: VIEWS[name](c, a), x)


def test_factories() -> None:
    x = rand(3, 4)
    check(
        lambda c, a: (
            c("full", [2, 3], 1.5), c("zeros_like", a), c("ones_like", a), c("full_like", a, 7),
            c("add.Tensor", a, c("full", [4], 2.0)), c("eye", 3),
            c("mul.Tensor", c("arange.start", 2, 6), c("arange", 4)),
        ),
        x,
    )  # fmt: skip


# -- lookups -------------------------------------------------------------------------------------


def test_embedding_and_gather_fuse_with_what_follows() -> None:
    table, at = rand(10, 33), mortice.tensor([[1, 9, 0], [3, 3, 2]])
    compiled = check(lambda c, w, i: c("mul.Scalar", c("embedding", w, i), 2.0), table, at)
    assert calls(compiled) == 0
    x, rows = rand(5, 6), mortice.tensor([[0, 1, 5], [2, 2, 2]])
    check(lambda c, a, i: c("exp", c("gather", a, 1, i)), x, rows)
    check(lambda c, a, i: c("index_select", a, 1, i), x, mortice.tensor([5, 0, 0, 1]))


LOOKUPS: dict[str, Any] = {
    "index": lambda y, i: y[i],
    "embedding": lambda y, i: mortice.nn.functional.embedding(i, y),
    "index_select": lambda y, i: y.index_select(0, i),
}
REDUCED: dict[str, Any] = {
    "sum": lambda y, found: (found.exp()[:, None] * y).sum(1),
    "mean": lambda y, found: (found.exp()[:, None] * y).mean(1),
    "softmax": lambda y, found: (found.tanh()[:, None] + y).softmax(1),
}


@pytest.mark.parametrize("lookup", LOOKUPS)
@pytest.mark.parametrize("reduced", REDUCED)
def test_rows_looked_up_and_dear_are_laid_down(lookup: str, reduced: str) -> None:
    def fn(y: Any, i: Any) -> Any:
        return REDUCED[reduced](y, LOOKUPS[lookup](y, i))

    at = mortice.tensor([0, 3, 3])
    y = rand(4, 9).requires_grad_()
    expected = fn(y, at)
    expected.square().sum().backward()
    slope, y.grad = y.grad, None
    found = mortice.compile(fn, backend="inductor")(y, at)
    found.square().sum().backward()
    assert_same(found.detach(), expected.detach())
    assert_same(y.grad, slope, rtol=4)


@pytest.mark.parametrize("reduced", ["sum", "mean", "softmax"])
def test_rows_read_out_of_order_are_laid_down(reduced: str) -> None:
    def fn(y: Any, z: Any) -> Any:
        found = z.roll(1)[:4] + y.mean(1)
        return REDUCED[reduced](y, found), found

    y, z = rand(4, 9), rand(6)
    for f, e in zip(mortice.compile(fn, backend="inductor")(y, z), fn(y, z), strict=True):
        assert_same(f, e)


@pytest.mark.parametrize("at", [
    [(0, [1, -1, 2])], [(1, [0, 1]), (2, [3, -4])], [(0, [[0], [1]]), (2, [1, 2, 3])],
])  # fmt: skip
def test_index(at: Any) -> None:
    x = rand(4, 3, 5)
    tensors = [mortice.tensor(i) for _, i in at]

    def body(c: Any, a: Any, *given: Any) -> Any:
        indices: list[Any] = [None] * 3
        for (d, _), i in zip(at, given, strict=True):
            indices[d] = i
        return c("add.Scalar", c("index.Tensor", a, indices), 1.0)

    check(body, x, *tensors)


def test_an_index_out_of_range_raises_as_in_eager() -> None:
    table, at = rand(10, 4), mortice.tensor([1, 2])
    compiled = compile_fx(graph(lambda c, w, i: c("embedding", w, i), 2), [table, at])
    for bad in (10, -1):
        with pytest.raises(DimensionError, match="index out of range in self: index"):
            compiled(table, mortice.tensor([0, bad]))
    assert mortice.equal(compiled(table, at)[0], table[at])


def test_scatters_with_duplicates_are_the_dispatchers() -> None:
    x, i, s = mortice.zeros(5, 3), mortice.tensor([[0, 0, 1], [0, 2, 1]]), rand(2, 3)
    check(lambda c, a, i, s: c("mul.Scalar", c("scatter_add", a, 0, i, s), 2.0), x, i, s)
    check(lambda c, a, i, s: c("index_put", a, [i], s, True), x[:, 0].clone(), i, s)


# -- products ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_products(dtype: str) -> None:
    a, b, bias = rand(7, 9, dtype=dtype), rand(9, 11, dtype=dtype), rand(11, dtype=dtype)
    check(lambda c, x, y: c("mm", x, y), a, b, rtol=3.0)
    check(lambda c, x, y, z: c("relu", c("addmm", z, x, y)), a, b, bias, rtol=3.0)
    check(lambda c, x, y, z: c("addmm", z, x, y, beta=0.5, alpha=2), a, b, bias, rtol=3.0)
    check(lambda c, x, y, z: c("gelu", c("linear", x, y, z)), a, b.t().contiguous(), bias, rtol=3.0)


def test_transposed_operands_are_passed_as_such() -> None:
    a, b = rand(9, 7), rand(11, 9)
    compiled = check(lambda c, x, y: c("mm", c("t", x), c("permute", y, [1, 0])), a, b)
    assert kernels(compiled) == 1
    compiled = check(lambda c, x, y: c("mm", x, y), a.t(), b.t())
    assert kernels(compiled) == 1
    check(lambda c, x, y: c("mm", x, y), rand(20, 30)[::2, ::3], rand(10, 4))
    check(lambda c, x, y: c("mm", c("exp", x), c("t", c("sin", y))), a.t(), b)


def test_vectors() -> None:
    a, v = rand(7, 9), rand(9)
    check(lambda c, x, y: (c("mv", x, y), c("dot", y, y), c("mm", x, c("unsqueeze", y, 1))), a, v)
    check(lambda c, x, y: c("mm", c("unsqueeze", y, 0), c("t", x)), a, v)


def test_attention_as_products_and_softmax() -> None:
    q = rand(2, 5, 12)

    def body(c: Any, x: Any) -> Any:
        heads = [c("permute", c("view", c("mul.Scalar", x, s), [2, 5, 3, 4]), [0, 2, 1, 3])
                 for s in (1.0, 0.5, 2.0)]  # fmt: skip
        q, k, v = (c("reshape", h, [6, 5, 4]) for h in heads)
        scores = c("bmm", q, c("transpose.int", k, 1, 2))
        out = c("bmm", c("_softmax", scores, -1, False), v)
        back = c("permute", c("view", out, [2, 3, 5, 4]), [0, 2, 1, 3])
        return c("reshape", back, [2, 5, 12])

    check(body, q)


# -- random numbers ------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_random_numbers_are_those_of_eager(dtype: str) -> None:
    kind = getattr(mortice, dtype)
    gm = graph(lambda c, a: (c("rand", [5, 7], dtype=kind), c("rand_like", a, dtype=kind)), 1)
    x = rand(3, 11)
    compiled = compile_fx(gm, [x])
    mortice.manual_seed(5)
    found = [compiled(x) for _ in range(2)]
    mortice.manual_seed(5)
    for got in found:
        for f, e in zip(got, gm(x), strict=True):
            assert mortice.equal(f, e)


def test_dropout_and_a_generator_of_its_own() -> None:
    import operator

    x = rand(50)

    def body(c: Any, a: Any, g: Any) -> Any:
        d = c("native_dropout", a, 0.3, True)
        parts = [d.graph.call_function(operator.getitem, (d, k)) for k in range(2)]
        return (*parts, c("rand.generator", [9], generator=g))

    gm = graph(body, 2)
    mine = mortice.Generator().manual_seed(11)
    compiled = compile_fx(gm, [x, mine])
    mortice.manual_seed(3)
    mine.manual_seed(11)
    found = compiled(x, mine)
    mortice.manual_seed(3)
    for f, e in zip(found, gm(x, mortice.Generator().manual_seed(11)), strict=True):
        assert_same(f, e)


def test_order_of_draws_where_some_are_the_dispatchers() -> None:
    gm = graph(lambda c, a: (c("rand_like", a), c("randn_like", a), c("rand_like", a)), 1)
    x = rand(20)
    compiled = compile_fx(gm, [x])
    mortice.manual_seed(3)
    found = compiled(x)
    mortice.manual_seed(3)
    for f, e in zip(found, gm(x), strict=True):
        assert_same(f, e)


@pytest.fixture
def two_threads() -> Iterator[Any]:
    """BLAS and our pool with two threads; gives the function that reads BLAS's number."""
    import ctypes

    import mortice_llvm
    from mortice_llvm import blas

    found = blas.thread_functions()
    if found is None:
        pytest.skip("numpy's BLAS has no functions for its threads")
    read = ctypes.CFUNCTYPE(ctypes.c_int)(found[0])
    before, pool = read(), mortice_llvm.get_num_threads()
    blas.set_num_threads(2)
    mortice_llvm.set_num_threads(2)
    yield read
    blas.set_num_threads(before)
    mortice_llvm.set_num_threads(pool)


@pytest.mark.parametrize("shape", [(300, 70, 100), (70, 300, 100), (129, 129, 64), (1000, 1, 1100)])
@pytest.mark.parametrize("turned", [(False, False), (False, True), (True, False), (True, True)])
def test_large_products_are_shared_out(
    shape: tuple[int, int, int], turned: tuple[bool, bool], two_threads: Any
) -> None:
    m, n, k = shape
    a, b = rand(m, k) / k**0.5, rand(k, n, seed=1)
    x, y = (v.t().contiguous() if t else v for v, t in zip((a, b), turned, strict=True))

    def body(c: Any, p: Any, q: Any) -> Any:
        return c("mm", c("t", p) if turned[0] else p, c("t", q) if turned[1] else q)

    (out,) = compile_fx(graph(body, 2), [x, y])(x, y)
    assert_same(out, (a.double() @ b.double()).float(), rtol=5.0)
    assert two_threads() == 2


def test_large_batches_are_shared_out(two_threads: Any) -> None:
    a, b = rand(7, 64, 50) / 7, rand(7, 50, 64, seed=1)
    (out,) = compile_fx(graph(lambda c, p, q: c("bmm", p, q), 2), [a, b])(a, b)
    assert_same(out, (a.double() @ b.double()).float(), rtol=5.0)
    assert two_threads() == 2


def test_a_lookup_in_what_the_check_of_its_index_could_take_in() -> None:
    """A large check is made in two steps, and joins the loops that compute the index."""

    def f(x: Any) -> Any:
        y = (mortice.bmm(x, x.transpose(1, 2)) * 0.1).tanh()
        return y.gather(2, mortice.zeros(y.shape, dtype=mortice.int64) + y.shape[2] // 2)

    x = rand(20, 63, 2, dtype="bfloat16")
    assert_same(mortice.compile(f)(x), f(x), rtol=100)


LIKE: dict[str, Any] = {
    "randn_like": lambda x: mortice.randn_like(x * 2),
    "rand_like": lambda x: mortice.rand_like(x + 1),
    "dropout": lambda x: mortice.nn.functional.dropout(x, 0.5),
}


@pytest.mark.parametrize("first", LIKE)
@pytest.mark.parametrize("second", LIKE)
@pytest.mark.parametrize("kept", [slice(None), slice(1, None)], ids=["both", "the second"])
def test_draws_follow_each_other(first: str, second: str, kept: slice) -> None:
    """Those of kernels and those of the dispatcher, read by somebody or not."""

    def f(x: Any) -> Any:
        return mortice.cat([LIKE[first](x), LIKE[second](x)][kept])

    compiled, x = mortice.compile(f), rand(40)
    for seed in (1, 2):
        drawn = []
        for run in (compiled, f):
            mortice.manual_seed(seed)
            drawn.append(mortice.cat([run(x), mortice.rand(3)]))
        assert_same(*drawn, rtol=10)


def test_what_has_no_loops_in_common_gets_kernels_of_its_own() -> None:
    def f(x: Any) -> Any:
        x.sigmoid_()
        places = mortice.zeros(x.shape, dtype=mortice.int64) + x.shape[1] // 3
        return (x @ x.t() * 0.1).tanh(), mortice.scatter(x, 1, places, 0.5), x

    given = [rand(4, 127, dtype="float16").t() for _ in range(2)]
    for found, wanted in zip(mortice.compile(f)(given[0]), f(given[1]), strict=True):
        assert_same(found, wanted, rtol=10)
