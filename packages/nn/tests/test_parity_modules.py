"""Each module against PyTorch's with the same weights: repr, keys, outputs, gradients."""

from __future__ import annotations

import numpy as np
import pytest

import mortice
from mortice import nn

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.parity,
    # what PyTorch says about its own implementation
    pytest.mark.filterwarnings("ignore:enable_nested_tensor is True"),
    pytest.mark.filterwarnings("ignore:LSTM with projections"),
    pytest.mark.filterwarnings("ignore:reduction. 'mean' divides the total loss"),
]


def f(*shape: int) -> tuple[str, tuple[int, ...]]:
    return "float", shape


def i(high: int, *shape: int) -> tuple[str, int, tuple[int, ...]]:
    return "int", high, shape


# (constructor, inputs); the constructor is evaluated with nn bound to each library
CASES = [
    ("nn.Linear(5, 3)", [f(4, 5)]),
    ("nn.Linear(5, 3, bias=False)", [f(2, 4, 5)]),
    ("nn.Bilinear(3, 4, 2)", [f(5, 3), f(5, 4)]),
    ("nn.Identity()", [f(3)]),
    ("nn.Flatten()", [f(2, 3, 4)]),
    ("nn.Unflatten(1, (2, 3))", [f(2, 6)]),
    ("nn.Conv1d(4, 6, 3, stride=2, padding=1, groups=2)", [f(2, 4, 9)]),
    ("nn.Conv2d(3, 4, 3)", [f(2, 3, 6, 7)]),
    (
        "nn.Conv2d(4, 4, (3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 2), groups=4)",
        [f(2, 4, 8, 7)],
    ),
    ("nn.Conv2d(3, 4, 3, padding='same', bias=False)", [f(3, 6, 7)]),
    ("nn.Conv2d(3, 4, 3, padding=1, padding_mode='reflect')", [f(2, 3, 6, 7)]),
    ("nn.Conv2d(3, 4, 3, padding=2, padding_mode='circular')", [f(2, 3, 6, 7)]),
    ("nn.Conv3d(2, 3, 2)", [f(1, 2, 4, 5, 3)]),
    ("nn.ConvTranspose1d(4, 6, 3, stride=2, padding=1, output_padding=1)", [f(2, 4, 5)]),
    ("nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, groups=2)", [f(2, 4, 5, 4)]),
    ("nn.ConvTranspose2d(3, 2, 3, dilation=2, bias=False)", [f(2, 3, 5, 4)]),
    ("nn.BatchNorm1d(4)", [f(6, 4)]),
    ("nn.BatchNorm1d(4, affine=False)", [f(6, 4, 3)]),
    ("nn.BatchNorm2d(3)", [f(2, 3, 4, 5)]),
    ("nn.BatchNorm2d(3, momentum=None)", [f(2, 3, 4, 5)]),
    ("nn.BatchNorm2d(3, track_running_stats=False)", [f(2, 3, 4, 5)]),
    ("nn.BatchNorm3d(2)", [f(2, 2, 3, 4, 2)]),
    ("nn.InstanceNorm1d(3)", [f(2, 3, 5)]),
    ("nn.InstanceNorm2d(3, affine=True, track_running_stats=True)", [f(2, 3, 4, 5)]),
    ("nn.LayerNorm(5)", [f(3, 4, 5)]),
    ("nn.LayerNorm((4, 5), bias=False)", [f(3, 4, 5)]),
    ("nn.LayerNorm(5, elementwise_affine=False)", [f(3, 5)]),
    ("nn.RMSNorm(5)", [f(3, 5)]),
    ("nn.RMSNorm((4, 5), eps=1e-3)", [f(3, 4, 5)]),
    ("nn.GroupNorm(2, 4)", [f(3, 4, 5)]),
    ("nn.LocalResponseNorm(3)", [f(2, 5, 4, 4)]),
    ("nn.Embedding(7, 3)", [i(7, 2, 4)]),
    ("nn.Embedding(7, 3, padding_idx=1)", [i(7, 2, 4)]),
    ("nn.Embedding(7, 3, max_norm=1.0)", [i(7, 2, 4)]),
    ("nn.EmbeddingBag(7, 3)", [i(7, 2, 4)]),
    ("nn.EmbeddingBag(7, 3, mode='sum', padding_idx=2)", [i(7, 2, 4)]),
    ("nn.EmbeddingBag(7, 3, mode='max')", [i(7, 2, 4)]),
    ("nn.LSTM(3, 4)", [f(5, 2, 3)]),
    ("nn.LSTM(3, 4, num_layers=2, bidirectional=True, batch_first=True)", [f(2, 5, 3)]),
    ("nn.LSTM(3, 4, proj_size=2, bias=False)", [f(5, 2, 3)]),
    ("nn.LSTM(3, 4)", [f(5, 3)]),
    ("nn.GRU(3, 4, num_layers=2)", [f(5, 2, 3)]),
    ("nn.GRU(3, 4, bidirectional=True)", [f(5, 2, 3), f(2, 2, 4)]),
    ("nn.RNN(3, 4, nonlinearity='relu')", [f(5, 2, 3)]),
    ("nn.RNN(3, 4, bidirectional=True)", [f(5, 2, 3)]),
    ("nn.LSTMCell(3, 4)", [f(2, 3)]),
    ("nn.GRUCell(3, 4)", [f(2, 3), f(2, 4)]),
    ("nn.RNNCell(3, 4, bias=False, nonlinearity='relu')", [f(3)]),
    ("nn.MultiheadAttention(6, 2)", [f(4, 2, 6), f(5, 2, 6), f(5, 2, 6)]),
    (
        "nn.MultiheadAttention(6, 3, kdim=4, vdim=5, batch_first=True, bias=False)",
        [f(2, 3, 6), f(2, 5, 4), f(2, 5, 5)],
    ),
    (
        "nn.MultiheadAttention(6, 2, add_bias_kv=True, add_zero_attn=True)",
        [f(4, 2, 6), f(5, 2, 6), f(5, 2, 6)],
    ),
    ("nn.TransformerEncoderLayer(6, 2, 8, dropout=0.0)", [f(4, 2, 6)]),
    (
        "nn.TransformerEncoderLayer(6, 2, 8, 0.0, 'gelu', batch_first=True, norm_first=True)",
        [f(2, 4, 6)],
    ),
    ("nn.TransformerDecoderLayer(6, 2, 8, dropout=0.0)", [f(4, 2, 6), f(3, 2, 6)]),
    ("nn.TransformerEncoder(nn.TransformerEncoderLayer(6, 2, 8, dropout=0.0), 2)", [f(4, 2, 6)]),
    ("nn.Transformer(6, 2, 1, 1, 8, dropout=0.0)", [f(4, 2, 6), f(3, 2, 6)]),
    ("nn.Dropout(0.0)", [f(4, 5)]),
    ("nn.Dropout(1.0)", [f(4, 5)]),
    *(
        (f"nn.{name}", [f(4, 6)])
        for name in (
            "ReLU()",
            "ReLU6()",
            "ELU()",
            "ELU(2.0)",
            "SELU()",
            "CELU(0.5)",
            "GELU()",
            "GELU('tanh')",
            "SiLU()",
            "Mish()",
            "LeakyReLU()",
            "LeakyReLU(0.2)",
            "PReLU()",
            "PReLU(6)",
            "Threshold(0.1, 2.0)",
            "Hardtanh()",
            "Hardtanh(-0.5, 0.3)",
            "Hardswish()",
            "Hardsigmoid()",
            "Softplus()",
            "Softplus(2.0, 1.0)",
            "Softsign()",
            "Softshrink()",
            "Hardshrink()",
            "Tanhshrink()",
            "LogSigmoid()",
            "Sigmoid()",
            "Tanh()",
            "GLU()",
            "Softmax(1)",
            "LogSoftmax(0)",
            "Softmin(1)",
            "RReLU(0.2, 0.2)",
        )
    ),
    ("nn.Softmax2d()", [f(2, 3, 2, 2)]),
    ("nn.MaxPool1d(2)", [f(2, 3, 7)]),
    ("nn.MaxPool2d(3, stride=2, padding=1)", [f(2, 3, 7, 6)]),
    ("nn.MaxPool2d(2, ceil_mode=True)", [f(3, 7, 5)]),
    ("nn.MaxPool2d(2, return_indices=True)", [f(1, 2, 4, 6)]),
    ("nn.MaxPool2d(2, dilation=2)", [f(1, 2, 5, 6)]),
    ("nn.MaxPool3d(2)", [f(1, 2, 4, 6, 4)]),
    ("nn.AvgPool1d(3, padding=1)", [f(2, 3, 7)]),
    ("nn.AvgPool2d(2)", [f(2, 3, 6, 7)]),
    ("nn.AvgPool2d(3, 2, 1, count_include_pad=False, ceil_mode=True)", [f(2, 3, 6, 7)]),
    ("nn.AvgPool2d(2, divisor_override=3)", [f(2, 3, 6, 7)]),
    ("nn.AvgPool3d(2)", [f(1, 2, 4, 6, 4)]),
    ("nn.LPPool1d(2, 3)", [f(2, 3, 7)]),
    ("nn.LPPool2d(2, 2)", [f(2, 3, 6, 7)]),
    ("nn.AdaptiveAvgPool1d(3)", [f(2, 3, 7)]),
    ("nn.AdaptiveAvgPool2d((2, None))", [f(2, 3, 5, 7)]),
    ("nn.AdaptiveAvgPool2d(1)", [f(2, 3, 5, 7)]),
    ("nn.AdaptiveAvgPool3d(2)", [f(1, 2, 5, 3, 4)]),
    ("nn.AdaptiveMaxPool1d(3)", [f(2, 3, 7)]),
    ("nn.AdaptiveMaxPool2d(2, return_indices=True)", [f(2, 3, 5, 7)]),
    ("nn.ZeroPad2d(1)", [f(2, 3, 4, 5)]),
    ("nn.ZeroPad1d((1, 2))", [f(2, 3, 4)]),
    ("nn.ConstantPad2d((1, -1, 0, 2), 1.5)", [f(2, 3, 4, 5)]),
    ("nn.ConstantPad3d(1, 2.0)", [f(1, 2, 2, 2, 2)]),
    ("nn.ReflectionPad1d((1, 2))", [f(2, 3, 4)]),
    ("nn.ReflectionPad2d((1, 2, 3, 0))", [f(2, 3, 4, 5)]),
    ("nn.ReplicationPad2d(2)", [f(2, 3, 4, 5)]),
    ("nn.ReplicationPad3d(1)", [f(2, 3, 2, 3, 4)]),
    ("nn.CircularPad2d((1, 2, 3, 0))", [f(2, 3, 4, 5)]),
    ("nn.Upsample(scale_factor=2)", [f(2, 3, 4, 5)]),
    ("nn.Upsample(scale_factor=1.7)", [f(2, 3, 4, 5)]),
    ("nn.Upsample(size=7)", [f(2, 3, 4)]),
    ("nn.Upsample((7, 3), mode='bilinear')", [f(2, 3, 4, 5)]),
    ("nn.Upsample((7, 3), mode='bilinear', align_corners=True)", [f(2, 3, 4, 5)]),
    ("nn.Upsample(scale_factor=1.6, mode='bilinear')", [f(2, 3, 4, 5)]),
    ("nn.Upsample((7, 3), mode='bicubic')", [f(2, 3, 4, 5)]),
    ("nn.Upsample((7, 3), mode='nearest-exact')", [f(2, 3, 4, 5)]),
    ("nn.Upsample((7, 3), mode='area')", [f(2, 3, 4, 5)]),
    ("nn.Upsample(size=6, mode='linear')", [f(2, 3, 4)]),
    ("nn.Upsample((3, 4, 5), mode='trilinear')", [f(1, 2, 2, 3, 4)]),
    ("nn.UpsamplingNearest2d(scale_factor=2)", [f(2, 3, 4, 5)]),
    ("nn.UpsamplingBilinear2d(scale_factor=2)", [f(2, 3, 4, 5)]),
    ("nn.PixelShuffle(2)", [f(2, 8, 3, 4)]),
    ("nn.PixelUnshuffle(2)", [f(2, 2, 6, 4)]),
    ("nn.ChannelShuffle(2)", [f(2, 6, 3)]),
    ("nn.Unfold(2, padding=1, stride=2)", [f(2, 3, 4, 6)]),
    ("nn.Fold((4, 6), 2, stride=2)", [f(2, 12, 6)]),
    ("nn.CosineSimilarity()", [f(4, 5), f(4, 5)]),
    ("nn.PairwiseDistance()", [f(4, 5), f(4, 5)]),
    ("nn.PairwiseDistance(1.0, keepdim=True)", [f(4, 5), f(4, 5)]),
    ("nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Sequential(nn.Linear(5, 2)))", [f(3, 4)]),
    ("nn.ModuleList([nn.Linear(1, 2), nn.Linear(1, 2), nn.ReLU()])", None),
    ("nn.ModuleDict({'a': nn.Linear(1, 2), 'b': nn.Sequential(nn.ReLU(), nn.Tanh())})", None),
    ("nn.L1Loss()", [f(3, 4), f(3, 4)]),
    ("nn.MSELoss()", [f(3, 4), f(3, 4)]),
    ("nn.MSELoss(reduction='sum')", [f(3, 4), f(3, 4)]),
    ("nn.SmoothL1Loss(beta=0.5)", [f(3, 4), f(3, 4)]),
    ("nn.HuberLoss(delta=0.7)", [f(3, 4), f(3, 4)]),
    ("nn.CrossEntropyLoss()", [f(6, 4), i(4, 6)]),
    ("nn.CrossEntropyLoss(label_smoothing=0.1, reduction='sum')", [f(6, 4), i(4, 6)]),
    ("nn.CrossEntropyLoss(reduction='none', ignore_index=2)", [f(2, 4, 3), i(4, 2, 3)]),
    ("nn.CrossEntropyLoss()", [f(6, 4), ("prob", (6, 4))]),
    ("nn.NLLLoss()", [f(6, 4), i(4, 6)]),
    ("nn.NLLLoss(ignore_index=1)", [f(2, 4, 3, 2), i(4, 2, 3, 2)]),
    ("nn.BCELoss()", [("prob", (6, 4)), ("prob", (6, 4))]),
    ("nn.BCEWithLogitsLoss()", [f(6, 4), ("prob", (6, 4))]),
    ("nn.KLDivLoss(reduction='batchmean')", [f(6, 4), ("prob", (6, 4))]),
    ("nn.KLDivLoss(log_target=True)", [f(6, 4), f(6, 4)]),
    ("nn.PoissonNLLLoss(full=True)", [f(6, 4), ("count", (6, 4))]),
    ("nn.GaussianNLLLoss(full=True)", [f(6, 4), f(6, 4), ("prob", (6, 4))]),
    ("nn.HingeEmbeddingLoss()", [f(6, 4), ("sign", (6, 4))]),
    ("nn.CosineEmbeddingLoss(margin=0.1)", [f(6, 4), f(6, 4), ("sign", (6,))]),
    ("nn.MarginRankingLoss(margin=0.1)", [f(6), f(6), ("sign", (6,))]),
    ("nn.SoftMarginLoss()", [f(6, 4), ("sign", (6, 4))]),
    ("nn.MultiMarginLoss()", [f(6, 4), i(4, 6)]),
    ("nn.MultiMarginLoss(p=2, margin=0.5)", [f(6, 4), i(4, 6)]),
    ("nn.MultiLabelSoftMarginLoss()", [f(6, 4), ("bit", (6, 4))]),
    ("nn.TripletMarginLoss(swap=True)", [f(6, 4), f(6, 4), f(6, 4)]),
    ("nn.TripletMarginWithDistanceLoss()", [f(6, 4), f(6, 4), f(6, 4)]),
]

