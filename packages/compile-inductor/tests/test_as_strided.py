"""``as_strided`` counts in memory: that of eager, however compiled code lays values out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import mortice

LAYOUTS: dict[str, Callable[[int], Any]] = {
    "contiguous": lambda n: mortice.arange(3.0 * n).reshape(n, 3),
    "with gaps": lambda n: mortice.arange(6.0 * n).reshape(n, 6)[:, ::2],
    "transposed": lambda n: mortice.arange(3.0 * n).reshape(3, n).t(),
    "with an offset": lambda n: mortice.arange(3.0 * n + 3).reshape(n + 1, 3)[1:],
}


def a(x: Any, size: Any, stride: Any, offset: int | None = None) -> Any:
    return mortice.as_strided(x, size, stride, offset)


def written(x: Any, part: Any) -> Any:
    part.mul_(3)
    return x * 1


def written_made(x: Any) -> Any:
    y = x.t() * 2
    return written(y, a(y, (2, 2), (1, 2)))


def written_slice(x: Any) -> Any:
    y = x * 2
    return written(y, a(y[1:], (2, 2), (1, 2)))


def read_again(x: Any) -> Any:
    before = a(x, (3, 2), (1, 3)) * 2
    x.add_(1)
    return before + a(x, (3, 2), (1, 3))


CASES: dict[str, Callable[[Any], Any]] = {
    "of an input": lambda x: a(x, (3, 2), (1, 3)) * 2,
    "of an input's slice": lambda x: a(x[1:], (3, 2), (1, 2)) * 2,
    "of an input transposed": lambda x: a(x.t(), (3, 2), (1, 2)) * 2,
    "of a copy": lambda x: a(x.contiguous(), (x.numel() // 2, 2), (1, 1)) * 2,
    "of a sum": lambda x: a(x + 1, (3, 2), (1, 2)) * 2,
    "of a transposed sum": lambda x: a((x + 1).t(), (x.shape[0], 3), (1, 1)) * 2,
    "of a slice": lambda x: a((x + 1)[1:], (2, 2), (1, 2)) * 2,
    "before a slice": lambda x: a((x.contiguous() + 1)[1:], (2, 2), (1, 2), 0) * 2,
    "of a part": lambda x: a((x + 1).chunk(2)[1], (1, 2), (1, 1)) * 2,
    "of a diagonal": lambda x: a((x + 1).diagonal(), (1, 2), (1, 1)) * 2,
    "of its own": lambda x: a(a(x.t() * 2, (3, 2), (1, 2)), (2,), (2,), 1) * 2,
    "of one number": lambda x: a(x.sum(), (3, 2), (0, 0)) + x[:3, :2],
    "of a product": lambda x: a((x @ x.t()).t(), (3, 2), (1, 2)) * 2,
    "of a row repeated": lambda x: a(x.sum(0).expand(3, 3), (3,), (1,)) + x[0],
    "of zeros": lambda x: a(mortice.zeros(4), (3, 2), (1, 1)) + x[:3, :2],
    "written": written_made,
    "written by a slice": written_slice,
    "an input written": lambda x: written(x, a(x[1:], (2, 2), (1, 3))),
    "an input read again": read_again,
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dynamic", [None, True])
def test_memory_is_that_of_eager(name: str, layout: str, dynamic: bool | None) -> None:
    f, make = CASES[name], LAYOUTS[layout]
    compiled = mortice.compile(f, dynamic=dynamic)
    for n in (4, 5, 9, 4):
        x, y = make(n), make(n)
        assert mortice.allclose(compiled(x), f(y))
        assert mortice.equal(x, y)


def test_what_reaches_beyond_is_refused_at_every_size() -> None:
    compiled = mortice.compile(lambda x, n: a(x * 2, (n.shape[0],), (1,)) * 3, dynamic=True)
    for n, m in ((4, 3), (5, 4), (9, 8), (5, 4)):
        compiled(mortice.ones(n), mortice.ones(m))
        with pytest.raises(mortice.errors.ShapeError, match="as_strided"):
            compiled(mortice.ones(n), mortice.ones(n + 1))
