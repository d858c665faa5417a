"""complex32 is stored, converted and seen as halves; nothing computes with it."""

from __future__ import annotations

import io

import pytest

import mortice

VALUES = [1 + 2j, -0.5j]


def test_it_converts_both_ways() -> None:
    x = mortice.tensor(VALUES, dtype=mortice.complex64).to(mortice.complex32)
    assert x.dtype is mortice.complex32
    assert x.to(mortice.complex64).tolist() == VALUES
    assert x.to(mortice.float32).tolist() == [1, 0]
    assert mortice.tensor([1.5, 2.0]).to(mortice.complex32).tolist() == [1.5, 2]
    assert mortice.tensor(VALUES, dtype=mortice.complex32).tolist() == VALUES
    assert x[0].item() == 1 + 2j


def test_factories_fill_it() -> None:
    for made in (
        mortice.ones(2, dtype=mortice.complex32),
        mortice.full((2,), 1, dtype=mortice.complex32),
        mortice.ones_like(mortice.tensor(VALUES, dtype=mortice.complex32)),
        mortice.zeros(2, dtype=mortice.complex32).fill_(1),
    ):
        assert made.tolist() == [1, 1]


def test_halves_are_seen_as_complex_and_back() -> None:
    halves = mortice.tensor([[1.0, 2.0], [0.0, -0.5]], dtype=mortice.float16, requires_grad=True)
    x = mortice.view_as_complex(halves)
    assert x.dtype is mortice.complex32
    assert x.tolist() == VALUES
    assert mortice.view_as_real(x).tolist() == halves.tolist()
    mortice.view_as_real(x).sum().backward()
    assert halves.grad is not None
    assert halves.grad.tolist() == [[1, 1], [1, 1]]


def test_it_is_saved_and_loaded() -> None:
    file = io.BytesIO()
    mortice.save(mortice.tensor(VALUES, dtype=mortice.complex32), file)
    file.seek(0)
    assert mortice.load(file).tolist() == VALUES


def test_nothing_is_computed_silently() -> None:
    x = mortice.tensor(VALUES, dtype=mortice.complex32)
    for compute in (lambda: x + x, lambda: x * 2, lambda: -x, x.sum, x.abs, lambda: x == x):
        with pytest.raises((TypeError, RuntimeError)):
            compute()
