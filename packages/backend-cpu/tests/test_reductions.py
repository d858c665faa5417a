"""Reductions, scans, sorting and softmax: values, ties, nan, empty and 0-d tensors, gradients."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import mortice as m
from mortice.testing import assert_close, gradcheck, gradgradcheck

RANDOM = np.random.default_rng(1)


def tensor(*shape: int) -> Any:
    return m.from_numpy(RANDOM.standard_normal(shape)).requires_grad_()


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.sum(1), lambda x: x.mean((0, 1)), lambda x: x.prod(1), lambda x: x.amax(0),
        lambda x: x.max(1).values, lambda x: x.min(), lambda x: x.var(1), lambda x: x.std(0),
        lambda x: m.norm(x, 3, 1), m.norm, lambda x: x.logsumexp((0, 1)),
        lambda x: x.softmax(0), lambda x: x.log_softmax(1), lambda x: x.cumsum(1),
        lambda x: x.cumprod(1), lambda x: x.logcumsumexp(0), lambda x: x.sort(1)[0],
        lambda x: x.topk(2)[0], lambda x: x.median(1)[0], lambda x: x.cummax(1)[0],
        lambda x: m.var_mean(x, 1), lambda x: x.aminmax(dim=1), lambda x: x.diff(),
        lambda x: x.quantile(0.3, 1), m.trace,
    ],
)  # fmt: skip
def test_gradients(call: Any) -> None:
    x = tensor(3, 4)
    assert gradcheck(call, (x,))
    assert gradgradcheck(call, (x,))


def test_product_gradient_with_zeros() -> None:
    x = m.tensor([0.0, 2.0, 3.0], requires_grad=True)
    x.prod().backward()
    assert x.grad.tolist() == [6.0, 0.0, 0.0]
    y = m.tensor([2.0, 0.0, 3.0], requires_grad=True)
    y.cumprod(0).sum().backward()
    assert y.grad.tolist() == [1.0, 8.0, 0.0]


def test_extremum_gradient_is_shared_among_equals() -> None:
    x = m.tensor([1.0, 3.0, 3.0], requires_grad=True)
    x.max().backward()
    assert x.grad.tolist() == [0.0, 0.5, 0.5]


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("dim", [None, 0, -1, (0, 2)])
def test_sum_against_numpy(dim: Any, keepdim: bool) -> None:
    x = RANDOM.standard_normal((2, 3, 4)).astype(np.float32)
    found = m.from_numpy(x).sum(dim, keepdim)
    assert_close(found, m.from_numpy(np.asarray(x.sum(axis=dim, keepdims=keepdim))))


def test_integers_sum_in_int64() -> None:
    x = m.full((300,), 255, dtype=m.uint8)
    assert x.sum().item() == 76_500
    assert x.sum(dtype=m.uint8).item() == 76_500 % 256
    assert m.tensor([True, True]).sum().dtype is m.int64


def test_half_sums_accumulate_in_float32() -> None:
    x = m.ones(4096, dtype=m.bfloat16)
    assert x.sum().item() == 4096
    assert x.mean().item() == 1


def test_empty_and_zero_d() -> None:
    empty = m.empty(0, 3)
    assert empty.sum().item() == 0
    assert math.isnan(empty.mean().item())
    assert empty.prod(0).tolist() == [1.0] * 3
    assert not empty.any()
    assert empty.all()
    assert empty.softmax(0).shape == (0, 3)
    scalar = m.tensor(2.0)
    assert scalar.sum(0).item() == scalar.max(-1).values.item() == scalar.softmax(0).item() * 2
    assert scalar.sort().indices.item() == 0
    with pytest.raises(IndexError):
        empty.max(0)


def test_nan_wins_extrema_and_sorts_last() -> None:
    x = m.tensor([1.0, math.nan, 3.0])
    assert math.isnan(x.max().item())
    assert math.isnan(x.amin().item())
    assert x.argmax().item() == x.min(0).indices.item() == 1
    assert x.sort().indices.tolist() == [0, 2, 1]
    assert x.sort(descending=True).indices.tolist() == [1, 2, 0]
    assert math.isnan(x.median().item())
    assert x.nanmedian().item() == 1.0
    assert x.nansum().item() == 4.0


def test_stable_order_of_equals() -> None:
    x = m.tensor([1, 0, 1, 0])
    assert m.sort(x, stable=True).indices.tolist() == [1, 3, 0, 2]
    assert m.sort(x, stable=True, descending=True).indices.tolist() == [0, 2, 1, 3]
    assert x.argmax().item() == 0
    assert x.argmin().item() == 1
    assert x.cummax(0).indices.tolist() == [0, 0, 2, 2]


def test_topk_of_long_rows() -> None:
    x = RANDOM.permutation(1000).astype(np.float32)
    for largest in (True, False):
        values, indices = m.from_numpy(x).topk(5, largest=largest)
        wanted = np.sort(x)[::-1][:5] if largest else np.sort(x)[:5]
        assert values.tolist() == wanted.tolist()
        assert x[indices.numpy()].tolist() == wanted.tolist()


@pytest.mark.parametrize("shape", [(7, 5), (64, 256)])
@pytest.mark.parametrize("dim", [0, 1])
def test_softmax_rows_sum_to_one(shape: tuple[int, int], dim: int) -> None:
    """The larger shape takes the fused kernel along the last dimension."""
    x = m.from_numpy(RANDOM.standard_normal(shape).astype(np.float32) * 5)
    s = x.softmax(dim)
    assert_close(s.sum(dim), m.ones(shape[1 - dim]))
    assert_close(s.log(), x.log_softmax(dim), rtol=1e-4, atol=1e-4)


def test_variance_corrections() -> None:
    x = m.tensor([1.0, 2.0, 4.0])
    assert x.var(unbiased=False).item() == pytest.approx(14 / 9)
    assert x.var(correction=2).item() == pytest.approx(14 / 3)
    assert math.isnan(m.tensor([1.0]).std().item())


def test_counting_and_searching() -> None:
    x = m.tensor([1, 2, 2, 5])
    assert m.bincount(x).tolist() == [0, 1, 2, 0, 0, 1]
    assert m.histc(x.float(), bins=4, min=1, max=5).tolist() == [1, 2, 0, 1]
    assert m.searchsorted(x, m.tensor([2, 3])).tolist() == [1, 3]
    assert m.searchsorted(x, 2, right=True).item() == 3
    assert m.bucketize(m.tensor([0.5, 9]), x.float()).tolist() == [0, 4]
    assert m.count_nonzero(m.tensor([[0, 1], [2, 3]]), 0).tolist() == [1, 2]


def test_several_outputs_into_out() -> None:
    values, indices = m.empty(0), m.empty(0, dtype=m.int64)
    m.max(m.tensor([[1.0, 3.0]]), 1, out=(values, indices))
    assert values.tolist() == [3.0]
    assert indices.tolist() == [1]


@pytest.mark.parametrize(
    "row", [[2.0, 0.0, 3.0, 4.0], [0.0, 0.0, 3.0, 4.0], [1.0, 2.0, 0.0, 0.0], [1.0, 2.0, 3.0, 4.0]]
)
@pytest.mark.parametrize("name", ["prod", "cumprod"])
def test_first_gradients_agree_with_those_that_differentiate_again(
    row: list[float], name: str
) -> None:
    x = m.tensor(row, requires_grad=True)
    y = getattr(x, name)(0)
    weights = m.arange(1.0, y.numel() + 1).reshape(y.shape)
    (once,) = m.autograd.grad(y, x, weights, retain_graph=True)
    (again,) = m.autograd.grad(y, x, weights, create_graph=True)
    assert once.tolist() == again.tolist()


@pytest.mark.parametrize("edge_order", [1, 2])
def test_gradient_against_numpy(edge_order: int) -> None:
    f, x = RANDOM.standard_normal((5, 6)), np.cumsum(RANDOM.uniform(0.5, 1.5, 6))
    (found,) = m.gradient(m.from_numpy(f), spacing=(m.from_numpy(x),), dim=1, edge_order=edge_order)
    np.testing.assert_allclose(found.numpy(), np.gradient(f, x, axis=1, edge_order=edge_order))
    assert len(m.gradient(m.from_numpy(f), spacing=0.5)) == 2
