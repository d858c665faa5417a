"""A convolutional network with batch norm and dropout trains compiled as it does eagerly."""

from __future__ import annotations

from typing import Any

import pytest

import mortice
from mortice._capture.observer import decode as observer

pytest.importorskip("mortice.nn")


def _trained(backend: str | None, steps: int = 6) -> tuple[list[float], Any, Any]:
    from mortice import nn, optim

    mortice.manual_seed(3)
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Dropout(0.3), nn.Linear(64, 5),
    )  # fmt: skip
    optimizer = optim.AdamW(net.parameters(), lr=0.01)
    images, classes = mortice.randn(8, 1, 8, 8), mortice.arange(8) % 5

    def loss_of(x: Any, y: Any) -> Any:
        return nn.functional.cross_entropy(net(x), y)

    compiled = loss_of if backend is None else mortice.compile(loss_of, backend=backend)
    losses: list[float] = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = compiled(images, classes)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, net, compiled


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_training_equals_eager_to_the_last_bit_and_replays(backend: str) -> None:
    wanted, plain, _ = _trained(None)
    found, net, compiled = _trained(backend)
    assert found == wanted
    for a, b in zip(net.state_dict().values(), plain.state_dict().values(), strict=True):
        assert mortice.equal(a, b)
    verdict = compiled.verdict
    if observer.support() is None:
        assert verdict.name == "replay", verdict.lines()
        assert verdict.replayed >= 3
    assert len(compiled.segments) == 1


def test_the_gradient_of_a_convolution_is_one_operator() -> None:
    _, _, compiled = _trained("aot_eager", 1)
    run = compiled.segments[0].run
    names = [str(node.target) for node in run.traced.joint.module.graph.nodes]
    assert "aten.convolution_backward.default" in names
