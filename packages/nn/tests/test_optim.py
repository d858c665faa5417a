"""Optimizers and schedules: update rules by hand, groups, state, hooks, errors; GradScaler."""

from __future__ import annotations

import math

import numpy as np
import pytest

import mortice
from mortice import nn, optim
from mortice.amp import GradScaler
from mortice.optim import lr_scheduler


def parameter(*values: float) -> nn.Parameter:
    return nn.Parameter(mortice.tensor(list(values)))


def give(p: nn.Parameter, *values: float) -> None:
    p.grad = mortice.tensor(list(values))


def test_sgd_by_hand() -> None:
    p = parameter(1.0, 2.0)
    opt = optim.SGD([p], lr=0.1, momentum=0.5, weight_decay=0.1)
    give(p, 1.0, -1.0)
    opt.step()
    # g + 0.1 p = [1.1, -0.8]
    np.testing.assert_allclose(p.detach().numpy(), [0.89, 2.08], rtol=1e-6)
    opt.step()
    # v = 0.5 v + g + 0.1 p
    v = 0.5 * np.array([1.1, -0.8]) + [1, -1] + 0.1 * np.array([0.89, 2.08])
    np.testing.assert_allclose(p.detach().numpy(), np.array([0.89, 2.08]) - 0.1 * v, rtol=1e-6)


def test_adam_by_hand() -> None:
    p = parameter(1.0)
    opt = optim.Adam([p], lr=0.1, betas=(0.8, 0.9))
    value, m, s = 1.0, 0.0, 0.0
    for step, g in enumerate([2.0, -1.0, 0.5], 1):
        give(p, g)
        opt.step()
        m, s = 0.8 * m + 0.2 * g, 0.9 * s + 0.1 * g * g
        value -= 0.1 * (m / (1 - 0.8**step)) / (math.sqrt(s / (1 - 0.9**step)) + 1e-8)
        assert p.item() == pytest.approx(value, rel=1e-5)
    assert opt.state[p]["step"].item() == 3


def test_adamw_shrinks_apart_from_the_gradient() -> None:
    p = parameter(2.0)
    opt = optim.AdamW([p], lr=0.1, weight_decay=0.5)
    give(p, 0.0)
    opt.step()
    assert p.item() == pytest.approx(2.0 * (1 - 0.05))


@pytest.mark.parametrize(
    "name",
    [
        "SGD",
        "Adam",
        "AdamW",
        "Adamax",
        "NAdam",
        "RAdam",
        "RMSprop",
        "Adagrad",
        "Adadelta",
        "Rprop",
        "ASGD",
    ],
)
def test_every_optimizer_finds_the_minimum(name: str) -> None:
    p = parameter(3.0, -2.0)
    target = mortice.tensor([1.0, 0.5])
    rate = {"Adadelta": 10.0, "Adagrad": 0.5, "ASGD": 0.1, "SGD": 0.1}.get(name, 0.05)
    opt = getattr(optim, name)([p], lr=rate)
    start = float(((p - target) ** 2).sum().item())
    for _ in range(300):
        opt.zero_grad()
        loss = ((p - target) ** 2).sum()
        loss.backward()
        opt.step()
    assert loss.item() < start / 100


def test_maximize_climbs() -> None:
    p = parameter(1.0)
    give(p, 2.0)
    optim.SGD([p], lr=0.1, maximize=True).step()
    assert p.item() == pytest.approx(1.2)


def test_parameters_without_gradient_stay() -> None:
    p, q = parameter(1.0), parameter(1.0)
    give(p, 1.0)
    opt = optim.Adam([p, q], lr=0.1)
    opt.step()
    assert q.item() == 1.0
    assert q not in opt.state


def test_closure_runs_with_gradients() -> None:
    p = parameter(1.0)
    opt = optim.SGD([p], lr=0.5)

    def closure():
        opt.zero_grad()
        loss = (p * p).sum()
        loss.backward()
        return loss

    with mortice.no_grad():
        assert opt.step(closure).item() == 1.0
    assert p.item() == 0.0


