"""state_dicts through files, to PyTorch and back."""

from __future__ import annotations

import numpy as np
import pytest

import mortice
from mortice import nn, optim

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.parity

SOURCE = (
    "nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), "
    "nn.Linear(64, 8), nn.Unflatten(1, (2, 4)), nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0))"
)


# No bias before a normalisation: its gradient is rounding noise, which Adam makes full steps of.
SMALL = "nn.Sequential(nn.Flatten(), nn.Linear(36, 4), nn.Tanh(), nn.Linear(4, 2))"


def models(source: str = SOURCE) -> tuple:
    ours, theirs = eval(source, {"nn": nn}), eval(source, {"nn": torch.nn})
    return ours, theirs, np.random.default_rng(0).standard_normal((3, 1, 6, 6)).astype(np.float32)


def same(ours, theirs, x) -> None:
    left = ours(mortice.from_numpy(x)).detach().numpy()
    right = theirs(torch.from_numpy(x)).detach().numpy()
    np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-5)


def test_pytorch_reads_our_file(tmp_path) -> None:
    ours, theirs, x = models()
    mortice.save(ours.state_dict(), tmp_path / "model.pt")
    state = torch.load(tmp_path / "model.pt", weights_only=True)
    assert state._metadata == ours.state_dict()._metadata
    theirs.load_state_dict(state)
    same(ours, theirs, x)


def test_we_read_pytorchs_file(tmp_path) -> None:
    ours, theirs, x = models()
    torch.save(theirs.state_dict(), tmp_path / "model.pt")
    ours.load_state_dict(mortice.load(tmp_path / "model.pt"))
    same(ours, theirs, x)


@pytest.mark.parametrize("name", ["SGD", "Adam", "RMSprop", "NAdam"])
def test_a_checkpoint_of_a_run_continues_there(tmp_path, name: str) -> None:
    ours, theirs, x = models(SMALL)
    options = {"lr": 0.01, **({"momentum": 0.9} if name == "SGD" else {})}
    a = getattr(optim, name)(ours.parameters(), **options)
    b = getattr(torch.optim, name)(theirs.parameters(), **options)

    def step(model, optimizer, lib) -> None:
        optimizer.zero_grad()
        model(lib.from_numpy(x)).square().mean().backward()
        optimizer.step()

    for _ in range(2):
        step(ours, a, mortice)
    mortice.save({"model": ours.state_dict(), "optim": a.state_dict()}, tmp_path / "run.pt")
    saved = torch.load(tmp_path / "run.pt", weights_only=True)
    theirs.load_state_dict(saved["model"])
    b.load_state_dict(saved["optim"])
    step(ours, a, mortice)
    step(theirs, b, torch)
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        np.testing.assert_allclose(p.detach().numpy(), q.detach().numpy(), rtol=1e-4, atol=1e-5)


def test_parameters_survive_a_file(tmp_path) -> None:
    net = nn.Linear(2, 2)
    mortice.save({"w": net.weight, "frozen": nn.Parameter(net.bias.data, False)}, tmp_path / "p.pt")
    theirs = torch.load(tmp_path / "p.pt", weights_only=True)
    assert isinstance(theirs["w"], torch.nn.Parameter)
    assert not theirs["frozen"].requires_grad
    again = mortice.load(tmp_path / "p.pt")
    assert isinstance(again["w"], nn.Parameter)
    assert again["w"].requires_grad


def test_weight_norm_checkpoints_fit(tmp_path) -> None:
    ours = nn.utils.parametrizations.weight_norm(nn.Conv1d(2, 3, 2))
    theirs = torch.nn.utils.parametrizations.weight_norm(torch.nn.Conv1d(2, 3, 2))
    assert list(ours.state_dict()) == list(theirs.state_dict())
    torch.save(theirs.state_dict(), tmp_path / "w.pt")
    ours.load_state_dict(mortice.load(tmp_path / "w.pt"))
    x = np.random.default_rng(0).standard_normal((1, 2, 5)).astype(np.float32)
    same(ours, theirs, x)


def test_spectral_norm_checkpoints_fit(tmp_path) -> None:
    ours = nn.utils.parametrizations.spectral_norm(nn.Linear(3, 2)).eval()
    theirs = torch.nn.utils.parametrizations.spectral_norm(torch.nn.Linear(3, 2)).eval()
    assert list(ours.state_dict()) == list(theirs.state_dict())
    torch.save(theirs.state_dict(), tmp_path / "s.pt")
    ours.load_state_dict(mortice.load(tmp_path / "s.pt"))
    same(ours, theirs, np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32))
