"""Functions with Python's calling convention made as machine code."""

from __future__ import annotations

import gc
import inspect
import subprocess
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mortice_llvm.cpython import Code, give_back, layout, make, take_over, unsupported
from mortice_llvm.cpython.code import OFFSET_FLAG


def test_this_interpreter_passes_the_layout_self_test() -> None:
    assert unsupported() is None


def _adder(miss: Callable[..., Any]) -> Any:
    """Adds two floats; any other call goes to ``miss``."""
    c = Code()
    c.same("%nargs", "2", "miss", "i64")
    c.same("%kwnames", "null", "miss")
    a, b = c.field("%args", 0), c.field("%args", 8)
    for x in (a, b):
        c.same(c.field(x, layout.OB_TYPE), c.object(float), "miss")
    numbers = [c.field(x, layout.FLOAT_VALUE, "double") for x in (a, b)]
    total = c.value(f"fadd double {numbers[0]}, {numbers[1]}")
    address = layout.python_function("PyFloat_FromDouble")
    c.do(f"ret ptr {c.call_address(address, 'ptr', 'double', [total])}")
    c.label("miss")
    given = [c.object(miss), "%args", "%nargs", "%kwnames"]
    c.do(f"ret ptr {c.call('PyObject_Vectorcall', *given)}")
    return make(c, "adder", "Adds.")


def test_a_function_runs_and_passes_on_what_it_does_not_handle() -> None:
    seen: list[Any] = []

    def miss(*args: Any, **kwargs: Any) -> str:
        seen.append((args, kwargs))
        return "missed"

    add = _adder(miss)
    assert add(1.5, 2.25) == 3.75
    assert not seen
    assert add(1, 2) == add(1.0) == add(1.0, b=2.0) == "missed"
    assert seen == [((1, 2), {}), ((1.0,), {}), ((1.0,), {"b": 2.0})]
    assert (add.__name__, add.__doc__) == ("adder", "Adds.")


def test_an_error_in_the_function_behind_it_arrives() -> None:
    def miss(*args: Any) -> None:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        _adder(miss)("a")


def test_it_keeps_what_it_needs_and_no_longer() -> None:
    class Miss:
        def __call__(self, *args: Any) -> int:
            return 7

    miss = Miss()
    gone = weakref.ref(miss)
    add = _adder(miss)
    del miss
    gc.collect()
    assert add(1) == 7
    del add
    gc.collect()
    assert gone() is None


def test_a_changed_layout_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "ARRAY_DIMS", layout.ARRAY_STRIDES)
    unsupported.cache_clear()
    try:
        assert unsupported() == "the layout of ndarray is not the expected one"
    finally:
        monkeypatch.undo()
        unsupported.cache_clear()
    assert unsupported() is None


def test_the_text_names_no_address_so_that_its_object_is_cached() -> None:
    program = (
        "import sys, test_cpython as t\n"
        "assert t._adder(print)(1.0, 2.0) == 3.0\n"
        "print('llvmlite' in sys.modules)"
    )
    found = [
        subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True, text=True, check=False, cwd=Path(__file__).parent,
        )
        for _ in range(2)
    ]  # fmt: skip
    assert found[1].stdout == "False\n", found[1].stderr


def test_a_function_taken_over_stays_itself() -> None:
    class Number:
        def __neg__(self, plain: bool = False) -> str:
            return "python"

    answer = "native"
    c = Code()
    c.do("ret ptr null")
    c.taken("negative")
    c.same(c.value(f"and i64 %nargs, {OFFSET_FLAG}"), "1", "miss", "i64")
    c.call("Py_IncRef", c.object(answer))
    c.do(f"ret ptr {c.object(answer)}")
    c.label("miss")
    c.untaken()
    negative, number = Number.__neg__, Number()
    take_over(negative, c, "negative")
    assert -number is answer
    assert Number.__neg__ is negative
    assert list(inspect.signature(negative).parameters) == ["self", "plain"]
    assert list(map(negative, [number], [True])) == ["python"]  # not what the native form is for
    give_back(negative)
    assert -number == "python"