def test_groups_have_their_own_options() -> None:
    p, q = parameter(1.0), parameter(1.0)
    opt = optim.SGD([{"params": [p]}, {"params": q, "lr": 1.0}], lr=0.1)
    opt.add_param_group({"params": [parameter(3.0)], "momentum": 0.9})
    assert [group["lr"] for group in opt.param_groups] == [0.1, 1.0, 0.1]
    give(p, 1.0)
    give(q, 1.0)
    opt.step()
    assert (p.item(), q.item()) == (pytest.approx(0.9), 0.0)
    named = optim.SGD(nn.Linear(2, 2).named_parameters(), lr=0.1)
    assert named.param_groups[0]["param_names"] == ["weight", "bias"]


@pytest.mark.parametrize(
    ("params", "error", "message"),
    [
        ([], ValueError, "empty parameter list"),
        (mortice.ones(1), TypeError, r"write \[tensor\]"),
        ([1], TypeError, "one of the params is int"),
        ([{"params": {mortice.ones(1)}}], TypeError, "use a list"),
    ],
)
def test_wrong_parameters(params, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        optim.SGD(params, lr=0.1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: optim.SGD(p, lr=-1), "Invalid learning rate: -1"),
        (lambda p: optim.SGD(p, lr=1, nesterov=True), "Nesterov momentum requires"),
        (lambda p: optim.Adam(p, betas=(1.0, 0.9)), "beta parameter at index 0: 1.0"),
        (lambda p: optim.Adam(p, differentiable=True), "differentiable=True is not supported"),
        (lambda p: optim.RMSprop(p, eps=-1), "Invalid epsilon value"),
        (lambda p: optim.SGD([*p, *[{"params": p}]], lr=1), "one of the params is dict"),
    ],
)
def test_options_out_of_range(make, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        make([parameter(1.0)])


def test_one_parameter_in_two_groups_is_refused() -> None:
    p = parameter(1.0)
    opt = optim.SGD([p], lr=0.1)
    with pytest.raises(ValueError, match="more than one parameter group"):
        opt.add_param_group({"params": [p]})
    with pytest.raises(ValueError, match="can't optimize a non-leaf"):
        optim.SGD([p * 2], lr=0.1)


def test_state_dict_continues_exactly() -> None:
    def run(steps: int, p, opt) -> None:
        for i in range(steps):
            give(p, math.sin(i), math.cos(i))
            opt.step()

    p, q = parameter(1.0, 2.0), parameter(1.0, 2.0)
    a, b = optim.Adam([p], lr=0.1, amsgrad=True), optim.Adam([q], lr=0.5, amsgrad=True)
    run(5, p, a)
    q.data.copy_(p.data)
    b.load_state_dict(a.state_dict())
    assert b.param_groups[0]["lr"] == 0.1
    run(5, p, a)
    run(5, q, b)
    assert (p == q).all()
    state = a.state_dict()
    assert state["param_groups"][0]["params"] == [0]
    assert set(state["state"][0]) == {"step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq"}


def test_state_dict_that_does_not_fit() -> None:
    a = optim.SGD([parameter(1.0)], lr=0.1)
    b = optim.SGD([parameter(1.0), parameter(2.0)], lr=0.1)
    with pytest.raises(ValueError, match=r"sizes \[2\] where the optimizer has \[1\]"):
        a.load_state_dict(b.state_dict())
    with pytest.raises(ValueError, match="different number of parameter groups"):
        a.load_state_dict({"state": {}, "param_groups": []})


def test_hooks() -> None:
    p = parameter(1.0)
    give(p, 1.0)
    opt, log = optim.SGD([p], lr=0.1), []
    opt.register_step_pre_hook(lambda o, args, kwargs: log.append("pre"))
    handle = opt.register_step_post_hook(lambda o, args, kwargs: log.append("post"))
    opt.step()
    handle.remove()
    opt.step()
    assert log == ["pre", "post", "pre"]
    opt.register_state_dict_post_hook(lambda o, state: {**state, "extra": 1})
    assert opt.state_dict()["extra"] == 1


def test_zero_grad() -> None:
    p = parameter(1.0)
    give(p, 1.0)
    opt = optim.SGD([p], lr=0.1)
    opt.zero_grad(set_to_none=False)
    assert p.grad.tolist() == [0]
    opt.zero_grad()
    assert p.grad is None


# -- schedules -----------------------------------------------------------------------------------


def rates(make, steps: int) -> list[float]:
    p = parameter(1.0)
    give(p, 0.0)
    opt = optim.SGD([p], lr=1.0, momentum=0.9)
    schedule = make(opt)
    result = []
    for _ in range(steps):
        result.append(opt.param_groups[0]["lr"])
        opt.step()
        schedule.step()
    return result


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda o: lr_scheduler.StepLR(o, 2, 0.1), [1, 1, 0.1, 0.1, 0.01]),
        (lambda o: lr_scheduler.MultiStepLR(o, [1, 3], 0.5), [1, 0.5, 0.5, 0.25, 0.25]),
        (lambda o: lr_scheduler.ExponentialLR(o, 0.5), [1, 0.5, 0.25, 0.125]),
        (lambda o: lr_scheduler.LambdaLR(o, lambda e: 1 / (1 + e)), [1, 1 / 2, 1 / 3]),
        (lambda o: lr_scheduler.LinearLR(o, 0.5, 1.0, 2), [0.5, 0.75, 1, 1]),
        (lambda o: lr_scheduler.ConstantLR(o, 0.5, 2), [0.5, 0.5, 1, 1]),
        (lambda o: lr_scheduler.PolynomialLR(o, 4), [1, 0.75, 0.5, 0.25, 0, 0]),
        (
            lambda o: lr_scheduler.CosineAnnealingLR(o, 4),
            [(1 + math.cos(math.pi * i / 4)) / 2 for i in range(9)],
        ),
        (
            lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 2, 2),
            [1, 0.5, 1, (1 + math.cos(math.pi / 4)) / 2, 0.5],
        ),
        (lambda o: lr_scheduler.CyclicLR(o, 0.0, 1.0, 2), [0, 0.5, 1, 0.5, 0, 0.5]),
        (
            lambda o: lr_scheduler.SequentialLR(
                o, [lr_scheduler.ConstantLR(o, 0.1, 9), lr_scheduler.ExponentialLR(o, 0.5)], [2]
            ),
            [0.1, 0.1, 1, 0.5],
        ),
        (
            lambda o: lr_scheduler.ChainedScheduler(
                [lr_scheduler.ConstantLR(o, 0.1, 2), lr_scheduler.ExponentialLR(o, 0.5)]
            ),
            [0.1, 0.05, 0.25, 0.125],
        ),
    ],
)
def test_rates(make, expected: list[float]) -> None:
    assert rates(make, len(expected)) == pytest.approx(expected, abs=1e-12)


