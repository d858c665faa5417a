"""Random operators in compiled calls draw what eager draws, when eager draws it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from comparing import same

import mortice
from mortice.nn import functional as F

DRAWS: dict[str, Callable[[Any], Any]] = {
    "rand": lambda x: mortice.rand(3),
    "randn": lambda x: mortice.randn(2, 2, dtype=mortice.float64),
    "rand_like": lambda x: mortice.rand_like(x),
    "randn_like": lambda x: mortice.randn_like(x),
    "randint": lambda x: mortice.randint(0, 10, (5,)),
    "randint_like": lambda x: mortice.randint_like(x, 7),
    "randperm": lambda x: mortice.randperm(6),
    "dropout": lambda x: F.dropout(x, 0.5),
    "dropout_off": lambda x: F.dropout(x, 0.5, training=False),
    "alpha_dropout": lambda x: F.alpha_dropout(x, 0.3),
    "uniform_": lambda x: mortice.empty(3).uniform_(1, 2),
    "uniform_on_argument": lambda x: x.uniform_(1, 2),
    "normal_": lambda x: x.clone().normal_(),
    "bernoulli": lambda x: mortice.bernoulli(mortice.full((6,), 0.5)),
    "bernoulli_": lambda x: x.clone().bernoulli_(0.3),
    "normal": lambda x: mortice.normal(0.0, 1.0, (3,)),
    "multinomial": lambda x: mortice.multinomial(mortice.ones(4), 2),
    "poisson": lambda x: mortice.poisson(mortice.ones(3) * 4),
    "exponential_": lambda x: mortice.empty(3).exponential_(),
    "random_": lambda x: mortice.empty(3, dtype=mortice.int64).random_(0, 9),
}


def check(compile: Any, f: Callable[[Any], Any]) -> Any:
    compiled = compile(f)
    for seed in range(3):
        results: list[Any] = []
        for run in (compiled, f):
            mortice.manual_seed(seed)
            x = mortice.ones(4)
            results.append([run(x), x, mortice.rand(2)])
        same(results[0], results[1])
    return compiled


@pytest.mark.parametrize("name", DRAWS)
def test_one(compile: Any, name: str) -> None:
    check(compile, DRAWS[name])


@pytest.mark.parametrize("sizes", [(4, 4, 4, 4), (4, 5, 6, 7, 8)])
@pytest.mark.parametrize("dynamic", [None, True])
def test_what_is_drawn_over_a_result_with_a_history(
    compile: Any, sizes: tuple[int, ...], dynamic: bool | None
) -> None:
    def f(x: Any) -> Any:
        drawn = x.clone().uniform_()
        return drawn, drawn * 2, x * drawn

    run = compile(f, dynamic=dynamic)
    for n in sizes:
        results: list[Any] = []
        for g in (run, f):
            mortice.manual_seed(n)
            results.append(g(mortice.ones(n).requires_grad_(True)))
        same(results[0], results[1])
        assert [t.requires_grad for t in results[0]] == [True, True, True]


def test_all_in_a_row(compile: Any) -> None:
    check(compile, lambda x: [draw(x) for draw in DRAWS.values()])
    check(compile, lambda x: [draw(x) for draw in reversed(DRAWS.values())])


@pytest.mark.parametrize("first", DRAWS)
def test_numbers_that_nobody_reads_are_drawn(compile: Any, first: str) -> None:
    for second in ("rand_like", "randint_like", "dropout"):
        draw = DRAWS[second]
        check(compile, lambda x, draw=draw: (DRAWS[first](x * 2), draw(x + 1))[1])


def test_equal_segments_draw_new_numbers(compile: Any) -> None:
    compiled = compile(lambda x: F.dropout(x, 0.5) + mortice.rand(64))
    mortice.manual_seed(0)
    first, second = compiled(mortice.ones(64)), compiled(mortice.ones(64))
    assert not mortice.equal(first, second)
    assert len(compiled.segments) == 1


def test_seeds_and_states_set_inside(compile: Any) -> None:
    def f(x: Any) -> Any:
        mortice.manual_seed(3)
        a = mortice.rand(2)
        state = mortice.get_rng_state()
        b = mortice.rand(2)
        mortice.set_rng_state(state)
        c = mortice.rand(2)
        d = F.dropout(x)
        mortice.manual_seed(3)
        return a, b, c, d, F.dropout(x)

    check(compile, f)


def test_a_generator_of_the_users_own(compile: Any) -> None:
    results: list[Any] = []
    for compiled in (False, True):
        generator = mortice.Generator().manual_seed(5)

        def f(x: Any, g: Any = generator) -> Any:
            y = mortice.rand(2, generator=g)
            return y, x.normal_(generator=g), g.get_offset(), mortice.randperm(4, generator=g)

        run = compile(f) if compiled else f
        results.append([run(mortice.ones(3)) for _ in range(3)])
    same(results[0], results[1])


def test_between_random_operators_a_value_is_read(compile: Any) -> None:
    def f(x: Any) -> Any:
        a = mortice.rand(3)
        n = a.sum().item()
        b = F.dropout(x * n)
        return a, n, b, mortice.rand(2)

    check(compile, f)


def test_gradients_through_dropout(compile: Any) -> None:
    from mortice._compile.front import compile as real

    for train in (compile, lambda f: real(f, backend="aot_eager")):
        compiled = train(lambda x: F.dropout(x * 2, 0.5).sum())
        for seed in range(2):
            grads: list[Any] = []
            for run in (compiled, compiled.fn):
                mortice.manual_seed(seed)
                x = mortice.ones(16, requires_grad=True)
                run(x).backward()
                grads.append((x.grad.tolist(), mortice.rand(1).item()))
            assert grads[0] == grads[1]
