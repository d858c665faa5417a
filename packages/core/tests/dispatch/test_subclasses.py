"""Tensor subclasses as people write them: one that logs, one that holds two, a diagonal matrix."""

from __future__ import annotations

import threading
from typing import Any, ClassVar

import pytest

import mortice
from mortice import Tensor
from mortice.overrides import (
    DisableMorticeFunction,
    DisableMorticeFunctionSubclass,
    MorticeFunctionMode,
    handle_mortice_function,
    has_mortice_function,
    has_mortice_function_unary,
    is_tensor_like,
)
from mortice.utils import pytree
from mortice.utils.dispatch import is_traceable_wrapper_subclass


class LoggingTensor(Tensor):
    """Writes down every operator that runs on it, forward and backward."""

    log: ClassVar[list[str]] = []
    elem: Tensor

    @staticmethod
    def __new__(cls, elem: Tensor) -> Any:
        made = Tensor._make_wrapper_subclass(
            cls, elem.size(), strides=elem.stride(), dtype=elem.dtype, device=elem.device,
            requires_grad=elem.requires_grad,
        )  # fmt: skip
        made.elem = elem.detach()
        return made

    @classmethod
    def __mortice_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def inside(x: Any) -> Any:
            return x.elem if isinstance(x, LoggingTensor) else x

        cls.log.append(str(func))
        result = func(*pytree.tree_map(inside, args), **pytree.tree_map(inside, kwargs or {}))
        return pytree.tree_map_only(Tensor, LoggingTensor, result)


def test_a_logging_tensor_sees_both_passes() -> None:
    LoggingTensor.log = []
    x = LoggingTensor(mortice.tensor([1.0, 2.0], requires_grad=True))
    y = (x * x).sum()
    assert LoggingTensor.log[:2] == ["aten.mul.Tensor", "aten.sum.default"]
    before = len(LoggingTensor.log)
    y.backward()
    assert x.grad is not None
    assert isinstance(x.grad, LoggingTensor)
    assert x.grad.elem.tolist() == [2, 4]
    assert "aten.mul.Tensor" in LoggingTensor.log[before:]


class TwoTensor(Tensor):
    """Two tensors that go through every operator side by side."""

    a: Tensor
    b: Tensor

    @staticmethod
    def __new__(cls, a: Tensor, b: Tensor) -> Any:
        made = Tensor._make_wrapper_subclass(
            cls, a.size(), strides=a.stride(), dtype=a.dtype, device=a.device,
            requires_grad=a.requires_grad,
        )  # fmt: skip
        made.a, made.b = a, b
        return made

    def __tensor_flatten__(self) -> Any:
        return ["a", "b"], None

    @staticmethod
    def __tensor_unflatten__(inner: Any, meta: Any, size: Any, stride: Any) -> Any:
        return TwoTensor(inner["a"], inner["b"])

    @classmethod
    def __mortice_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def side(name: str) -> Any:
            def chosen(x: Any) -> Any:
                return getattr(x, name) if isinstance(x, TwoTensor) else x

            return func(*pytree.tree_map(chosen, args), **pytree.tree_map(chosen, kwargs or {}))

        return pytree.tree_map(
            lambda a, b: TwoTensor(a, b) if isinstance(a, Tensor) else a, side("a"), side("b")
        )


def test_two_tensors_side_by_side() -> None:
    both = TwoTensor(mortice.ones(2, 3), mortice.zeros(2, 3))
    out = mortice.linear(both, mortice.ones(4, 3)) + 1
    assert type(out) is TwoTensor
    assert out.a.tolist() == [[4.0] * 4] * 2
    assert out.b.tolist() == [[1.0] * 4] * 2
    assert is_traceable_wrapper_subclass(both)
    assert not is_traceable_wrapper_subclass(mortice.ones(1))
    names, meta = both.__tensor_flatten__()
    inner = {name: getattr(both, name) for name in names}
    again = TwoTensor.__tensor_unflatten__(inner, meta, both.size(), both.stride())
    assert again.a is both.a


