"""Compiled equals eager after every change, by replay and without it."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest
from packages.core.tests.capture import playing
from packages.core.tests.capture.observing import supported

import mortice
from mortice._capture import stretch
from mortice._capture.observer import decode


def by_name(c: Any) -> str:
    return c.name


@pytest.mark.parametrize("c", playing.CASES, ids=by_name)
def test_compiled_equals_eager(c: Any) -> None:
    want, _ = playing.play(c.make, lambda f: f)
    got, compiled = playing.play(c.make, lambda f: mortice.compile(f, backend="eager"))
    assert got == want
    if decode.support() is None:
        v = compiled.verdict
        assert (v.name, v.replayed) == (c.verdict, c.replays), v.lines()


@pytest.mark.parametrize("c", playing.CASES, ids=by_name)
def test_quick_checks_equal_eager(c: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As above, with checks made quick at once and used before each change."""
    monkeypatch.setattr(stretch, "WARM", 1)
    want, _ = playing.play(c.make, lambda f: f, 3)
    got, _ = playing.play(c.make, lambda f: mortice.compile(f, backend="eager"), 3)
    assert got == want


@pytest.mark.parametrize("c", playing.CASES, ids=by_name)
def test_recorded_equals_eager(c: Any) -> None:
    def recorded(f: Any) -> Any:
        compiled = mortice.compile(f, backend="eager")
        compiled.replay = None
        return compiled

    want, _ = playing.play(c.make, lambda f: f)
    got, _ = playing.play(c.make, recorded)
    assert got == want


@supported
def test_the_page_of_cases_is_current() -> None:
    pytest.importorskip("mortice.nn")
    page = pathlib.Path(__file__).parents[4] / "docs" / "capture-cases.md"
    assert page.read_text() == playing.HEAD + playing.table() + "\n", (
        "run: python -m packages.core.tests.capture.playing"
    )
