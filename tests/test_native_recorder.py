"""The native recorder means what the one in Python does: every recorded case and program again."""

from __future__ import annotations

import gc
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from packages.core.tests.capture import playing
from tests.frames import frames

import mortice
from mortice._capture import compiled as compiled_module
from mortice._capture.compiled import Compiled
from mortice._capture.interpret import by_operator
from mortice._capture.kernels import install_recorder, uninstall_recorder
from mortice._capture.native_seam import NATIVE_RECORDER
from mortice._compile.settings import Settings
from mortice._dispatch.state import THREAD
from mortice.compiler import declare

sys.path.insert(0, str(Path(__file__).parents[1] / "packages/core/tests/capture"))
from packages.core.tests.capture import fuzz  # it imports its neighbours by name

plugin = pytest.importorskip("mortice_inductor.plugin")


#: What the test under way has compiled.
MADE: list[Compiled] = []


@pytest.fixture(autouse=True)
def native() -> Iterator[None]:
    """Makes the native recorder serve everything."""
    made = plugin.native_recorder()
    if made is None:
        pytest.skip("native functions are off in this interpreter")
    before = list(NATIVE_RECORDER)
    uninstall_recorder()
    install_recorder(lambda: made)
    yield
    uninstall_recorder()
    install_recorder(lambda: before[0] if before else None)
    MADE.clear()


def runs_of(compiled: Compiled) -> tuple[int, int]:
    """How often its segments were run natively, and by Python."""
    python = sum(s.by_python for s in compiled.segments)
    return sum(s.hits for s in compiled.segments) - python, python


