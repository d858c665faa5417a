"""Custom operators, modes, subclasses and autocast in compiled calls."""

from __future__ import annotations

from typing import Any

import pytest
from comparing import same

import mortice
from mortice.library import custom_op
from mortice.utils.dispatch import MorticeDispatchMode


@pytest.fixture(scope="module")
def operators() -> Any:
    log: list[str] = []

    @custom_op("capture_tests::triple", mutates_args=())
    def triple(x: mortice.Tensor, n: float) -> mortice.Tensor:
        log.append("triple")
        return x * 3 + n

    @triple.register_fake
    def _(x: Any, n: Any) -> Any:
        return mortice.empty_like(x)

    triple.register_autograd(lambda ctx, g: (g * 3, None))

    @custom_op("capture_tests::unknown", mutates_args=())
    def unknown(x: mortice.Tensor) -> mortice.Tensor:
        log.append("unknown")
        return x[x > 1]

    @custom_op("capture_tests::bump", mutates_args=("x",))
    def bump(x: mortice.Tensor, by: mortice.Tensor) -> None:
        log.append("bump")
        x.add_(by)

    @bump.register_fake
    def _(x: Any, by: Any) -> None:
        return None

    return {"triple": triple, "unknown": unknown, "bump": bump, "log": log}


def check(compile: Any, f: Any, make: Any, calls: int = 3) -> Any:
    compiled = compile(f)
    for _ in range(calls):
        mine, theirs = make(), make()
        same(compiled(*mine), f(*theirs))
        same(mine, theirs)
    return compiled


def one() -> Any:
    return (mortice.tensor([1.0, 2.0, 3.0]),)


def test_a_functional_custom_operator_is_recorded(compile: Any, operators: Any) -> None:
    triple = operators["triple"]
    compiled = check(compile, lambda x: triple(x * 2, 0.5) + 1, one)
    assert len(compiled.segments) == 1
    assert "capture_tests.triple" in str(compiled.segments[0].module.graph)


def test_its_gradient(compile: Any, operators: Any) -> None:
    triple = operators["triple"]
    compiled = compile(lambda x: triple(x * 2, 0.5).sum())
    x = mortice.ones(3, requires_grad=True)
    compiled(x).backward()
    assert x.grad.tolist() == [6, 6, 6]


def test_without_a_fake_it_runs_at_once(compile: Any, operators: Any) -> None:
    unknown = operators["unknown"]
    check(compile, lambda x: unknown(x * 2) + 1, one)


def test_a_mutating_custom_operator(compile: Any, operators: Any) -> None:
    bump = operators["bump"]

    def f(x: Any) -> Any:
        y = x * 2
        bump(y, x)
        bump(x, y)
        z = y + x
        bump(y[0], mortice.ones(()))
        return y, z

    check(compile, f, one)


def test_dispatch_mode_inside_and_outside(compile: Any) -> None:
    class Log(MorticeDispatchMode):
        def __init__(self) -> None:
            self.seen: list[str] = []

        def __mortice_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            self.seen.append(func.name())
            return func(*args, **(kwargs or {}))

    seen: list[Any] = []

    def f(x: Any) -> Any:
        y = x * 2
        with Log() as mode:
            z = y + 1
            w = z.relu()
        seen.append(mode.seen)
        return w, y - 1

    check(compile, f, one)
    assert all(s == ["aten::add.Tensor", "aten::relu"] for s in seen)
    compiled = compile(lambda x: x * 2 + 1)
    with Log() as mode:
        assert compiled(mortice.ones(1)).tolist() == [3]
    assert "aten::mul.Tensor" in mode.seen


def test_function_mode(compile: Any) -> None:
    from mortice.overrides import MorticeFunctionMode

    class Double(MorticeFunctionMode):
        def __mortice_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            result = func(*args, **(kwargs or {}))
            return result * 2 if getattr(func, "__name__", "") == "add" else result

    def f(x: Any) -> Any:
        y = x * 3
        with Double():
            z = mortice.add(y, 1)
        return z, mortice.add(y, 1)

    check(compile, f, one)


def test_plain_subclass(compile: Any) -> None:
    class Named(mortice.Tensor):
        pass

    def f(x: Any) -> Any:
        y = x * 2
        return y + 1, type(y).__name__, x[0]

    compiled = compile(f)
    for _ in range(3):
        x = mortice.ones(3).as_subclass(Named)
        got, want = compiled(x), f(x)
        assert type(got[0]) is type(want[0]) is Named
        assert got[1] == want[1] == "Named"
        assert got[0].tolist() == want[0].tolist()
        assert type(got[2]) is type(want[2])


