"""Operators that write to their arguments and have no lowering: the dispatcher runs them on copies."""

from __future__ import annotations

from typing import Any

import pytest

import mortice
from mortice import Tensor
from mortice.library import Tag, custom_op


@custom_op("updating::add_into", mutates_args={"x"}, tags=Tag.inplace)
def add_into(x: Tensor, y: Tensor) -> Tensor:
    return x.add_(y)


@custom_op("updating::add_out", mutates_args={"out"}, tags=Tag.out)
def add_out(x: Tensor, y: Tensor, *, out: Tensor) -> Tensor:
    return mortice.add(x, y, out=out)


@custom_op("updating::total", mutates_args={"acc", "other"})
def total(acc: Tensor, x: Tensor, other: Tensor | None = None) -> Tensor:
    acc.add_(x.sum())
    if other is not None:
        other.mul_(2)
    return x * 3


@total.register_fake
def _(acc: Any, x: Any, other: Any = None) -> Any:
    return mortice.empty_like(x)


@custom_op("updating::nothing", mutates_args={"x"})
def nothing(x: Tensor, y: Tensor) -> None:
    x.sub_(y)


def _into(a: Any, b: Any) -> Any:
    return add_into(a, b) * 2, a + 1


def _into_made(a: Any, b: Any) -> Any:
    made = a * 2
    add_into(made, b)
    return made.exp(), a


def _out(a: Any, b: Any) -> Any:
    out = mortice.zeros_like(a)
    add_out(a, b, out=out)
    return out * 2


def _total(a: Any, b: Any) -> Any:
    acc = a.sum(0) * 0
    return total(acc, b), acc, total(acc, b, a)


def _nothing(a: Any, b: Any) -> Any:
    nothing(a, b)
    return a * b


@pytest.mark.parametrize("program", [_into, _into_made, _out, _total, _nothing])
def test_what_is_written_is_seen_as_in_eager(program: Any) -> None:
    compiled = mortice.compile(program, backend="inductor", fullgraph=True)
    for number in (1.0, 2.0, 3.0):
        pairs = [(mortice.full((3, 2), number), mortice.full((3, 2), 0.5)) for _ in range(2)]
        expected, found = program(*pairs[0]), compiled(*pairs[1])
        mortice.testing.assert_close(found, expected)
        mortice.testing.assert_close(pairs[1], pairs[0])


def test_random_fills_compile() -> None:
    compiled = mortice.compile(lambda x: x.normal_() * 0 + 1, backend="inductor")
    assert compiled(mortice.full((2, 2), 3.0)).tolist() == [[1, 1], [1, 1]]
