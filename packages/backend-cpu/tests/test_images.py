"""Pooling, padding and resampling: values worked out by hand or by numpy, and gradients."""

from __future__ import annotations

import numpy as np
import pytest

import mortice
from mortice.testing import gradcheck

RNG = np.random.default_rng(3)


def leaf(*shape: int) -> mortice.Tensor:
    return mortice.from_numpy(RNG.standard_normal(shape)).requires_grad_()


def test_max_pool_values_indices_and_nan() -> None:
    x = mortice.tensor([[[[1.0, 5.0, 2.0], [4.0, 3.0, 9.0], [7.0, 8.0, 6.0]]]])
    values, indices = mortice.max_pool2d_with_indices(x, 2, 1)
    assert values.tolist() == [[[[5.0, 9.0], [8.0, 9.0]]]]
    assert indices.tolist() == [[[[1, 5], [7, 5]]]]
    x[0, 0, 0, 0] = float("nan")
    assert mortice.max_pool2d(x, 2, 1).isnan().tolist() == [[[[True, False], [False, False]]]]


@pytest.mark.parametrize("ceil", [False, True])
def test_pools_differentiate(ceil: bool) -> None:
    x = leaf(2, 3, 7, 6)
    assert gradcheck(lambda x: mortice.max_pool2d(x, 3, 2, 1, ceil_mode=ceil), (x,), fast_mode=True)
    assert gradcheck(lambda x: mortice.avg_pool2d(x, 3, 2, 1, ceil, False), (x,), fast_mode=True)
    assert gradcheck(lambda x: mortice.adaptive_avg_pool2d(x, (3, 4)), (x,), fast_mode=True)
    assert gradcheck(lambda x: mortice.adaptive_max_pool2d(x, (3, 4))[0], (x,), fast_mode=True)


def test_average_pool_counts_padding_only_if_told() -> None:
    x = mortice.ones(1, 1, 2, 2)
    assert mortice.avg_pool2d(x, 2, 2, 1).flatten().tolist() == [0.25] * 4
    assert mortice.avg_pool2d(x, 2, 2, 1, False, False).flatten().tolist() == [1.0] * 4


@pytest.mark.parametrize(
    ("mode", "numpy_mode"), [("constant", "constant"), ("reflect", "reflect"), ("replicate", "edge"), ("circular", "wrap")]
)  # fmt: skip
def test_padding_equals_numpy_and_differentiates(mode: str, numpy_mode: str) -> None:
    x = leaf(2, 3, 5, 4)
    pad = lambda x: mortice.ops.aten.pad(x, (1, 2, 2, 1), mode)  # noqa: E731
    expected = np.pad(x.detach().numpy(), ((0, 0), (0, 0), (2, 1), (1, 2)), numpy_mode)
    np.testing.assert_array_equal(pad(x).detach().numpy(), expected)
    assert gradcheck(pad, (x,), fast_mode=True)


def test_negative_padding_crops() -> None:
    x = mortice.arange(5).float()
    assert mortice.constant_pad_nd(x, (-1, -2)).tolist() == [1.0, 2.0]


def test_resampling_keeps_constants_and_is_differentiable() -> None:
    aten = mortice.ops.aten
    x = leaf(1, 2, 4, 5)
    for f in (
        lambda x: aten.upsample_nearest2d(x, (7, 3)),
        lambda x: aten.upsample_bilinear2d(x, (7, 3), False),
        lambda x: aten.upsample_bilinear2d(x, (7, 3), True),
        lambda x: aten.upsample_bicubic2d(x, (8, 9), False),
    ):
        ones = f(mortice.ones(1, 1, 4, 5, dtype=mortice.float64))
        np.testing.assert_allclose(ones.numpy(), 1.0, atol=1e-12)
        assert gradcheck(f, (x,), fast_mode=True)


def test_grid_sample_reads_pixels_exactly_at_their_centres() -> None:
    x = mortice.arange(6).double().reshape(1, 1, 2, 3)
    grid = mortice.tensor([[[[-1.0, -1.0], [0.0, -1.0], [1.0, 1.0]]]], dtype=mortice.float64)
    assert mortice.grid_sampler(x, grid, 0, 0, True).flatten().tolist() == [0.0, 1.0, 5.0]
    inside = mortice.tensor(
        [[[[-0.3, 0.2], [0.4, -0.6]]]], dtype=mortice.float64, requires_grad=True
    )
    image = leaf(1, 2, 3, 4)
    assert gradcheck(
        lambda a, g: mortice.grid_sampler(a, g, 0, 0, False), (image, inside), fast_mode=True
    )


def test_patches_and_their_adjoint() -> None:
    aten = mortice.ops.aten
    x = leaf(1, 2, 4, 5)
    columns = aten.im2col(x, (2, 2), (1, 1), (0, 0), (1, 1))
    assert columns.shape == (1, 8, 12)
    counts = aten.col2im(
        mortice.ones_like(columns.detach()), (4, 5), (2, 2), (1, 1), (0, 0), (1, 1)
    )
    assert counts[0, 0].tolist()[1] == [2.0, 4.0, 4.0, 4.0, 2.0]
    assert gradcheck(lambda x: aten.im2col(x, (2, 2), (1, 1), (1, 0), (2, 1)), (x,), fast_mode=True)


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: mortice.max_pool2d(mortice.ones(1, 1, 4, 4), 2, padding=2), "at most half of effective kernel"),
        (lambda: mortice.avg_pool2d(mortice.ones(1, 1, 2, 2), 5), "Output size is too small"),
        (lambda: mortice.ops.aten.reflection_pad1d(mortice.ones(1, 1, 3), (3, 0)), "less than the corresponding"),
        (lambda: mortice.pixel_shuffle(mortice.ones(1, 3, 2, 2), 2), "not divisible by 4"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(call: object, complaint: str) -> None:
    with pytest.raises((RuntimeError, ValueError), match=complaint):
        call()  # type: ignore[operator]
