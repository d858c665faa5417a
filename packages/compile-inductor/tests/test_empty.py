"""Graphs over tensors without elements, compared with eager: values, or the same error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from inductor_graphs import assert_same, graph

import mortice
from mortice.nn import functional as F
from mortice_inductor import compile_fx, config

SHAPES = [(0, 3), (3, 0), (0, 0), (2, 0, 4)]


def none(*shape: int) -> Any:
    """Indices into nothing, or of nothing."""
    return mortice.zeros(*shape, dtype=mortice.int64)


#: Of any shape. An elementwise result beside a reduction is what shares a kernel elsewhere.
ANY: dict[str, Callable[[Any], Any]] = {
    "sum": lambda x: (x.sum(), x * 2),
    "mean": lambda x: (x.mean(), x * 2, x.mean() + x),
    "prod": lambda x: (x.prod(), x.exp(), x.all(), x.any(), (x > 0).sum()),
    "sum of rows": lambda x: (x.sum(0), x * 2, x.sum(0) + 1),
    "sum of columns": lambda x: (x.sum(-1), x * 2, x.sum(-1, keepdim=True) + x),
    "dear and shared": lambda x: ((x.exp() * 2).sum(), x.exp() * 2, x.exp().sum(1)),
    "softmax": lambda x: (x.softmax(-1), x.softmax(0), x.sum()),
    "variance": lambda x: (x - x.mean(-1, keepdim=True), x.var(0), x.std()),
    "norm": lambda x: (x.norm(), x * 2),
    "amax": lambda x: x.amax(),
    "amax of rows": lambda x: (x.amax(0), x + 1),
    "argmax": lambda x: (x + 1, x.argmax(1)),
    "max": lambda x: (x * 2, x.max()),
    "cat": lambda x: (mortice.cat([x, x]), mortice.cat([x, x + 1], 1).sum(0)),
    "cat with elements": lambda x: mortice.cat([x, mortice.ones(2, *x.shape[1:])]).sin().sum(),
    "stack": lambda x: (mortice.stack([x, x]), mortice.stack([x, x]).sum((0, 1))),
    "pad": lambda x: (F.pad(x, (1, 1, 1, 1), value=3.0), x.sum()),
    "gather": lambda x: (x.gather(0, none(0, *x.shape[1:])), x.sum()),
    "index": lambda x: (x[none(0)], x.mean()),
    "slice": lambda x: (x[:0] * 2, x[:0].sum(), x.relu()),
    "views": lambda x: (x.reshape(-1) * 2, x.transpose(0, 1) + 1, x.reshape(-1).sum()),
    "expand": lambda x: (x + mortice.ones(x.shape[-1]), x.unsqueeze(0) + mortice.ones(4, 1, 1, 1)),
    "where": lambda x: (mortice.where(x > 0, x, 0.0), x.sum()),
    "to int": lambda x: (x.to(mortice.int64).sum(), x.to(mortice.int64) + 1),
    "random": lambda x: (mortice.rand_like(x) * 2 + x, x.sum(), mortice.rand(3)),
    "dispatched": lambda x: (x.cumsum(0) * 2, x.sort(0)[0] + 1, x.sum()),
    "in place": lambda x: (x.add_(1.0), x.sum()),
    "shifted in place": lambda x: (x[1:].copy_(x[:-1]), x.sum()),
}  # fmt: skip

#: Of two dimensions.
MATRIX: dict[str, Callable[[Any], Any]] = {
    "mm": lambda x: (x @ x.t(), x.t() @ x, (x.t() @ x).sum(), x * 3),
    "mm and what follows": lambda x: ((x.t() @ x).relu() + 1, x.sum()),
    "addmm": lambda x: mortice.addmm(mortice.ones(x.shape[1], x.shape[1]), x.t(), x),
    "addmm of a row": lambda x: mortice.addmm(mortice.ones(x.shape[1]), x, x.t() @ x),
    "baddbmm": lambda x: mortice.baddbmm(
        mortice.ones(2, x.shape[1], x.shape[1]), mortice.stack([x.t(), x.t()]),
        mortice.stack([x, x]), beta=2,
    ),
    "mv": lambda x: mortice.addmv(mortice.ones(x.shape[1]), x.t(), x.sum(1)),
    "dot": lambda x: mortice.dot(x.flatten(), x.flatten()) + 1,
    "layer_norm": lambda x: F.layer_norm(x, (x.shape[1],)) if x.shape[1] else x,
}  # fmt: skip

CASES = [
    *((ANY[n], s, n) for n in ANY for s in SHAPES),
    *((MATRIX[n], s, n) for n in MATRIX for s in SHAPES if len(s) == 2),
]


def outcome(f: Callable[[Any], Any], x: Any) -> Any:
    """The results, or the error that the operator raises."""
    mortice.manual_seed(0)
    try:
        found = f(x)
    except (RuntimeError, IndexError, ValueError) as error:
        return type(error), str(error)
    return list(found) if isinstance(found, tuple) else [found]


@pytest.mark.parametrize(
    ("f", "shape"), [c[:2] for c in CASES], ids=[f"{n} {list(s)}" for _, s, n in CASES]
)
def test_as_eager(f: Callable[[Any], Any], shape: tuple[int, ...]) -> None:
    expected = outcome(f, mortice.randn(*shape))
    compiled = outcome(mortice.compile(f), mortice.randn(*shape))
    assert isinstance(compiled, type(expected)), (compiled, expected)
    if isinstance(expected, tuple):
        assert compiled == expected
        return
    for found, wanted in zip(compiled, expected, strict=True):
        assert_same(found, wanted)


@pytest.mark.parametrize("name", ["sum", "mean", "sum of rows", "cat", "pad", "softmax", "stack"])
def test_sizes_that_become_nothing(name: str) -> None:
    """With sizes that change from call to call, of which some are 0."""
    f = ANY[name]
    compiled = mortice.compile(f, dynamic=True)
    for shape in ((4, 3), (0, 3), (5, 3), (5, 0), (0, 0), (2, 6)):
        x = mortice.randn(*shape)
        for found, wanted in zip(outcome(compiled, x), outcome(f, x), strict=True):
            assert_same(found, wanted)


def test_symbols_that_are_nothing() -> None:
    def f(a: Any) -> Any:
        return (a * 2).sum(), a * 2, a.sum(0) + 1

    gm = mortice.fx.make_fx(f, tracing_mode="symbolic")(mortice.randn(4, 3))
    compiled = compile_fx(gm, [n.meta["val"] for n in gm.graph.nodes if n.op == "placeholder"])
    for shape in ((4, 3), (0, 3), (5, 3), (3, 0)):
        x = mortice.randn(*shape)
        for found, wanted in zip(compiled(x), f(x), strict=True):
            assert_same(found, wanted)


def test_gradients() -> None:
    def f(x: Any, w: Any) -> Any:
        return ((x @ w).relu().sum() + (x * 2).mean(), x.exp())

    made: list[list[Any]] = []
    for g in (f, mortice.compile(f)):
        x = mortice.ones(0, 3, requires_grad=True)
        w = mortice.ones(3, 2, requires_grad=True)
        total, wide = g(x, w)
        (total + wide.sum()).backward()
        made.append([total.detach(), wide.detach(), x.grad, w.grad])
    for wanted, found in zip(*made, strict=True):
        assert_same(found, wanted)


def test_a_loss_over_no_examples() -> None:
    def f(x: Any, target: Any) -> Any:
        return F.cross_entropy(x, target), F.cross_entropy(x, target, reduction="sum")

    inputs = mortice.randn(0, 3), none(0)
    for found, wanted in zip(mortice.compile(f)(*inputs), f(*inputs), strict=True):
        assert_same(found, wanted)


def test_what_has_no_elements_has_no_kernel() -> None:
    def body(c: Any, a: Any) -> Any:
        return c("exp", a), c("sum.dim_IntList", a, [0, 1]), c("sum.dim_IntList", a, [1])

    x = mortice.empty(0, 3)
    compiled: Any = compile_fx(graph(body, 1), [x])
    compiled(x)
    (segment,) = (s for s in compiled.plan.steps if s[0] == "native")
    assert len(segment[2]) == 1  # that of the number
    with config.patch(validate=True):
        compiled = compile_fx(graph(body, 1), [x])
    assert compiled(x)[1].item() == 0.0


def test_rows_without_elements_have_eagers_mean() -> None:
    """0, though the mean of nothing is NaN elsewhere."""

    def f(x: Any) -> Any:
        return mortice.ops.aten.native_layer_norm(x, (0,), None, None, 1e-5)

    x = mortice.ones(3, 0)
    for found, expected in zip(mortice.compile(f)(x), f(x), strict=True):
        assert_same(found, expected)
