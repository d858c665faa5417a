"""Replay beyond single cases: threads, budgets, what a plan is, prefixes, and how the tree grows."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from packages.core.tests.capture.observing import supported

import mortice
from mortice._capture import replay, stretch
from mortice.compiler import declare
from mortice.overrides import MorticeFunctionMode
from mortice.utils.dispatch import MorticeDispatchMode

pytestmark = supported


def compiled(f: Any, **more: Any) -> Any:
    return mortice.compile(f, backend="eager", **more)


def test_threads_replay_and_extend_one_tree() -> None:
    table = {"k": 2.0}

    def f(x: Any, a: float) -> Any:
        y = x * table["k"] + a
        if y.sum() > 10:
            y = y - 1
            return y, [y.max()]
        return y * 2, []

    c = compiled(f)
    wrong: list[Any] = []
    start = threading.Barrier(4)

    def work(seed: int) -> None:
        start.wait()
        for i in range(60):
            x = mortice.full((3,), float((seed + i) % 5))
            a = float(i % 3)
            got, want = c(x, a), f(x, a)
            if got[0].tolist() != want[0].tolist() or len(got[1]) != len(want[1]):
                wrong.append((seed, i, got, want))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
    v = c.verdict
    assert v.replayed > 150, v.lines()
    assert not v.always_runs


def test_a_value_that_is_never_the_same_stops_replaying() -> None:
    def f(x: Any) -> Any:
        s = x.sum().item()
        return x * s

    c = compiled(f)
    for i in range(60):
        x = mortice.tensor([1.0, float(i)])
        assert c(x).tolist() == f(x).tolist()
    v = c.verdict
    assert v.observed == replay.ALTERNATIVES
    assert v.always_runs
    assert "differ from call to call" in v.reasons[-1].text
    assert v.resumed < 40


def test_the_width_of_the_tree_is_bounded() -> None:
    def f(x: Any, how: str) -> Any:
        return x * len(how)

    c = compiled(f)
    for i in range(20):
        assert c(mortice.ones(2), "a" * i).tolist() == [float(i)] * 2
    assert c.verdict.observed == replay.ALTERNATIVES
    assert c(mortice.ones(2), "aaa").tolist() == [3.0] * 2
    assert c.verdict.replayed == 1


def test_nothing_is_observed_after_the_verdict() -> None:
    log: list[int] = []

    def f(x: Any) -> Any:
        log.append(1)
        return x + 1

    c = compiled(f)
    for _ in range(5):
        c(mortice.ones(1))
    assert c.verdict.observed == replay.IMPURE_CALLS
    assert c.verdict.always_runs
    assert c.replay is None
    assert len(log) == 5
    (reason,) = c.verdict.reasons
    assert "append()" in reason.text
    assert "test_replay.py" in reason.where


def test_segments_run_once_in_a_call_that_goes_another_way() -> None:
    runs: list[str] = []

    def counting(gm: Any, example_inputs: Any) -> Any:
        name = f"s{len(runs)}"

        def run(*args: Any) -> Any:
            runs.append(name)
            return gm(*args)

        return run

    total = mortice.zeros(2)

    def f(x: Any) -> Any:
        total.add_(x)
        if total[0] > 2.5:
            return total * 10
        return total + 0

    c = mortice.compile(f, backend=counting)
    c(mortice.ones(2))
    runs.clear()
    assert c(mortice.ones(2)).tolist() == [2.0, 2.0]
    before = len(runs)
    runs.clear()
    assert c(mortice.ones(2)).tolist() == [30.0, 30.0]  # replayed, then another way
    assert len(runs) == before
    assert c.verdict.resumed == 1
    assert total.tolist() == [3.0, 3.0]
    assert total._version == 3


def test_versions_count_as_in_eager() -> None:
    def f(x: Any, b: Any) -> Any:
        b.add_(x)
        b.mul_(2.0)
        return b[0]

    c = compiled(f)
    ours, theirs = mortice.zeros(2), mortice.zeros(2)
    for _ in range(4):
        c(mortice.ones(2), ours)
        f(mortice.ones(2), theirs)
        assert ours._version == theirs._version
        assert ours.tolist() == theirs.tolist()
    assert c.verdict.replayed == 3


def test_nested_compiled_functions_are_part_of_the_call() -> None:
    inner = compiled(lambda x: x * 2)
    outer = compiled(lambda x: inner(x) + 1)
    for _ in range(3):
        assert outer(mortice.ones(2)).tolist() == [3.0, 3.0]
    assert outer.verdict.replayed == 2
    assert len(outer.segments) == 1
    assert not inner.segments


def test_an_error_leaves_nothing_half_done() -> None:
    def f(x: Any, y: Any) -> Any:
        return (x + y).sum()

    c = compiled(f)
    good, bad = (mortice.ones(3), mortice.ones(3)), (mortice.ones(3), mortice.ones(2))
    for _ in range(2):
        assert c(*good).item() == 6.0
        with pytest.raises(RuntimeError, match="add"):
            c(*bad)
    assert c(*good).item() == 6.0
    assert c.verdict.replayed == 2


def test_checks_per_replay_are_few() -> None:
    """A function of ten operators: what a replay compares and calls, counted in its text."""

    def f(x: Any, y: Any) -> Any:
        z = (x + y) * x
        z = (z.relu() - y) * 2 + 1
        z = z.sigmoid() * y + x
        return z.tanh()

    c = compiled(f)
    c(mortice.ones(4), mortice.ones(4))
    (node,) = c.replay.roots
    assert len(node.stretch.guards) < 20
    assert node.full.text.count("\n") < 42
    assert node.finish.text.count("\n") < 9


def test_a_quick_check_is_made_again_when_what_it_knew_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stretch, "WARM", 1)
    nn = pytest.importorskip("mortice.nn")
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    c = compiled(lambda x: net(x))
    x = mortice.ones(2)
    for i in range(30):
        net.unrelated = i  # its dict's version differs, and the guards hold
        assert c(x).tolist() == net(x).tolist()
    (node,) = c.replay.roots
    assert c.verdict.replayed == 29
    assert node.passed <= stretch.WARM + stretch.HASTENED + 1
    assert node.check == node.full


W, V = mortice.ones(3, 2), mortice.ones(3)

#: Functions of a (n, 3) tensor, and whether calls at new sizes are replayed from the third size on.
SIZED: dict[str, tuple[Any, bool]] = {
    "pointwise": (lambda x: (x * 2 + x).relu(), True),
    "two inputs": (lambda x: x * W.sum() + V, True),
    "two operators in one": (lambda x: x * W[0, 0], False),
    "reduction": (lambda x: (x.sum(0), x.mean()), True),
    "softmax": (lambda x: x.softmax(-1), True),
    "slice": (lambda x: x[1:] * 2, True),
    "last row": (lambda x: x[-1] * 2, True),
    "rows by number": (lambda x: x[:5] * 2, True),
    "all but the last": (lambda x: x[:-1] * 2, True),
    "largest": (lambda x: x.topk(2, 1).values * 1, False),
    "narrowed": (lambda x: x.narrow(1, 0, 2) * 2, True),
    "shape": (lambda x: x * x.shape[0], False),
    "len": (lambda x: x / len(x), False),
    "flattened": (lambda x: x.reshape(-1) * 2, False),
    "split": (lambda x: [y * 2 for y in x.split(2)], False),
    "rows": (lambda x: sum(y for y in x.unbind(0)) if len(x) else x.sum(0), False),
    "view returned": (lambda x: x[1:], False),
    "transposed": (lambda x: x.t() + 0, False),
    "argument returned": (lambda x: (x, x * 2), False),
    "written": (lambda x: x.add_(1) * 2, False),
    "random": (lambda x: x + mortice.rand_like(x) * 0, False),
    "branch on a value": (lambda x: x * 2 if x.sum() > 3 else x * 3, False),
    "padded": (lambda x: mortice.cat([x, x[:1]]) * 2, True),
    "repeated": (lambda x: x.repeat(2, 1), True),
    "expanded": (lambda x: x + mortice.ones(1, 3), True),
}


@pytest.mark.parametrize("name", SIZED)
def test_calls_at_any_size(name: str) -> None:
    f, at_any_size = SIZED[name]
    c = compiled(f, recompile_limit=100)
    for n in (4, 5, 7, 2, 12, 3, 1, 30, 6):
        want, got = (
            f(mortice.arange(n * 3.0).reshape(n, 3)),
            c(mortice.arange(n * 3.0).reshape(n, 3)),
        )
        for a, b in zip(_flat(want), _flat(got)):
            assert (a.tolist(), a.shape, a.stride()) == (b.tolist(), b.shape, b.stride()), n
    assert (c.verdict.replayed >= 5) == at_any_size, c.verdict.lines()


def _flat(result: Any) -> list[Any]:
    return [result] if isinstance(result, mortice.Tensor) else [y for x in result for y in _flat(x)]


def test_sizes_that_must_agree_are_checked() -> None:
    def f(x: Any, y: Any) -> Any:
        return x * y + 1

    c = compiled(f)
    for n, m in ((4, 4), (5, 5), (6, 6), (6, 1), (1, 6), (7, 7), (1, 1)):
        x, y = mortice.arange(n * 2.0).reshape(n, 2), mortice.arange(m * 2.0).reshape(m, 2)
        assert c(x, y).tolist() == f(x, y).tolist()
    assert c.verdict.replayed >= 2
    with pytest.raises(RuntimeError):
        c(mortice.ones(3, 2), mortice.ones(4, 2))


def test_numbers_that_a_graph_depends_on_are_guarded() -> None:
    def f(x: Any, n: float) -> Any:
        return mortice.addcmul(x, x, x, value=n).sum()

    c = mortice.compile(f, backend="aot_eager")
    for n in (0.5, 1.0, 2.0, 0.5, 1.0, 0.0):
        grads = []
        for call in (c, f):
            x = mortice.tensor([1.0, 2.0], requires_grad=True)
            call(x, n).backward()
            grads.append(x.grad.tolist())
        assert grads[0] == grads[1]
    assert c.verdict.replayed == 2, c.verdict.lines()


def test_plans_for_any_size_are_not_made_native() -> None:
    asked: list[Any] = []

    def backend(gm: Any, example_inputs: Any) -> Any:
        return gm

    declare(backend, native_entry=asked.append)
    sized = mortice.compile(lambda x: x * 2, backend=backend)
    for n in range(40):
        sized(mortice.ones(2 + n % 5))
    assert sized.verdict.replayed == 38
    assert not asked
    fixed = mortice.compile(lambda x: x * 2, backend=backend)
    for _ in range(20):
        fixed(mortice.ones(2))
    assert len(asked) == 1


@pytest.mark.parametrize("base", [MorticeDispatchMode, MorticeFunctionMode])
def test_modes_of_users_are_asked_at_each_call(base: Any) -> None:
    """No guard tells one mode from another, nor what it notes of operators."""

    class Mode(base):  # type: ignore[misc]
        def __init__(self, factor: float) -> None:
            super().__init__()
            self.factor = factor
            self.seen = 0

        def handle(self, func: Any, args: Any, kwargs: Any) -> Any:
            self.seen += 1
            result = func(*args, **(kwargs or {}))
            return result * self.factor if "relu" in str(func) else result

        def __mortice_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            return self.handle(func, args, kwargs)

        __mortice_function__ = __mortice_dispatch__

    def f(x: Any) -> Any:
        return x.relu().sum(0)

    compiled = mortice.compile(f, backend="eager")
    x = mortice.ones(3, 4)
    for factor in (2.0, 3.0, 2.0):
        for _ in range(3):
            mode = Mode(factor)
            with mode:
                assert compiled(x).tolist() == [3.0 * factor] * 4
            assert mode.seen
    for _ in range(3):
        assert compiled(x).tolist() == [3.0] * 4
    assert len(compiled.replay.roots) == 1


@pytest.mark.parametrize("calls", [1, 2, 5])
def test_containers_of_classes_are_looked_into(calls: int) -> None:
    """That a class has the same list says nothing of what is in it."""

    class C:
        table: Any = {"a": 2.0, "b": 3.0}
        items: Any = [1.0, 2.0]
        names: Any = {1}
        k = 5.0

    def f(x: Any) -> Any:
        for v in C.table.values():
            x = x * v
        for v in C.items:
            x = x + v
        return x * C.k if 1 in C.names else x

    c = compiled(f)
    x = mortice.ones(2)

    def check() -> None:
        for _ in range(calls):
            assert c(x).tolist() == f(x).tolist()

    check()
    assert len(c.replay.roots) == 1
    C.table["a"] = 4.0
    check()
    C.items.append(3.0)
    check()
    C.names.add(2)
    check()
    C.names.discard(1)
    check()
    del C.table["b"]
    check()
    C.items = (1.0,)
    check()


def test_an_index_that_was_out_of_range() -> None:
    items = [1.0]

    def f(x: Any) -> Any:
        try:
            return x * items[1]
        except IndexError:
            return x * 3

    c = compiled(f)
    for _ in range(3):
        assert c(mortice.ones(1)).tolist() == [3.0]
    items.append(7.0)
    assert c(mortice.ones(1)).tolist() == [7.0]


def test_one_object_asked_for_by_two_names_may_be_another_at_each_call() -> None:
    class C:
        items: Any = [1.0]

    items = C.items

    def f(x: Any, y: Any) -> Any:
        x = x * 2 if x is y else x + y
        return x + 1 if C.items is items else x - 1

    c = compiled(f)
    for _ in range(5):
        x, y = mortice.ones(1), mortice.full((1,), 5.0)
        assert c(x, x).tolist() == [3.0]
        assert c(x, y).tolist() == [7.0]
    assert len(c.replay.roots) == 2
    C.items = [1.0]
    assert c(x, x).tolist() == [1.0]
