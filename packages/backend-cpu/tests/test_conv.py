"""Convolutions against a definition written as loops, and their gradients."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import mortice
from mortice.testing import gradcheck, gradgradcheck

RNG = np.random.default_rng(0)


def direct(x, w, stride, padding, dilation, groups):
    """The definition: every output is a sum over channels and kernel taps."""
    n, spatial = x.shape[0], x.ndim - 2
    padded = np.pad(x, ((0, 0), (0, 0), *((p, p) for p in padding)))
    out = [
        (x.shape[i + 2] + 2 * padding[i] - dilation[i] * (w.shape[i + 2] - 1) - 1) // stride[i] + 1
        for i in range(spatial)
    ]
    y = np.zeros((n, w.shape[0], *out))
    per_group = w.shape[0] // groups
    for b, o in product(range(n), range(w.shape[0])):
        first = (o // per_group) * w.shape[1]
        for place in product(*map(range, out)):
            for c, tap in product(range(w.shape[1]), product(*map(range, w.shape[2:]))):
                at = tuple(p * s + t * d for p, s, t, d in zip(place, stride, tap, dilation))
                y[(b, o, *place)] += padded[(b, first + c, *at)] * w[(o, c, *tap)]
    return y


CASES = {
    "1d": ((2, 3, 9), (4, 3, 3), (2,), (1,), (1,), 1),
    "2d": ((2, 3, 6, 7), (4, 3, 3, 2), (1, 2), (1, 0), (2, 1), 1),
    "3d": ((1, 2, 4, 5, 4), (3, 2, 2, 2, 2), (1, 1, 2), (0, 1, 0), (1, 1, 1), 1),
    "groups": ((2, 4, 5, 5), (6, 2, 3, 3), (1, 1), (1, 1), (1, 1), 2),
    "depthwise": ((2, 3, 5, 5), (6, 1, 3, 3), (1, 1), (1, 1), (1, 1), 3),
    "pointwise": ((2, 3, 4, 4), (5, 3, 1, 1), (1, 1), (0, 0), (1, 1), 1),
}


@pytest.mark.parametrize("case", CASES)
def test_forward_equals_the_definition(case: str) -> None:
    xs, ws, stride, padding, dilation, groups = CASES[case]
    x, w = RNG.standard_normal(xs), RNG.standard_normal(ws)
    zeros = (0,) * len(stride)
    y = mortice.convolution(
        mortice.from_numpy(x),
        mortice.from_numpy(w),
        None,
        stride,
        padding,
        dilation,
        False,
        zeros,
        groups,
    )
    np.testing.assert_allclose(
        y.numpy(), direct(x, w, stride, padding, dilation, groups), atol=1e-12
    )


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("transposed", [False, True])
def test_gradients_of_both_orders(case: str, transposed: bool) -> None:
    xs, ws, stride, padding, dilation, groups = CASES[case]
    if transposed:
        xs = (xs[0], ws[0], *xs[2:])
    x = mortice.from_numpy(RNG.standard_normal(xs)).requires_grad_()
    w = mortice.from_numpy(RNG.standard_normal(ws)).requires_grad_()
    channels = ws[1] * groups if transposed else ws[0]
    b = mortice.from_numpy(RNG.standard_normal(channels)).requires_grad_()

    def f(x, w, b):
        zeros = (0,) * len(stride)
        return mortice.convolution(x, w, b, stride, padding, dilation, transposed, zeros, groups)

    assert gradcheck(f, (x, w, b), fast_mode=True)
    assert gradgradcheck(f, (x, w, b), fast_mode=True)


def test_a_transposed_convolution_is_the_adjoint_of_a_convolution() -> None:
    x = mortice.randn(1, 3, 8, 8, dtype=mortice.float64)
    w = mortice.randn(4, 3, 3, 3, dtype=mortice.float64)
    y = mortice.conv2d(x, w, stride=2, padding=1)
    g = mortice.randn_like(y)
    back = mortice.conv_transpose2d(g, w, stride=2, padding=1, output_padding=1)
    assert back.shape == x.shape
    np.testing.assert_allclose((y * g).sum().item(), (x * back).sum().item(), rtol=1e-12)


def test_blocks_of_rows_give_what_one_block_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    from mortice_cpu.kernels import conv

    x, w = mortice.randn(3, 8, 17, 13), mortice.randn(5, 8, 3, 3)
    whole = mortice.conv2d(x, w, padding=1)
    monkeypatch.setattr(conv, "BLOCK_BYTES", 4096)
    np.testing.assert_allclose(mortice.conv2d(x, w, padding=1).numpy(), whole.numpy(), atol=1e-5)


def test_unbatched_same_padding_and_empty_batches() -> None:
    w = mortice.randn(4, 3, 3, 3)
    assert mortice.conv2d(mortice.randn(3, 8, 8), w).shape == (4, 6, 6)
    assert mortice.conv2d(mortice.randn(1, 3, 8, 9), w, padding="same").shape == (1, 4, 8, 9)
    assert mortice.conv2d(mortice.randn(0, 3, 8, 8), w).shape == (0, 4, 6, 6)


@pytest.mark.parametrize(
    ("x", "w", "complaint"),
    [
        ((1, 2, 8, 8), (4, 3, 3, 3), "expected input.* to have 3 channels, but got 2 channels"),
        ((1, 3, 2, 2), (4, 3, 3, 3), "Kernel size can't be greater than actual input size"),
        ((3, 8), (4, 3, 3, 3), "Expected 3D .unbatched. or 4D .batched. input"),
    ],
)
def test_shapes_that_do_not_fit(x: tuple[int, ...], w: tuple[int, ...], complaint: str) -> None:
    with pytest.raises(RuntimeError, match=complaint):
        mortice.conv2d(mortice.zeros(x), mortice.zeros(w))
