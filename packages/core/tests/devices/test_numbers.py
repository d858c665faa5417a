"""Python numbers in place of tensors, as kernels of a device get them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mortice
from mortice._dispatch.backends import runtime
from mortice.backend import DeviceArray, Features

from .conftest import Toy

ASKED: list[tuple[Any, ...]] = []
GIVEN: list[Any] = []


def _seen(value: Any) -> Any:
    if not isinstance(value, DeviceArray):
        return value
    flat = np.frombuffer(value.buffer.value, value.dtype.numpy)
    return flat[value.offset : value.offset + value.size].reshape(value.shape)


def _add(x: Any, y: Any, alpha: Any, out: Any) -> None:
    GIVEN[:] = [x, y]
    np.copyto(_seen(out), _seen(x) + _seen(y) * alpha, casting="unsafe")


class Adder(Toy):
    """Adds what it is given."""

    def kernel(self, op: str, dtypes: tuple[Any, ...]) -> Callable[..., None] | None:
        if op != "add.Tensor":
            return None
        ASKED.append(dtypes)
        return _add


class Numbers(Adder):
    """The same, and says that it takes numbers."""

    class features(Features):
        numbers = True


CASES = [
    (mortice.float32, 1, mortice.float32),
    (mortice.float64, 2.5, mortice.float64),
    (mortice.int64, 1, mortice.int64),
    (mortice.int64, 1.5, mortice.float32),
    (mortice.bool, True, mortice.bool),
    (mortice.bool, 3, mortice.int64),
    (mortice.float32, 1 + 2j, mortice.complex64),
]


@pytest.mark.parametrize(("dtype", "number", "met"), CASES)
@pytest.mark.parametrize("shape", [(2,), ()])
def test_a_number_is_an_array_without_dimensions(
    device: Any, dtype: Any, number: Any, met: Any, shape: tuple[int, ...]
) -> None:
    name = device(Adder)
    x = mortice.ones(shape).to(dtype)
    found = x.to(name) + number
    wanted = x + number
    assert ASKED[-1] == (dtype, met)
    assert isinstance(GIVEN[1], DeviceArray) and GIVEN[1].shape == () and GIVEN[1].dtype is met
    assert str(GIVEN[1].device) == f"{name}:0"
    assert found.dtype is wanted.dtype and found.cpu().tolist() == wanted.tolist()


def test_on_the_device_of_the_tensor(device: Any) -> None:
    name = device(Adder)
    y = mortice.ones(2, device=f"{name}:1") + 1
    assert str(y.device) == f"{name}:1" and str(GIVEN[1].device) == f"{name}:1"
    assert y.add_(1.0).tolist() == [3.0, 3.0]


def test_a_device_that_takes_numbers(device: Any) -> None:
    name = device(Numbers)
    y = mortice.ones(2, device=name) + 1
    assert ASKED[-1] == (mortice.float32,)
    assert type(GIVEN[1]) is int
    assert y.tolist() == [2.0, 2.0]


def test_tensors_alone_cost_no_copy(device: Any) -> None:
    name = device(Adder)
    x = mortice.ones(2, device=name)
    calls = runtime(name).calls
    before = calls.count("copy_in")
    assert (x + x).shape == (2,)
    assert calls.count("copy_in") == before
    assert (x + 1).shape == (2,)
    assert calls.count("copy_in") == before + 1
