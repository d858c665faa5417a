"""Functions that are arguments: guarded by what they are made of, since most are made anew for each call."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import pytest
from packages.core.tests.capture.observing import supported

import mortice

pytestmark = supported

K = 2.0


def made(k: float, default: float = 1.0, named: float = 1.0) -> Callable[..., Any]:
    def g(x: Any, a: float = default, *, b: float = named) -> Any:
        return x * k + a * b + K

    return g


def elsewhere(g: Any) -> Any:
    """The same code and cells, with other globals."""
    f = types.FunctionType(g.__code__, {"K": 100.0}, "g", g.__defaults__, g.__closure__)
    f.__kwdefaults__ = dict(g.__kwdefaults__)
    return f


def tagged(g: Any, **given: Any) -> Any:
    for name, value in given.items():
        setattr(g, name, value)
    return g


FIRST = made(2.0)
GIVEN: list[Any] = [
    FIRST, made(3.0), made(2.0, 5.0), made(2.0, named=7.0), elsewhere(FIRST), made(2.0),
    tagged(made(2.0), tag=5.0), tagged(made(2.0), __name__="named"), lambda x, **_: x * 9,
]  # fmt: skip
LIST, SET, DICT = [FIRST], {FIRST}, {FIRST: 2.0, GIVEN[1]: 3.0}

USES: dict[str, Callable[[Any, Any], Any]] = {
    "called": lambda x, g: g(x),
    "is one": lambda x, g: x * 2 if g is FIRST else x * 3,
    "is in a list": lambda x, g: x * 2 if g is LIST[0] else x * 3,
    "equal": lambda x, g: x * 2 if g == FIRST else x * 3,
    "a key": lambda x, g: x * DICT.get(g, 9.0),
    "a member": lambda x, g: x * 2 if g in SET else x * 3,
    "its attribute": lambda x, g: x * getattr(g, "tag", 1.0),
    "its name": lambda x, g: x * 2 if g.__name__ == "g" else x * 3,
    "its code": lambda x, g: x * 2 if g.__code__ is FIRST.__code__ else x * 3,
    "its globals": lambda x, g: x * g.__globals__["K"],
    "its number": lambda x, g: x * 2 if id(g) == id(FIRST) else x * 3,
    "mapped": lambda x, g: sum(map(g, [x, x + 1])),
    "bound in part": lambda x, g: functools.partial(g, b=4.0)(x),
    "in a list": lambda x, g: [h(x) for h in (g, FIRST)][-2],
    "a result": lambda x, g: (x + 1, g),
    "twice, by another": lambda x, g: functools.reduce(lambda y, h: h(y), [g, g], x),
}


def plain(result: Any) -> Any:
    if isinstance(result, tuple):
        return [plain(x) for x in result]
    return result.tolist() if isinstance(result, mortice.Tensor) else result


@pytest.mark.parametrize("use", USES)
def test_they_are_told_apart(use: str) -> None:
    f, x = USES[use], mortice.arange(3.0)
    compiled = mortice.compile(f, backend="eager")
    orders = [[0] * 6, [1] * 6, range(len(GIVEN)), range(len(GIVEN))]
    for i in (i for order in orders for i in order):
        assert plain(compiled(x, GIVEN[i])) == plain(f(x, GIVEN[i])), i
    own = made(2.0)
    for defaults in ((1.0,), (8.0,), (1.0,)):
        own.__defaults__ = defaults  # type: ignore[attr-defined]
        assert plain(compiled(x, own)) == plain(f(x, own))


def test_one_that_is_made_for_each_call_is_replayed() -> None:
    compiled = mortice.compile(lambda x, g: g(x) + 1, backend="eager")
    x = mortice.ones(2)
    for i in range(60):
        g = made(float(i % 3))
        assert compiled(x, g).tolist() == (g(x) + 1).tolist()
    assert (compiled.verdict.observed, compiled.verdict.replayed) == (3, 57)
