"""Functions against their formulas in numpy, and what they refuse."""

from __future__ import annotations

import math

import numpy as np
import pytest

import mortice
from mortice import nn
from mortice.nn import functional as F

RNG = np.random.default_rng(0)


def rand(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def t(a: np.ndarray, grad: bool = False):
    return mortice.from_numpy(np.array(a)).requires_grad_(grad)


def same(got, expected, rtol: float = 1e-5, atol: float = 1e-6) -> None:
    np.testing.assert_allclose(got.detach().numpy(), expected, rtol=rtol, atol=atol)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softplus(x):
    return np.log1p(np.exp(x))


ERF = np.vectorize(math.erf)
ACTIVATIONS = {
    "relu": lambda x: np.maximum(x, 0),
    "relu6": lambda x: np.clip(x, 0, 6),
    "elu": lambda x: np.where(x > 0, x, np.expm1(x)),
    "leaky_relu": lambda x: np.where(x > 0, x, 0.01 * x),
    "gelu": lambda x: x * 0.5 * (1 + ERF(x / math.sqrt(2))),
    "silu": lambda x: x * sigmoid(x),
    "mish": lambda x: x * np.tanh(softplus(x)),
    "hardswish": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "hardsigmoid": lambda x: np.clip(x + 3, 0, 6) / 6,
    "hardtanh": lambda x: np.clip(x, -1, 1),
    "softplus": softplus,
    "softsign": lambda x: x / (1 + np.abs(x)),
    "softshrink": lambda x: np.sign(x) * np.maximum(np.abs(x) - 0.5, 0),
    "hardshrink": lambda x: np.where(np.abs(x) > 0.5, x, 0),
    "tanhshrink": lambda x: x - np.tanh(x),
    "logsigmoid": lambda x: np.log(sigmoid(x)),
    "sigmoid": sigmoid,
    "tanh": np.tanh,
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation_and_its_gradient(name: str) -> None:
    x = rand(5, 7) * 2
    formula, function = ACTIVATIONS[name], getattr(F, name)
    leaf = t(x, grad=True)
    out = function(leaf)
    same(out, formula(x), 1e-4, 1e-5)
    out.sum().backward()
    step = 1e-4
    wide = x.astype(np.float64)
    slope = (formula(wide + step) - formula(wide - step)) / (2 * step)
    same(leaf.grad, slope, 1e-3, 1e-3)


@pytest.mark.parametrize(
    "name",
    [
        "relu",
        "relu6",
        "elu",
        "selu",
        "celu",
        "leaky_relu",
        "silu",
        "mish",
        "hardswish",
        "hardsigmoid",
        "hardtanh",
    ],
)
def test_inplace_overwrites_and_differentiates(name: str) -> None:
    function, x = getattr(F, name), rand(4, 3)
    plain, source = t(x, grad=True), t(x, grad=True)
    expected = function(plain)
    buffer = source * 1
    out = function(buffer, inplace=True)
    assert out is buffer
    same(out, expected.detach().numpy())
    expected.sum().backward()
    out.sum().backward()
    same(source.grad, plain.grad.numpy())


def test_extreme_values_do_not_overflow() -> None:
    x = t(np.array([-1000.0, 1000.0], np.float32), grad=True)
    same(F.softplus(x), [0, 1000])
    same(F.logsigmoid(x), [-1000, 0])
    F.softplus(x).sum().backward()
    same(x.grad, [0, 1])
    same(
        F.binary_cross_entropy_with_logits(
            x, t(np.array([1.0, 0.0], np.float32)), reduction="none"
        ),
        [1000, 1000],
    )
    same(F.softmax(x, 0), [0, 1])
    same(F.log_softmax(x, 0), [-2000, 0])


def test_softmax_family() -> None:
    x = rand(3, 4)
    e = np.exp(x - x.max(1, keepdims=True))
    p = e / e.sum(1, keepdims=True)
    same(F.softmax(t(x), 1), p)
    same(F.log_softmax(t(x), dim=-1), np.log(p), 1e-5, 1e-5)
    same(F.softmin(t(-x), 1), p)
    with pytest.warns(UserWarning, match="pass dim"):
        F.softmax(t(x))
    same(F.glu(t(x)), x[:, :2] * sigmoid(x[:, 2:]))
    with pytest.raises(RuntimeError, match="must be even, but dimension 0 is size 3"):
        F.glu(t(x), 0)


def test_gumbel_softmax_hard_is_one_hot_with_soft_gradient() -> None:
    mortice.manual_seed(0)
    logits = t(rand(6, 5), grad=True)
    out = F.gumbel_softmax(logits, tau=0.5, hard=True)
    same(out.sum(1), np.ones(6))
    same(out.max(1)[0], np.ones(6), atol=1e-5)
    (out * t(rand(6, 5))).sum().backward()
    assert float(logits.grad.abs().sum()) > 0


def test_linear_and_bilinear() -> None:
    x, w, b = rand(2, 3, 4), rand(5, 4), rand(5)
    same(F.linear(t(x), t(w), t(b)), x @ w.T + b, 1e-5, 1e-5)
    x1, x2, w2 = rand(6, 3), rand(6, 4), rand(2, 3, 4)
    same(F.bilinear(t(x1), t(x2), t(w2)), np.einsum("bi,kij,bj->bk", x1, w2, x2), 1e-4, 1e-5)
    with pytest.raises(RuntimeError, match="expects last dimensions 3 and 4, found 4 and 3"):
        F.bilinear(t(x2), t(x1), t(w2))


def test_embedding() -> None:
    w = t(rand(5, 3), grad=True)
    index = mortice.tensor([[1, 4], [1, 2]])
    out = F.embedding(index, w, padding_idx=-1)
    same(out, w.detach().numpy()[[[1, 4], [1, 2]]])
    out.sum().backward()
    assert w.grad.sum(1).tolist() == [0, 6, 3, 0, 0]
    with pytest.raises(ValueError, match="found 5 for 5 rows"):
        F.embedding(index, w, padding_idx=5)
    big = t(np.full((2, 4), 3.0, np.float32))
    F.embedding(mortice.tensor([1, 1]), big, max_norm=1.0)
    same((big * big).sum(1).sqrt(), [6, 1], 1e-5)


def test_embedding_bag() -> None:
    w = rand(6, 2)
    index, offsets = mortice.tensor([1, 2, 4, 5, 4]), mortice.tensor([0, 2, 2])
    bags = [w[[1, 2]], np.zeros((0, 2)), w[[4, 5, 4]]]
    for mode, reduce in (("sum", np.sum), ("mean", np.mean), ("max", np.max)):
        expected = np.stack([reduce(bag, axis=0) if len(bag) else np.zeros(2) for bag in bags])
        same(F.embedding_bag(index, t(w), offsets, mode=mode), expected)
    weights = t(np.array([1, 2, 3, 4, 5], np.float32))
    got = F.embedding_bag(index, t(w), offsets, mode="sum", per_sample_weights=weights)
    same(got[2], 3 * w[4] + 4 * w[5] + 5 * w[4], 1e-5, 1e-5)
    with pytest.raises(NotImplementedError, match="only supported for mode='sum', found 'mean'"):
        F.embedding_bag(index, t(w), offsets, per_sample_weights=weights)
    with pytest.raises(ValueError, match="needs offsets"):
        F.embedding_bag(index, t(w))


def test_one_hot_and_normalize() -> None:
    assert F.one_hot(mortice.tensor([0, 2])).tolist() == [[1, 0, 0], [0, 0, 1]]
    with pytest.raises(RuntimeError, match="smaller than num_classes"):
        F.one_hot(mortice.tensor([0, 2]), 2)
    x = rand(3, 4)
    same(F.normalize(t(x)), x / np.linalg.norm(x, axis=1, keepdims=True))
    same(F.normalize(t(x), p=1, dim=0), x / np.abs(x).sum(0))


def test_dropout_keeps_the_mean_and_scales() -> None:
    mortice.manual_seed(0)
    x = mortice.ones(100, 100)
    out = F.dropout(x, 0.25)
    kept = out.numpy() != 0
    np.testing.assert_allclose(out.numpy()[kept], 1 / 0.75, rtol=1e-6)
    # 10,000 trials: 5 standard deviations are 0.022
    assert abs(kept.mean() - 0.75) < 0.022
    assert (F.dropout(x, 0.5, training=False) == x).all()
    channels = F.dropout2d(mortice.ones(20, 30, 2, 2), 0.5).numpy().reshape(600, 4)
    assert set(np.unique(channels)) == {0, 2}
    assert (channels.std(1) == 0).all()
    with pytest.raises(ValueError, match="between 0 and 1, but got 2"):
        F.dropout(x, 2)


def test_alpha_dropout_keeps_mean_and_variance() -> None:
    mortice.manual_seed(0)
    out = F.alpha_dropout(t(rand(400, 400)), 0.2, training=True).numpy()
    assert abs(out.mean()) < 0.02
    assert abs(out.std() - 1) < 0.02


def test_norms() -> None:
    x = rand(4, 6, 5) * 3 + 1
    mean, var = x.mean((0, 2), keepdims=True), x.var((0, 2), keepdims=True)
    running_mean, running_var = mortice.zeros(6), mortice.ones(6)
    got = F.batch_norm(t(x), running_mean, running_var, training=True, momentum=0.1)
    same(got, (x - mean) / np.sqrt(var + 1e-5), 1e-4, 1e-5)
    same(running_mean, 0.1 * mean.ravel(), 1e-5)
    same(running_var, 0.9 + 0.1 * var.ravel() * 20 / 19, 1e-5)
    fixed = F.batch_norm(t(x), t(mean.ravel()), t(var.ravel()))
    same(fixed, (x - mean) / np.sqrt(var + 1e-5), 1e-4, 1e-5)
    mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    same(F.layer_norm(t(x), (5,)), (x - mean) / np.sqrt(var + 1e-5), 1e-4, 1e-5)
    same(F.instance_norm(t(x)), (x - mean) / np.sqrt(var + 1e-5), 1e-4, 1e-5)
    same(
        F.rms_norm(t(x), (5,), eps=1e-3), x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-3), 1e-4
    )
    g = x.reshape(4, 2, 15)
    g = (g - g.mean(-1, keepdims=True)) / np.sqrt(g.var(-1, keepdims=True) + 1e-5)
    same(F.group_norm(t(x), 2), g.reshape(x.shape), 1e-4, 1e-5)
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        F.batch_norm(mortice.ones(1, 3), None, None, training=True)


def conv2d_naive(x, w, b, stride, padding, dilation=1):
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    kh, kw = w.shape[2:]
    height = (x.shape[2] - dilation * (kh - 1) - 1) // stride + 1
    width = (x.shape[3] - dilation * (kw - 1) - 1) // stride + 1
    out = np.zeros((x.shape[0], w.shape[0], height, width))
    for i in range(height):
        for j in range(width):
            rows = slice(i * stride, i * stride + dilation * (kh - 1) + 1, dilation)
            columns = slice(j * stride, j * stride + dilation * (kw - 1) + 1, dilation)
            out[:, :, i, j] = np.einsum("ncij,ocij->no", x[:, :, rows, columns], w) + b
    return out


def test_convolutions() -> None:
    x, w, b = rand(2, 3, 7, 6), rand(4, 3, 3, 2), rand(4)
    same(F.conv2d(t(x), t(w), t(b), 2, 1), conv2d_naive(x, w, b, 2, 1), 1e-4, 1e-5)
    same(F.conv2d(t(x), t(w), t(b), dilation=2), conv2d_naive(x, w, b, 1, 0, 2), 1e-4, 1e-5)
    one = F.conv1d(t(x[:, :, 0]), t(w[:, :, 0]), t(b))
    same(one, conv2d_naive(x[:, :, :1], w[:, :, :1], b, 1, 0)[:, :, 0], 1e-4, 1e-5)
    # the transposed convolution is the adjoint: <conv(x), y> = <x, conv_T(y)>
    y = rand(2, 4, 5, 5)
    forward = (F.conv2d(t(x), t(w)).detach().numpy() * y).sum()
    backward = (F.conv_transpose2d(t(y), t(w)).detach().numpy() * x).sum()
    assert forward == pytest.approx(backward, rel=1e-3)


def test_transposed_output_size() -> None:
    layer = nn.ConvTranspose2d(2, 3, 3, stride=2)
    assert tuple(layer(mortice.ones(1, 2, 4, 4), output_size=(10, 9)).shape) == (1, 3, 10, 9)
    with pytest.raises(ValueError, match="size 0 must be from 9 to 10"):
        layer(mortice.ones(1, 2, 4, 4), output_size=(11, 9))


def test_pools() -> None:
    x = rand(2, 3, 6, 4)
    blocks = x.reshape(2, 3, 3, 2, 2, 2)
    same(F.max_pool2d(t(x), 2), blocks.max((3, 5)))
    same(F.avg_pool2d(t(x), 2), blocks.mean((3, 5)), 1e-5, 1e-6)
    same(F.adaptive_avg_pool2d(t(x), 1), x.mean((2, 3), keepdims=True), 1e-5, 1e-6)
    out, index = F.max_pool2d(t(x), 2, return_indices=True)
    back = F.max_unpool2d(out, index, 2).numpy()
    assert ((back == x) | (back == 0)).all()
    assert (back != 0).sum() == 2 * 3 * 6
    same(F.max_pool1d(t(x[:, :, 0]), 2), x[:, :, 0].reshape(2, 3, 2, 2).max(3))
    with pytest.raises(RuntimeError, match=r"max_pool2d expects a 3-d .* found"):
        F.max_pool2d(mortice.ones(2, 2), 2)


def test_pad_modes() -> None:
    x = np.arange(12, dtype=np.float32).reshape(1, 1, 3, 4)
    for mode, numpy_mode in (("reflect", "reflect"), ("replicate", "edge"), ("circular", "wrap")):
        same(
            F.pad(t(x), (2, 1, 1, 2), mode), np.pad(x, ((0, 0), (0, 0), (1, 2), (2, 1)), numpy_mode)
        )
    same(
        F.pad(t(x), (1, -1), value=9),
        np.pad(x[..., :-1], ((0, 0),) * 3 + ((1, 0),), constant_values=9),
    )
    with pytest.raises(RuntimeError, match=r"less than .* padding \(3, 0\) at dimension 2"):
        F.pad(t(x), (0, 0, 3, 0), "reflect")
    with pytest.raises(NotImplementedError, match="constant, reflect, replicate and circular"):
        F.pad(t(x), (1, 1), "mirror")


def test_interpolate() -> None:
    x = np.array([[[[0.0, 1.0], [2.0, 3.0]]]], np.float32)
    same(F.interpolate(t(x), scale_factor=2), np.repeat(np.repeat(x, 2, 2), 2, 3))
    corners = F.interpolate(t(x), size=3, mode="bilinear", align_corners=True)
    same(corners[0, 0], [[0, 0.5, 1], [1, 1.5, 2], [2, 2.5, 3]])
    with pytest.raises(ValueError, match="either size or scale_factor"):
        F.interpolate(t(x))
    with pytest.raises(NotImplementedError, match="mode 'linear' takes 3-d inputs, not 4-d"):
        F.interpolate(t(x), 3, mode="linear")


def test_shuffles_invert() -> None:
    x = rand(2, 8, 3, 4)
    same(F.pixel_unshuffle(F.pixel_shuffle(t(x), 2), 2), x)
    same(F.channel_shuffle(F.channel_shuffle(t(x), 2), 4), x)
    columns = F.unfold(t(x), 2, stride=1)
    assert tuple(columns.shape) == (2, 32, 6)
    patches = F.fold(F.unfold(t(x[:, :, :2]), 2, stride=2), (2, 4), 2, stride=2)
    same(patches, x[:, :, :2])


def test_identity_grid_samples_itself() -> None:
    x = rand(1, 2, 4, 5)
    theta = t(np.array([[[1, 0, 0], [0, 1, 0]]], np.float32))
    grid = F.affine_grid(theta, x.shape, align_corners=False)
    same(F.grid_sample(t(x), grid, align_corners=False), x, 1e-4, 1e-5)


def test_attention_by_hand() -> None:
    q, k, v = rand(2, 3, 4), rand(2, 5, 4), rand(2, 5, 6)
    scores = q @ k.transpose(0, 2, 1) / 2
    e = np.exp(scores - scores.max(-1, keepdims=True))
    same(
        F.scaled_dot_product_attention(t(q), t(k), t(v)),
        (e / e.sum(-1, keepdims=True)) @ v,
        1e-4,
        1e-5,
    )
    causal = F.scaled_dot_product_attention(t(k), t(k), t(v), is_causal=True)
    same(causal[:, 0], v[:, 0], 1e-4, 1e-5)


# -- losses --------------------------------------------------------------------------------------


def test_cross_entropy() -> None:
    x, y = rand(6, 4), np.array([0, 3, 2, 1, 1, 0])
    logp = x - np.log(np.exp(x).sum(1, keepdims=True))
    picked = logp[np.arange(6), y]
    target = mortice.from_numpy(y)
    same(F.cross_entropy(t(x), target), -picked.mean())
    same(F.cross_entropy(t(x), target, reduction="none"), -picked)
    w = np.array([1, 2, 3, 4], np.float32)
    same(F.cross_entropy(t(x), target, weight=t(w)), -(picked * w[y]).sum() / w[y].sum())
    keep = y != 1
    same(F.cross_entropy(t(x), target, ignore_index=1), -picked[keep].mean())
    smooth = -0.9 * picked.mean() - 0.1 * logp.mean()
    same(F.cross_entropy(t(x), target, label_smoothing=0.1), smooth)
    p = np.exp(rand(6, 4))
    p /= p.sum(1, keepdims=True)
    same(F.cross_entropy(t(x), t(p)), -(p * logp).sum(1).mean())
    leaf = t(x, grad=True)
    F.cross_entropy(leaf, target).backward()
    same(leaf.grad, (np.exp(logp) - np.eye(4)[y]) / 6, 1e-4, 1e-6)
    with pytest.raises(ValueError, match="'average' is not a valid value for reduction"):
        F.cross_entropy(t(x), target, reduction="average")


LOSSES = [
    ("mse_loss", lambda x, y: (x - y) ** 2, {}),
    ("l1_loss", lambda x, y: np.abs(x - y), {}),
    (
        "smooth_l1_loss",
        lambda x, y: np.where(np.abs(x - y) < 0.5, (x - y) ** 2, np.abs(x - y) - 0.25),
        {"beta": 0.5},
    ),
    (
        "huber_loss",
        lambda x, y: np.where(np.abs(x - y) <= 2, (x - y) ** 2 / 2, 2 * (np.abs(x - y) - 1)),
        {"delta": 2.0},
    ),
    ("soft_margin_loss", lambda x, y: np.log1p(np.exp(-y * x)), {}),
    ("poisson_nll_loss", lambda x, y: np.exp(x) - y * x, {}),
    ("kl_div", lambda x, y: np.exp(y) * (y - x), {"log_target": True}),
    ("binary_cross_entropy_with_logits", lambda x, y: softplus(x) - x * y, {}),
]


@pytest.mark.parametrize(("name", "formula", "options"), LOSSES, ids=[case[0] for case in LOSSES])
def test_loss_and_reductions(name: str, formula, options: dict) -> None:
    x, y = rand(5, 3), rand(5, 3)
    function, expected = getattr(F, name), formula(x, y)
    same(function(t(x), t(y), reduction="none", **options), expected, 1e-4, 1e-5)
    same(function(t(x), t(y), reduction="sum", **options), expected.sum(), 1e-4, 1e-5)
    same(function(t(x), t(y), **options), expected.mean(), 1e-4, 1e-5)


def test_other_losses() -> None:
    x, y = rand(6, 4), rand(6, 4)
    p, q = sigmoid(x), (y > 0).astype(np.float32)
    bce = -(q * np.log(p) + (1 - q) * np.log(1 - p))
    same(F.binary_cross_entropy(t(p), t(q)), bce.mean(), 1e-4)
    with pytest.raises(RuntimeError, match=r"between 0 and 1.*with_logits"):
        F.binary_cross_entropy(t(x), t(q))
    with pytest.warns(UserWarning, match="broadcasting"):
        F.mse_loss(t(x), t(y[:1]))
    sign = np.where(y[:, 0] > 0, 1, -1).astype(np.float32)
    near = np.maximum(0, -sign * (x[:, 0] - x[:, 1]) + 0.5)
    same(F.margin_ranking_loss(t(x[:, 0]), t(x[:, 1]), t(sign), margin=0.5), near.mean(), 1e-5)
    d = lambda a, b: np.sqrt(((a - b + 1e-6) ** 2).sum(-1))  # noqa: E731
    z = rand(6, 4)
    expected = np.maximum(0, d(x, y) - d(x, z) + 1).mean()
    same(F.triplet_margin_loss(t(x), t(y), t(z)), expected, 1e-4)


def ctc_by_enumeration(logp: np.ndarray, target: list[int]) -> float:
    """-log of the sum over all paths that collapse to ``target``."""
    import itertools

    total = 0.0
    for path in itertools.product(range(logp.shape[1]), repeat=logp.shape[0]):
        collapsed = [k for k, _ in itertools.groupby(path)]
        if [k for k in collapsed if k] == target:
            total += math.exp(sum(logp[i, k] for i, k in enumerate(path)))
    return -math.log(total)


def test_ctc_against_enumeration() -> None:
    x = rand(5, 3, 3)
    logp = x - np.log(np.exp(x).sum(-1, keepdims=True))
    targets = [[1, 2], [1, 1], [2]]
    padded = mortice.tensor([[1, 2], [1, 1], [2, 0]])
    lengths = [5, 4, 5]
    expected = [
        ctc_by_enumeration(logp[:n, i], target)
        for i, (n, target) in enumerate(zip(lengths, targets, strict=True))
    ]
    got = F.ctc_loss(t(logp), padded, lengths, [2, 2, 1], reduction="none")
    same(got, expected, 1e-4)
    flat = mortice.tensor([1, 2, 1, 1, 2])
    same(
        F.ctc_loss(
            t(logp), flat, mortice.tensor(lengths), mortice.tensor([2, 2, 1]), reduction="sum"
        ),
        sum(expected),
        1e-4,
    )
    impossible = F.ctc_loss(
        t(logp[:2]), mortice.tensor([[1, 1]] * 3), [2] * 3, [2] * 3, reduction="none"
    )
    assert np.isinf(impossible.numpy()).all()
