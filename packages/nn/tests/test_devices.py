"""Models on a device that has few kernels of its own: the rest runs through the CPU, the same."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import mortice
from mortice import nn, optim

pytestmark = pytest.mark.filterwarnings("ignore:.*has no kernel for device 'ref'")


def model() -> nn.Module:
    mortice.manual_seed(0)
    return nn.Sequential(
        # Without a bias: the next layer takes it out again, its gradient would be rounding alone.
        nn.Conv2d(1, 4, 3, padding=1, bias=False),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64, 3),
    )


def test_training_there_equals_training_here() -> None:
    here = model()
    there = copy.deepcopy(here).to("ref")
    assert {str(t.device) for t in (*there.parameters(), *there.buffers())} == {"ref:0"}
    x, y = mortice.randn(6, 1, 8, 8), mortice.arange(6) % 3
    a, b = optim.Adam(here.parameters(), lr=0.01), optim.Adam(there.parameters(), lr=0.01)
    for _ in range(3):
        losses = []
        for net, optimizer, device in ((here, a, "cpu"), (there, b, "ref")):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(x.to(device)), y.to(device))
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    for name, value in here.state_dict().items():
        other = there.state_dict()[name].cpu().numpy()
        np.testing.assert_allclose(value.numpy(), other, rtol=1e-3, atol=1e-4, err_msg=name)


def test_a_file_from_there_loads_here(tmp_path) -> None:
    there = model().to("ref")
    mortice.save(there.state_dict(), tmp_path / "model.pt")
    here = model()
    here.load_state_dict(mortice.load(tmp_path / "model.pt", map_location="cpu"))
    assert (here[0].weight == there[0].weight.cpu()).all()


def test_named_results_come_back_whole() -> None:
    x = mortice.tensor([[1.0, 3.0], [4.0, 2.0]]).to("ref")
    found = x.max(1)
    assert found.values.cpu().tolist() == [3, 4]
    assert found.indices.cpu().tolist() == [1, 0]
    assert str(found.indices.device) == "ref:0"


def test_modules_have_a_method_for_each_device() -> None:
    mortice.ones(1).to("ref")  # the device is in use
    net = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    assert net.ref(1) is net
    assert {str(t.device) for t in (*net.parameters(), *net.buffers())} == {"ref:1"}
    assert {str(t.device) for t in net.cpu().parameters()} == {"cpu"}
