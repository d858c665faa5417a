"""Views by their rules, on device meta and on the host: sizes, strides, sharing, errors."""

from __future__ import annotations

import pytest

import mortice
from mortice.errors import DimensionError, ShapeError

DEVICES = pytest.mark.parametrize("device", ["cpu", "meta"])


def make(*shape, device="cpu"):
    return mortice.empty(*shape, device=device)


@DEVICES
@pytest.mark.parametrize(
    ("shape", "view", "sizes", "strides"),
    [
        ((2, 3, 4), lambda x: x.view(6, -1), (6, 4), (4, 1)),
        ((2, 3, 4), lambda x: x.transpose(0, -1), (4, 3, 2), (1, 4, 12)),
        ((2, 3, 4), lambda x: x.permute(2, 0, 1), (4, 2, 3), (1, 12, 4)),
        ((2, 3, 4), lambda x: x.movedim(0, 2), (3, 4, 2), (4, 1, 12)),
        ((2, 3, 4), lambda x: x.select(1, -1), (2, 4), (12, 1)),
        ((2, 3, 4), lambda x: x.narrow(2, 1, 2), (2, 3, 2), (12, 4, 1)),
        ((2, 3, 4), lambda x: x[:, 1:3, ::2], (2, 2, 2), (12, 4, 2)),
        ((2, 3, 4), lambda x: x.unfold(2, 2, 1), (2, 3, 3, 2), (12, 4, 1, 1)),
        ((2, 3, 4), lambda x: x.diagonal(0, 1, 2), (2, 3), (12, 5)),
        ((2, 3, 4), lambda x: x.flatten(1), (2, 12), (12, 1)),
        ((2, 3, 4), lambda x: x.unflatten(-1, (2, 2)), (2, 3, 2, 2), (12, 4, 2, 1)),
        ((2, 3, 4), lambda x: x.mT, (2, 4, 3), (12, 1, 4)),
        ((3, 1), lambda x: x.expand(2, 3, 4), (2, 3, 4), (0, 1, 0)),
        ((1, 3, 1), lambda x: x.squeeze(), (3,), (1,)),
        ((1, 3, 1), lambda x: x.squeeze(0), (3, 1), (1, 1)),
        ((3,), lambda x: x.unsqueeze(-1), (3, 1), (1, 1)),
        ((4, 4), lambda x: x.as_strided((2, 2), (1, 2), 1), (2, 2), (1, 2)),
        ((2, 4), lambda x: x.view(mortice.int16), (2, 8), (8, 1)),
        ((2, 4), lambda x: x.view(mortice.float64), (2, 2), (2, 1)),
        ((0, 3), lambda x: x.view(3, 0), (3, 0), (1, 1)),
    ],
)
def test_sizes_and_strides(device, shape, view, sizes, strides):
    base = make(*shape, device=device)
    seen = view(base)
    assert tuple(seen.shape) == sizes
    assert seen.stride() == strides
    assert seen._base is base
    assert seen.untyped_storage() is base.untyped_storage()


@DEVICES
def test_parts_of_a_tensor(device):
    x = make(5, 4, device=device)
    assert [tuple(p.shape) for p in x.split(2)] == [(2, 4), (2, 4), (1, 4)]
    assert [tuple(p.shape) for p in x.split([1, 4])] == [(1, 4), (4, 4)]
    assert [tuple(p.shape) for p in x.chunk(3)] == [(2, 4), (2, 4), (1, 4)]
    assert [tuple(p.shape) for p in x.tensor_split(3)] == [(2, 4), (2, 4), (1, 4)]
    assert [tuple(p.shape) for p in x.tensor_split((1, 3), 1)] == [(5, 1), (5, 2), (5, 1)]
    assert [tuple(p.shape) for p in x.unbind(1)] == [(5,)] * 4
    assert [p.storage_offset() for p in x.split(2)] == [0, 8, 16]
    assert [tuple(p.shape) for p in x.hsplit(2)] == [(5, 2), (5, 2)]


def test_reshape_views_where_it_can_and_copies_where_it_must():
    x = mortice.arange(6).view(2, 3)
    assert x.reshape(3, 2)._base is not None
    copied = x.t().reshape(6)
    assert copied.tolist() == [0, 3, 1, 4, 2, 5]
    copied[0] = 9
    assert x[0, 0].item() == 0


