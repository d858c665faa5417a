"""What a compiled function of a backend returns is checked at the call."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mortice
from mortice import compiler
from mortice.errors import BackendFailed


def returning(make: Callable[..., Any]) -> Callable[..., Any]:
    """A backend whose function returns ``make(gm, inputs)``."""

    def wrong(gm: Any, example_inputs: Any) -> Callable[..., Any]:
        return lambda *inputs: make(gm, inputs)

    return wrong


def two(x: Any) -> Any:
    return x + 1, x.sum()


X = mortice.ones(2, 3)
BOTH = "a tuple of 2 (mortice.float32 of shape [2, 3], mortice.float32 of shape []) was expected"

WRONG = [
    (lambda gm, x: 3, f"returned int 3, and {BOTH}"),
    (lambda gm, x: None, f"returned NoneType None, and {BOTH}"),
    (lambda gm, x: (), f"returned tuple of 0, and {BOTH}"),
    (lambda gm, x: gm(*x)[:1], f"returned tuple of 1, and {BOTH}"),
    (lambda gm, x: (*gm(*x), x[0]), f"returned tuple of 3, and {BOTH}"),
    (lambda gm, x: gm(*x)[0], "returned mortice.float32 of shape [2, 3] on cpu, and a tuple of 2"),
    (
        lambda gm, x: (np.ones((2, 3)), x[0].sum()),
        "as result 0, and mortice.float32 of shape [2, 3]",
    ),
    (
        lambda gm, x: (x[0].double(), x[0].sum()),
        "returned mortice.float64 of shape [2, 3] on cpu as result 0, and mortice.float32 of shape",
    ),
    (
        lambda gm, x: (x[0], x[0].sum(0)),
        "returned mortice.float32 of shape [3] on cpu as result 1, and mortice.float32 of shape []",
    ),
    (lambda gm, x: (x[0], None), "returned NoneType None as result 1, and"),
]


@pytest.mark.parametrize(("make", "told"), WRONG)
def test_what_is_wrong_is_told_at_the_call(make: Any, told: str) -> None:
    f = mortice.compile(two, backend=returning(make))
    with pytest.raises(BackendFailed, match=re.escape(told)) as caught:
        f(X)
    assert str(caught.value).startswith("backend 'wrong': its function for the graph returned ")


def test_a_later_call_is_checked_too() -> None:
    calls: list[int] = []

    def make(gm: Any, x: Any) -> Any:
        calls.append(1)
        return gm(*x) if len(calls) < 4 else 5

    f = mortice.compile(lambda x: x * 2, backend=returning(make))
    for _ in range(3):
        assert f(X).tolist() == (X * 2).tolist()
    with pytest.raises(BackendFailed, match="returned int 5"):
        f(X)


def test_the_backward_graph_is_named() -> None:
    def half(gm: Any, example_inputs: Any) -> Any:
        parts.append(gm)
        return gm if len(parts) == 1 else lambda *inputs: ()

    parts: list[Any] = []
    x = mortice.ones(3, requires_grad=True)
    loss = mortice.compile(lambda x: (x * x).sum(), backend=half)(x)
    with pytest.raises(BackendFailed, match="'half': its function for the backward graph"):
        loss.backward()


def test_right_ones_pass() -> None:
    """A list, sizes that are symbolic, gradients for some inputs, a size in the results."""
    backend = returning(lambda gm, x: list(gm(*x)))
    f = mortice.compile(two, backend=backend, dynamic=True)
    for n in (2, 5, 0):
        x = mortice.ones(n, 3)
        assert [y.tolist() for y in f(x)] == [y.tolist() for y in two(x)]
    g = mortice.compile(lambda a, b: (a * b).sum() + a.shape[0], backend=backend, dynamic=True)
    for n in (2, 5):
        a, b = mortice.ones(n, requires_grad=True), mortice.full((n,), 3.0)
        g(a, b).backward()
        assert a.grad is not None
        assert a.grad.tolist() == [3.0] * n


def test_symbolic_sizes_are_not_compared_and_others_are() -> None:
    f = mortice.compile(lambda x: x + 1, backend=returning(lambda gm, x: (X,)), dynamic=True)
    with pytest.raises(BackendFailed, match=r"mortice\.float32 of shape \[\?, \?, \?\]"):
        f(mortice.ones(2, 3, 4))


def test_a_backend_that_is_trusted_is_not_wrapped() -> None:
    made: list[Any] = []

    def mine(gm: Any, example_inputs: Any) -> Any:
        made.append(lambda *inputs: gm(*inputs))
        return made[0]

    compiler.declare(mine, trusted=True)
    f = mortice.compile(lambda x: x + 1, backend=mine)
    assert f(X).tolist() == (X + 1).tolist()
    assert f.segments[0].run is made[0]


# -- options ----------------------------------------------------------------------------------------


def test_options_are_given_where_the_signature_has_them() -> None:
    seen: list[Any] = []

    def required(gm: Any, example_inputs: Any, *, options: Any) -> Any:
        seen.append(dict(options))
        return gm

    def anything(gm: Any, example_inputs: Any, **keywords: Any) -> Any:
        seen.append({name: dict(value) for name, value in keywords.items()})
        return gm

    def optional(gm: Any, example_inputs: Any, options: Any = None) -> Any:
        seen.append(dict(options))
        return gm

    class Called:
        def __call__(self, gm: Any, example_inputs: Any, *, options: Any) -> Any:
            seen.append(dict(options))
            return gm

    bound = functools.partial(required, options={"level": 3})
    for backend in (required, anything, optional, Called(), bound):
        f = mortice.compile(lambda x: x + 1, backend=backend)
        assert f(X).tolist() == (X + 1).tolist()
    assert seen == [{}, {"options": {}}, {}, {}, {"level": 3}]


def test_options_are_left_out_where_it_has_none() -> None:
    f = mortice.compile(lambda x: x + 1, backend=lambda gm, example_inputs: gm)
    assert f(X).tolist() == (X + 1).tolist()
