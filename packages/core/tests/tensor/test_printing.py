"""Text of tensors, character by character."""

from __future__ import annotations

import pytest

import mortice


@pytest.fixture(autouse=True)
def options():
    saved = mortice.get_printoptions()
    yield
    mortice.set_printoptions(**saved)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (1, "tensor(1)"),
        (1.5, "tensor(1.5000)"),
        ([], "tensor([])"),
        ([1.0, 2.0], "tensor([1., 2.])"),
        ([1.0, 2.5], "tensor([1.0000, 2.5000])"),
        ([True, False], "tensor([ True, False])"),
        ([1, -20], "tensor([  1, -20])"),
        ([1e-5, 1.0], "tensor([1.0000e-05, 1.0000e+00])"),
        ([1e9, 1.0], "tensor([1.0000e+09, 1.0000e+00])"),
        ([float("nan"), 1.0, float("inf")], "tensor([nan, 1., inf])"),
        ([1 + 2j, 3 - 1.5j], "tensor([1.+2.0000j, 3.-1.5000j])"),
        ([[1, 2], [3, 4]], "tensor([[1, 2],\n        [3, 4]])"),
        ([[[1]], [[2]]], "tensor([[[1]],\n\n        [[2]]])"),
        ([[]], "tensor([], size=(1, 0))"),
    ],
)
def test_elements(data, text):
    assert repr(mortice.tensor(data)) == text


def test_long_tensors_are_summarised():
    assert repr(mortice.arange(2000)) == "tensor([   0,    1,    2,  ..., 1997, 1998, 1999])"
    rows = repr(mortice.zeros(100, 100)).splitlines()
    assert rows[0] == "tensor([[0., 0., 0.,  ..., 0., 0., 0.],"
    assert rows[3] == "        ...,"
    assert len(rows) == 7


def test_lines_break_at_the_width():
    lines = repr(mortice.arange(40)).splitlines()
    assert len(lines) == 3
    assert all(len(line) <= 80 for line in lines)
    assert lines[1].startswith("        18,")


def test_suffixes():
    assert repr(mortice.ones(1, dtype=mortice.float64)) == "tensor([1.], dtype=mortice.float64)"
    assert repr(mortice.ones(1, requires_grad=True)) == "tensor([1.], requires_grad=True)"
    x = mortice.ones(1, requires_grad=True).view(1, 1)
    assert repr(x) == "tensor([[1.]], grad_fn=<ViewBackward0>)"
    assert repr(mortice.ones(2, device="meta")) == "tensor(..., device='meta', size=(2,))"
    wide = repr(mortice.arange(18, dtype=mortice.int32))
    assert wide.endswith("17],\n       dtype=mortice.int32)")


def test_options():
    x = mortice.tensor([1.23456, 100.0])
    with mortice.printoptions(precision=2):
        assert repr(x) == "tensor([  1.23, 100.00])"
    with mortice.printoptions(sci_mode=True):
        assert repr(x) == "tensor([1.2346e+00, 1.0000e+02])"
    assert repr(x) == "tensor([  1.2346, 100.0000])"
    mortice.set_printoptions(threshold=2, edgeitems=1)
    assert repr(mortice.arange(5)) == "tensor([0,  ..., 4])"
    with pytest.raises(ValueError, match="unknown profile 'big'; there are default, short, full"):
        mortice.set_printoptions(profile="big")


def test_subclasses_are_named():
    class Mine(mortice.Tensor):
        pass

    assert repr(mortice.ones(1).as_subclass(Mine)) == "Mine([1.])"
    assert f"{mortice.tensor(1.25):.1f}" == "1.2"
