"""Random numbers: reproducible bits, distributions, generators, what is refused."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest

import mortice
from mortice.backend import random_draws
from mortice.errors import DeviceError, InvalidState, NoKernel, ShapeError
from mortice_cpu.kernels.random import fill

N = 100_000


@pytest.fixture(autouse=True)
def seeded():
    with mortice.random.fork_rng():
        mortice.manual_seed(1234)
        yield


def test_words_are_those_of_the_paper():
    """Philox-4x32-10's known answer for a key and counter of zeros."""
    assert random_draws("u32")(4, 0, 0).tolist() == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]


@pytest.mark.parametrize("kind", ["u32", "f32", "f64"])
@pytest.mark.parametrize("n", [0, 1, 3, 1001, 70_000])
def test_fast_fills_agree_bit_for_bit(kind, n):
    seed, offset = 2**64 - 3, 2**40 + 7
    assert np.array_equal(fill(kind, n, seed, offset), random_draws(kind)(n, seed, offset))


def test_numbers_follow_from_seed_offset_and_position():
    long = mortice.rand(1000)
    mortice.manual_seed(1234)
    assert mortice.rand(10).tolist() == long[:10].tolist()
    assert mortice.rand(10).tolist() != long[:10].tolist()
    mortice.default_generator.set_offset(0)
    assert mortice.rand(2, 5).view(-1).tolist() == long[:10].tolist()
    half = mortice.randn(7)
    mortice.default_generator.set_offset(mortice.default_generator.get_offset() - 1)
    assert mortice.randn(8)[:7].tolist() == half.tolist()


def test_generators():
    g = mortice.Generator()
    assert g.device.type == "cpu"
    g.manual_seed(5)
    first = mortice.randn(3, generator=g)
    state = g.get_state()
    second = mortice.randn(3, generator=g)
    g.set_state(state)
    assert mortice.randn(3, generator=g).tolist() == second.tolist() != first.tolist()
    assert g.initial_seed() == 5
    twin = pickle.loads(pickle.dumps(g))
    assert mortice.rand(2, generator=twin).tolist() == mortice.rand(2, generator=g).tolist()
    assert mortice.Generator().manual_seed(-1).initial_seed() == 2**64 - 1
    with pytest.raises(InvalidState, match="16 bytes"):
        g.set_state(mortice.zeros(5056, dtype=mortice.uint8))
    with pytest.raises(InvalidState, match="Overflow"):
        g.manual_seed(2**64)
    with pytest.raises(TypeError, match="Generator"):
        mortice.rand(2, generator=3)
    with pytest.raises(DeviceError, match="Expected a 'cpu' device type for generator"):
        mortice.rand(2, generator=mortice.Generator("meta"))


def test_states_are_put_back():
    before = mortice.get_rng_state().tolist()
    with mortice.random.fork_rng():
        mortice.rand(3)
        mortice.manual_seed(9)
    assert mortice.get_rng_state().tolist() == before
    state = mortice.get_rng_state()
    a = mortice.rand(2).tolist()
    mortice.set_rng_state(state)
    assert mortice.rand(2).tolist() == a
    assert mortice.initial_seed() == 1234


def moments(x):
    a = x.double().numpy()
    return float(a.mean()), float(a.var())


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize(
    ("draw", "mean", "variance"),
    [
        (lambda x: x.uniform_(-1, 3), 1, 16 / 12),
        (lambda x: x.normal_(2, 0.5), 2, 0.25),
        (lambda x: x.exponential_(2), 0.5, 0.25),
        (lambda x: x.log_normal_(0, 0.5), math.exp(0.125), (math.exp(0.25) - 1) * math.exp(0.25)),
        (lambda x: x.geometric_(0.25), 4, 12),
        (lambda x: x.bernoulli_(0.3), 0.3, 0.21),
    ],
)
def test_moments(dtype, draw, mean, variance):
    found = moments(draw(mortice.empty(N, dtype=getattr(mortice, dtype))))
    assert found[0] == pytest.approx(mean, rel=0.03, abs=0.02)
    assert found[1] == pytest.approx(variance, rel=0.08)


def test_quantiles_of_heavy_tails():
    x = mortice.empty(N).cauchy_(1, 2).numpy()
    assert np.median(x) == pytest.approx(1, abs=0.05)
    assert np.percentile(x, 75) == pytest.approx(3, abs=0.1)


@pytest.mark.parametrize("rate", [0.0, 0.5, 4.0, 12.0, 300.0])
def test_poisson(rate):
    mean, variance = moments(mortice.poisson(mortice.full((N,), rate)))
    assert mean == pytest.approx(rate, rel=0.02, abs=1e-9)
    assert variance == pytest.approx(rate, rel=0.04, abs=1e-9)


@pytest.mark.parametrize(
    ("count", "p"), [(10, 0.1), (10, 0.9), (100, 0.4), (1000, 0.5), (7, 0.0), (7, 1.0)]
)
def test_binomial(count, p):
    x = mortice.binomial(mortice.full((N,), float(count)), mortice.full((N,), p))
    mean, variance = moments(x)
    assert mean == pytest.approx(count * p, rel=0.02, abs=1e-9)
    assert variance == pytest.approx(count * p * (1 - p), rel=0.04, abs=1e-6)
    assert x.min().item() >= 0
    assert x.max().item() <= count


