"""Reductions, softmax and normalisations: fused kernels compared with eager."""

from __future__ import annotations

from typing import Any

import pytest
from inductor_graphs import check

import mortice
import mortice.nn.functional as F

FLOATS = ("float32", "float64", "float16", "bfloat16")


def rand(*shape: int, dtype: str = "float32", seed: int = 0) -> Any:
    mortice.manual_seed(seed)
    return mortice.randn(*shape, dtype=mortice.float64).to(getattr(mortice, dtype))


def kernels(compiled: Any) -> int:
    return sum(len(s[2]) for s in compiled.plan.steps if s[0] == "native")


DIMS = [(0,), (1,), (2,), (0, 1), (1, 2), (0, 2), (0, 1, 2)]


@pytest.mark.parametrize("dims", DIMS)
@pytest.mark.parametrize("keepdim", [False, True])
def test_sum_and_mean_over_any_dimensions(dims: tuple[int, ...], keepdim: bool) -> None:
    x = rand(5, 6, 70)
    check(
        lambda c, a: (
            c("sum.dim_IntList", a, list(dims), keepdim),
            c("mean.dim", a, list(dims), keepdim),
            c("amax", a, list(dims), keepdim),
            c("amin", c("mul.Scalar", a, 2.0), list(dims), keepdim),
        ),
        x,
    )


@pytest.mark.parametrize("dtype", [*FLOATS, "int64", "int32", "uint8", "bool"])
def test_reductions_of_dtypes(dtype: str) -> None:
    x = (
        rand(6, 40, dtype="float32") > 0
        if dtype == "bool"
        else (rand(6, 40) * 3).abs().to(getattr(mortice, dtype))
    )
    check(lambda c, a: (c("sum", a), c("sum.dim_IntList", a, [0]), c("max", a), c("min", a)), x)
    if dtype != "uint8":
        check(lambda c, a: (c("any.dim", a, 1), c("all", a)), x)
    if dtype in ("float32", "float64", "int64"):
        check(lambda c, a: c("prod.dim_int", a, 0), x)


@pytest.mark.parametrize("dim", [0, 1, 2, None])
def test_positions(dim: int | None) -> None:
    x = rand(4, 5, 33)
    x[1, 2, 3] = float("nan")
    y = (rand(4, 5, 33, seed=3) * 2).long()
    for v in (x, y):
        check(lambda c, a: (c("argmax", a, dim), c("argmin", a, dim)), v)


def test_values_with_positions() -> None:
    import operator

    x = rand(4, 50)

    def body(c: Any, a: Any) -> Any:
        m = c("max.dim", a, 1, False)
        g = m.graph
        return tuple(g.call_function(operator.getitem, (m, k)) for k in range(2))

    check(body, x)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("dims", [[1], [0], None, [0, 2]])
def test_variance(dtype: str, dims: Any) -> None:
    x = rand(8, 9, 20, dtype=dtype)
    for correction in (0, 1):
        check(
            lambda c, a: (
                c("var.correction", a, dims, correction=correction),  # noqa: B023
                c("std.correction", a, dims, correction=correction, keepdim=True),  # noqa: B023
            ),
            x,
        )


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("dim", [-1, 0, 1])
def test_softmax_is_one_kernel(dtype: str, dim: int) -> None:
    x = rand(7, 9, 65, dtype=dtype)
    compiled = check(lambda c, a: c("_softmax", a, dim, False), x)
    assert kernels(compiled) == 1
    compiled = check(lambda c, a: c("_log_softmax", a, dim, False), x)
    assert kernels(compiled) == 1


def test_softmax_of_special_rows() -> None:
    inf = float("inf")
    x = mortice.tensor([[-inf, -inf], [inf, 0.0], [float("nan"), 1.0], [1e4, -1e4]])
    check(lambda c, a: (c("_softmax", a, -1, False), c("_log_softmax", a, -1, False),
                        c("logsumexp", a, [1])), x)  # fmt: skip


