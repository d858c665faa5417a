"""What eager refuses because of a number's value is refused by compiled code, replayed or not."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

import mortice
from mortice._compile.settings import RECOMPILE_LIMIT
from mortice.nn import functional as F

INF, NAN = math.inf, math.nan


def filled(x: Any, v: Any) -> Any:
    x = x.clone()
    x[1] = v
    return x


#: name -> (function, dtype, numbers, some of them refused).
CASES: dict[str, tuple[Callable[[Any, Any], Any], str, list[Any]]] = {
    "masked_fill": (lambda x, v: x.masked_fill(x > 0, v), "uint8", [1, 2, -1, 300]),
    "masked_fill_": (lambda x, v: x.clone().masked_fill_(x > 0, v), "uint8", [1, 2, -1, 300]),
    "masked_fill half": (lambda x, v: x.masked_fill(x > 0, v), "float16", [-1e4, -INF, -1e9]),
    "masked_fill float": (lambda x, v: x.masked_fill(x > 0, v), "float32", [-1e4, -INF, 1e39]),
    "masked_fill int": (lambda x, v: x.masked_fill(x > 0, v), "float32", [1, 2, 10**39]),
    "fill_": (lambda x, v: x.clone().fill_(v), "int64", [1.0, 2.5, INF, NAN]),
    "full": (
        lambda x, v: x + mortice.full((3,), v, dtype=mortice.int64),
        "int64",
        [1.0, 2.5, INF, NAN],
    ),
    "full_like": (lambda x, v: mortice.full_like(x, v), "int64", [1.0, 2.5, INF, NAN]),
    "full_like complex": (
        lambda x, v: mortice.full_like(x, v) + x,
        "float32",
        [1 + 0j, 2.5 + 0j, 1 + 1j],
    ),
    "new_full": (lambda x, v: x.new_full((3,), v), "int64", [1.0, 2.5, INF, NAN]),
    "setitem": (filled, "int64", [1.0, 2.5, INF, NAN]),
    "threshold": (lambda x, v: F.threshold(x, v, 1.0), "int64", [1.0, 2.5, INF, NAN]),
    "hardtanh": (lambda x, v: F.hardtanh(x, -2.0, v), "int64", [1.0, 2.5, INF, NAN]),
    "fill_diagonal_": (
        lambda x, v: mortice.zeros(3, 3, dtype=mortice.int64).fill_diagonal_(v) + x,
        "int64",
        [1.0, 2.5, INF, NAN],
    ),
    "softshrink": (lambda x, v: F.softshrink(x, v), "float32", [0.5, 1.5, -1.0]),
    "celu": (lambda x, v: F.celu(x, v), "float32", [0.5, 1.5, 0.0]),
    "floor_divide": (lambda x, v: x // v, "int64", [1, 2, 0]),
    "remainder": (lambda x, v: x % v, "int64", [1, 2, 0]),
    "pow_": (lambda x, v: x.clone().pow_(v), "int64", [1, 2, -1]),
    "dropout": (
        lambda x, v: F.dropout(x, v, training=True) * 0,
        "float32",
        [0.25, 0.5, 1.5, -0.5],
    ),
    "normal_": (lambda x, v: x.clone().normal_(0.0, v) * 0, "float32", [0.25, 0.5, -1.0]),
    "isclose": (lambda x, v: mortice.isclose(x, x, rtol=v), "float32", [0.25, 0.5, -1.0]),
}


def outcome(f: Callable[..., Any], x: Any, v: Any) -> Any:
    try:
        found = f(x, v)
    except Exception as error:
        return type(error), str(error)
    return found.dtype, found.flatten().tolist()


@pytest.mark.parametrize("backend", ["inductor", "aot_eager"])
@pytest.mark.parametrize("name", CASES)
def test_numbers_are_refused_whenever_they_come(name: str, backend: str) -> None:
    f, dtype, numbers = CASES[name]
    x = mortice.arange(3).to(getattr(mortice, dtype))
    compiled = mortice.compile(f, backend=backend)
    refused = 0
    for v in [*numbers[:1] * 3, *numbers, *numbers[::-1], *numbers]:
        expected = outcome(f, x, v)
        refused += isinstance(expected[0], type)
        found = outcome(compiled, x, v)
        if isinstance(expected[0], type):
            assert found == expected, v
        else:
            assert found[0] == expected[0]
            assert found[1] == pytest.approx(expected[1], nan_ok=True), v
    assert refused


def test_numbers_that_are_not_looked_at_stay_inputs() -> None:
    compiled = mortice.compile(lambda x, v: mortice.full_like(x, v) + x.clamp(max=v))
    x = mortice.arange(3.0)
    for v in (1.0, 2.5, INF):
        compiled(x, v)
    assert len(compiled.segments) == 1


#: (function, dtype, twenty numbers that the operator takes).
TAKEN: dict[str, tuple[Callable[[Any, Any], Any], str, list[Any]]] = {
    "masked_fill": (lambda x, v: x.masked_fill(x > 0, v), "float32", [k + 0.5 for k in range(20)]),
    "masked_fill_": (
        lambda x, v: x.clone().masked_fill_(x > 0, v),
        "float16",
        [-INF, NAN, -0.0, 0.0, *(k + 0.5 for k in range(16))],
    ),
    "masked_fill double": (lambda x, v: x.masked_fill(x > 0, v), "float64", list(range(20))),
    "masked_fill int": (lambda x, v: x.masked_fill(x > 0, v), "int8", list(range(-10, 10))),
    "masked_fill int by float": (
        lambda x, v: x.masked_fill(x > 0, v),
        "int64",
        [k + 0.5 for k in range(-10, 10)],
    ),
    "masked_fill bool": (lambda x, v: x.masked_fill(x, v), "bool", list(range(20))),
    "two of them": (
        lambda x, v: x.masked_fill(x > 0, v) + (x * 2).masked_fill(x > 1, v + 1),
        "float32",
        [k + 0.5 for k in range(20)],
    ),
    "softshrink": (lambda x, v: F.softshrink(x, v), "float32", [k / 16 for k in range(20)]),
}


@pytest.mark.parametrize("replayed", [True, False])
@pytest.mark.parametrize("name", TAKEN)
def test_numbers_that_are_taken_are_one_graph(name: str, replayed: bool) -> None:
    f, dtype, numbers = TAKEN[name]
    x = mortice.arange(3).to(getattr(mortice, dtype))
    compiled = mortice.compile(f)
    if not replayed:
        compiled.replay = None
    assert len(set(map(str, numbers))) == 20
    for v in [*numbers, *numbers[::-1]]:
        assert str(outcome(compiled, x, v)) == str(outcome(f, x, v))
    # Beside those that an earlier process has left on disk.
    assert sum(s.seconds > 0 for s in compiled.segments) <= 2
    assert len(compiled.segments) < RECOMPILE_LIMIT


POWERS: dict[str, Callable[[Any, Any], Any]] = {
    "pow": lambda x, v: x**v,
    "pow_": lambda x, v: (x * 1).pow_(v),
}


@pytest.mark.parametrize("name", POWERS)
def test_exponents_between_halves_are_one_graph(name: str) -> None:
    """Also of its gradients; the rest have code or derivatives of their own."""
    f = POWERS[name]
    compiled = mortice.compile(f)
    x = mortice.tensor([0.25, 1.0, 3.0], requires_grad=True)
    for v in (1.3, -0.7, *(k / 16 for k in range(17, 24)), 1e-3, 2.0, 0.5, 2, 7.1):
        (found,), (wanted,) = (mortice.autograd.grad(g(x, v).sum(), x) for g in (compiled, f))
        assert mortice.allclose(found, wanted, rtol=1e-5), v
    # The first of all, those between halves, and three others.
    assert sum(s.seconds > 0 for s in compiled.segments) <= 5


@pytest.mark.parametrize("name", POWERS)
def test_a_square_is_part_of_the_graph(name: str) -> None:
    """It is a product there, which is eight times faster than a power."""
    compiled = mortice.compile(POWERS[name], backend="aot_eager")
    compiled(mortice.ones(3), 2)
    (segment,) = compiled.segments
    assert 2 in [x for node in segment.module.graph.nodes for x in node.args]


def test_a_number_that_is_taken_has_gradients() -> None:
    def f(x: Any, v: Any) -> Any:
        return (x * x).masked_fill(x > 1, v).sum()

    compiled = mortice.compile(f)
    for v in (0.5, 1.5, 2.5, 3.5):
        found, expected = ([mortice.arange(3.0).requires_grad_()] for _ in range(2))
        compiled(*found, v).backward()
        f(*expected, v).backward()
        assert mortice.equal(found[0].grad, expected[0].grad)
    assert len(compiled.segments) == 2


def test_one_number_stays_part_of_the_graph() -> None:
    compiled = mortice.compile(lambda x: x.masked_fill(x > 0, -INF))
    for _ in range(3):
        compiled(mortice.arange(3.0))
    (segment,) = compiled.segments
    assert -INF in [a for node in segment.module.graph.nodes for a in node.args]
