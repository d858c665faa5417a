"""Compiled equals eager after every change, by replay and without it."""

from __future__ import annotations

import sys
from typing import Any

from packages.core.tests.capture import cases, cases_more  # noqa: F401  it adds its own
import mortice
import pytest
from mortice._capture.observer import decode

supported = pytest.mark.skipif(
    sys.version_info[:2] not in decode.VERSIONS, reason="no opcode table for this Python"
)


def by_name(c: Any) -> str:
    return c.name


@pytest.mark.parametrize("c", cases.CASES, ids=by_name)
def test_compiled_equals_eager(c: Any) -> None:
    want, _ = cases.play(c.make, lambda f: f)
    got, compiled = cases.play(c.make, lambda f: mortice.compile(f, backend="eager"))
    assert got == want
    if decode.support() is None:
        v = compiled.verdict
        assert (v.name, v.replayed) == (c.verdict, c.replays), v.lines()


@pytest.mark.parametrize("c", cases.CASES, ids=by_name)
def test_recorded_equals_eager(c: Any) -> None:
    def recorded(f: Any) -> Any:
        compiled = mortice.compile(f, backend="eager")
        compiled.replay = None
        return compiled

    want, _ = cases.play(c.make, lambda f: f)
    got, _ = cases.play(c.make, recorded)
    assert got == want
