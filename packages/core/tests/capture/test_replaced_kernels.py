"""Users' kernels for operators of core, in functions that are compiled before and after."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest

import mortice
from mortice._capture import instances
from mortice.library import Library, custom_op

BACKENDS = ("eager", "aot_eager")


@pytest.fixture
def library() -> Iterator[Library]:
    made = Library("aten", "IMPL")
    yield made
    made._destroy()


def in_place(x: Any) -> Any:
    return (x * 2).add_(1) * 3


def into_input(x: Any) -> Any:
    x.add_(1)
    return x * 3


def view(x: Any) -> Any:
    return (x * 2).permute(1, 0) + 1


def functional(x: Any) -> Any:
    return mortice.sin(x * 2) + 1


def composite(x: Any) -> Any:
    return mortice.square(x + 1) * 2


def into_out(x: Any) -> Any:
    out = mortice.empty(2, 3)
    mortice.add(x.detach() * 2, 1, out=out)
    return out * x


#: Function, operator, kernel, key.
CASES: dict[str, tuple[Any, str, Any, str]] = {
    "an in-place form": (in_place, "add_.Tensor", lambda x, y, **k: x.fill_(9.0), "CPU"),
    "an in-place form on an input": (into_input, "add_.Tensor", lambda x, y, **k: x.fill_(9.0), "CPU"),
    "a view": (view, "permute", lambda x, dims: mortice.full(x.shape[::-1], 4.0), "CPU"),
    "a function": (functional, "sin", lambda x: mortice.full_like(x, 7.0), "CPU"),
    "above autograd": (functional, "sin", lambda x: mortice.cos(x) * 2, "AutogradCPU"),
    "above autograd, by alias": (functional, "sin", lambda x: mortice.cos(x) * 2, "Autograd"),
    "an in-place form's functional": (in_place, "add.Tensor", lambda x, y, **k: x * 0 + 9, "CPU"),
    "an out form": (into_out, "add.out", lambda x, y, alpha=1, *, out: out.fill_(9.0), "CPU"),
    "an out form's functional": (into_out, "add.Tensor", lambda x, y, **k: x * 0, "CPU"),
    "a body": (composite, "square", lambda x: x * x * x, "CompositeImplicitAutograd"),
    "a composite": (composite, "square", lambda x: x * x * x, "CPU"),
}  # fmt: skip


#: Where eager goes on to use its own kernel, and compiled code with it.
SAME = ("an in-place form's functional", "a body")


def called(f: Any, grad: bool) -> list[Any]:
    x = mortice.arange(6.0).reshape(2, 3)
    given = x.clone().requires_grad_(grad)
    argument = given.clone() if grad else given
    result = f(argument)
    if not (grad and result.requires_grad):
        return [result.tolist(), argument.tolist()]
    result.sum().backward()
    return [result.tolist(), argument.tolist(), given.grad.tolist()]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_compiled_is_eager(library: Library, case: str, grad: bool, backend: str) -> None:
    f, operator, kernel, key = CASES[case]
    compiled = mortice.compile(f, backend=backend)
    plain = called(f, grad)
    for _ in range(4):
        assert called(compiled, grad) == plain
    library.impl(operator, kernel, key)
    replaced = called(f, grad)
    if not grad and case not in SAME:
        assert replaced != plain
    for _ in range(12):
        assert called(compiled, grad) == replaced
    library._destroy()
    for _ in range(4):
        assert called(compiled, grad) == plain


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_kernel_registered_within_a_call_is_for_what_follows(backend: str) -> None:
    def f(x: Any, on: bool) -> Any:
        y = mortice.sin(x)
        if on:
            own = Library("aten", "IMPL")
            own.impl("sin", lambda a: a * 10, "CPU")
        z = mortice.sin(x)
        if on:
            own._destroy()
        return y + z * 100 + mortice.sin(x)

    compiled = mortice.compile(f, backend=backend)
    x = mortice.ones(2)
    for on in (False, True, False, True, True, False):
        assert compiled(x, on).tolist() == f(x, on).tolist()


def test_what_was_looked_for_on_disk_is_forgotten(library: Library) -> None:
    compiled = mortice.compile(functional, backend="eager")
    assert compiled.is_new
    compiled(mortice.ones(2))
    assert not compiled.is_new
    library.impl("sin", lambda x: mortice.zeros_like(x), "CPU")
    assert compiled.is_new


def test_an_operator_defined_anew_is_found() -> None:
    def define(factor: float) -> Library:
        made = Library("capture_again", "DEF")
        made.define("scaled(Tensor x) -> Tensor")
        made.impl("scaled", lambda x: x * factor, "CompositeExplicitAutograd")
        made.impl("scaled", lambda x: mortice.empty_like(x), "Meta")
        return made

    def f(x: Any) -> Any:
        return mortice.ops.capture_again.scaled(x) + 1

    compiled = mortice.compile(f, backend="eager")
    x = mortice.ones(2)
    for factor in (2.0, 3.0):
        made = define(factor)
        for _ in range(3):
            assert compiled(x).tolist() == [factor + 1] * 2
        made._destroy()
        del made
        gc.collect()


def test_what_has_not_been_called_outdates_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    from mortice._dispatch import operator

    monkeypatch.setattr(operator, "kernels_changed", told.append)

    @custom_op("capture_new::one", mutates_args=())
    def one(x: mortice.Tensor) -> mortice.Tensor:
        return x + 1

    one.register_fake(lambda x: mortice.empty_like(x))
    assert told == []
    one(mortice.ones(1))
    one.register_kernel("cpu")(lambda x: x + 2)
    assert told == ["capture_new::one"] * len(told) and told


def test_objects_that_are_made_meanwhile_do_not_disturb(library: Library) -> None:
    made = [mortice.compile(functional, backend="eager") for _ in range(50)]
    assert set(map(id, made)) <= set(map(id, instances.alive()))
