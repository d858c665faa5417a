"""Parametrizations, functional calls and fusion."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import mortice
from mortice import nn
from mortice.nn.utils import fuse_conv_bn_eval, fuse_linear_bn_eval
from mortice.nn.utils import parametrize as P
from mortice.nn.utils.parametrizations import spectral_norm, weight_norm
from mortice.nn.utils.stateless import functional_call


class Symmetric(nn.Module):
    def forward(self, x):
        return x.triu() + x.triu(1).transpose(-1, -2)

    def right_inverse(self, x):
        return x.triu()


class Double(nn.Module):
    def forward(self, x):
        return x * 2


def test_a_parametrized_weight_is_computed_when_read() -> None:
    net = nn.Linear(3, 3)
    original = net.weight
    P.register_parametrization(net, "weight", Symmetric())
    assert type(net).__name__ == "ParametrizedLinear" and isinstance(net, nn.Linear)
    assert (net.weight == net.weight.T).all()
    assert list(net.state_dict()) == ["bias", "parametrizations.weight.original"]
    assert net.parametrizations.weight.original is original
    net(mortice.ones(1, 3)).sum().backward()
    assert original.grad is not None
    value = mortice.tensor([[1.0, 2, 3], [2, 4, 5], [3, 5, 6]])
    net.weight = value
    assert (net.weight == value).all()
    P.register_parametrization(net, "weight", Double())
    assert (net.weight == 2 * value).all()
    assert P.is_parametrized(net, "weight") and not P.is_parametrized(net, "bias")


def test_removing_keeps_or_restores() -> None:
    net = nn.Linear(2, 2)
    before = net.weight.detach().clone()
    P.register_parametrization(net, "weight", Double())
    P.remove_parametrizations(net, "weight")
    assert type(net) is nn.Linear and isinstance(net.weight, nn.Parameter)
    assert (net.weight == 2 * before).all()
    P.register_parametrization(net, "weight", Double())
    P.remove_parametrizations(net, "weight", leave_parametrized=False)
    assert (net.weight == 2 * before).all()
    with pytest.raises(ValueError, match="does not have a parametrization on weight"):
        P.remove_parametrizations(net, "weight")


def test_caching_computes_once() -> None:
    class Counting(nn.Module):
        calls = 0

        def forward(self, x):
            Counting.calls += 1
            return x + 0

    net = nn.Linear(2, 2)
    P.register_parametrization(net, "weight", Counting())
    start = Counting.calls
    with P.cached():
        assert net.weight is net.weight
        assert Counting.calls == start + 1
    assert net.weight is not net.weight


def test_what_a_parametrization_may_not_do() -> None:
    class Shorter(nn.Module):
        def forward(self, x):
            return x[:1]

    with pytest.raises(ValueError, match=r"made \(1, 2\) .* from \(2, 2\)"):
        P.register_parametrization(nn.Linear(2, 2), "weight", Shorter())
    with pytest.raises(ValueError, match="with name 'wieght'"):
        P.register_parametrization(nn.Linear(2, 2), "wieght", Double())


def test_copies_are_parametrized_and_pickling_says_what_to_do() -> None:
    net = nn.Linear(2, 2)
    P.register_parametrization(net, "weight", Double())
    twin = copy.deepcopy(net)
    assert (twin.weight == net.weight).all()
    with mortice.no_grad():
        twin.parametrizations.weight.original.zero_()
    assert (twin.weight == 0).all() and (net.weight != 0).any()
    with pytest.raises(RuntimeError, match="save its state_dict"):
        pickle.dumps(net)


def test_weight_norm() -> None:
    net = nn.Conv2d(2, 3, 2)
    before = net.weight.detach().clone()
    weight_norm(net)
    np.testing.assert_allclose(net.weight.detach().numpy(), before.numpy(), rtol=1e-5)
    state = net.state_dict()
    assert list(state) == [
        "bias", "parametrizations.weight.original0", "parametrizations.weight.original1",
    ]  # fmt: skip
    assert tuple(state["parametrizations.weight.original0"].shape) == (3, 1, 1, 1)
    with mortice.no_grad():
        net.parametrizations.weight.original0.mul_(2)
    np.testing.assert_allclose(net.weight.detach().numpy(), 2 * before.numpy(), rtol=1e-5)


@pytest.mark.parametrize("layer", [nn.Linear(6, 4), nn.ConvTranspose2d(4, 3, 2)])
def test_spectral_norm_has_norm_one(layer) -> None:
    mortice.manual_seed(0)
    spectral_norm(layer, n_power_iterations=20)
    x = mortice.ones(1, 6) if isinstance(layer, nn.Linear) else mortice.ones(1, 4, 3, 3)
    for _ in range(5):
        layer(x)
    weight = layer.weight.detach().numpy()
    matrix = weight if weight.ndim == 2 else weight.transpose(1, 0, 2, 3).reshape(3, -1)
    assert np.linalg.norm(matrix, 2) == pytest.approx(1.0, rel=1e-3)
    layer.eval()
    layer(x).sum().backward()
    assert layer.parametrizations.weight.original.grad is not None


def test_functional_call_replaces_for_one_call() -> None:
    net = nn.Sequential(nn.Linear(2, 2, bias=False), nn.BatchNorm1d(2))
    net.eval()
    weight = mortice.eye(2).requires_grad_()
    own = net[0].weight
    x = mortice.ones(3, 2)
    out = functional_call(net, {"0.weight": weight}, x)
    out.sum().backward()
    assert weight.grad is not None and own.grad is None and net[0].weight is own
    with pytest.raises(AttributeError, match="no parameter or buffer 'wieght'"):
        functional_call(net, {"0.wieght": weight}, x)
    assert net[0].weight is own
    with pytest.raises(ValueError, match="missing"):
        functional_call(net, {"0.weight": weight}, x, strict=True)
    with pytest.raises(ValueError, match="multiple dictionaries"):
        functional_call(net, [{"0.weight": weight}, {"0.weight": weight}], x)


def test_functional_call_ties() -> None:
    net = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    net[1].weight = net[0].weight
    double = 2 * mortice.eye(2)
    x = mortice.ones(1, 2)
    assert functional_call(net, {"0.weight": double}, x).tolist() == [[4, 4]]
    plain = functional_call(net, {"0.weight": double}, x, tie_weights=False)
    np.testing.assert_allclose(plain.detach().numpy(), 2 * net[1](x).detach().numpy(), rtol=1e-6)


def test_fusion_computes_the_same() -> None:
    mortice.manual_seed(0)
    conv, bn = nn.Conv2d(2, 3, 2, bias=False), nn.BatchNorm2d(3)
    x = mortice.randn(4, 2, 5, 5)
    bn(conv(x))
    with pytest.raises(RuntimeError, match="Fusion only for eval"):
        fuse_conv_bn_eval(conv, bn)
    conv.eval()
    bn.eval()
    np.testing.assert_allclose(
        fuse_conv_bn_eval(conv, bn)(x).detach().numpy(), bn(conv(x)).detach().numpy(), atol=1e-5
    )
    linear, bn = nn.Linear(3, 4).eval(), nn.BatchNorm1d(4).eval()
    bn.running_var.fill_(3)
    y = mortice.randn(2, 3)
    np.testing.assert_allclose(
        fuse_linear_bn_eval(linear, bn)(y).detach().numpy(),
        bn(linear(y)).detach().numpy(),
        atol=1e-5,
    )