@pytest.mark.parametrize("dim", [-1, 0])
def test_softmax_backward(dim: int) -> None:
    x, g = mortice.softmax(rand(20, 30), dim), rand(20, 30, seed=1)
    f32 = mortice.float32
    compiled = check(lambda c, a, b: c("_softmax_backward_data", b, a, dim, f32), x, g)
    assert kernels(compiled) == 1
    compiled = check(lambda c, a, b: c("_log_softmax_backward_data", b, a, dim, f32), x.log(), g)
    assert kernels(compiled) == 1


def first(c: Any, node: Any, k: int = 0) -> Any:
    import operator

    return node.graph.call_function(operator.getitem, (node, k))


@pytest.mark.parametrize("dtype", FLOATS)
def test_layer_norm_with_gelu_is_one_kernel(dtype: str) -> None:
    x, w, b = rand(12, 100, dtype=dtype), rand(100, dtype=dtype), rand(100, dtype=dtype)

    def body(c: Any, a: Any, w: Any, b: Any) -> Any:
        n = c("native_layer_norm", a, [100], w, b, 1e-5)
        return c("gelu", first(c, n)), first(c, n, 1), first(c, n, 2)

    compiled = check(body, x, w, b, rtol=2.0 if dtype in ("float16", "bfloat16") else 1.0)
    assert kernels(compiled) == 1


def test_layer_norm_backward() -> None:
    x, w, g = rand(12, 100), rand(100, seed=1), rand(12, 100, seed=2)
    out, mean, rstd = mortice.ops.aten.native_layer_norm(x, [100], w, w, 1e-5)
    del out

    def body(c: Any, g: Any, x: Any, m: Any, r: Any, w: Any) -> Any:
        n = c("native_layer_norm_backward", g, x, [100], m, r, w, w, [True, True, True])
        return tuple(first(c, n, k) for k in range(3))

    compiled = check(body, g, x, mean, rstd, w, rtol=5.0)
    assert kernels(compiled) <= 3


def test_group_norm_and_its_gradient() -> None:
    x, w, b, g = rand(2, 6, 5, 7), rand(6), rand(6, seed=1), rand(2, 6, 5, 7, seed=2)
    _, mean, rstd = mortice.ops.aten.native_group_norm(x, w, b, 2, 6, 35, 3, 1e-5)

    def forward(c: Any, x: Any, w: Any, b: Any) -> Any:
        n = c("native_group_norm", x, w, b, 2, 6, 35, 3, 1e-5)
        return tuple(first(c, n, k) for k in range(3))

    def backward(c: Any, g: Any, x: Any, m: Any, r: Any, w: Any) -> Any:
        n = c("native_group_norm_backward", g, x, m, r, w, 2, 6, 35, 3, [True, True, True])
        return tuple(first(c, n, k) for k in range(3))

    check(forward, x, w, b, rtol=2.0)
    check(backward, g, x, mean, rstd, w, rtol=5.0)


@pytest.mark.parametrize("shape", [(6, 5), (4, 5, 7), (3, 5, 4, 8)])
def test_batch_norm_and_its_gradient(shape: tuple[int, ...]) -> None:
    x, w, b, g = rand(*shape), rand(5), rand(5, seed=1), rand(*shape, seed=2)
    aten = mortice.ops.aten
    _, mean, rstd = aten._native_batch_norm_legit.no_stats(x, w, b, True, 0.1, 1e-5)

    def forward(c: Any, x: Any, w: Any, b: Any) -> Any:
        n = c("_native_batch_norm_legit.no_stats", x, w, b, True, 0.1, 1e-5)
        return tuple(first(c, n, k) for k in range(3))

    def evaluate(c: Any, x: Any, w: Any, b: Any) -> Any:
        v = c("mul.Tensor", b, b)
        n = c("_native_batch_norm_legit_no_training", x, w, b, b, v, 0.1, 1e-5)
        return first(c, n)

    def backward(c: Any, g: Any, x: Any, m: Any, r: Any, w: Any) -> Any:
        n = c("native_batch_norm_backward", g, x, w, None, None, m, r, True, 1e-5, [True] * 3)
        return tuple(first(c, n, k) for k in range(3))

    check(forward, x, w, b, rtol=2.0)
    check(evaluate, x, w, b, rtol=2.0)
    check(backward, g, x, mean, rstd, w, rtol=5.0)