def test_wrapper_subclass(compile: Any) -> None:
    class Wrapper(mortice.Tensor):
        @staticmethod
        def __new__(cls: Any, inner: Any) -> Any:
            r = mortice.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
            r.inner = inner
            return r

        @classmethod
        def __mortice_dispatch__(
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            plain = [a.inner if isinstance(a, Wrapper) else a for a in args]
            return Wrapper(func(*plain, **(kwargs or {})))

    def f(x: Any) -> Any:
        w = Wrapper(x * 2)
        return (w + x).inner * 2

    check(compile, f, one)


def test_autocast(compile: Any) -> None:
    def f(x: Any) -> Any:
        m = x.view(3, 1)
        with mortice.autocast("cpu"):
            low = m @ m.t()
            with mortice.autocast("cpu", enabled=False):
                full = m @ m.t()
        return low, full, m @ m.t()

    check(compile, f, one)
    compiled = compile(lambda x: x.view(3, 1) @ x.view(1, 3))
    for enabled in (False, True, False):
        with mortice.autocast("cpu", enabled=enabled):
            assert compiled(one()[0]).dtype is (mortice.bfloat16 if enabled else mortice.float32)
    assert len(compiled.segments) == 2


def test_meta_and_fake_tensors_are_computed_with_as_ever(compile: Any) -> None:
    compiled = compile(lambda x: (x * 2).sum(0))
    assert compiled(mortice.empty(2, 3, device="meta")).shape == (3,)
    from mortice._capture.fake import FakeTensorMode

    mode = FakeTensorMode()
    with mode:
        assert compiled(mode.from_tensor(mortice.ones(2, 3))).shape == (3,)


def test_a_kernel_registered_afterwards_is_used(
    compile: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Told once in a process, in which another test may have been first.
    monkeypatch.setattr("mortice._library.registration._warned_override", [False])
    library = mortice.library.Library("capture_late", "DEF")
    library.define("f(Tensor x) -> Tensor")
    library.impl("f", lambda x: x + 1, "CPU")
    compiled = compile(lambda x: mortice.ops.capture_late.f(x) * 1)
    assert compiled(mortice.ones(1)).tolist() == [2]
    library.impl("f", lambda x: mortice.empty_like(x), "Meta")
    assert compiled(mortice.ones(1)).tolist() == [2]
    with pytest.warns(UserWarning, match="previously registered"):
        library.impl("f", lambda x: x + 2, "CPU", allow_override=True)
    assert compiled(mortice.ones(1)).tolist() == [3]


def test_what_modes_and_subclasses_call_is_recorded(compile: Any) -> None:
    class Through(MorticeDispatchMode):
        def __mortice_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            return func(*args, **(kwargs or {}))

    class Scaled(mortice.Tensor):
        """Holds half of what it stands for."""

        @staticmethod
        def __new__(cls: Any, inner: Any) -> Any:
            r = mortice.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
            r.inner = inner
            return r

        @classmethod
        def __mortice_dispatch__(
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            plain = [a.inner * 2 if isinstance(a, Scaled) else a for a in args]
            return Scaled(func(*plain, **(kwargs or {})) / 2)

    def f(x: Any) -> Any:
        y = x + 1
        with Through():
            z = (y * 3).t()
        return (Scaled(z / 2) + z).inner

    compiled = check(compile, f, lambda: (mortice.ones(2, 3),))
    assert len(compiled.segments) == 1
    assert compiled.segments[0].nodes == 7
    compiled = compile(lambda x: (Scaled(x) * 2).inner.sum())
    x = mortice.ones(3, requires_grad=True)
    compiled(x).backward()
    want = mortice.ones(3, requires_grad=True)
    compiled.fn(want).backward()
    assert mortice.equal(x.grad, want.grad)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_an_operator_that_adds_into_its_argument_reads_it(backend: str) -> None:
    with mortice.library.scoped_library("capture_adds", "DEF") as library:
        library.define("add_into(Tensor(a!) x, Tensor y) -> Tensor(a!)")
        library.impl("add_into", lambda x, y: x.add_(y), "CompositeExplicitAutograd")
        library.impl("add_into", lambda x, y: x, "Meta")
        add_into = mortice.ops.capture_adds.add_into.default
        compiled = mortice.compile(lambda x, y: add_into(x, y) * 2, backend=backend)
        for number in (1.0, 2.0, 3.0):
            x, y = mortice.full((3,), number), mortice.ones(3)
            assert compiled(x, y).tolist() == [2 * (number + 1)] * 3
            assert x.tolist() == [number + 1] * 3
