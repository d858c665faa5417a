"""Models as people write them: inductor's outputs and gradients agree with eager's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import mortice

nn = pytest.importorskip("mortice.nn")
pytest.importorskip("mortice_inductor")
F = nn.functional


class SwiGLU(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(mortice.ones(16))
        self.up, self.gate = nn.Linear(16, 32, bias=False), nn.Linear(16, 32, bias=False)
        self.down = nn.Linear(32, 16, bias=False)

    def forward(self, x: Any) -> Any:
        h = x * mortice.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.scale
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class RotaryAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)

    def forward(self, x: Any) -> Any:
        b, t, c = x.shape
        heads = [p.view(b, t, 4, 8).transpose(1, 2) for p in self.qkv(x).chunk(3, -1)]
        steps = mortice.arange(t).float()[:, None] * mortice.exp(-mortice.arange(0, 8, 2) / 8)

        def turned(h: Any) -> Any:
            even, odd = h[..., ::2], h[..., 1::2]
            cos, sin = steps.cos(), steps.sin()
            return mortice.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2)

        q, k, v = heads
        y = F.scaled_dot_product_attention(turned(q), turned(k), v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(b, t, c))


class Lookups(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(mortice.randn(10, 4))

    def forward(self, rows: Any) -> Any:
        x = self.table[rows]
        y = mortice.zeros(10, 4).index_add(0, rows, x)
        z = y.clone()
        z[rows, 1] = 3.0
        return z * y + mortice.where(y > 0, y, -y).cumsum(0)


def _encoder() -> Any:
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, 0.1, batch_first=True), 2)


MODELS: dict[str, tuple[Callable[[], Any], Callable[[], tuple[Any, ...]]]] = {
    "mlp": (
        lambda: nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4)),
        lambda: (mortice.randn(8, 16),),
    ),
    "transformer encoder": (_encoder, lambda: (mortice.randn(2, 9, 32),)),
    "lstm": (lambda: nn.LSTM(8, 16, 2, batch_first=True), lambda: (mortice.randn(3, 5, 8),)),
    "gru": (lambda: nn.GRU(8, 16, bidirectional=True), lambda: (mortice.randn(5, 3, 8),)),
    "embedding": (
        lambda: nn.Sequential(nn.Embedding(20, 8), nn.Linear(8, 3)),
        lambda: (mortice.randint(0, 20, (4, 6)),),
    ),
    "grouped convolution": (
        lambda: nn.Sequential(
            nn.Conv2d(4, 8, 3, groups=2, stride=2), nn.BatchNorm2d(8), nn.SiLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3),
        ),
        lambda: (mortice.randn(2, 4, 12, 12),),
    ),
    "transposed convolution": (
        lambda: nn.Sequential(
            nn.ConvTranspose2d(3, 4, 3, stride=2), nn.GroupNorm(2, 4), nn.ELU()
        ),
        lambda: (mortice.randn(2, 3, 5, 5),),
    ),
    "upsampling": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 4, 1), nn.Upsample(scale_factor=2, mode="bilinear"), nn.PReLU()
        ),
        lambda: (mortice.randn(1, 3, 5, 6),),
    ),
    "swiglu": (SwiGLU, lambda: (mortice.randn(2, 7, 16),)),
    "rotary attention": (RotaryAttention, lambda: (mortice.randn(2, 6, 32),)),
    "lookups": (Lookups, lambda: (mortice.tensor([1, 2, 2, 9, 0]),)),
}  # fmt: skip


def _run(name: str, backend: str | None) -> list[Any]:
    build, inputs = MODELS[name]
    mortice.manual_seed(0)
    net, args = build(), inputs()
    compiled = net if backend is None else mortice.compile(net, backend=backend)
    found: list[Any] = []
    for step in range(3):  # captured, then replayed
        mortice.manual_seed(step)
        net.zero_grad()
        result = compiled(*args)
        result = result[0] if isinstance(result, tuple) else result
        (result * mortice.linspace(-1, 1, result.numel()).view(result.shape)).mean().backward()
        found += [result.detach(), *(p.grad.clone() for p in net.parameters())]
    return [*found, *(b.clone() for b in net.buffers())]


@pytest.mark.parametrize("name", MODELS)
def test_outputs_gradients_and_buffers_agree(name: str) -> None:
    wanted, found = _run(name, None), _run(name, "inductor")
    for a, b in zip(found, wanted, strict=True):
        assert mortice.allclose(a.double(), b.double(), rtol=2e-4, atol=2e-5), name
