"""Functions made of text: with their code from elsewhere, and where what a check needs is gone."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from mortice._capture import texts
from mortice._capture.guards import Guard, HasType, Ref, Root
from mortice._capture.outline import Plain
from mortice._capture.plan import Stretch
from mortice._capture.stretch import Node
from mortice._capture.texts import codes_of, made_of

TEXT = "def add(a, b):\n c = a + n\n return [c, b, 'text']"


def test_code_that_is_known_is_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    first = made_of(TEXT, "<first>", {"n": 1}, None)
    known = codes_of([first])
    compiled: list[str] = []
    code_of = texts.code_of

    def counted(text: str, file: str) -> Any:
        compiled.append(text)
        return code_of(text, file)

    monkeypatch.setattr(texts, "code_of", counted)
    again = made_of(TEXT, "<first>", {"n": 10}, known.get)
    assert first(1, 5) == [2, 5, "text"]
    assert again(1, 5) == [11, 5, "text"]  # with globals of its own
    assert again.text == TEXT
    assert not compiled
    other = TEXT.replace("a + n", "a - n")
    assert made_of(other, "<first>", {"n": 1}, known.get)(1, 5) == [0, 5, "text"]
    assert compiled == [other]


class Thing:
    pass


def test_a_check_written_after_its_object_is_gone_lets_nothing_through() -> None:
    thing = Thing()
    guard = Guard(Root("thing", Ref(thing)), HasType(Thing))
    node = Node(Stretch((guard,), True, 0, (), None, Plain(None)), 0, native=False)
    there = Node(Stretch((guard,), True, 0, (), None, Plain(None)), 0, native=False)
    assert there.check((), {}) == ()
    del thing
    gc.collect()
    assert node.check((), {}) == 0
    assert type(there.check((), {})) is int
    assert node.codes() == {}
