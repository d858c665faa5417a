"""Optimizers and schedules against PyTorch's, step by step."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import mortice
from mortice import nn, optim

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.parity

OPTIMIZERS = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "weight_decay": 0.1, "maximize": True}),
    ("SGD", {"lr": 0.1, "momentum": 0.9}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.1, "weight_decay": 0.01}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    ("Adam", {}),
    ("Adam", {"lr": 0.05, "weight_decay": 0.1, "amsgrad": True, "betas": (0.8, 0.95)}),
    ("AdamW", {"lr": 0.05}),
    ("AdamW", {"lr": 0.05, "weight_decay": 0.3, "maximize": True}),
    ("RMSprop", {}),
    ("RMSprop", {"centered": True, "momentum": 0.9, "weight_decay": 0.1}),
    ("Adagrad", {"lr_decay": 0.1, "initial_accumulator_value": 0.2}),
    ("Adadelta", {"weight_decay": 0.1}),
    ("Adamax", {"weight_decay": 0.1}),
    ("NAdam", {}),
    ("NAdam", {"weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("RAdam", {"lr": 0.1, "betas": (0.9, 0.9)}),
    ("Rprop", {}),
    ("ASGD", {"t0": 3}),
]


def models():
    rng = np.random.default_rng(0)
    ours, theirs = nn.Linear(4, 3), torch.nn.Linear(4, 3)
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        values = rng.standard_normal(tuple(b.shape)).astype(np.float32)
        a.data.copy_(mortice.from_numpy(values))
        b.data.copy_(torch.from_numpy(values))
    return ours, theirs, rng


def same(ours, theirs, atol=2e-6) -> None:
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=2e-5, atol=atol)


def give_gradients(ours, theirs, rng) -> None:
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        grad = rng.standard_normal(tuple(b.shape)).astype(np.float32)
        a.grad = mortice.from_numpy(grad.copy())
        b.grad = torch.from_numpy(grad.copy())


@pytest.mark.parametrize(("name", "options"), OPTIMIZERS)
def test_same_parameters_after_each_step(name: str, options: dict) -> None:
    ours, theirs, rng = models()
    a = getattr(optim, name)(ours.parameters(), **options)
    b = getattr(torch.optim, name)(theirs.parameters(), **options)
    assert repr(a) == repr(b)
    for _ in range(8):
        give_gradients(ours, theirs, rng)
        a.step()
        b.step()
        same(ours, theirs)
    left, right = a.state_dict(), b.state_dict()
    assert left["param_groups"] == right["param_groups"]
    assert list(left["state"]) == list(right["state"])
    for key, state in right["state"].items():
        assert set(left["state"][key]) == set(state)
        for part, value in state.items():
            if isinstance(value, torch.Tensor):
                mine = left["state"][key][part]
                assert tuple(mine.shape) == tuple(value.shape)
                np.testing.assert_allclose(mine.numpy(), value.numpy(), rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize(("name", "options"), OPTIMIZERS)
def test_takes_pytorchs_state(name: str, options: dict) -> None:
    ours, theirs, rng = models()
    a = getattr(optim, name)(ours.parameters(), **options)
    b = getattr(torch.optim, name)(theirs.parameters(), **options)
    for _ in range(3):
        give_gradients(ours, theirs, rng)
        a.step()
        b.step()
    saved = b.state_dict()
    state = {
        number: {
            part: mortice.from_numpy(np.array(value.numpy()))
            if isinstance(value, torch.Tensor)
            else value
            for part, value in entries.items()
        }
        for number, entries in saved["state"].items()
    }
    fresh = getattr(optim, name)(ours.parameters(), **options)
    fresh.load_state_dict({"state": state, "param_groups": saved["param_groups"]})
    for _ in range(3):
        give_gradients(ours, theirs, rng)
        fresh.step()
        b.step()
    same(ours, theirs, 1e-5)


SCHEDULES = [
    ("StepLR", "S.StepLR(o, 3)"),
    ("MultiStepLR", "S.MultiStepLR(o, [2, 5, 5], gamma=0.5)"),
    ("ConstantLR", "S.ConstantLR(o, 0.5, 4)"),
    ("LinearLR", "S.LinearLR(o, 0.25, 0.9, 6)"),
    ("ExponentialLR", "S.ExponentialLR(o, 0.9)"),
    ("PolynomialLR", "S.PolynomialLR(o, 6, 2.0)"),
    ("CosineAnnealingLR", "S.CosineAnnealingLR(o, 4, 0.01)"),
    ("CosineAnnealingWarmRestarts", "S.CosineAnnealingWarmRestarts(o, 3, 2)"),
    ("LambdaLR", "S.LambdaLR(o, lambda e: 1 / (e + 1))"),
    ("MultiplicativeLR", "S.MultiplicativeLR(o, lambda e: 0.9)"),
    ("CyclicLR", "S.CyclicLR(o, 0.01, 0.2, 3, 4, mode='triangular2')"),
    ("CyclicLR", "S.CyclicLR(o, 0.01, 0.2, 3, mode='exp_range', gamma=0.9)"),
    ("OneCycleLR", "S.OneCycleLR(o, 0.5, total_steps=12)"),
    (
        "OneCycleLR",
        "S.OneCycleLR(o, 0.5, None, 3, 4, three_phase=True, anneal_strategy='linear')",
    ),
    ("SequentialLR", "S.SequentialLR(o, [S.ConstantLR(o, 0.1, 2), S.ExponentialLR(o, 0.9)], [3])"),
    (
        "SequentialLR",
        "S.SequentialLR(o, [S.LinearLR(o, 0.1, 1.0, 4), S.CosineAnnealingLR(o, 7)], [4])",
    ),
    ("ChainedScheduler", "S.ChainedScheduler([S.ConstantLR(o, 0.1, 2), S.ExponentialLR(o, 0.9)])"),
]


@pytest.mark.parametrize("optimizer", ["SGD", "Adam"])
@pytest.mark.parametrize(("name", "source"), SCHEDULES)
def test_same_rates(name: str, source: str, optimizer: str) -> None:
    ours, theirs, _ = models()
    options = {"lr": 0.1, "momentum": 0.9} if optimizer == "SGD" else {"lr": 0.1}
    a = getattr(optim, optimizer)(ours.parameters(), **options)
    b = getattr(torch.optim, optimizer)(theirs.parameters(), **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        left = eval(source, {"S": optim.lr_scheduler, "o": a})
        right = eval(source, {"S": torch.optim.lr_scheduler, "o": b})
        for _ in range(11):
            assert left.get_last_lr() == pytest.approx(right.get_last_lr(), rel=1e-12)
            for key in ("lr", "momentum", "betas"):
                if key in b.param_groups[0]:
                    assert a.param_groups[0][key] == pytest.approx(b.param_groups[0][key])
            a.step()
            b.step()
            left.step()
            right.step()
        assert set(left.state_dict()) == set(right.state_dict())
        again = eval(source, {"S": optim.lr_scheduler, "o": a})
        again.load_state_dict(left.state_dict())
        assert again.last_epoch == left.last_epoch if hasattr(left, "last_epoch") else True


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_lbfgs_takes_the_same_steps(search) -> None:
    ours, theirs, rng = models()
    x = rng.standard_normal((16, 4)).astype(np.float32)
    y = rng.standard_normal((16, 3)).astype(np.float32)
    a = optim.LBFGS(ours.parameters(), max_iter=4, line_search_fn=search)
    b = torch.optim.LBFGS(theirs.parameters(), max_iter=4, line_search_fn=search)

    def closure(model, optimizer, lib):
        def compute():
            optimizer.zero_grad()
            loss = lib.nn.functional.mse_loss(model(lib.from_numpy(x)), lib.from_numpy(y))
            loss.backward()
            return loss

        return compute

    for _ in range(2):
        left, right = a.step(closure(ours, a, mortice)), b.step(closure(theirs, b, torch))
        assert left.item() == pytest.approx(right.item(), rel=1e-4)
        same(ours, theirs, 1e-4)
    assert set(a.state_dict()["state"][0]) == set(b.state_dict()["state"][0]) - {"al"}


@pytest.mark.parametrize("strategy", ["cos", "linear"])
@pytest.mark.parametrize("epochs", [0, 3])
def test_swalr(strategy: str, epochs: int) -> None:
    ours, theirs, _ = models()
    a, b = optim.SGD(ours.parameters(), lr=0.1), torch.optim.SGD(theirs.parameters(), lr=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        left = optim.swa_utils.SWALR(a, 0.02, epochs, strategy)
        right = torch.optim.swa_utils.SWALR(b, 0.02, epochs, strategy)
        for _ in range(6):
            assert left.get_last_lr() == pytest.approx(right.get_last_lr())
            left.step()
            right.step()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"mode": "max"},
        {"patience": 1, "cooldown": 2, "factor": 0.5},
        {"threshold_mode": "abs", "threshold": 0.2, "patience": 0},
        {"min_lr": 0.04, "patience": 0},
    ],
)
def test_plateau(options: dict) -> None:
    ours, theirs, rng = models()
    a, b = optim.SGD(ours.parameters(), lr=0.1), torch.optim.SGD(theirs.parameters(), lr=0.1)
    left = optim.lr_scheduler.ReduceLROnPlateau(a, **options)
    right = torch.optim.lr_scheduler.ReduceLROnPlateau(b, **options)
    for metric in rng.random(30):
        left.step(metric)
        right.step(metric)
        assert a.param_groups[0]["lr"] == pytest.approx(b.param_groups[0]["lr"])
    assert left.state_dict() == right.state_dict()