def test_one_cycle_goes_up_and_down_with_momentum_against() -> None:
    p = parameter(1.0)
    give(p, 0.0)
    opt = optim.SGD([p], lr=1.0, momentum=0.9)
    schedule = lr_scheduler.OneCycleLR(opt, 1.0, total_steps=11, pct_start=6 / 11)
    seen = []
    for _ in range(10):
        seen.append((opt.param_groups[0]["lr"], opt.param_groups[0]["momentum"]))
        opt.step()
        schedule.step()
    assert seen[0] == (pytest.approx(1 / 25), pytest.approx(0.95))
    assert seen[5] == (pytest.approx(1.0), pytest.approx(0.85))
    assert opt.param_groups[0]["lr"] == pytest.approx(1 / 25 / 1e4)
    schedule.step()
    with pytest.raises(RuntimeError, match="Tried to step 12 times"):
        schedule.step()


def test_plateau_waits_then_lowers() -> None:
    opt = optim.SGD([parameter(1.0)], lr=1.0)
    schedule = lr_scheduler.ReduceLROnPlateau(opt, factor=0.5, patience=1)
    seen = []
    for metric in [5, 4, 4, 4, 4, 4, 1]:
        schedule.step(metric)
        seen.append(opt.param_groups[0]["lr"])
    assert seen == [1, 1, 1, 0.5, 0.5, 0.25, 0.25]


def test_schedule_resumes_from_its_state() -> None:
    p = parameter(1.0)
    give(p, 0.0)
    opt = optim.SGD([p], lr=1.0)
    first = lr_scheduler.StepLR(opt, 2)
    for _ in range(3):
        opt.step()
        first.step()
    second = lr_scheduler.StepLR(opt, 7)
    second.load_state_dict(first.state_dict())
    assert (second.step_size, second.last_epoch) == (2, 3)
    with pytest.raises(KeyError, match="initial_lr"):
        lr_scheduler.StepLR(optim.SGD([parameter(1.0)], lr=1.0), 2, last_epoch=3)


def test_order_of_steps_is_watched() -> None:
    schedule = lr_scheduler.StepLR(optim.SGD([parameter(1.0)], lr=1.0), 2)
    with pytest.warns(UserWarning, match="before optimizer.step"):
        schedule.step()


