"""Mixed precision: training under autocast, and autograd functions that take part in it."""

from __future__ import annotations

import warnings

import pytest

import mortice
from mortice import nn, optim
from mortice.amp import autocast, custom_bwd, custom_fwd, is_autocast_available


def test_training_under_autocast_keeps_float32_weights() -> None:
    mortice.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    opt = optim.SGD(net.parameters(), lr=0.1)
    x = mortice.randn(16, 4)
    y = x.sum(1, keepdim=True)
    losses = []
    for _ in range(60):
        opt.zero_grad()
        with autocast("cpu"):
            out = net(x)
            assert out.dtype == mortice.bfloat16
            loss = nn.functional.mse_loss(out, y)
        assert loss.dtype == mortice.float32
        loss.backward()
        assert all(p.grad.dtype == mortice.float32 for p in net.parameters())
        opt.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 5


class Product(mortice.autograd.Function):
    seen: list = []

    @staticmethod
    @custom_fwd(device_type="cpu")
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a @ b

    @staticmethod
    @custom_bwd(device_type="cpu")
    def backward(ctx, grad):
        Product.seen.append(mortice.is_autocast_enabled("cpu"))
        a, b = ctx.saved_tensors
        return (grad @ b.T).to(a.dtype), (a.T @ grad).to(b.dtype)


class Full(mortice.autograd.Function):
    @staticmethod
    @custom_fwd(device_type="cpu", cast_inputs=mortice.float32)
    def forward(ctx, a):
        assert not mortice.is_autocast_enabled("cpu")
        return a * 1

    @staticmethod
    @custom_bwd(device_type="cpu")
    def backward(ctx, grad):
        return grad


def test_custom_functions_run_backward_as_forward_ran() -> None:
    a = mortice.randn(2, 3).requires_grad_()
    b = mortice.randn(3, 2).requires_grad_()
    Product.seen.clear()
    with autocast("cpu"):
        out = Product.apply(a, b)
    assert out.dtype == mortice.bfloat16
    out.float().sum().backward()
    Product.apply(a, b).sum().backward()
    assert Product.seen == [True, False]


def test_cast_inputs_leaves_autocast() -> None:
    with autocast("cpu"):
        assert Full.apply(mortice.ones(2, dtype=mortice.bfloat16)).dtype == mortice.float32
    assert Full.apply(mortice.ones(2, dtype=mortice.bfloat16)).dtype == mortice.bfloat16


def test_availability() -> None:
    assert is_autocast_available("cpu")
    assert not is_autocast_available("nosuch")
    with pytest.raises(TypeError, match="got: int"):
        custom_bwd(lambda ctx: None, device_type=3)


def test_a_device_that_is_not_there_is_warned_of_and_disables() -> None:
    with pytest.warns(UserWarning, match="no device of type 'mtia' is here. Disabling autocast"):
        region = autocast("mtia")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):  # told when it is made, not at each entry
            with region:
                assert not mortice.is_autocast_enabled("mtia")
        assert not region(mortice.is_autocast_enabled)("mtia")
        with autocast("mtia", enabled=False):  # nothing is asked for
            assert not mortice.is_autocast_enabled("mtia")
        with autocast("cpu"):
            assert mortice.is_autocast_enabled("cpu")


def test_the_warning_points_at_the_users_line_once() -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("default")
        for _ in range(3):
            autocast("mtia")
    assert [w.filename for w in told] == [__file__]
