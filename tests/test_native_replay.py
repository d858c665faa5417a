"""Replay in native code means what replay in Python does: every case of a changing world again."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest
from packages.core.tests.capture import playing
from packages.core.tests.capture.observing import supported

import mortice
from mortice._capture import replay
from mortice.compiler import declare

plugin = pytest.importorskip("mortice_inductor.plugin")

pytestmark = supported


def guarded(gm: Any, inputs: Sequence[Any], *, options: Any = None) -> Callable[..., Any]:
    """Eager's arithmetic behind native guards."""
    return gm


declare(guarded, native_entry=plugin.native_entry)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "NATIVE_AFTER", 1)


def compile(fn: Any, backend: Any = guarded) -> Any:
    return mortice.compile(fn, backend=backend)


@pytest.mark.parametrize("c", playing.CASES, ids=lambda c: c.name)
def test_natively_replayed_equals_eager(c: Any) -> None:
    want, _ = playing.play(c.make, lambda f: f)
    got, compiled = playing.play(c.make, compile)
    assert got == want
    assert (compiled.verdict.name, compiled.verdict.replayed) == (c.verdict, c.replays)


def test_cases_really_replay_natively() -> None:
    """The others are the first replay of each plan, and plans with values read."""
    replayed = native = 0
    for c in playing.CASES:
        _, compiled = playing.play(c.make, compile)
        verdict = compiled.verdict
        replayed += verdict.replayed
        native += sum(answered() for answered in verdict.native)
    assert native >= 40, (native, replayed)


def _warm(compiled: Any, *args: Any, **kwargs: Any) -> Any:
    results = [compiled(*args, **kwargs) for _ in range(4)]
    assert compiled.native is not None
    return results[-1]


@pytest.mark.parametrize("backend", [guarded, "inductor"])
def test_results_of_every_structure(backend: Any) -> None:
    def f(x: Any, y: Any, scale: float = 2.0) -> Any:
        return {"a": x * scale, "b": [x + y, x], "c": (x - y,)}

    x, y = mortice.randn(4), mortice.randn(4)
    compiled = compile(f, backend)
    for scale in (2.0, 3.0, -1.5):
        _warm(compiled, x, y, scale=scale)
        found, wanted = compiled(x, y, scale=scale), f(x, y, scale=scale)
        assert found["b"][1] is x
        for a, b in ((found["a"], wanted["a"]), (found["b"][0], x + y), (found["c"][0], x - y)):
            assert mortice.allclose(a, b)


def test_no_python_runs_in_a_replay() -> None:
    compiled = compile(lambda x, y: (x * y).tanh(), "inductor")
    x, y = mortice.randn(4), mortice.randn(4)
    _warm(compiled, x, y)
    native = compiled.native
    events: list[str] = []
    gc.collect()
    gc.disable()  # a collection would call what others have hung on it
    sys.setprofile(lambda frame, event, arg: events.append(event))
    try:
        native(x, y)
    finally:
        sys.setprofile(None)
        gc.enable()
    assert "call" not in events


def test_arguments_that_do_not_fit_go_to_python() -> None:
    def f(x: Any, y: Any) -> Any:
        return x + y

    compiled = compile(f, "inductor")
    x = mortice.randn(4)
    _warm(compiled, x, x)
    answered = compiled.verdict.native[0]
    before = answered()
    others = [
        (mortice.randn(5), mortice.randn(5)), (x.double(), x), (mortice.randn(8)[::2], x), (x, 2),
        (x.clone().requires_grad_(), x), (mortice.randn(4, 4), x),
    ]  # fmt: skip
    for args in others:
        assert mortice.allclose(compiled(*args), f(*args))
    with pytest.raises(TypeError):
        compiled(x)
    with pytest.raises(TypeError):
        compiled(x, x, z=1)
    assert answered() == before
    assert mortice.allclose(compiled(x, x), x + x)
    assert answered() == before + 1


class Pair(NamedTuple):
    scale: float
    apply: Callable[[Any, float], Any]


def test_a_named_tuple_is_looked_at_natively() -> None:
    pair = Pair(2.0, lambda x, by: x * by)

    def f(x: Any) -> Any:
        return pair.apply(x, pair.scale)

    compiled = compile(f, "inductor")
    x = mortice.randn(4)
    _warm(compiled, x)
    answered = compiled.verdict.native[0]
    before = answered()
    assert mortice.equal(compiled(x), x * 2)
    assert answered() == before + 1
    pair = Pair(3.0, pair.apply)
    assert mortice.equal(compiled(x), x * 3)
    assert answered() == before + 1