MAKE = {
    "float": lambda rng, shape: rng.standard_normal(shape).astype(np.float32),
    "prob": lambda rng, shape: rng.dirichlet(np.full(shape[-1], 3.0), shape[:-1]).astype(
        np.float32
    ),
    "sign": lambda rng, shape: np.where(rng.random(shape) < 0.5, -1, 1).astype(np.float32),
    "bit": lambda rng, shape: (rng.random(shape) < 0.5).astype(np.float32),
    "count": lambda rng, shape: rng.integers(0, 5, shape).astype(np.float32),
}


def make(spec: tuple, rng: np.random.Generator) -> np.ndarray:
    if spec[0] == "int":
        return rng.integers(0, spec[1], spec[2]).astype(np.int64)
    return MAKE[spec[0]](rng, spec[1])


def flat(value: object) -> list:
    if isinstance(value, (tuple, list)):
        return [leaf for part in value for leaf in flat(part)]
    return [value]


def numpy(tensor: object) -> np.ndarray:
    return tensor.detach().numpy()


def fill(state: dict, rng: np.random.Generator, names: list[str]) -> dict[str, np.ndarray]:
    values = {}
    for name in names:
        shape = tuple(state[name].shape)
        if name.endswith("num_batches_tracked"):
            values[name] = np.array(3, dtype=np.int64)
        elif name.endswith("running_var"):
            values[name] = rng.random(shape).astype(np.float32) + 0.5
        else:
            values[name] = (rng.standard_normal(shape) * 0.5).astype(np.float32)
    return values