def test_reduction_of_views_and_of_strided_inputs() -> None:
    x = rand(30, 40)
    check(lambda c, a: c("sum.dim_IntList", c("permute", a, [1, 0]), [1]), x)
    check(lambda c, a: c("sum.dim_IntList", c("mul.Scalar", a, 2.0), [0]), x.t())
    check(lambda c, a: c("amax", c("view", c("exp", a), [3, 10, 40]), [1]), x)
    check(lambda c, a: c("sum.dim_IntList", c("expand", c("unsqueeze", a, 1), [30, 7, 40]), [0]), x)


def test_over_three_loops_falls_back_to_memory() -> None:
    x = rand(2, 3, 4, 5, 6, 7)
    check(lambda c, a: c("sum.dim_IntList", a, [0, 2, 4]), x)
    check(lambda c, a: c("amax", c("exp", a), [1, 3, 5]), x)


def test_reduction_of_nothing_is_the_neutral_element() -> None:
    check(lambda c, a: (c("sum.dim_IntList", a, [1]), c("prod.dim_int", a, 1)), mortice.empty(3, 0))


def test_large_reductions() -> None:
    x = rand(200_003)
    check(lambda c, a: (c("sum", a), c("max", a), c("mean", a)), x, rtol=5.0)
    y = rand(3000, 17)
    check(lambda c, a: (c("sum.dim_IntList", a, [0]), c("var.correction", a, [0])), y, rtol=10.0)


def test_producer_and_consumer_share_the_kernel() -> None:
    x, y = rand(16, 64), rand(64, seed=1).abs()

    def body(c: Any, a: Any, b: Any) -> Any:
        p = c("mul.Tensor", c("exp", a), b)
        s = c("sum.dim_IntList", p, [1], True)
        return c("div.Tensor", p, s), c("sqrt", s)

    compiled = check(body, x, y)
    assert kernels(compiled) == 1


def test_through_reshapes() -> None:
    x = rand(4, 8, 32)

    def body(c: Any, a: Any) -> Any:
        flat = c("view", c("tanh", a), [32, 32])
        soft = c("_softmax", flat, -1, False)
        return c("mul.Scalar", c("view", soft, [4, 8, 4, 8]), 3.0)

    compiled = check(body, x)
    assert kernels(compiled) == 1


@pytest.mark.parametrize("reduction", [0, 1, 2])
@pytest.mark.parametrize("weighted", [False, True])
def test_negative_log_likelihood(reduction: int, weighted: bool) -> None:
    x = mortice.log_softmax(rand(9, 5), -1)
    x[4, 2] = float("-inf")
    target = mortice.tensor([0, 4, 1, 3, 2, 2, 0, 1, 4])
    w = rand(5).abs() if weighted else None

    def forward(c: Any, a: Any, t: Any, *rest: Any) -> Any:
        n = c("nll_loss_forward", a, t, rest[0] if rest else None, reduction, 2)
        return first(c, n), first(c, n, 1)

    given = (x, target, w) if weighted else (x, target)
    compiled = check(forward, *given)
    assert kernels(compiled) >= 1
    out, total = mortice.ops.aten.nll_loss_forward(x, target, w, reduction, 2)

    def backward(c: Any, g: Any, a: Any, t: Any, s: Any, *rest: Any) -> Any:
        return c("nll_loss_backward", g, a, t, rest[0] if rest else None, reduction, 2, s)

    check(backward, mortice.ones_like(out), x, target, total, *given[2:])


