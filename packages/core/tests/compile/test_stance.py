"""set_stance: what happens in place of compiling."""

from __future__ import annotations

import threading
from collections.abc import Generator
from typing import Any

import pytest

import mortice
from mortice.compiler import set_stance
from mortice.errors import CompileError, InvalidState, InvalidValue

X = mortice.arange(4.0)


@pytest.fixture(autouse=True)
def as_it_was() -> Generator[None, None, None]:
    yield
    set_stance("default")


def f(x: Any, way: str = "a") -> Any:
    seen.append(mortice.compiler.is_compiling())
    y = x * 2 if way == "a" else x.exp()
    return y.sum() if x.requires_grad else y + 1


seen: list[bool] = []


def compiled(**given: Any) -> Any:
    seen.clear()
    return mortice.compile(f, backend="aot_eager", **given)


def test_force_eager_runs_the_function_itself() -> None:
    c = compiled()
    want = c(X)
    with set_stance("force_eager"):
        for _ in range(3):
            assert c(X).tolist() == want.tolist()
            assert seen[-1] is False
    count = len(seen)
    assert c(X).tolist() == want.tolist()
    assert len(c.segments) == 1
    assert len(seen) == count or seen[-1]  # replayed, or captured again


@pytest.mark.parametrize("always_run", [False, True])
def test_eager_on_recompile_uses_what_there_is_and_keeps_nothing(always_run: bool) -> None:
    c = compiled()
    if always_run:
        c.replay = None
    c(X)
    hits = c.segments[0].hits
    with set_stance("eager_on_recompile"):
        assert c(X).tolist() == f(X).tolist()
        for _ in range(12):  # more than the recompile limit
            assert c(X, "b").tolist() == f(X, "b").tolist()
    assert len(c.segments) == 1
    assert c.segments[0].hits == hits + 1
    for _ in range(3):
        assert c(X, "b").tolist() == f(X, "b").tolist()
    assert len(c.segments) == 2
    assert c.segments[1].compiled
    assert c.segments[1].hits == 3


def test_eager_on_recompile_builds_a_graph_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from mortice._capture import captured

    built: list[int] = []
    original = captured.build
    monkeypatch.setattr(captured, "build", lambda *a: built.append(1) or original(*a))

    def g(x: Any, n: float) -> Any:
        return x * n + 1

    c = mortice.compile(g, backend="aot_eager")
    for _ in range(2):
        c.reset()
        built.clear()
        with set_stance("eager_on_recompile"):
            for n in (2.0, 3.0, 4.0, 2.0):
                assert c(X, n).tolist() == g(X, n).tolist()
        assert built == [1] and not c.segments
        assert c(X, 5.0).tolist() == g(X, 5.0).tolist()
        assert len(c.segments) == 1 and c.segments[0].compiled


def test_eager_on_recompile_has_gradients() -> None:
    c = compiled()
    with set_stance("eager_on_recompile"):
        x, y = (X.clone().requires_grad_() for _ in range(2))
        c(x).backward()
        f(y).backward()
    assert x.grad.tolist() == y.grad.tolist()
    assert not c.segments


def test_fail_on_recompile_says_where() -> None:
    c = compiled()
    c(X)
    with set_stance("fail_on_recompile"):
        assert c(X).tolist() == f(X).tolist()
        for _ in range(2):
            with pytest.raises(CompileError, match=r"f has to be compiled .*test_stance.py:\d+"):
                c(X, "b")
        assert c(X).tolist() == f(X).tolist()
    assert c(X, "b").tolist() == f(X, "b").tolist()


def test_a_call_a_block_and_a_decorator() -> None:
    c = compiled()

    @set_stance("force_eager")
    def eagerly() -> Any:
        return c(X)

    eagerly()
    assert seen == [False]
    c(X)
    assert seen[-1] is True
    set_stance("force_eager")
    c(X, "b")
    assert seen[-1] is False
    with set_stance("default"):
        c(X, "b")
        assert seen[-1] is True
        with set_stance("force_eager"):
            c(X, "b")
            assert seen[-1] is False
    c(X, "b")
    assert seen[-1] is False
    assert eagerly.__name__ == "eagerly"


def test_it_is_for_all_threads() -> None:
    c = compiled()
    set_stance("force_eager")
    thread = threading.Thread(target=c, args=(X,))
    thread.start()
    thread.join()
    assert seen == [False]


def test_names_are_checked_and_captured_calls_may_not_set_it() -> None:
    with pytest.raises(InvalidValue, match="Did you mean 'force_eager'"):
        set_stance("force_eagre")

    def g(x: Any) -> Any:
        with set_stance("force_eager"):
            return x * 2

    with pytest.raises(InvalidState, match="inside a compiled function"):
        mortice.compile(g, backend="eager")(X)
    assert g(X).tolist() == (X * 2).tolist()


def test_compiling_and_exporting_are_told_apart() -> None:
    found: list[Any] = []

    class Net(mortice.nn.Module):
        def forward(self, x: Any) -> Any:
            c = mortice.compiler
            found.append((c.is_compiling(), c.is_dynamo_compiling(), c.is_exporting()))
            return x * 2

    net = Net()
    net(X)
    mortice.compiler.compile(net, backend="eager")(X)
    mortice.export.export(net, (X,))
    assert set(found[2:]) == {(True, False, True)}
    assert found[:2] == [(False, False, False), (True, True, False)]
    assert not mortice.compiler.is_exporting()