def test_integers():
    x = mortice.randint(-3, 4, (N,))
    assert x.dtype is mortice.int64
    assert mortice.unique(x).tolist() == list(range(-3, 4))
    assert np.bincount(x.numpy() + 3).min() > N / 7 * 0.95
    wide = mortice.randint(-(2**63), 2**63 - 1, (1000,))
    assert wide.min().item() < -(2**61)
    assert wide.max().item() > 2**61
    assert mortice.randint(5, (2, 3), dtype=mortice.float32).dtype is mortice.float32
    assert mortice.empty(1000, dtype=mortice.uint8).random_().max().item() > 200
    assert mortice.empty(1000, dtype=mortice.int8).random_().min().item() >= 0
    assert sorted(mortice.randperm(100).tolist()) == list(range(100))


def test_samples_of_categories():
    weights = mortice.tensor([0.1, 0.0, 0.6, 0.3])
    many = mortice.multinomial(weights, N, replacement=True).numpy()
    assert np.bincount(many, minlength=4) / N == pytest.approx([0.1, 0, 0.6, 0.3], abs=0.01)
    rows = mortice.multinomial(weights.expand(500, 4), 3)
    assert all(sorted(row) == [0, 2, 3] for row in rows.tolist())
    assert (rows[:, 0] == 2).double().mean().item() == pytest.approx(0.6, abs=0.08)


def test_dropout():
    x = mortice.ones(N, requires_grad=True)
    y = mortice.dropout(x, 0.25, True)
    assert y.mean().item() == pytest.approx(1, abs=0.02)
    y.sum().backward()
    assert x.grad.tolist() == y.tolist()
    assert mortice.dropout(x, 0.5, False) is x
    assert mortice.dropout(x, 1.0, True).sum().item() == 0
    channels = mortice.feature_dropout(mortice.ones(20, 5, 3, 3), 0.5, True)
    assert set(channels.sum((2, 3)).view(-1).tolist()) == {0.0, 18.0}
    z = mortice.alpha_dropout(mortice.randn(N), 0.2, True)
    assert moments(z) == pytest.approx((0, 1), abs=0.03)


def test_normal_numbers_around_tensors():
    mean, std = mortice.tensor([0.0, 100.0]), mortice.tensor([1.0, 0.001])
    x = mortice.stack([mortice.normal(mean, std) for _ in range(200)])
    assert x.mean(0).tolist() == pytest.approx([0, 100], abs=0.3)
    assert mortice.normal(0.0, 1.0, (2, 3)).shape == (2, 3)
    assert mortice.normal(mean, 1.0).shape == (2,)


def test_complex_numbers_have_unit_variance():
    x = mortice.randn(N, dtype=mortice.complex64)
    assert x.abs().square().mean().item() == pytest.approx(1, abs=0.02)


def test_strided_targets():
    x = mortice.zeros(4, 6)
    x.t()[::2].uniform_(1, 2)
    assert (x[:, ::2] >= 1).all()
    assert (x[:, 1::2] == 0).all()


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda x: x.uniform_(2, 1), ShapeError, "from=2 > to=1"),
        (lambda x: x.normal_(0, -1), ShapeError, "std >= 0.0"),
        (lambda x: x.exponential_(0), ShapeError, "lambda > 0.0"),
        (lambda x: x.geometric_(1.0), ShapeError, r"p to be in \(0, 1\)"),
        (lambda x: x.bernoulli_(2.0), ShapeError, r"p to be in \[0, 1\]"),
        (lambda x: x.long().normal_(), NoKernel, "int64"),
        (lambda x: mortice.rand(2, dtype=mortice.int64), NoKernel, "use randint"),
        (lambda x: mortice.randint(3, 3, (1,)), ShapeError, "from=3 >= to=3"),
        (
            lambda x: mortice.randint(0, 300, (1,), dtype=mortice.uint8),
            ShapeError,
            "out of bounds for mortice.uint8",
        ),
        (lambda x: mortice.multinomial(x, 9), ShapeError, "cannot sample n_sample > "),
        (lambda x: mortice.multinomial(-x, 1), ShapeError, "element < 0"),
        (lambda x: mortice.bernoulli(x + 1), ShapeError, "p_in <= 1"),
        (lambda x: mortice.dropout(x, 1.5, True), ShapeError, "between 0 and 1, but got 1.5"),
        (lambda x: mortice.poisson(-x), ShapeError, "non-negative"),
    ],
)
def test_mistakes_are_named(call, error, text):
    with pytest.raises(error, match=text):
        call(mortice.ones(3))


def test_meta_tensors_have_shapes_and_no_numbers():
    assert mortice.rand(2, device="meta").is_meta
    assert mortice.randint(3, (2,), device="meta").dtype is mortice.int64
    assert mortice.empty(2, device="meta").uniform_().is_meta