def test_writes_through_views_reach_the_base():
    x = mortice.zeros(2, 3)
    x.t()[1].fill_(5)
    x.view(-1)[0] = 7
    assert x.tolist() == [[7, 5, 0], [0, 5, 0]]


def test_views_in_place_change_the_tensor_itself():
    x = mortice.arange(6).view(2, 3)
    assert x.t_() is x
    assert tuple(x.shape) == (3, 2)
    assert x.unsqueeze_(0).squeeze_(0).transpose_(0, 1).tolist() == [[0, 1, 2], [3, 4, 5]]


def test_copies_of_views_share_nothing():
    x = mortice.arange(6).view(2, 3)
    for copy in (mortice.t_copy(x), mortice.select_copy(x, 0, 1), mortice.view_copy(x, (3, 2))):
        assert copy._base is None
        assert copy.is_contiguous()
    assert mortice.t_copy(x).tolist() == [[0, 3], [1, 4], [2, 5]]


@DEVICES
@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda x: x.view(5), ShapeError, r"shape '\[5\]' is invalid for input of size 6"),
        (lambda x: x.t().view(6), ShapeError, r"Use \.reshape"),
        (lambda x: x.view(-1, -1), ShapeError, "only one dimension can be inferred"),
        (lambda x: x.transpose(0, 2), DimensionError, r"range of \[-2, 1\], but got 2"),
        (lambda x: x.permute(0), ShapeError, "not equal to len"),
        (lambda x: x.permute(0, 0), ShapeError, "dim 0 appears multiple times"),
        (lambda x: x.expand(2, 4), ShapeError, r"expanded size of the tensor \(4\)"),
        (lambda x: x.expand(3), ShapeError, "must be greater or equal"),
        (
            lambda x: x.select(0, 2),
            DimensionError,
            r"index 2 out of range for tensor of size \[2, 3\]",
        ),
        (lambda x: x.narrow(0, 1, 2), ShapeError, r"start \(1\) \+ length \(2\) exceeds"),
        (lambda x: x.split([1, 2]), ShapeError, "sum exactly to 2"),
        (lambda x: x.split(-1), ShapeError, "non-negative"),
        (lambda x: x.chunk(0), ShapeError, "greater than 0"),
        (lambda x: x.unflatten(1, (2, 2)), ShapeError, "don't multiply up to the size of dim 1"),
        (lambda x: x.movedim((0, 1), (0,)), ShapeError, "same number of dims"),
        (lambda x: x.unfold(0, 3, 1), ShapeError, "maximum size for tensor at dimension 0 is 2"),
        (lambda x: x.diagonal(0, 1, 1), ShapeError, "identical 1, 1"),
        (lambda x: x.view(mortice.float64), ShapeError, "divisible by 2"),
        (lambda x: x[0].adjoint(), ShapeError, "matrices"),
        (lambda x: x.flatten(1, 0), ShapeError, "start_dim cannot come after end_dim"),
    ],
)
def test_mistakes_are_named(device, call, error, text):
    with pytest.raises(error, match=text):
        call(make(2, 3, device=device))


def test_contiguous_returns_the_tensor_itself_when_it_can():
    x = mortice.ones(2, 3)
    assert x.contiguous() is x
    assert x.t().contiguous().is_contiguous()
    image = mortice.ones(1, 2, 3, 3)
    last = image.contiguous(memory_format=mortice.channels_last)
    assert last.stride() == (18, 1, 6, 2)
    assert last.is_contiguous(memory_format=mortice.channels_last)


def test_properties_that_transpose():
    x = mortice.arange(6).view(2, 3)
    assert x.T.tolist() == x.H.tolist() == x.mH.tolist() == [[0, 3], [1, 4], [2, 5]]
    with pytest.warns(UserWarning, match="dimension other than 2"):
        assert tuple(mortice.ones(2, 3, 4).T.shape) == (4, 3, 2)


def test_broadcasting():
    a, b = mortice.broadcast_tensors(mortice.ones(3, 1), mortice.ones(2))
    assert tuple(a.shape) == tuple(b.shape) == (3, 2)
    assert mortice.broadcast_shapes((3, 1), 2, (1, 1, 1)) == (1, 3, 2)
