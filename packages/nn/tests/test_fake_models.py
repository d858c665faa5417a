"""Models made, run, differentiated and optimised without data, with symbolic sizes."""

from __future__ import annotations

import pytest

import mortice
from mortice import nn
from mortice.fake import FakeTensorMode, ShapeEnv, is_fake

MODELS = {
    "perceptron": (
        lambda: nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 4)),
        (5, 8), (0,), "(s0, 4)", [],
    ),
    "convolutions": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4),
        ),
        (5, 3, 16, 16), (0, 2, 3), "(s0, 4)", ["(s1 // 2) != 1", "(s2 // 2) != 1"],
    ),
    "transformer": (
        lambda: nn.TransformerEncoderLayer(16, 4, 32, batch_first=True),
        (5, 7, 16), (0, 1), "(s0, s1, 16)", [],
    ),
    "recurrent": (lambda: nn.LSTM(8, 16, batch_first=True), (5, 7, 8), (0,), "(s0, 7, 16)", []),
    "upsampling": (
        lambda: nn.Sequential(
            nn.ConvTranspose2d(4, 8, 3, stride=2), nn.GroupNorm(2, 8), nn.GELU(), nn.PixelShuffle(2)
        ),
        (3, 4, 9, 9), (0, 2, 3), "(s0, 2, 4*s1 + 2, 4*s2 + 2)", [],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_a_training_step_without_data(name: str) -> None:
    make, sizes, dynamic, shape, guards = MODELS[name]
    env = ShapeEnv()
    mode = FakeTensorMode(env)
    x = mode.from_tensor(mortice.ones(sizes), dynamic_dims=dynamic)
    with mode:
        model = make()
        y = model(x)
        y = y[0] if isinstance(y, tuple) else y
        y.square().mean().backward()
        mortice.optim.AdamW(model.parameters()).step()
    assert str(tuple(y.shape)) == shape and [str(g) for g in env.guards] == guards
    assert all(is_fake(p) and p.grad is not None for p in model.parameters())
    assert all(tuple(p.grad.shape) == tuple(p.shape) for p in model.parameters())
