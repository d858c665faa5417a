"""Recorded operators run no Python, and the functions that are taken over for that stay what they are."""

from __future__ import annotations

import gc
import inspect
import os
import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.frames import frames

import mortice
from mortice import Tensor
from mortice._capture import compiled as compiled_module
from mortice._capture.compiled import Compiled
from mortice._capture.interpret import by_operator
from mortice._capture.kernels import install_recorder, uninstall_recorder
from mortice._capture.native_seam import NATIVE_RECORDER
from mortice._capture.stubs import operator_stubs
from mortice._compile.settings import Settings
from mortice._dispatch.state import GLOBAL
from mortice.library import Library

plugin = pytest.importorskip("mortice_inductor.plugin")
layout = pytest.importorskip("mortice_llvm.cpython.layout")


@pytest.fixture(autouse=True)
def native(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Inductor's recorder serves every call from the third on."""
    if plugin.native_recorder() is None:
        pytest.skip("native functions are off in this interpreter")
    monkeypatch.setattr(compiled_module, "NATIVE_AFTER", 2)
    before = list(NATIVE_RECORDER)
    uninstall_recorder()
    install_recorder(plugin.native_recorder)
    yield
    uninstall_recorder()
    install_recorder(lambda: before[0] if before else None)


def always_run(f: Any, backend: str = "inductor") -> Any:
    compiled = mortice.compile(f, backend=backend)
    compiled.replay = None
    return compiled


def operators(x: Any, y: Any) -> Any:
    a = x + y
    b = 2 * a - y / 3
    c = -b * y
    return (a < b) * c, abs(b) + 1.5


def functions(x: Any, y: Any) -> Any:
    return mortice.sin(x + y).exp() * x.sum(), mortice.maximum(x, y).log1p()


@pytest.mark.parametrize("requires_grad", [False, True])
def test_python_runs_the_function_and_nothing_else(requires_grad: bool) -> None:
    compiled = always_run(operators, "eager" if requires_grad else "inductor")
    x, y = mortice.randn(3, requires_grad=requires_grad), mortice.randn(3)
    for _ in range(4):
        compiled(x, y)
    names = frames(lambda: compiled(x, y))
    if sys.version_info >= (3, 11) and not requires_grad:
        assert names == ["operators"]
    assert not {name for name in names if name.startswith("Tensor_op")}
    for got, want in zip(compiled(x, y), operators(x, y)):
        assert mortice.allclose(got, want)


def test_stubs_that_bytecode_calls_run_themselves_only() -> None:
    compiled = always_run(functions)
    x, y = mortice.randn(3), mortice.randn(3)
    for _ in range(4):
        compiled(x, y)
    names = frames(lambda: compiled(x, y))
    stubs = ["functions", "sin", "Tensor_exp", "Tensor_sum", "maximum", "Tensor_log1p"]
    if sys.version_info >= (3, 11):
        assert names == stubs
    assert not {"slow", "call_by_plan", "recording", "record"} & set(names)
    for got, want in zip(compiled(x, y), functions(x, y)):
        assert mortice.allclose(got, want)


def test_functions_stay_the_objects_that_they_are() -> None:
    add, called = Tensor.__add__, Compiled.__call__
    signature = inspect.signature(add)
    uninstall_recorder()
    assert Tensor.__add__ is add
    assert Compiled.__call__ is called
    assert inspect.signature(add) == signature
    assert list(signature.parameters) == ["self", "other", "alpha", "kwargs"]
    install_recorder(plugin.native_recorder)
    assert Tensor.__add__ is add
    assert inspect.isfunction(add)
    assert inspect.getsource(add).startswith("def Tensor_op_add(")
    for f in (mortice.add, mortice.sin, Tensor.add, Tensor.sin):
        assert inspect.isfunction(f)
    assert pickle.loads(pickle.dumps(mortice.add)) is mortice.add
    assert add(mortice.ones(2), 1, alpha=3).tolist() == [4, 4]
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        add(mortice.ones(2))


def test_giving_back_restores_everything() -> None:
    def plain() -> None:
        pass

    taken = (*operator_stubs(), Compiled.__call__)
    assert len(operator_stubs()) > 30

    def usual() -> set[bool]:
        where = layout.vectorcall_place
        return {layout.word(where(f)) == layout.word(where(plain)) for f in taken}

    assert usual() == {False}
    assert GLOBAL.quick is not None
    uninstall_recorder()
    assert usual() == {True}
    assert GLOBAL.quick is None
    assert (mortice.ones(2) + 1).tolist() == [2, 2]
    install_recorder(plugin.native_recorder)
    assert usual() == {False}


def test_outside_of_recordings_the_function_itself_runs() -> None:
    x = mortice.ones(2)
    assert frames(lambda: x + x)[0] == "Tensor_op_add"
    assert frames(lambda: mortice.sin(x))[0] == "sin"
    with pytest.raises(TypeError, match="unsupported operand"):
        x + object()
    with pytest.raises(mortice.errors.ShapeError):
        x + mortice.ones(3)


# -- what must not be taken natively -----------------------------------------------------------------


def agrees(f: Callable[..., Any], calls: list[tuple[Any, ...]]) -> None:
    """Compiled, every call gives what the function gives, from the first to the native ones."""
    settings = Settings(None, "interpreted", lambda m, i, s: by_operator(m), recompile_limit=100)  # type: ignore[arg-type]
    compiled = Compiled(f, settings)
    compiled.replay = None
    for args in [*calls * 3, *(c for c in calls for _ in range(4))]:
        got, want = ([repr(x) for x in g(*args)] for g in (compiled, f))
        assert got == want, args


class Loud(Tensor):
    """Sees every function."""

    @classmethod
    def __mortice_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = super().__mortice_function__(func, types, args, kwargs or {})
        return found.as_subclass(Tensor) * 100 if isinstance(found, Tensor) else found


def test_subclasses_and_parameters() -> None:
    kinds = [
        mortice.ones(2),
        mortice.ones(2).as_subclass(Loud),
        mortice.nn.Parameter(mortice.ones(2)),
    ]
    agrees(lambda x, y: (x + y, y - x, -x), [(x, y) for x in kinds for y in kinds])


def test_operands_of_other_kinds() -> None:
    x = mortice.ones(2)
    others = [
        2,
        2.5,
        True,
        mortice.ones(2),
        mortice.tensor(3.0),
        mortice.ones(2, dtype=mortice.int64),
    ]
    agrees(lambda x, y: (x * y, y * x, x - y, y - x, x == y), [(x, y) for y in others])
    agrees(lambda x, y: (x**y, y**x, x // y, x % 2), [(x, y) for y in others if y is not True])


def test_modes_around_and_inside() -> None:
    x = mortice.ones(2, 2, requires_grad=True)

    def f(x: Any, mode: int) -> Any:
        a = x + x
        with mortice.no_grad() if mode == 1 else mortice.autocast("cpu", enabled=mode == 2):
            b = a @ x
        return a, b, a + b

    agrees(f, [(x, mode) for mode in range(3)])


def test_gradients_asked_for_within() -> None:
    def f(x: Any, asks: bool) -> Any:
        y = x * 2
        if asks:
            y.requires_grad_(True)
        return y * 3, y + x

    agrees(f, [(mortice.ones(2), asks) for asks in (False, True)])


def test_kernels_registered_later_are_called() -> None:
    """Dispatch tables that were cleared make every step's promise void."""
    compiled = always_run(lambda x: (x + 1, x * 2), "eager")
    x = mortice.ones(2)
    for _ in range(5):
        assert [t.tolist() for t in compiled(x)] == [[2, 2], [2, 2]]
    library = Library("aten", "IMPL")
    library.impl("mul.Tensor", lambda a, b: mortice.full((2,), 7.0), "Autograd")
    want = [t.tolist() for t in (x + 1, x * 2)]
    for _ in range(5):
        assert [t.tolist() for t in compiled(x)] == want
    library._destroy()
    del library
    gc.collect()
    for _ in range(5):
        assert [t.tolist() for t in compiled(x)] == [[2, 2], [2, 2]]


def test_results_that_are_no_longer_what_was_recorded() -> None:
    def f(x: Any, y: Any, way: int) -> Any:
        a = x + y
        b = (a if way else x) * y
        return b - (a if way < 2 else y), a

    x, y = mortice.arange(3.0), mortice.ones(3)
    agrees(f, [(x, y, way) for way in range(3)] + [(y, y, 1), (x.double(), y, 1)])


def test_eight_threads() -> None:
    compiled = always_run(operators)
    wrong: list[Any] = []

    def work(seed: int) -> None:
        x, y = mortice.full((3,), float(seed)), mortice.arange(1.0, 4.0)
        want = [t.tolist() for t in operators(x, y)]
        for _ in range(200):
            got = [t.tolist() for t in compiled(x, y)]
            if got != want:
                wrong.append((seed, got, want))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == []


def test_another_thread_computes_as_ever_meanwhile() -> None:
    """What a thread that records nothing computes is not taken for the recording thread's."""
    found: list[Any] = []
    x, y = mortice.ones(2), mortice.full((2,), 3.0)

    def f(x: Any, y: Any) -> Any:
        a = x + y
        other = threading.Thread(target=lambda: found.append(((x + y) * y).tolist()))
        other.start()
        other.join()
        return a * y

    compiled = always_run(f, "eager")
    for _ in range(6):
        assert compiled(x, y).tolist() == [12, 12]
    assert found == [[12, 12]] * 6


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_fork_goes_on_recording() -> None:
    compiled = always_run(operators)
    x, y = mortice.ones(3), mortice.arange(1.0, 4.0)
    for _ in range(4):
        want = [t.tolist() for t in compiled(x, y)]
    child = os.fork()
    if not child:
        same = all([t.tolist() for t in compiled(x, y)] == want for _ in range(4))
        os._exit(0 if same else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert [t.tolist() for t in compiled(x, y)] == want
