"""Sizes that change: specialised first, symbols from the second on; what compiles how often."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from comparing import same

import mortice
from mortice._capture.dynamic import mark_dynamic, mark_static


def grid(n: int) -> Any:
    return mortice.arange(4.0 * n).view(n, 4).sin()


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "pointwise": lambda x: (x * 2 + 1).relu(),
    "reductions": lambda x: (x.sum(), x.mean(0), x.amax(-1), x / x.shape[0]),
    "matmul": lambda x: x @ x.t() @ mortice.ones(x.shape[0], 3),
    "softmax": lambda x: (x @ x.t()).softmax(-1) @ x,
    "views": lambda x: (x.view(-1), x.t().reshape(-1), x.view(2, -1), x.view(x.shape[0], 2, 2)),
    "slices": lambda x: (x[1:], x[:-1], x[x.shape[0] // 2 :], x[-1]),
    "halves": lambda x: x[: x.shape[0] // 2] + x[x.shape[0] - x.shape[0] // 2 :],
    "factories": lambda x: x + mortice.arange(x.shape[0]).view(-1, 1) + mortice.zeros(len(x), 4),
    "expand": lambda x: mortice.ones(1, 4).expand(x.shape[0], 4) * x,
    "cat": lambda x: mortice.cat([x, x[:1], x * 2]),
    "products": lambda x: x.view(x.shape[0] * x.shape[1]).view(x.shape[1], x.shape[0]),
    "in_place": lambda x: _in_place(x * 1),
    "argument": lambda x: x.mul_(2)[1:].add_(1),
    "pad": lambda x: mortice.nn.functional.pad(x, (1, 0, 0, x.shape[0])),
    "gather": lambda x: x[mortice.arange(x.shape[0] - 1, -1, -1)],
    "split": lambda x: x.split(1, 1),
    "layer_norm": lambda x: mortice.nn.functional.layer_norm(x, (4,)),
    "dropout": lambda x: mortice.nn.functional.dropout(x, 0.0),
    "transposed_result": lambda x: x.t() * 2,
}


#: With two rows, half of them is one row, which broadcasts.
ONE_ROW_IS_ANOTHER_GRAPH = ("halves", "argument")


def _in_place(y: Any) -> Any:
    y[0].mul_(3)
    y[:, 1:].add_(y[:, :-1].clone())
    y.t().sub_(1)
    return y


@pytest.mark.parametrize("name", PROGRAMS)
def test_two_graphs_serve_all_sizes(compile: Any, name: str) -> None:
    f = PROGRAMS[name]
    compiled = compile(f)
    for n in (4, 6, 8, 2, 10, 4, 16, 6):
        x, y = grid(n), grid(n)
        same(compiled(x), f(y))
        same(x, y)
    assert len(compiled.segments) <= 2 + (name in ONE_ROW_IS_ANOTHER_GRAPH)


def test_twenty_shapes_compile_twice(compile: Any) -> None:
    compiled = compile(lambda x: (x @ mortice.ones(4, 2)).relu() + 1)
    for n in range(1, 21):
        same(compiled(grid(n)), compiled.fn(grid(n)))
    assert len(compiled.segments) == 2


def test_twenty_numbers_and_strings(compile: Any) -> None:
    compiled = compile(lambda x, n: x * n + n)
    for n in range(2, 22):
        compiled(mortice.ones(3), n)
    assert len(compiled.segments) == 1
    compiled = compile(lambda x, n: x * n + n)
    for n in range(20):
        compiled(mortice.ones(3), n + 0.5)
    assert len(compiled.segments) == 1
    compiled = compile(lambda x, s: x * 2 if s > "k" else x + 1)
    for s in "abcdefghijklmnopqrst":
        compiled(mortice.ones(3), s)
    assert len(compiled.segments) == 2


def test_two_sizes_that_change(compile: Any) -> None:
    def f(x: Any, y: Any) -> Any:
        return (x @ y).view(-1)[: x.shape[0]], x.sum(1).view(x.shape[0], 1) * y.sum(0)

    compiled = compile(f)
    for n, m in ((3, 5), (4, 7), (6, 2), (5, 5), (8, 3)):
        same(
            compiled(mortice.ones(n, 4), mortice.ones(4, m)),
            f(mortice.ones(n, 4), mortice.ones(4, m)),
        )
    assert len(compiled.segments) <= 3


def test_sizes_that_must_agree(compile: Any) -> None:
    compiled = compile(lambda x, y: x + y)
    for a, b in ((3, 3), (5, 5), (6, 1), (7, 7), (1, 4), (9, 1)):
        x, y = mortice.ones(a), mortice.ones(b)
        same(compiled(x, y), x + y)
    from mortice import errors

    with pytest.raises(errors.ShapeError):
        compiled(mortice.ones(3), mortice.ones(4))


def test_an_integer_that_no_size_explains(compile: Any) -> None:
    compiled = compile(lambda x, k: x[:k] * 2, recompile_limit=100)
    for n, k in ((5, 2), (7, 3), (9, 2), (11, 5), (6, 3)):
        same(compiled(grid(n), k), grid(n)[:k] * 2)


def test_dynamic_from_the_first_call(compile: Any) -> None:
    compiled = compile(lambda x: x.view(x.shape[0], 2, 2).sum(1) * x.shape[0], dynamic=True)
    for n in (3, 5, 8, 13):
        same(compiled(grid(n)), compiled.fn(grid(n)))
    assert len(compiled.segments) == 1
    assert "s" in str(compiled.segments[0].module.graph)


def test_never_dynamic(compile: Any) -> None:
    compiled = compile(lambda x: x * 2, dynamic=False)
    for n in (3, 5, 8, 5, 3):
        same(compiled(grid(n)), grid(n) * 2)
    assert len(compiled.segments) == 3


def test_marked_sizes(compile: Any) -> None:
    compiled = compile(lambda x: x * 2)
    x = grid(5)
    mark_dynamic(x, 0)
    same(compiled(x), x * 2)
    for n in (7, 9):
        same(compiled(grid(n)), grid(n) * 2)
    assert len(compiled.segments) == 1

    compiled = compile(lambda x: x * 2)
    for n in (3, 4, 5):
        x = grid(n)
        mark_static(x)
        compiled(x)
    assert len(compiled.segments) == 3


def test_strides_are_part_of_it(compile: Any) -> None:
    compiled = compile(lambda x: x.sum(0) + x[0])
    for n in (3, 5, 7):
        same(compiled(grid(n)), compiled.fn(grid(n)))
        same(compiled(grid(n).t().contiguous().t()), compiled.fn(grid(n).t().contiguous().t()))
        same(compiled(grid(n + 2)[1:-1]), compiled.fn(grid(n + 2)[1:-1]))
    assert len(compiled.segments) <= 4


def test_training_with_sizes_that_change(compile: Any) -> None:
    from mortice._compile.front import compile as real

    w = mortice.ones(4, 3, requires_grad=True)
    for train in (compile, lambda f: real(f, backend="aot_eager")):
        compiled = train(lambda x, w: ((x @ w).tanh() ** 2).sum() / x.shape[0])
        for n in (3, 5, 8, 2, 3):
            grads: list[Any] = []
            for run in (compiled, compiled.fn):
                w.grad = None
                run(grid(n), w).backward()
                grads.append(w.grad)
            assert mortice.allclose(grads[0], grads[1], rtol=1e-5)
        assert len(compiled.segments) == 2


def test_a_recurrent_net_by_hand(compile: Any) -> None:
    def f(xs: Any, h: Any) -> Any:
        for x in xs.unbind(0):
            h = (x + h @ mortice.ones(4, 4) * 0.1).tanh()
        return h

    compiled = compile(f, recompile_limit=3)
    for steps in (2, 3, 4):
        xs = mortice.ones(steps, 2, 4)
        same(compiled(xs, mortice.zeros(2, 4)), f(xs, mortice.zeros(2, 4)))
    with pytest.warns(UserWarning, match="recompile_limit"):
        compiled(mortice.ones(5, 2, 4), mortice.zeros(2, 4))
    for steps in (6, 2):
        xs = mortice.ones(steps, 2, 4)
        same(compiled(xs, mortice.zeros(2, 4)), f(xs, mortice.zeros(2, 4)))


@pytest.mark.parametrize("dynamic", [None, True, False])
@pytest.mark.parametrize("own", [True, False])
def test_memory_that_was_written_through_a_view_keeps_its_layout(
    compile: Any, own: bool, dynamic: bool | None
) -> None:
    def f(x: Any) -> Any:
        y = x.clone() if own else x
        y.movedim(1, 0)[mortice.tensor([0, 1])] = 1
        w = y.clone()
        w.flatten()[3:].zero_()
        return w, y * 2

    compiled = compile(f, dynamic=dynamic)
    for n in (8, 8, 6, 4):
        x = mortice.arange(15.0 * n).view(n, 5, 3).sin()
        expected, found = f(x.clone()), compiled(x.clone())
        same(found, expected)
        assert [t.stride() for t in found] == [t.stride() for t in expected]
