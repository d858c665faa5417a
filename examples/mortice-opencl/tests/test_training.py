"""The demo's classifier, trained on the device."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

import mortice

ROOT = Path(__file__).resolve().parents[3]
EPOCHS = 6  # the demo takes 15; these reach its goal, in about 20 s on two cores


@pytest.fixture
def demo() -> ModuleType:
    spec = importlib.util.spec_from_file_location("demo", ROOT / "examples" / "demo.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.timeout(400)
def test_it_trains_the_demos_classifier(demo: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo's network, data and goal; pooling and normalisation fall back, the rest stays."""
    monkeypatch.setattr(mortice.config, "fallback", "silent")
    mortice.manual_seed(demo.SEED)
    training, test = demo.load_digits()
    model = demo.Net().to("opencl")
    steps = EPOCHS * -(-len(training) // demo.BATCH)
    optimizer = mortice.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.01)
    schedule = mortice.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.01, total_steps=steps)
    loader = mortice.utils.data.DataLoader(training, batch_size=demo.BATCH, shuffle=True)
    model.train()
    for _ in range(EPOCHS):
        for images, digits in loader:
            optimizer.zero_grad()
            scores = model(images.to("opencl"))
            loss = mortice.nn.functional.cross_entropy(scores, digits.to("opencl"))
            loss.backward()
            optimizer.step()
            schedule.step()
    model.eval()
    with mortice.no_grad():
        images, digits = test.tensors
        guesses = model(images.to("opencl")).argmax(1)
    assert {p.device.type for p in model.parameters()} == {"opencl"}
    right = float((guesses.cpu() == digits).float().mean())
    assert right >= demo.GOAL
