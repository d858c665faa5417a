"""What a place costs that has reached the recompile limit: about what it costs uncompiled."""

from __future__ import annotations

from typing import Any

import pytest
from comparing import same

import mortice
from mortice._capture import compiled as module
from mortice._capture import interpret
from mortice._dispatch.state import GLOBAL, THREAD

pytestmark = pytest.mark.filterwarnings("ignore:.*recompile_limit")


def recorded(compiled: Any) -> tuple[int, int]:
    """(steps in the trees, graphs) so far."""
    return sum(tree.size for tree in compiled._trees), len(compiled.segments)


def padded(x: Any, n: int) -> Any:
    return mortice.nn.functional.pad(x * 2, (n, 0)) + 1


def in_no_mode() -> bool:
    return (GLOBAL.recorders, GLOBAL.special, GLOBAL.watch, THREAD.recorder) == (0, 0, 0, None)


def test_a_place_that_makes_graph_after_graph_is_given_up(compile: Any) -> None:
    compiled = compile(padded, recompile_limit=2)
    x = mortice.ones(3)
    for n in range(2 + module.GIVEN_UP_AFTER + 1):
        same(compiled(x, n), padded(x, n))
    made = len(compiled.segments)
    for n in range(50):
        same(compiled(x, n), padded(x, n))
        assert in_no_mode()
    assert recorded(compiled) == (0, made)
    compiled.reset()
    compiled(x, 1)
    assert recorded(compiled) == (3, 1)


def test_gradients_writes_and_nested_functions_there(compile: Any) -> None:
    inner = compile(lambda y: y.tanh() * 3)

    def f(x: Any, n: int, into: Any) -> Any:
        y = mortice.nn.functional.pad(x * 2, (n, 0))
        into.add_(y.sum().detach())
        return inner(y.exp()).sum() * into

    compiled = compile(f, recompile_limit=1)
    for n in range(30):
        found: list[Any] = []
        for g in (compiled, f):
            x, into = mortice.ones(3).requires_grad_(), mortice.zeros(1)
            y = g(x, n, into)
            y.sum().backward()
            found.append((y, x.grad, into))
        for a, b in zip(*found):
            same(a, b)
        assert in_no_mode()


def test_the_places_before_it_stay_compiled(compile: Any) -> None:
    def f(x: Any, n: int) -> Any:
        y = x * 2
        if y.sum() < 0:
            return y
        return mortice.nn.functional.pad(y + 1, (n, 0))

    compiled = compile(f, recompile_limit=2)
    x = mortice.ones(3)
    for n in range(30):
        same(compiled(x, n), f(x, n))
    first = compiled.segments[0]
    before, hits = recorded(compiled), first.hits
    same(compiled(x, 99), f(x, 99))
    assert first.hits == hits + 1
    assert recorded(compiled) == before and in_no_mode()


def test_graphs_that_pay_keep_being_used(compile: Any) -> None:
    compiled = compile(padded, recompile_limit=2)
    x = mortice.ones(3)
    for n in range(20):
        for _ in range(2 * module.WORTH):
            same(compiled(x, 0), padded(x, 0))
        same(compiled(x, n), padded(x, n))
    assert compiled.segments[0].hits > 20 * 2 * module.WORTH
    assert not compiled.is_given_up(compiled.segments[0].line)


def test_a_graph_that_comes_again_is_interpreted_once(
    compile: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[Any] = []
    original = interpret._ByOperator.run
    monkeypatch.setattr(
        interpret._ByOperator, "run", lambda self, *a: runs.append(self) or original(self, *a)
    )
    compiled = compile(
        padded, recompile_limit=1, compile_segment=lambda gm, inputs, settings: gm.forward
    )
    x = mortice.ones(3)
    for _ in range(10):
        for n in range(4):
            same(compiled(x, n), padded(x, n))
    assert len(runs) == 3


def written_and_saved(x: Any, n: int) -> Any:
    y = x * 1
    x.detach().mul_(n)
    with mortice.no_grad():
        z = y * x
    return y * y + z


@pytest.mark.parametrize("f", [padded, written_and_saved])
@pytest.mark.parametrize("dynamic", [None, True])
def test_code_does_what_the_interpreter_does(compile: Any, f: Any, dynamic: Any) -> None:
    compiled = compile(f, recompile_limit=1, dynamic=dynamic)
    for n in (2, 3, 3, 3, 2):
        for size in (4, 4, 5):
            found: list[Any] = []
            for g in (compiled, f):
                x = mortice.arange(float(size)).requires_grad_()
                given = x * 1
                y = g(given, n)
                y.sum().backward()
                found.append((y, given, x.grad))
            for a, b in zip(*found):
                same(a, b)
