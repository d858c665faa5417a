"""Normalisations against their definitions, in float64, with gradients of both orders."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import mortice
from mortice.testing import gradcheck, gradgradcheck

RNG = np.random.default_rng(2)
EPS = 1e-5


def leaf(*shape: int) -> mortice.Tensor:
    return mortice.from_numpy(RNG.standard_normal(shape)).requires_grad_()


def normalised(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + EPS)


def test_layer_norm() -> None:
    x, w, b = leaf(4, 3, 5), leaf(3, 5), leaf(3, 5)
    y = mortice.layer_norm(x, (3, 5), w, b)
    expected = normalised(x.detach().numpy(), (1, 2)) * w.detach().numpy() + b.detach().numpy()
    np.testing.assert_allclose(y.detach().numpy(), expected, atol=1e-12)
    f = lambda x, w, b: mortice.layer_norm(x, (3, 5), w, b)  # noqa: E731
    assert gradcheck(f, (x, w, b), fast_mode=True) and gradgradcheck(f, (x, w, b), fast_mode=True)


def test_rows_without_elements() -> None:
    """As in PyTorch: the mean of nothing is 0 here; nothing is said about it."""
    x = mortice.ones(3, 0).requires_grad_()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        out, mean, rstd = mortice.ops.aten.native_layer_norm(x, (0,), None, None, 1e-5)
        (out.sum() + mean.detach().sum()).backward()
    assert out.shape == x.grad.shape == (3, 0)
    assert mean.tolist() == [[0.0]] * 3
    assert bool(rstd.isnan().all())


def test_group_norm() -> None:
    x, w, b = leaf(2, 6, 3, 2), leaf(6), leaf(6)
    y = mortice.group_norm(x, 3, w, b)
    grouped = x.detach().numpy().reshape(2, 3, -1)
    plain = normalised(grouped, (2,)).reshape(2, 6, 3, 2)
    scale, shift = (v.detach().numpy().reshape(1, 6, 1, 1) for v in (w, b))
    np.testing.assert_allclose(y.detach().numpy(), plain * scale + shift, atol=1e-12)
    f = lambda x, w, b: mortice.group_norm(x, 3, w, b)  # noqa: E731
    assert gradcheck(f, (x, w, b), fast_mode=True) and gradgradcheck(f, (x, w, b), fast_mode=True)


@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_and_its_running_statistics(training: bool) -> None:
    x, w, b = leaf(4, 3, 5), leaf(3), leaf(3)
    mean, var = mortice.zeros(3, dtype=mortice.float64), mortice.ones(3, dtype=mortice.float64)
    y = mortice.batch_norm(x, w, b, mean, var, training, 0.1, EPS, True)
    data = x.detach().numpy()
    plain = normalised(data, (0, 2)) if training else data / np.sqrt(1 + EPS)
    scale, shift = (v.detach().numpy().reshape(1, 3, 1) for v in (w, b))
    np.testing.assert_allclose(y.detach().numpy(), plain * scale + shift, atol=1e-12)
    if training:
        np.testing.assert_allclose(mean.numpy(), 0.1 * data.mean((0, 2)), atol=1e-12)
        unbiased = data.var((0, 2), ddof=1)
        np.testing.assert_allclose(var.numpy(), 0.9 + 0.1 * unbiased, atol=1e-12)
        assert mean._version > 0
    else:
        assert mean.tolist() == [0.0] * 3

    def f(x, w, b):
        stats = mean.clone(), var.clone()
        return mortice.batch_norm(x, w, b, *stats, training, 0.1, EPS, True)

    assert gradcheck(f, (x, w, b), fast_mode=True) and gradgradcheck(f, (x, w, b), fast_mode=True)


def test_large_offsets_do_not_spoil_the_variance() -> None:
    x = mortice.tensor(RNG.standard_normal((8, 64)).astype("float32") + 1e4)
    y = mortice.layer_norm(x, (64,))
    assert abs(y.var(1, correction=0).mean().item() - 1) < 1e-3


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: mortice.layer_norm(mortice.ones(2, 3), (4,)), r"expected input with shape \[\*, 4\]"),
        (lambda: mortice.group_norm(mortice.ones(2, 5, 3), 2), "divisible by num_groups"),
        (
            lambda: mortice.batch_norm(mortice.ones(2, 3), None, None, mortice.ones(4), mortice.ones(4),
                                       True, 0.1, EPS, True),
            "running_mean should contain 3 elements not 4",
        ),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(call: object, complaint: str) -> None:
    with pytest.raises(RuntimeError, match=complaint):
        call()  # type: ignore[operator]
