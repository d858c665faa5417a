"""Making tensors: sizes, dtypes, devices, memory. The host needs core alone for these."""

from __future__ import annotations

import pytest

import mortice
from mortice.errors import ArgumentError, DTypeError, ShapeError


@pytest.fixture
def defaults():
    yield
    mortice.set_default_dtype(mortice.float32)
    mortice.set_default_device(None)


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_sizes_dtypes_and_devices(device):
    for made, shape, dtype in (
        (mortice.zeros(2, 3, device=device), (2, 3), mortice.float32),
        (mortice.ones((2,), dtype=mortice.int8, device=device), (2,), mortice.int8),
        (mortice.full((2, 2), 7, device=device), (2, 2), mortice.int64),
        (mortice.full((1,), True, device=device), (1,), mortice.bool),
        (mortice.full((1,), 1j, device=device), (1,), mortice.complex64),
        (mortice.empty(size=(4,), device=device), (4,), mortice.float32),
        (mortice.scalar_tensor(3, device=device), (), mortice.float32),
        (mortice.zeros((), device=device), (), mortice.float32),
    ):
        assert tuple(made.shape) == shape
        assert made.dtype is dtype
        assert made.device.type == device


def test_like_takes_after_its_model():
    x = mortice.ones(2, 3, dtype=mortice.float64).t()
    y = mortice.zeros_like(x)
    assert y.stride() == x.stride()
    assert y.dtype is mortice.float64
    assert mortice.full_like(x, 2, dtype=mortice.int32).tolist() == [[2, 2]] * 3
    assert x.new_ones(2).dtype is mortice.float64
    assert x.new_full((1,), 3).tolist() == [3.0]
    assert x.new_tensor([1, 2]).dtype is mortice.float64
    assert mortice.empty_like(x, device="meta").is_meta
    assert mortice.empty_permuted((2, 3, 4), (0, 2, 1)).stride() == (12, 1, 3)
    assert mortice.empty_strided((2, 2), (1, 2)).stride() == (1, 2)


def test_defaults_are_honoured(defaults):
    mortice.set_default_dtype(mortice.float64)
    assert mortice.zeros(1).dtype is mortice.float64
    assert mortice.full((1,), 1.5).dtype is mortice.float64
    assert mortice.tensor([1.0]).dtype is mortice.float64
    mortice.set_default_device("meta")
    assert mortice.zeros(1).is_meta
    assert mortice.ones(1, device="cpu").is_cpu
    with mortice.device("cpu"):
        assert mortice.empty(1).is_cpu
    with pytest.raises(ArgumentError, match="floating-point"):
        mortice.set_default_dtype(mortice.int32)


def test_requires_grad_and_out():
    x = mortice.zeros(2, requires_grad=True)
    assert x.requires_grad
    assert x.is_leaf
    out = mortice.empty(0)
    assert mortice.ones(2, 2, out=out) is out
    assert out.tolist() == [[1, 1], [1, 1]]
    with pytest.raises(ShapeError, match="does not match dtype of out"):
        mortice.ones(2, out=out, dtype=mortice.int32)


def test_numbers_wrap_as_c_casts_do():
    assert mortice.full((1,), 300, dtype=mortice.uint8).tolist() == [44]
    assert mortice.zeros(1, dtype=mortice.int8).fill_(200).tolist() == [-56]
    with pytest.raises(DTypeError, match="without overflow"):
        mortice.full((1,), 1j, dtype=mortice.float32)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: mortice.zeros(-1), ShapeError, "negative dimension -1"),
        (lambda: mortice.zeros("a"), ArgumentError, "size"),
        (lambda: mortice.zeros(2, dtyp=mortice.int8), ArgumentError, "Did you mean 'dtype'"),
        (lambda: mortice.empty_strided((2,), (1, 1)), ShapeError, "dimensionality"),
        (lambda: mortice.full((2,)), ArgumentError, "fill_value"),
    ],
)
def test_mistakes_are_named(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_resize_and_set():
    x = mortice.zeros(2)
    x.resize_(3, 2)
    assert tuple(x.shape) == (3, 2)
    assert x.view(-1)[:2].tolist() == [0, 0]
    y = mortice.ones(4)
    x.set_(y)
    x[0] = 5
    assert y[0].item() == 5
    x.set_(y.untyped_storage(), 1, (2,), (2,))
    assert x.tolist() == [1, 1]
    assert x.storage_offset() == 1
    with pytest.raises(ShapeError, match="out of bounds"):
        x.set_(y.untyped_storage(), 0, (9,), (1,))


def test_views_follow_a_storage_that_grows():
    x = mortice.zeros(2)
    view = x[1:]
    x.resize_(100)
    x[1] = 5
    assert view.tolist() == [5]


def test_diagonals_are_filled():
    x = mortice.zeros(5, 2)
    x.fill_diagonal_(3, wrap=True)
    assert x.nonzero().tolist() == [[0, 0], [1, 1], [3, 0], [4, 1]]
    with pytest.raises(ShapeError, match="dimensions must larger than 1"):
        mortice.zeros(2).fill_diagonal_(1)