# -- LBFGS and averages ----------------------------------------------------------------------------


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_lbfgs_on_a_quadratic(search) -> None:
    scale = mortice.tensor([1.0, 10.0, 100.0])
    p = parameter(1.0, -1.0, 0.5)
    opt = optim.LBFGS([p], lr=1, line_search_fn=search)

    def closure():
        opt.zero_grad()
        loss = (scale * p * p).sum()
        loss.backward()
        return loss

    for _ in range(3):
        opt.step(closure)
    assert float(closure().item()) < 1e-8


def test_lbfgs_finds_rosenbrocks_minimum() -> None:
    p = parameter(-1.2, 1.0)
    opt = optim.LBFGS([p], max_iter=100, line_search_fn="strong_wolfe")

    def closure():
        opt.zero_grad()
        loss = (1 - p[0]) ** 2 + 100 * (p[1] - p[0] ** 2) ** 2
        loss.backward()
        return loss

    opt.step(closure)
    np.testing.assert_allclose(p.detach().numpy(), [1, 1], atol=1e-3)
    with pytest.raises(ValueError, match="needs a closure"):
        opt.step()
    with pytest.raises(ValueError, match="only 'strong_wolfe' is supported"):
        optim.LBFGS([p], line_search_fn="wolfe")


def test_averaged_model() -> None:
    net = nn.Linear(1, 1)
    mean = optim.swa_utils.AveragedModel(net)
    ema = optim.swa_utils.AveragedModel(net, multi_avg_fn=optim.swa_utils.get_ema_multi_avg_fn(0.5))
    for value in (1.0, 2.0, 6.0):
        nn.init.constant_(net.weight, value)
        mean.update_parameters(net)
        ema.update_parameters(net)
    assert mean.module.weight.item() == pytest.approx(3.0)
    assert ema.module.weight.item() == pytest.approx(3.75)
    assert mean.n_averaged.item() == 3
    assert list(mean.state_dict()) == ["n_averaged", "module.weight", "module.bias"]


def test_update_bn_and_swalr() -> None:
    net = nn.Sequential(nn.BatchNorm1d(2, momentum=0.3))
    data = [mortice.tensor([[1.0, 2.0], [3.0, 6.0]]), mortice.tensor([[5.0, 0.0], [7.0, 0.0]])]
    net.eval()
    optim.swa_utils.update_bn(data, net)
    np.testing.assert_allclose(net[0].running_mean.numpy(), [4.0, 2.0], rtol=1e-6)
    assert net[0].momentum == 0.3
    assert not net.training

    def make(opt):
        return optim.swa_utils.SWALR(opt, 0.1, anneal_epochs=2, anneal_strategy="linear")

    assert rates(make, 4) == pytest.approx([1.0, 0.55, 0.1, 0.1])


# -- GradScaler ----------------------------------------------------------------------------------


def test_scaler_skips_overflow_and_grows() -> None:
    p = parameter(1.0)
    opt = optim.SGD([p], lr=0.5)
    scaler = GradScaler("cpu", init_scale=8.0, growth_interval=2)
    for expected in (8.0, 16.0):
        opt.zero_grad()
        scaler.scale((p * 1.0).sum()).backward()
        scaler.step(opt)
        scaler.update()
        assert scaler.get_scale() == expected
    assert p.item() == pytest.approx(0.0)
    give(p, float("inf"))
    scaler.step(opt)
    scaler.update()
    assert p.item() == pytest.approx(0.0)
    assert scaler.get_scale() == 8.0
    again = GradScaler("cpu")
    again.load_state_dict(scaler.state_dict())
    assert again.get_scale() == 8.0


def test_scaler_order_is_checked() -> None:
    p = parameter(1.0)
    give(p, 1.0)
    opt, scaler = optim.SGD([p], lr=0.5), GradScaler("cpu", init_scale=4.0)
    scaler.unscale_(opt)
    assert p.grad.tolist() == [0.25]
    with pytest.raises(RuntimeError, match="already been called"):
        scaler.unscale_(opt)
    scaler.step(opt)
    with pytest.raises(RuntimeError, match="already been called since the last update"):
        scaler.step(opt)
    off = GradScaler(enabled=False)
    assert off.scale(3) == 3
    assert off.get_scale() == 1.0
    assert off.state_dict() == {}
