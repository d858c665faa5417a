"""Joining, repeating and reordering against numpy, with gradients."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import mortice
from mortice.errors import ArgumentError, InvalidValue, RangeError, ShapeError
from mortice.testing import gradcheck

T = mortice.tensor


def numbers(*shape):
    return np.random.default_rng(1).standard_normal(shape)


def of(a):
    return mortice.from_numpy(np.ascontiguousarray(a))


A, B = numbers(2, 3), numbers(2, 3)


@pytest.mark.parametrize(
    ("found", "want"),
    [
        (lambda: mortice.cat([of(A), of(B)], 1), np.concatenate([A, B], 1)),
        (lambda: mortice.cat((of(A), mortice.empty(0, dtype=mortice.float64))), A),
        (lambda: mortice.stack([of(A), of(B)], -1), np.stack([A, B], -1)),
        (lambda: mortice.hstack([of(A), of(B)]), np.hstack([A, B])),
        (lambda: mortice.vstack([of(A), of(B)]), np.vstack([A, B])),
        (lambda: mortice.dstack([of(A), of(B)]), np.dstack([A, B])),
        (lambda: mortice.column_stack([of(A), of(B[:, 0])]), np.column_stack([A, B[:, 0]])),
        (lambda: of(A).repeat(2, 1, 2), np.tile(A, (2, 1, 2))),
        (lambda: of(A).tile(2), np.tile(A, (1, 2))),
        (lambda: of(A).repeat_interleave(2, 1), np.repeat(A, 2, 1)),
        (lambda: of(A).repeat_interleave(T([2, 0]), 0), np.repeat(A, [2, 0], 0)),
        (lambda: of(A).flip(0, 1), A[::-1, ::-1]),
        (lambda: of(A).fliplr(), np.fliplr(A)),
        (lambda: of(A).roll(1), np.roll(A, 1)),
        (lambda: of(A).roll((1, -1), (0, 1)), np.roll(A, (1, -1), (0, 1))),
        (lambda: of(A).rot90(1), np.rot90(A)),
        (lambda: of(A).rot90(-1), np.rot90(A, -1)),
        (lambda: of(A).tril(), np.tril(A)),
        (lambda: of(A).triu(1), np.triu(A, 1)),
        (lambda: of(A[0]).diag(-1), np.diag(A[0], -1)),
        (lambda: of(A).diag(1), np.diag(A, 1)),
        (lambda: of(A[0]).diag_embed()[1], np.diag(A[0])[1]),
        (lambda: of(A).diagflat(), np.diagflat(A)),
        (lambda: mortice.tril_indices(3, 4, 1), np.stack(np.tril_indices(3, 1, 4))),
        (lambda: mortice.triu_indices(3, 4, -1), np.stack(np.triu_indices(3, -1, 4))),
        (lambda: mortice.vander(of(A[0]), 3), np.vander(A[0], 3)),
        (
            lambda: mortice.meshgrid(T([1, 2]), T([3]), indexing="xy")[0],
            np.meshgrid([1, 2], [3])[0],
        ),
        (lambda: mortice.arange(3, 12, 4), np.arange(3, 12, 4)),
        (lambda: mortice.arange(0, 1, 0.25, dtype=mortice.float64), np.arange(0, 1, 0.25)),
        (lambda: mortice.linspace(-1, 2, 7, dtype=mortice.float64), np.linspace(-1, 2, 7)),
        (lambda: mortice.logspace(0, 2, 3, dtype=mortice.float64), np.logspace(0, 2, 3)),
        (lambda: mortice.eye(2, 3, dtype=mortice.float64), np.eye(2, 3)),
        (lambda: mortice.hann_window(8, periodic=False, dtype=mortice.float64), np.hanning(8)),
        (lambda: mortice.kaiser_window(8, False, 5.0, dtype=mortice.float64), np.kaiser(8, 5.0)),
    ],
)
def test_values_are_numpys(found, want):
    result = found()
    assert tuple(result.shape) == want.shape
    assert np.allclose(result.numpy(), want)


def test_products_and_blocks():
    pairs = mortice.cartesian_prod(T([1, 2]), T([3, 4])).tolist()
    assert pairs == [list(p) for p in itertools.product([1, 2], [3, 4])]
    triples = mortice.combinations(T([1, 2, 3]), 2).tolist()
    assert triples == [list(p) for p in itertools.combinations([1, 2, 3], 2)]
    blocks = mortice.block_diag(T([[1, 2]]), T(3)).tolist()
    assert blocks == [[1, 2, 0], [0, 0, 3]]


def test_dtypes_meet():
    found = mortice.cat(
        [mortice.ones(1, dtype=mortice.int8), mortice.ones(1, dtype=mortice.float16)]
    )
    assert found.dtype is mortice.float16
    assert mortice.stack([T(1), T(2.5)]).dtype is mortice.float32


CHANNELS_LAST = mortice.ones(5, 4, 3, 3).contiguous(memory_format=mortice.channels_last)


@pytest.mark.parametrize(
    ("beside", "strides"),
    [
        (CHANNELS_LAST, (72, 1, 24, 8)),
        (CHANNELS_LAST[:, :1], (45, 1, 15, 5)),  # strides like those of channels_last, with gaps
        (CHANNELS_LAST.amin(1, keepdim=True), (45, 9, 3, 1)),  # row-major, whatever the step of 1
        (CHANNELS_LAST[:, :1].contiguous(), (45, 9, 3, 1)),
        (CHANNELS_LAST[:, :0], (36, 9, 3, 1)),
    ],
)
@pytest.mark.parametrize("run", [mortice.cat, mortice.compile(mortice.cat, backend="eager")])
def test_channels_last_is_kept_where_all_are(run: Any, beside: Any, strides: Any) -> None:
    for parts in ([beside, CHANNELS_LAST], [CHANNELS_LAST, beside]):
        found = run(parts, 1)
        assert found.stride() == strides
        assert found.tolist() == np.concatenate([x.numpy() for x in parts], 1).tolist()


def test_results_own_their_memory():
    x = mortice.ones(2, 2)
    for result in (mortice.cat([x]), x.flip(()), x.roll(0), x.repeat(1, 1), x.tril(5), x.rot90(0)):
        result.fill_(9)
    assert x.tolist() == [[1, 1], [1, 1]]


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda x: mortice.cat([]), InvalidValue, "non-empty list"),
        (lambda x: mortice.cat(x), ArgumentError, "must be tuple of Tensors, not Tensor"),
        (lambda x: mortice.cat([x, x[0]]), ShapeError, "same number of dimensions: got 2 and 1"),
        (
            lambda x: mortice.cat([x, x.t()]),
            ShapeError,
            "Expected size 3 but got size 2 for tensor number 1",
        ),
        (
            lambda x: mortice.stack([x, x.t()]),
            ShapeError,
            r"got \[2, 3\] at entry 0 and \[3, 2\] at entry 1",
        ),
        (lambda x: x.repeat(2), ShapeError, "can not be smaller"),
        (
            lambda x: x.repeat_interleave(T([1, 2, 3]), 0),
            ShapeError,
            "same size as input along dim",
        ),
        (lambda x: x.roll((1, 2), 0), ShapeError, "must align"),
        (lambda x: x[0].tril(), ShapeError, "at least 2 dimensions"),
        (lambda x: x.rot90(1, (0, 0)), ShapeError, "rotation dims to be different"),
        (lambda x: mortice.arange(1, 0), ShapeError, "inconsistent with step sign"),
        (lambda x: mortice.arange(0, 1, 0), RangeError, "step must be nonzero"),
        (lambda x: mortice.linspace(0, 1, -1), ShapeError, "number of steps must be non-negative"),
        (lambda x: mortice.meshgrid(x, indexing="ij"), ShapeError, "Expected 0D or 1D"),
    ],
)
def test_mistakes_are_named(call, error, text):
    with pytest.raises(error, match=text):
        call(of(A))


@pytest.mark.parametrize(
    "run",
    [
        lambda x, y: mortice.cat([x, y * x], 1),
        lambda x, y: mortice.stack([x, y], 1),
        lambda x, y: x.repeat(2, 3, 1),
        lambda x, y: x.repeat_interleave(T([1, 3]), 0),
        lambda x, y: x.flip(1).roll(1, 0).rot90(),
        lambda x, y: x.tril() + y.triu(1),
        lambda x, y: x.diag_embed(1, 0, 2),
        lambda x, y: mortice.block_diag(x, y[0]),
        lambda x, y: mortice.hstack(x.tensor_split(2, 1)) * y,
        lambda x, y: mortice.stack(x.unbind(1)[:2]),
        lambda x, y: (x * 1).t_().unsqueeze_(0),
    ],
)
def test_gradients(run):
    assert gradcheck(run, (of(A).requires_grad_(), of(B).requires_grad_()))