def test_a_target_out_of_bounds_raises() -> None:
    from inductor_graphs import graph

    from mortice_inductor import compile_fx

    gm = graph(lambda c, a, t: first(c, c("nll_loss_forward", a, t, None, 1, -100)), 2)
    x = rand(3, 4)
    compiled = compile_fx(gm, [x, mortice.tensor([0, 1, 2])])
    compiled(x, mortice.tensor([0, -100, 3]))
    for bad in (4, -1):
        with pytest.raises(mortice.errors.DimensionError, match="there are 4 classes"):
            compiled(x, mortice.tensor([0, 1, bad]))


def test_of_a_single_number_and_over_dimensions_of_size_one() -> None:
    one, row = mortice.tensor(2.5), rand(3, 1, 4)
    check(lambda c, a: (c("sum", a), c("amax", a), c("argmax", a), c("_softmax", a, 0, False)), one)
    check(lambda c, a: (first(c, c("max.dim", a, 0)), c("logsumexp", a, [0])), one)
    check(
        lambda c, a: (c("argmax", a, 1), c("argmin", a, 1, True), c("sum.dim_IntList", a, [1])), row
    )


def test_dtypes_that_kernels_lack_are_the_dispatchers() -> None:
    z = mortice.view_as_complex(rand(4, 3, 2))
    check(lambda c, a: c("abs", c("roll", c("mul.Tensor", a, a), [1], [0])), z)


def test_outputs_that_hold_what_passes_keep_are_read_before_they_are_written() -> None:
    x = rand(5, 3, 6)

    def body(c: Any, a: Any) -> Any:
        t = c("tanh", c("tanh", a))
        s = c("_softmax", t, 0, False)
        m = c("maximum", s, t)
        return s, m, c("sin", m)

    compiled = check(body, x)
    assert kernels(compiled) == 1


@pytest.mark.parametrize("shape", [(0, 6, 3), (2, 6, 0), (3, 0, 4)])
def test_empty_arrays(shape: tuple[int, ...]) -> None:
    x = mortice.empty(*shape)
    check(lambda c, a: (c("_softmax", a, 0, False), c("_log_softmax", a, -1, False)), x)
    check(lambda c, a: (c("sum.dim_IntList", c("exp", a), [0, 1]), c("mean.dim", a, [1])), x)
    if not shape[0]:
        check(lambda c, a: first(c, c("native_group_norm", a, None, None, shape[0], 6, shape[2], 2,
                                      1e-5)), x)  # fmt: skip


TURNED = {
    "transposed": lambda: rand(5, 4, 4, 6).transpose(-1, -2),
    "permuted": lambda: rand(4, 5, 6, 8).permute(3, 1, 0, 2),
    "of channels last": lambda: rand(5, 4, 6, 8).contiguous(memory_format=mortice.channels_last),
    "with gaps": lambda: rand(5, 8, 6, 8)[:, ::2, 1:5, ::2],
}
NORMALISED = {
    "three dimensions": lambda x: F.layer_norm(x, x.shape[1:]),
    "all": lambda x: F.layer_norm(x, x.shape),
    "variance": lambda x: x.var((1, 2, 3)),
    "a softmax": lambda x: F.softmax(x.flatten(1), 1),
    "a position": lambda x: x.flatten(1).argmax(1),
}


@pytest.mark.parametrize("layout", TURNED)
@pytest.mark.parametrize("name", NORMALISED)
def test_reductions_that_run_across_memory_beside_what_is_stored(name: str, layout: str) -> None:
    """What is reduced is laid down first; what is stored runs over the dimensions as they are."""
    f, x = NORMALISED[name], TURNED[layout]().requires_grad_()
    found, wanted = mortice.compile(f)(x), f(x)
    assert mortice.allclose(found, wanted, 1e-4, 1e-5)
    if wanted.requires_grad:
        grads = [mortice.autograd.grad((y * y.sin()).sum(), [x])[0] for y in (found, wanted)]
        assert mortice.allclose(*grads, 1e-4, 1e-5)
