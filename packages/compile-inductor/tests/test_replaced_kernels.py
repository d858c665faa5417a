"""Users' kernels for operators that inductor would compute itself: what eager runs is what runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import mortice
from mortice.errors import CompileError
from mortice.library import Library
from mortice.nn import functional as F

KEYS = {"sin": 7.0, "add.Tensor": 3.0, "gelu": 5.0, "mm": 2.0, "sum.dim_IntList": 11.0}


class Own:
    """Kernels that give one number everywhere, and count their calls."""

    def __init__(self) -> None:
        self.calls = 0
        self.library = Library("aten", "IMPL")

    def put(self, name: str, key: str = "CPU") -> Own:
        shape = mortice.ops.aten

        def kernel(*args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            if name == "mm":
                return shape.full([args[0].shape[0], args[1].shape[1]], KEYS[name])
            if name.startswith("sum"):
                return shape.full([args[0].shape[0]], KEYS[name])
            return shape.full_like(args[0], KEYS[name])

        self.library.impl(name, kernel, key)
        return self

    def take_back(self) -> None:
        self.library._destroy()


@pytest.fixture
def own() -> Iterator[Own]:
    made = Own()
    yield made
    made.take_back()


def chain(x: Any, w: Any) -> Any:
    return (F.gelu(mortice.sin(x) + 1.5) @ w).sum(1) * 2


def data() -> tuple[Any, Any]:
    return mortice.arange(12.0).reshape(3, 4) / 5, mortice.ones(4, 2)


@pytest.mark.parametrize("name", KEYS)
def test_a_kernel_registered_before_compiling_runs(own: Own, name: str) -> None:
    own.put(name)
    compiled = mortice.compile(chain)
    expected = chain(*data())
    for _ in range(12):
        before = own.calls
        mortice.testing.assert_close(compiled(*data()), expected)
        assert own.calls == before + 1


@pytest.mark.parametrize("calls", [1, 3, 20])
@pytest.mark.parametrize("name", KEYS)
def test_compiled_code_notices_kernels_that_come_and_go(own: Own, name: str, calls: int) -> None:
    compiled = mortice.compile(chain)
    plain = chain(*data())
    for _ in range(calls):
        mortice.testing.assert_close(compiled(*data()), plain)
    own.put(name)
    replaced = chain(*data())
    for _ in range(calls):
        mortice.testing.assert_close(compiled(*data()), replaced)
    own.take_back()
    for _ in range(calls):
        mortice.testing.assert_close(compiled(*data()), plain)


def test_a_function_that_always_runs_notices(own: Own) -> None:
    seen: list[int] = []

    def f(x: Any) -> Any:
        seen.append(1)
        return mortice.sin(x) * 2

    compiled = mortice.compile(f)
    x = data()[0]
    for _ in range(20):
        compiled(x)
    own.put("sin")
    for _ in range(20):
        mortice.testing.assert_close(compiled(x), f(x))
    own.take_back()
    mortice.testing.assert_close(compiled(x), f(x))


def test_gradients_use_the_kernels_that_they_use_in_eager(own: Own) -> None:
    def step(f: Any) -> Any:
        x, w = data()
        x.requires_grad_()
        y = f(x, w)
        y.sum().backward()
        return y.detach(), x.grad

    compiled = mortice.compile(chain)
    for a, b in zip(step(compiled), step(chain)):
        mortice.testing.assert_close(a, b)
    own.put("mm").put("sin")
    for a, b in zip(step(compiled), step(chain)):
        mortice.testing.assert_close(a, b)


def test_symbolic_sizes(own: Own) -> None:
    own.put("sin")
    compiled = mortice.compile(lambda x: mortice.sin(x) * 2 + x, dynamic=True)
    for n in (4, 5, 9):
        x = mortice.arange(float(n))
        mortice.testing.assert_close(compiled(x), mortice.full((n,), 14.0) + x)


def test_kernels_for_other_operators_leave_fusion_alone(own: Own) -> None:
    own.put("mm")
    compiled = mortice.compile(lambda x: (mortice.sin(x) * 2).exp())
    compiled(data()[0])
    (segment,) = compiled.segments
    fusion = segment.module.meta["stages"][0].graphs["graph"].meta["fusion"]()
    assert "left to the dispatcher" not in fusion


def test_a_graph_compiled_directly_is_not_taken_from_one_without_the_kernel(own: Own) -> None:
    from mortice.fx import make_fx
    from mortice_inductor import compile_fx

    x = data()[0]

    def f(x: Any) -> Any:
        return mortice.sin(x) * 3

    def run() -> Any:
        return compile_fx(make_fx(f)(x), [x])(x)[0]

    mortice.testing.assert_close(run(), f(x))
    own.put("sin")
    mortice.testing.assert_close(run(), f(x))
    own.take_back()
    mortice.testing.assert_close(run(), f(x))


@pytest.mark.parametrize(
    ("kernel", "said"),
    [
        (lambda x: x.double(), "gave a mortice.float64 tensor of shape \\(3, 4\\) on cpu"),
        (lambda x: x.half(), "gave a mortice.float16 tensor of shape \\(3, 4\\) on cpu"),
        (lambda x: x[:2], "gave a mortice.float32 tensor of shape \\(2, 4\\) on cpu"),
        (lambda x: x.to("meta"), "gave a mortice.float32 tensor of shape \\(3, 4\\) on meta"),
        (lambda x: None, "gave NoneType"),
    ],
    ids=["double", "half", "shape", "meta", "nothing"],
)
def test_a_result_that_is_not_as_the_shape_rule_says_is_refused(
    own: Own, kernel: Any, said: str
) -> None:
    """Native code would read it as what it was told: beyond its end, for one."""
    own.library.impl("sin", kernel, "CPU")
    compiled = mortice.compile(lambda x: mortice.sin(x) * 2)
    for _ in range(3):
        with pytest.raises(CompileError, match=f"aten.sin.default {said}.*mend the kernel"):
            compiled(data()[0])