def test_nothing_is_kept_alive_and_nothing_leaks() -> None:
    class Scale:
        def __init__(self) -> None:
            self.by = mortice.full((4,), 2.0)

        def __call__(self, x: Any) -> Any:
            return x * self.by

    scale = Scale()
    held = weakref.ref(scale)
    x = mortice.randn(4)
    compiled = compile(scale, "inductor")
    _warm(compiled, x)
    del compiled, scale
    gc.collect()
    assert held() is None
    compiled = compile(lambda x: (x + 1, x * 2), "inductor")
    _warm(compiled, x)
    counts = sys.getrefcount(x), sys.getrefcount(compiled.native)
    for _ in range(100):
        compiled(x)
    assert (sys.getrefcount(x), sys.getrefcount(compiled.native)) == counts


def test_threads_replay_one_function() -> None:
    compiled = compile(lambda x, y: (x * y + x).sum(1), "inductor")
    x, y = mortice.randn(300, 300), mortice.randn(300, 300)
    wanted = _warm(compiled, x, y)
    wrong: list[int] = []

    def run(k: int) -> None:
        for _ in range(30):
            if not mortice.equal(compiled(x, y), wanted):
                wrong.append(k)

    threads = [threading.Thread(target=run, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_without_gradients() -> None:
    weight = mortice.randn(4, requires_grad=True)

    def f(x: Any) -> Any:
        return x * weight

    compiled = compile(f, "inductor")
    x = mortice.randn(4)
    with mortice.no_grad():
        _warm(compiled, x)
        answered = compiled.verdict.native[0]
        before = answered()
        assert not compiled(x).requires_grad
        assert answered() == before + 1
    assert compiled(x).requires_grad
    with mortice.autocast("cpu"):
        assert mortice.equal(compiled(x), f(x))
    assert answered() == before + 1


def test_inside_another_compiled_call_it_is_recorded() -> None:
    inner = compile(lambda x: x * 2, "inductor")
    x = mortice.zeros(4)

    def outer(x: Any) -> Any:
        x.add_(1)
        with mortice.no_grad():
            return inner(x)

    with mortice.no_grad():
        _warm(inner, x)
    _warm(inner, x)
    compiled = compile(outer)
    for k in range(1, 4):
        assert mortice.equal(compiled(x), mortice.full((4,), 2.0 * k))


def test_reset_forgets_the_native_entry() -> None:
    compiled = compile(lambda x: x + 1)
    x = mortice.randn(3)
    _warm(compiled, x)
    compiled.reset()
    assert compiled.native is None
    assert mortice.equal(compiled(x), x + 1)


def test_another_object_at_the_address_of_one_that_is_gone() -> None:
    def f(x: Any, g: Any) -> Any:
        return x * 2 if g is None else x * 3

    def other() -> None:
        pass

    compiled = compile(f)
    x, g = mortice.ones(2), f
    compiled(x, g)
    for guard in compiled.replay.roots[0].stretch.guards:
        if getattr(getattr(guard.condition, "ref", None), "get", lambda: None)() is g:
            guard.condition.ref.number = id(other)  # as if g lay where the other will
    for _ in range(3):
        compiled(x, g)
    answered = compiled.verdict.native[0]
    before = answered()
    assert compiled(x, other).tolist() == [3, 3]
    assert answered() == before


def test_what_was_replayed_is_not_kept_alive() -> None:
    compiled = compile(lambda x, function: function(x) * 2)
    x, function = mortice.ones(2), lambda x: x + 1
    for _ in range(5):
        compiled(x, function)
    assert compiled.verdict.native[0]() >= 3
    kept = [weakref.ref(x), weakref.ref(function)]
    del x, function
    gc.collect()
    assert [one() for one in kept] == [None, None]


def test_methods_are_told_apart_by_what_they_are_bound_to() -> None:
    class Scale:
        def __init__(self, by: float) -> None:
            self.by = by

        def __call__(self, x: Any) -> Any:
            return x * self.by

        def apply(self, x: Any) -> Any:
            return x * self.by

    def f(x: Any, function: Any) -> Any:
        return function(x) + 1

    compiled = compile(f)
    x, scales = mortice.ones(2), [Scale(2.0), Scale(3.0)]
    for k in range(40):  # a method is made anew for each call, mostly where the last one was
        scale = scales[0 if k < 10 else k % 2]
        assert compiled(x, scale.apply).tolist() == [scale.by + 1] * 2
    assert compiled.verdict.observed == 2