def test_a_wrapper_holds_no_data() -> None:
    both = TwoTensor(mortice.ones(2), mortice.ones(2))
    assert both.shape == (2,)
    with pytest.raises(RuntimeError):
        both.numpy()

    class Plain(Tensor):
        pass

    with pytest.raises(TypeError, match="must define __mortice_dispatch__"):
        Tensor._make_wrapper_subclass(Plain, (2,))


class DiagonalTensor:
    """A value on the diagonal of an n by n matrix: a duck type, no Tensor."""

    handled: ClassVar[dict[Any, Any]] = {}

    def __init__(self, n: int, value: float) -> None:
        self.n, self.value = n, value

    def tensor(self) -> Tensor:
        return self.value * mortice.eye(self.n)

    @classmethod
    def __mortice_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func not in cls.handled or not all(issubclass(t, (Tensor, cls)) for t in types):
            return NotImplemented
        return cls.handled[func](*args, **(kwargs or {}))


DiagonalTensor.handled = {
    mortice.mean: lambda d: d.value / d.n,
    mortice.add: lambda a, b: (
        DiagonalTensor(a.n, a.value + b.value)
        if isinstance(a, DiagonalTensor) and isinstance(b, DiagonalTensor)
        else (a.tensor() if isinstance(a, DiagonalTensor) else a)
        + (b.tensor() if isinstance(b, DiagonalTensor) else b)
    ),
}


def test_a_diagonal_matrix_handles_what_it_knows() -> None:
    d = DiagonalTensor(2, 3.0)
    assert mortice.mean(d) == 1.5
    assert mortice.add(d, DiagonalTensor(2, 1.0)).value == 4
    assert mortice.add(mortice.ones(2, 2), d).tolist() == [[4, 1], [1, 4]]
    assert is_tensor_like(d)
    with pytest.raises(TypeError, match=r"mortice\.mul|no implementation found|DiagonalTensor"):
        mortice.mul(d, d)


def test_functions_of_ones_own_ask_overrides() -> None:
    def doubled(x: Any) -> Any:
        if has_mortice_function((x,)):
            return handle_mortice_function(doubled, (x,), x)
        return x * 2

    assert doubled(mortice.ones(1)).item() == 2
    with pytest.raises(TypeError, match="no implementation found"):
        doubled(DiagonalTensor(2, 1.0))
    DiagonalTensor.handled[doubled] = lambda d: DiagonalTensor(d.n, d.value * 2)
    assert doubled(DiagonalTensor(2, 1.0)).value == 2
    assert not has_mortice_function_unary(mortice.ones(1))
    assert has_mortice_function_unary(DiagonalTensor(1, 1.0))
    with pytest.raises(TypeError):
        has_mortice_function(3)


def test_both_ways_of_turning_overrides_off() -> None:
    seen: list[str] = []

    class Mode(MorticeFunctionMode):
        def __mortice_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append(func.__name__)
            return func(*args, **(kwargs or {}))

    class Mine(Tensor):
        pass

    x = mortice.ones(1).as_subclass(Mine)
    with Mode():
        with DisableMorticeFunctionSubclass():
            assert type(mortice.relu(x)) is Tensor  # the mode is still on
        assert seen == ["relu"]
        with DisableMorticeFunction():
            assert type(mortice.relu(x)) is Tensor
        assert seen == ["relu"]
    assert type(mortice.relu(x)) is Mine


def test_modes_and_subclasses_in_several_threads() -> None:
    failures: list[BaseException] = []
    start = threading.Barrier(4)

    def work(number: int) -> None:
        try:
            start.wait(timeout=60)
            for _ in range(20):
                pair = TwoTensor(mortice.ones(2) * number, mortice.zeros(2))
                assert (pair + 1).a.tolist() == [number + 1] * 2
                with DisableMorticeFunctionSubclass():
                    assert has_mortice_function((mortice.ones(1),)) is False
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
