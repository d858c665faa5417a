"""Function overrides and dispatch modes."""

from __future__ import annotations

import threading

import pytest

import mortice
from mortice import Tensor
from mortice.overrides import DisableMorticeFunctionSubclass, MorticeFunctionMode
from mortice.utils.dispatch import MorticeDispatchMode


class Log(MorticeDispatchMode):
    def __init__(self) -> None:
        self.seen: list[str] = []

    def __mortice_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


def test_a_mode_sees_composites_taken_apart_and_the_backward_pass() -> None:
    x = mortice.ones(2, 3, requires_grad=True)
    w = mortice.ones(4, 3, requires_grad=True)
    with Log() as log:
        mortice.linear(x, w).sum().backward()
    assert "aten.linear.default" not in log.seen
    assert log.seen.count("aten.mm.default") == 3
    assert x.grad is not None and x.grad.tolist() == [[4.0] * 3] * 2


def test_modes_nest_innermost_first_and_end_when_an_error_escapes() -> None:
    with Log() as outer, Log() as inner:
        mortice.ones(2).relu()
    assert inner.seen == outer.seen
    with pytest.raises(ZeroDivisionError), Log() as log:
        raise ZeroDivisionError
    mortice.ones(2).relu()
    assert log.seen == []


def test_modes_are_of_one_thread() -> None:
    with Log() as log:
        thread = threading.Thread(target=lambda: mortice.ones(2).relu())
        thread.start()
        thread.join()
    assert log.seen == []


def test_a_handler_that_returns_notimplemented_is_an_error_that_names_it() -> None:
    class Refuses(MorticeDispatchMode):
        def __mortice_dispatch__(self, func, types, args=(), kwargs=None):
            return NotImplemented

    x = mortice.ones(2)
    with pytest.raises(TypeError, match="aten::relu.*Refuses"), Refuses():
        x.relu()


def test_plain_subclasses_are_kept_by_operators() -> None:
    class Mine(Tensor):
        pass

    x = mortice.ones(2).as_subclass(Mine)
    assert type(x + 1) is Mine
    assert type(mortice.cat([x, x])) is Mine
    with DisableMorticeFunctionSubclass():
        assert type(x + 1) is Tensor


def test_an_override_gets_the_public_function_and_the_arguments_as_written() -> None:
    calls = []

    class Seen(Tensor):
        @classmethod
        def __mortice_function__(cls, func, types, args=(), kwargs=None):
            calls.append((func, args[1:], kwargs))
            return super().__mortice_function__(func, types, args, kwargs)

    x = mortice.ones(2).as_subclass(Seen)
    mortice.add(x, 1, alpha=3)
    assert calls[0] == (mortice.add, (1,), {"alpha": 3})


def test_function_modes_see_public_functions() -> None:
    names = []

    class Names(MorticeFunctionMode):
        def __mortice_function__(self, func, types, args=(), kwargs=None):
            names.append(func.__name__)
            return func(*args, **(kwargs or {}))

    with Names():
        mortice.ones(2)
        mortice.relu(mortice.zeros(2))
    assert names == ["ones", "zeros", "relu"]


class Pair(Tensor):
    """Two tensors that go through every operator side by side."""

    @staticmethod
    def __new__(cls, first, second):
        pair = Tensor._make_wrapper_subclass(
            cls, first.shape, dtype=first.dtype, requires_grad=first.requires_grad
        )
        pair.first, pair.second = first, second
        return pair

    @classmethod
    def __mortice_dispatch__(cls, func, types, args=(), kwargs=None):
        def side(name):
            return [getattr(a, name) if isinstance(a, Pair) else a for a in args]

        kwargs = kwargs or {}
        return Pair(func(*side("first"), **kwargs), func(*side("second"), **kwargs))


def test_a_wrapper_subclass_dispatches_on_what_it_wraps() -> None:
    pair = Pair(mortice.ones(2), mortice.zeros(2))
    out = (pair * 2 + pair).relu()
    assert out.first.tolist() == [3.0, 3.0] and out.second.tolist() == [0.0, 0.0]
    assert out.shape == (2,)


def test_autocast_lowers_products_and_keeps_losses_in_float32() -> None:
    a = mortice.ones(2, 2)
    with mortice.autocast("cpu"):
        product = a.mm(a)
        assert product.dtype is mortice.bfloat16
        assert (a + a).dtype is mortice.float32
        assert mortice.ops.aten.mse_loss(product, a).dtype is mortice.float32
    assert a.mm(a).dtype is mortice.float32
    with pytest.raises(ValueError, match="takes bfloat16 or float16"):
        mortice.autocast("cpu", mortice.float64)
