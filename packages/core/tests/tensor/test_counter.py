"""Counts in tensors: quicker than operators, and the same, recorded or not."""

from __future__ import annotations

from typing import Any

import pytest

import mortice
from mortice.backend import count_up
from mortice.errors import AutogradError
from mortice.utils.dispatch import MorticeDispatchMode


def by_operators(counter: Any) -> Any:
    return counter.add_(1).item()


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int64", "uint8"])
def test_it_counts_as_operators_do(dtype: str) -> None:
    a, b = (mortice.tensor(254, dtype=getattr(mortice, dtype)) for _ in range(2))
    for _ in range(4):
        found, wanted = count_up(a), by_operators(b)
        assert (found, type(found)) == (wanted, type(wanted))
    assert a.dtype is b.dtype and a.item() == b.item()


def test_views_versions_and_others() -> None:
    base = mortice.zeros(3)
    assert count_up(base[1]) == 1
    assert base.tolist() == [0, 1, 0]
    counter = mortice.tensor(2.0)
    x = mortice.ones(2, requires_grad=True)
    y = (x * counter).sum()  # saves it
    count_up(counter)
    with pytest.raises(AutogradError, match="modified by an inplace operation"):
        y.backward()
    with pytest.raises(RuntimeError):
        count_up(mortice.ones((), requires_grad=True))


def test_a_mode_sees_it() -> None:
    seen: list[str] = []

    class Mode(MorticeDispatchMode):
        def __mortice_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    with Mode():
        assert count_up(mortice.tensor(1.0)) == 2
    assert "aten.add_.Tensor" in seen


def before(x: Any, n: Any, count: Any) -> Any:
    y = x * n
    return y + count(n)


def written(x: Any, n: Any, count: Any) -> Any:
    n.mul_(3)
    y = x * count(n)
    return y + n


def viewed(x: Any, n: Any, count: Any) -> Any:
    y = n.view(1)
    z = x + y
    count(n)
    return z * y


def made(x: Any, n: Any, count: Any) -> Any:
    own = n + 1
    return x * count(own) + own + count(n)


def alone(x: Any, n: Any, count: Any) -> Any:
    return x * count(n) + 1


@pytest.mark.parametrize("f", [before, written, viewed, made, alone])
def test_compiled(f: Any) -> None:
    compiled = mortice.compile(f, backend="eager")
    x = mortice.arange(3.0)
    a, b = mortice.tensor(1.0), mortice.tensor(1.0)
    for _ in range(12):
        assert compiled(x, a, count_up).tolist() == f(x, b, by_operators).tolist()
        assert a.item() == b.item()


def test_where_nothing_else_is_recorded_of_it_the_graph_has_no_part_of_it() -> None:
    compiled = mortice.compile(alone, backend="eager")
    x, n = mortice.ones(2), mortice.tensor(0.0)
    for _ in range(3):
        compiled(x, n, count_up)
    (segment,) = compiled.segments
    targets = [str(node.target) for node in segment.module.graph.nodes]
    assert not any("add_" in t or "copy_" in t for t in targets)
    inputs = [v for v in segment.captured.inputs if isinstance(v, mortice.Tensor)]
    assert [tuple(v.shape) for v in inputs] == [(2,)]