def native_runs() -> int:
    return sum(runs_of(compiled)[0] for compiled in MADE)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls are native from the third on: the first has made a recorder, the second a prediction."""
    monkeypatch.setattr(compiled_module, "NATIVE_AFTER", 2)


def recorded(fn: Any, run: Any = None) -> Compiled:
    """Compiled so that the function runs in every call and its graphs are interpreted."""
    segment = run or (lambda module, inputs, settings: by_operator(module))
    settings = Settings(None, "interpreted", segment, recompile_limit=100)  # type: ignore[arg-type]
    made = Compiled(fn, settings)
    made.replay = None
    MADE.append(made)
    return made


def by_backend(backend: str) -> Callable[[Any], Any]:
    def make(fn: Any) -> Any:
        compiled = mortice.compile(fn, backend=backend)
        compiled.replay = None
        MADE.append(compiled)
        return compiled

    return make


@pytest.mark.parametrize("c", playing.CASES, ids=lambda c: c.name)
def test_natively_recorded_equals_eager(c: Any) -> None:
    want, _ = playing.play(c.make, lambda f: f, 3)
    got, _ = playing.play(c.make, by_backend("eager"), 3)
    assert got == want


@pytest.mark.parametrize("steady", [False, True])
def test_random_programs(steady: bool) -> None:
    found = [fuzz.check(seed, recorded, steady=steady) for seed in range(80)]
    assert not any(found), "\n\n".join(filter(None, found))
    assert native_runs() >= (60 if steady else 5)


def test_random_programs_by_joint_graphs() -> None:
    make = by_backend("aot_eager")
    found = [fuzz.check(seed, make, steady=True) for seed in range(1000, 1030)]
    assert not any(found), "\n\n".join(filter(None, found))
    assert native_runs() >= 8


def ten(x: Any, y: Any) -> Any:
    for _ in range(5):
        x = x * y
        x = x.sin() - 0.5
    return x


@pytest.mark.parametrize("requires_grad", [False, True])
def test_a_call_as_before_records_and_ends_natively(requires_grad: bool) -> None:
    compiled = by_backend("inductor")(ten)
    x = mortice.randn(4, requires_grad=requires_grad)
    y = mortice.randn(4)
    for _ in range(3):
        compiled(x, y)
    before = runs_of(compiled)
    for _ in range(3):
        calls = frames(lambda: compiled(x, y))
        assert not {"recording", "record", "advancing", "fill", "plan", "_begin"} & set(calls)
        assert mortice.allclose(compiled(x, y), ten(x, y))
    assert runs_of(compiled) == (before[0] + 6, before[1])
    # Before Python 3.11 the call around the function stays Python's.
    assert ("call_recorded" in calls) == (sys.version_info < (3, 11))
    if requires_grad:
        (mine,) = mortice.autograd.grad(compiled(x, y).sum(), [x])
        (theirs,) = mortice.autograd.grad(ten(x, y).sum(), [x])
        assert mortice.allclose(mine, theirs)


@pytest.mark.parametrize("requires_grad", [False, True])
def test_without_gradients(requires_grad: bool) -> None:
    compiled = by_backend("inductor")(ten)
    x = mortice.randn(4, requires_grad=requires_grad)
    y = mortice.randn(4)
    with mortice.no_grad():
        for _ in range(3):
            compiled(x, y)
        before = runs_of(compiled)
        for _ in range(3):
            found = compiled(x, y)
            assert not found.requires_grad
            assert mortice.allclose(found, ten(x, y))
        assert runs_of(compiled) == (before[0] + 3, before[1])
    for _ in range(4):
        found = compiled(x, y)
        assert found.requires_grad is requires_grad
        assert mortice.allclose(found, ten(x, y))


def test_modes_of_the_function_and_around_it() -> None:
    def f(x: Any, inside: bool) -> Any:
        y = x * 2
        if inside:
            with mortice.no_grad():
                y = y + 1
        with mortice.enable_grad():
            z = y * x
        return y, z

    compiled = recorded(f)
    x = mortice.ones(2, requires_grad=True)
    for around in (mortice.enable_grad, mortice.no_grad, mortice.inference_mode):
        for inside in (False, True):
            for _ in range(4):
                with around():
                    found, want = compiled(x, inside), f(x, inside)
                for a, b in zip(found, want):
                    assert a.tolist() == b.tolist()
                    assert a.requires_grad == b.requires_grad
                    assert a.is_inference() == b.is_inference()
    for _ in range(4):
        with mortice.autocast("cpu", dtype=mortice.bfloat16):
            found, want = (g(mortice.ones(2, 2), False) for g in (compiled, f))
        assert [t.dtype for t in found] == [t.dtype for t in want]


def test_each_segment_of_a_call_is_expected() -> None:
    def f(x: Any) -> Any:
        y = x * 2
        if y.sum().item() > 0:
            y = y + 1
        return y.sum().item(), y * y

    compiled = recorded(f)
    x = mortice.ones(3)
    for _ in range(3):
        compiled(x)
    before = runs_of(compiled)
    calls = frames(lambda: compiled(x))
    assert "record" not in calls
    assert runs_of(compiled) == (before[0] + 3, before[1])
    assert compiled(x)[0] == 9
    assert compiled(-x)[0] == -6


def test_numbers_are_taken_by_type_and_constants_by_value() -> None:
    compiled = recorded(lambda x, n, dim, p: (x * n).sum(dim).clamp(min=p))
    x = mortice.tensor([[1.0, -2.0], [3.0, -4.0]])
    for n in (2, 3, 2.5, True, -0.0, 0.0, 2):
        for dim in (0, 1, (0, 1)):
            for p in (0.5, 0.25 + 0.25, -1):
                want = (x * n).sum(dim).clamp(min=p)
                for _ in range(2):
                    got = compiled(x, n, dim, p)
                    assert got.dtype is want.dtype
                    assert repr(got.tolist()) == repr(want.tolist())


def test_tensors_that_others_hold_are_results_too() -> None:
    kept: list[Any] = []

    def f(x: Any, keep: bool) -> Any:
        y = x + 1
        if keep:
            kept.append(y)
        return y * 2

    compiled = recorded(f)
    x = mortice.ones(2)
    for keep in (False, False, True, True, False, True):
        assert compiled(x, keep).tolist() == [4, 4]
    assert [t.tolist() for t in kept] == [[2, 2]] * 3


def test_what_nobody_holds_dies_at_once() -> None:
    gone: list[bool] = []

    def f(x: Any) -> Any:
        y = x + 1
        seen = weakref.ref(y)
        y = y * 2
        gone.append(seen() is None)
        return y

    compiled = recorded(f)
    for _ in range(3):
        compiled(mortice.ones(2))
    assert gone == [True] * 3


def test_inputs_are_not_kept() -> None:
    compiled = by_backend("inductor")(ten)
    y = mortice.ones(4)
    for _ in range(4):
        x = mortice.ones(4)
        compiled(x, y)
        seen = weakref.ref(x)
        del x
        assert seen() is None


def test_memory_is_neither_lost_nor_freed_twice() -> None:
    compiled = by_backend("inductor")(ten)
    x, y = mortice.ones(4), mortice.ones(4)

    def counts() -> list[int]:
        gc.collect()
        return [sys.getrefcount(o) for o in (x, y, x._k, x._t, None, True, False, type(x))]

    for _ in range(50):
        compiled(x, y)
    before = counts()
    for _ in range(2000):
        compiled(x, y)
    assert all(abs(a - b) < 100 for a, b in zip(before, counts()))


def test_a_graph_that_fails_says_so() -> None:
    fails = [False]

    def backend(module: Any, inputs: Sequence[Any], settings: Any) -> Any:
        run = by_operator(module)

        def maybe(*args: Any) -> Any:
            if fails[0]:
                raise ArithmeticError("on purpose")
            return run(*args)

        return maybe

    pending: list[Any] = []

    def f(x: Any) -> Any:
        pending[:] = [x + 1]
        return pending[0] * 2

    compiled = recorded(f, backend)
    x = mortice.ones(2)
    for _ in range(3):
        compiled(x)
    fails[0] = True
    with pytest.raises(ArithmeticError, match="on purpose"):
        compiled(x)
    with pytest.raises(mortice.errors.InvalidState, match="on purpose"):
        pending[0].tolist()
    fails[0] = False
    assert compiled(x).tolist() == [4, 4]
    assert THREAD.recorder is None


def test_what_the_function_raises_is_raised() -> None:
    class Stop(BaseException):
        pass

    seen: list[Any] = []

    def f(x: Any, fails: bool) -> Any:
        y = x.add_(1)
        seen[:] = [x * 2]
        if fails:
            raise Stop("on purpose")
        return y

    compiled = recorded(f)
    x = mortice.zeros(2)
    for n, fails in enumerate((False, False, False, True, True, False, True)):
        if fails:
            with pytest.raises(Stop, match="on purpose") as caught:
                compiled(x, fails)
            assert any(entry.name == "f" for entry in caught.traceback)
        else:
            compiled(x, fails)
        assert x.tolist() == [n + 1] * 2
        assert seen[0].tolist() == [2 * n + 2] * 2
        assert THREAD.recorder is None


def test_arguments_by_name_and_calls_within_calls() -> None:
    compiled = recorded(lambda x, *rest, scale, **more: x * scale + len(rest) + len(more))
    outer = recorded(lambda x: compiled(x, 1, scale=2) + compiled(x, scale=3, a=1, b=2))
    x = mortice.ones(2)
    for _ in range(4):
        assert compiled(x, 1, 2, scale=3, a=1).tolist() == [6, 6]
        assert outer(x).tolist() == [8, 8]
        with pytest.raises(TypeError, match="scale"):
            compiled(x)


def test_reports_and_reset_see_calls() -> None:
    compiled = recorded(lambda x: x + 1)
    x = mortice.ones(2)
    for _ in range(4):
        compiled(x)
    assert compiled.native is not None
    compiled.keep_traces = 1
    compiled(x)
    assert len(compiled.records) == 1
    compiled.reset()
    assert compiled.native is None
    assert compiled(x).tolist() == [2, 2]


def test_outputs_laid_out_otherwise_are_laid_out_as_recorded() -> None:
    def backend(module: Any, inputs: Sequence[Any], settings: Any) -> Any:
        run = by_operator(module)
        return lambda *args: [t.t().contiguous().t() for t in run(*args)]

    compiled = recorded(lambda x: x + 1, backend)
    x = mortice.arange(6.0).reshape(2, 3)
    for _ in range(3):
        found = compiled(x)
        assert found.stride() == (3, 1)
        assert found.tolist() == (x + 1).tolist()


def test_a_pending_tensor_that_was_changed() -> None:
    def f(x: Any) -> Any:
        y = x * 2
        y.requires_grad_(True)
        z = y * 3
        return y, z

    compiled = recorded(f)
    for _ in range(3):
        y, z = compiled(mortice.ones(2))
        z.sum().backward()
        assert y.is_leaf
        assert y.grad.tolist() == [3, 3]


def test_another_thread_waits_and_is_waited_for() -> None:
    found: list[float] = []

    def f(x: Any, held: bool) -> Any:
        y = x + 1
        if held:
            recorder = THREAD.recorder
            worker = threading.Thread(target=lambda: found.append(y.sum().item()))
            recorder.busy = True
            worker.start()
            while not recorder.asked:
                time.sleep(0.001)
            recorder.busy = False
            z = y * 2
            worker.join()
            return z
        return y * 2

    compiled = recorded(f)
    x = mortice.ones(3)
    for held in (False, False, True, True, False):
        assert compiled(x, held).tolist() == [4, 4, 4]
    assert found == [6, 6]


def test_two_threads_run_one_function() -> None:
    compiled = by_backend("inductor")(ten)
    wrong: list[Any] = []

    def work(seed: int) -> None:
        x = mortice.full((4,), float(seed))
        want = ten(x, x).tolist()
        wrong.extend(got for _ in range(300) if (got := compiled(x, x).tolist()) != want)

    workers = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert wrong == []


def test_a_backend_is_asked_after_some_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_module, "NATIVE_AFTER", 3)
    uninstall_recorder()
    asked: list[int] = []

    def backend(gm: Any, inputs: Any, *, options: Any = None) -> Any:
        return gm

    declare(backend, native_recorder=lambda: asked.append(1))
    compiled = mortice.compile(lambda x: x + 1, backend=backend)
    compiled.replay = None
    for _ in range(6):
        compiled(mortice.ones(2))
    assert asked == [1]
