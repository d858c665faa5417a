"""Indices out of range are refused with eager's error, naming the index where it is an input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import mortice
from mortice.nn import functional as F

PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {
    "gather": lambda x, i: x.gather(1, i).sin(),
    "index": lambda x, i: x[i].sin(),
    "index of the last": lambda x, i: x[:, i].sin(),
    "index_select": lambda x, i: x.index_select(1, i[0]).sin(),
    "embedding": lambda x, i: F.embedding(i, x).sin(),
    "nll_loss": lambda x, i: F.nll_loss(x, i[0]),
    "cross_entropy": lambda x, i: F.cross_entropy(x, i[0]),
}


def error(f: Callable[..., Any], *args: Any) -> Exception:
    with pytest.raises(mortice.errors.MorticeError) as caught:
        f(*args)
    return caught.value


@pytest.mark.parametrize("bad", [7, -5])
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_error_is_eagers(name: str, bad: int) -> None:
    f = PROGRAMS[name]
    compiled = mortice.compile(f)
    x = mortice.arange(12.0).view(3, 4)
    for _ in range(10):  # until it is replayed
        compiled(x, mortice.tensor([[0, 2, 1]]))
    i = mortice.tensor([[0, bad, 9]])
    expected = error(f, x, i)
    for compute in (compiled, mortice.compile(f)):
        found = error(compute, x, i)
        assert type(found) is type(expected)
        assert str(found) == str(expected)


@pytest.mark.parametrize("name", PROGRAMS)
def test_of_a_computed_index_the_rest_is_said(name: str) -> None:
    def f(x: Any, i: Any) -> Any:
        return PROGRAMS[name](x, i * 2)

    x, i = mortice.arange(12.0).view(3, 4), mortice.tensor([[0, 3, 1]])
    expected, found = error(f, x, i), error(mortice.compile(f), x, i)
    assert type(found) is type(expected)
    said = str(expected).replace("index 6", "an index").replace("Target 6", "a Target")
    assert str(found) == said


def test_of_an_index_that_stands_for_none() -> None:
    compiled = mortice.compile(lambda x, t: F.nll_loss(x, t, ignore_index=-100))
    x = mortice.arange(12.0).view(3, 4)
    compiled(x, mortice.tensor([0, -100, 3]))
    found = error(compiled, x, mortice.tensor([0, -100, 4]))
    assert "Target 4 is out of bounds: there are 4 classes" in str(found)
