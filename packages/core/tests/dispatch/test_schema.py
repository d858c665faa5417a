"""Schemas: parsed, printed back, and refused with a mark where they are wrong."""

from __future__ import annotations

import pytest

from mortice._dispatch.schema import parse
from mortice._generated.registry import ROWS
from mortice.errors import SchemaError


def test_every_schema_of_core_prints_back_as_it_was_declared() -> None:
    for name, row in ROWS.items():
        text = row["schema"]
        assert str(parse(text)) == text, name


def test_defaults_and_keyword_only_arguments_are_read() -> None:
    schema = parse(
        "f(Tensor self, int[2] k=0, *, Scalar alpha=1, str mode='a', float? x=None) -> Tensor"
    )
    assert [a.kwarg_only for a in schema.arguments] == [False, False, True, True, True]
    assert [a.default for a in schema.arguments[1:]] == [0, 1, "a", None]
    assert schema.positional == 2
    assert schema.arguments[1].type.length == 2


def test_aliases_tell_views_and_writes() -> None:
    assert parse("view(Tensor(a) self, SymInt[] size) -> Tensor(a)").is_view
    assert parse("add_(Tensor(a!) self, Tensor other) -> Tensor(a!)").mutated == (0,)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("foo", "only the operator name was given"),
        ("foo(Tensor x)", "expected an arrow"),
        ("foo(Tensr x) -> Tensor", "Did you mean 'Tensor'"),
        ("foo(int64_t x) -> Tensor", "Use `SymInt` or `int`"),
        ("foo(double x) -> Tensor", "Use `float`"),
        ("foo(Tensor x, Tensor x) -> Tensor", "occurs twice"),
        ("foo(Tensor x) -> Tensor named extra", "unexpected text"),
    ],
)
def test_what_is_wrong_is_said(text: str, complaint: str) -> None:
    with pytest.raises(SchemaError, match=complaint):
        parse(text)
