"""Losses, distances and attention against their definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest

import mortice
from mortice.testing import gradcheck

RNG = np.random.default_rng(4)
aten = mortice.ops.aten


def leaf(*shape: int) -> mortice.Tensor:
    return mortice.from_numpy(RNG.standard_normal(shape)).requires_grad_()


def log_softmax(x: np.ndarray) -> np.ndarray:
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


@pytest.mark.parametrize("weighted", [False, True])
def test_cross_entropy_with_weights_smoothing_and_ignored_targets(weighted: bool) -> None:
    x = leaf(6, 4)
    target = mortice.tensor([0, 3, -100, 1, 2, 2])
    weight = mortice.tensor([1.0, 2.0, 0.5, 3.0], dtype=mortice.float64) if weighted else None
    logp = log_softmax(x.detach().numpy())
    kept = [i for i in range(6) if i != 2]
    w = np.ones(4) if weight is None else weight.numpy()
    t = target.numpy()
    expected = sum(-logp[i, t[i]] * w[t[i]] for i in kept) / sum(w[t[i]] for i in kept)
    loss = aten.cross_entropy_loss(x, target, weight)
    np.testing.assert_allclose(loss.item(), expected, rtol=1e-12)
    smooth = sum(-(logp[i] * w).sum() for i in kept) / sum(w[t[i]] for i in kept) / 4
    smoothed = aten.cross_entropy_loss(x, target, weight, label_smoothing=0.2)
    np.testing.assert_allclose(smoothed.item(), 0.8 * expected + 0.2 * smooth, rtol=1e-12)
    assert gradcheck(
        lambda x: aten.cross_entropy_loss(x, target, weight, label_smoothing=0.1),
        (x,),
        fast_mode=True,
    )


def test_a_target_outside_the_classes_is_named() -> None:
    with pytest.raises(IndexError, match="Target 7 is out of bounds: there are 4 classes"):
        aten.cross_entropy_loss(mortice.zeros(2, 4), mortice.tensor([0, 7]))


def test_cross_entropy_over_further_dimensions() -> None:
    x = leaf(2, 3, 4)
    target = mortice.randint(0, 3, (2, 4))
    rows = aten.cross_entropy_loss(x.permute(0, 2, 1).reshape(8, 3), target.reshape(8))
    np.testing.assert_allclose(aten.cross_entropy_loss(x, target).item(), rows.item(), rtol=1e-12)


def test_binary_cross_entropy_with_logits_is_stable_for_large_logits() -> None:
    x = mortice.tensor([1000.0, -1000.0])
    y = mortice.tensor([1.0, 0.0])
    assert mortice.binary_cross_entropy_with_logits(x, y).item() == 0.0


@pytest.mark.parametrize("p", [0.0, 1.0, 2.0, 3.0, math.inf])
def test_distances(p: float) -> None:
    a, b = leaf(4, 3), leaf(5, 3)
    diff = np.abs(a.detach().numpy()[:, None] - b.detach().numpy()[None])
    expected = np.linalg.norm(diff, p, axis=-1) if p else (diff != 0).sum(-1)
    np.testing.assert_allclose(mortice.cdist(a, b, p).detach().numpy(), expected, rtol=1e-10)
    if p:
        assert gradcheck(lambda a, b: mortice.cdist(a, b, p), (a, b), fast_mode=True)
        assert gradcheck(lambda a: mortice.pdist(a, p), (a,), fast_mode=True)


def test_attention_masks_and_causality() -> None:
    q, k, v = leaf(2, 3, 4), leaf(2, 5, 4), leaf(2, 5, 6)
    out = aten.scaled_dot_product_attention(q, k, v)
    scores = q.detach().numpy() @ k.detach().numpy().swapaxes(1, 2) / 2
    np.testing.assert_allclose(
        out.detach().numpy(), np.exp(log_softmax(scores)) @ v.detach().numpy(), rtol=1e-10
    )
    causal = aten.scaled_dot_product_attention(q, q, q, is_causal=True)
    np.testing.assert_allclose(causal[:, 0].detach().numpy(), q[:, 0].detach().numpy(), rtol=1e-10)
    mask = mortice.zeros(3, 5, dtype=mortice.bool)
    assert aten.scaled_dot_product_attention(q, k, v, mask).abs().max().item() == 0.0
    assert gradcheck(aten.scaled_dot_product_attention, (q, k, v), fast_mode=True)
