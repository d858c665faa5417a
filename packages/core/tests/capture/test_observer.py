"""The observer runs functions as CPython does, and knows what they read and change."""

from __future__ import annotations

import logging
import traceback
import typing
import warnings
import weakref
from typing import Any

import pytest
from packages.core.tests.capture.observer_programs import (
    IMPURE,
    OUTER,
    PURE,
    Base,
    Pair,
)
from packages.core.tests.capture.observing import supported

import mortice
from mortice._capture.observer import observe

pytestmark = supported


def norm(x: Any) -> Any:
    if isinstance(x, mortice.Tensor):
        return x.tolist()
    if type(x) in (list, tuple):
        return type(x), [norm(y) for y in x]
    if type(x) is dict:
        return [(k, norm(v)) for k, v in x.items()]
    return type(x), repr(x)


@pytest.mark.parametrize(("f", "args"), PURE, ids=lambda x: getattr(x, "__name__", ""))
def test_pure_functions_give_what_they_give(f: Any, args: tuple[Any, ...]) -> None:
    want = norm(f(*args))
    got, w = observe(f, args, {})
    assert norm(got) == want
    assert not w.reasons, [str(r) for r in w.reasons]


@pytest.mark.parametrize(("f", "args"), IMPURE, ids=lambda x: getattr(x, "__name__", ""))
def test_impure_functions_are_found_out(f: Any, args: tuple[Any, ...]) -> None:
    want = norm(f(*args))
    got, w = observe(f, args, {})
    assert norm(got) == want
    assert w.reasons


def fails_deep(n: int) -> Any:
    values = [1]
    if n:
        return fails_deep(n - 1)
    return values[5]


def fails_in_handler() -> None:
    try:
        raise ValueError("first")
    except ValueError:
        fails_deep(1)


def fails_by_type() -> Any:
    return "a" + 1  # type: ignore[operator]


def fails_by_arguments() -> Any:
    return fails_deep(1, 2, 3)  # type: ignore[call-arg]


def fails_by_attribute() -> Any:
    return OUTER.nothing


def fails_in_with() -> Any:
    with Base(1):
        raise TypeError("from within")


def fails_in_finally() -> Any:
    try:
        return 1
    finally:
        {}["k"]


@pytest.mark.parametrize(
    "f",
    [
        lambda: fails_deep(2), fails_in_handler, fails_by_type, fails_by_arguments,
        fails_by_attribute, fails_in_with, fails_in_finally,
    ],
)  # fmt: skip
def test_tracebacks_show_the_users_lines(f: Any) -> None:
    def lines(error: BaseException) -> Any:
        found = []
        while error is not None:
            entries = traceback.extract_tb(error.__traceback__)
            found.append((type(error), str(error), [(e.name, e.lineno, e.line) for e in entries]))
            error = error.__context__  # type: ignore[assignment]
        return found

    def caught(call: Any) -> Any:
        try:
            call()
        except Exception as error:
            return lines(error)
        raise AssertionError("no error")

    want = caught(lambda: f())
    got = caught(lambda: observe(f, (), {}))
    ours = ("caught", "<lambda>", "observe", "call", "call_function", "run", "loop")

    def skip(found: Any) -> Any:
        return [(k, m, [e for e in entries if e[0] not in ours]) for k, m, entries in found]

    assert skip(got) == skip(want)


def test_logging_and_warnings_find_the_users_line(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("observed")

    def f() -> None:
        logger.warning("w")
        warnings.warn("once", stacklevel=1)

    with caplog.at_level(logging.WARNING), warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        f()
        _, w = observe(f, (), {})
    assert w.reasons
    first, second = caplog.records
    assert (first.lineno, first.funcName, first.pathname) == (
        second.lineno, second.funcName, second.pathname,
    )  # fmt: skip
    assert (seen[0].lineno, seen[0].filename) == (seen[1].lineno, seen[1].filename)


def test_no_method_of_a_users_object_is_called_that_the_program_does_not_call() -> None:
    calls: list[str] = []

    class Spy:
        def __getattribute__(self, name: str) -> Any:
            calls.append(name)
            return object.__getattribute__(self, name)

        def __eq__(self, other: object) -> bool:
            calls.append("eq")
            return False

        def __hash__(self) -> int:
            calls.append("hash")
            return 1

        def __repr__(self) -> str:
            calls.append("repr")
            return "spy"

        def __bool__(self) -> bool:
            calls.append("bool")
            return True

        def __len__(self) -> int:
            calls.append("len")
            return 1

    spy = Spy()
    box = [spy]

    def f(x: Any, y: Any) -> Any:
        z = [x, y, box]
        q = {"a": x}
        a, b, c = z
        return a is b, b is spy, q["a"] is c[0], x

    want = f(spy, box)
    assert not calls
    got, _ = observe(f, (spy, box), {})
    assert not calls
    assert got[:3] == want[:3]


def test_keyboard_interrupt_reaches_the_users_handlers() -> None:
    log: list[str] = []

    def stop() -> None:
        raise KeyboardInterrupt

    def f() -> str:
        try:
            stop()
        except KeyboardInterrupt:
            log.append("caught")
        finally:
            log.append("finally")
        return "done"

    assert observe(f, (), {})[0] == "done"
    assert log == ["caught", "finally"]


def test_recursion_goes_on_natively_when_deep() -> None:
    def down(n: int) -> int:
        return 0 if n == 0 else 1 + down(n - 1)

    value, w = observe(down, (300,), {})
    assert value == 300
    assert "deep" in w.reasons[0].text


def test_modules_are_looked_into() -> None:
    nn = pytest.importorskip("mortice.nn")

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
            self.norm = nn.LayerNorm(4)
            self.drop = nn.Dropout(0.5)

        def forward(self, x: Any) -> Any:
            for layer in self.layers:
                x = self.drop(nn.functional.relu(layer(x)))
            return self.norm(x)

    net = Net().eval()
    x = mortice.randn(3, 4)
    got, w = observe(net, (x,), {})
    assert not w.reasons, [str(r) for r in w.reasons]
    assert got.tolist() == net(x).tolist()
    _, w = observe(nn.Sequential(nn.Linear(4, 2), nn.Tanh()), (x,), {})
    assert not w.reasons


def test_namedtuple_results_are_fresh() -> None:
    def f() -> typing.Any:
        p = Pair(1, 2)
        a, b = p
        return a + b + p.a

    value, w = observe(f, (), {})
    assert value == 4
    assert not w.reasons, w.reasons


def test_what_is_not_looked_into_keeps_nothing_alive() -> None:
    """Why a function is not looked into is remembered; not where that was found out."""

    class Here:
        pass

    def f() -> int:
        here = Here()
        alive.append(weakref.ref(here))
        return sum(x for x in (1, 2))  # a generator

    alive: list[weakref.ref[Here]] = []
    observe(f, (), {})
    assert [r() for r in alive] == [None]


def test_classes_without_a_module() -> None:
    """They are made by code whose globals have no ``__name__``."""
    names: dict[str, Any] = {}
    exec("C = type('C', (), {'k': 3.0, '__call__': lambda self, x: x * self.k})", names)
    cls = names["C"]
    assert "__module__" not in vars(cls)
    held = cls()
    for f in (lambda x: x * held.k, lambda x: held(x) + cls.k, lambda x: cls()(x), held):
        compiled = mortice.compile(f, backend="eager")
        for _ in range(3):
            assert norm(compiled(mortice.ones(2))) == norm(f(mortice.ones(2)))