def pair(source: str, rng: np.random.Generator):
    theirs = eval(source, {"nn": torch.nn})
    ours = eval(source, {"nn": nn})
    assert list(ours.state_dict()) == list(theirs.state_dict())
    values = fill(theirs.state_dict(), rng, list(theirs.state_dict()))
    theirs.load_state_dict({k: torch.from_numpy(np.array(v)) for k, v in values.items()})
    ours.load_state_dict({k: mortice.from_numpy(np.array(v)) for k, v in values.items()})
    return ours, theirs


@pytest.mark.parametrize("source", dict.fromkeys(source for source, _ in CASES))
def test_repr_is_the_same(source: str) -> None:
    expected = repr(eval(source, {"nn": torch.nn}))
    assert repr(eval(source, {"nn": nn})) == expected


@pytest.mark.parametrize("train", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize(("source", "inputs"), [case for case in CASES if case[1] is not None])
def test_same_outputs_gradients_and_state(source: str, inputs: list, train: bool) -> None:
    rng = np.random.default_rng(0)
    ours, theirs = pair(source, rng)
    ours.train(train)
    theirs.train(train)
    arrays = [make(spec, rng) for spec in inputs]
    left = [mortice.from_numpy(a.copy()) for a in arrays]
    right = [torch.from_numpy(a.copy()) for a in arrays]
    wants_grad = [s[0] == "float" or (s[0] == "prob" and k == 0) for k, s in enumerate(inputs)]
    for a, b, wants in zip(left, right, wants_grad, strict=True):
        if wants:
            a.requires_grad_()
            b.requires_grad_()
    # float64 where the recurrence accumulates is not needed: 1e-5 holds throughout
    got, expected = flat(ours(*left)), flat(theirs(*right))
    assert len(got) == len(expected)
    for a, b in zip(got, expected, strict=True):
        if b is None:
            assert a is None
            continue
        assert str(a.dtype).split(".")[1] == str(b.dtype).split(".")[1]
        np.testing.assert_allclose(numpy(a), numpy(b), rtol=2e-5, atol=1e-5)
    loss_ours = sum(
        (
            out
            * mortice.from_numpy(np.cos(np.arange(out.numel(), dtype=np.float32))).reshape(
                out.shape
            )
        ).sum()
        for out in got
        if out is not None and out.is_floating_point()
    )
    loss_theirs = sum(
        (
            out
            * torch.from_numpy(np.cos(np.arange(out.numel(), dtype=np.float32))).reshape(out.shape)
        ).sum()
        for out in expected
        if out is not None and out.is_floating_point()
    )
    if loss_theirs.requires_grad:
        loss_ours.backward()
        loss_theirs.backward()
        for a, b in zip(left, right, strict=True):
            assert (a.grad is None) == (b.grad is None)
            if b.grad is not None:
                np.testing.assert_allclose(numpy(a.grad), numpy(b.grad), rtol=5e-5, atol=2e-5)
        named = dict(theirs.named_parameters())
        for name, parameter in ours.named_parameters():
            expected_grad = named[name].grad
            assert (parameter.grad is None) == (expected_grad is None), name
            if expected_grad is not None:
                np.testing.assert_allclose(
                    numpy(parameter.grad), numpy(expected_grad), rtol=1e-4, atol=5e-5, err_msg=name
                )
    for name, value in theirs.state_dict().items():
        np.testing.assert_allclose(
            numpy(ours.state_dict()[name]), numpy(value), rtol=1e-5, atol=1e-6, err_msg=name
        )
