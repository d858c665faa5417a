"""Compiled Modules are the Modules: state, type, hooks, copies, pickles."""

from __future__ import annotations

import copy
import io
import pickle

import pytest

import mortice
from mortice import nn, optim
from mortice._capture.observer import decode as observer


class Net(nn.Module):
    """A method beside forward, a property, a plain attribute, and a list of sub-classes."""

    made: list[type] = []

    def __init_subclass__(cls) -> None:
        Net.made.append(cls)

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.register_buffer("count", mortice.zeros(()))
        self.scale = 2.0

    def forward(self, x):
        self.count.add_(1)
        return self.linear(x) * self.scale

    def weight_norm(self):
        return self.linear.weight.norm()

    @property
    def twice(self):
        return self.scale * 2

    @twice.setter
    def twice(self, value):
        self.scale = value / 2


X = mortice.ones(4, 3)


def equal(a, b) -> bool:
    return a.detach().numpy().tobytes() == b.detach().numpy().tobytes()


def pair():
    net = Net()
    return net, mortice.compile(net, backend="aot_eager")


def test_it_is_an_instance_of_the_class_and_shares_all_state() -> None:
    net, compiled = pair()
    assert isinstance(compiled, Net)
    assert type(compiled).__name__ == "Net"
    assert Net.made == []
    assert set(compiled.state_dict()) == {"count", "linear.weight", "linear.bias"}
    assert [p is q for p, q in zip(net.parameters(), compiled.parameters(), strict=True)] == [
        True
    ] * 2
    assert equal(compiled(X), net(X))
    assert net.count.item() == 2
    assert repr(compiled) == repr(net)


def test_attributes_properties_and_methods() -> None:
    net, compiled = pair()
    compiled.scale = 3.0
    assert net.scale == 3.0
    compiled.twice = 10.0
    assert net.scale == 5.0
    assert compiled.twice == 10.0
    net.extra = "new"
    assert compiled.extra == "new"
    assert equal(compiled.weight_norm(), net.weight_norm())
    assert equal(compiled(X), net(X))
    with pytest.raises(AttributeError, match="no attribute 'scael'"):
        compiled.scael


def test_modes_moves_and_loads_go_through() -> None:
    net, compiled = pair()
    compiled.eval()
    assert not net.training
    net.double()
    assert compiled.linear.weight.dtype is mortice.float64
    other = Net().double()
    compiled.load_state_dict(other.state_dict())
    assert equal(net.linear.weight, other.linear.weight)
    assert equal(compiled(X.double()), net(X.double()))


def test_hooks_run_once_in_order() -> None:
    net, compiled = pair()
    log = []
    compiled.register_forward_pre_hook(lambda module, args: log.append("before"))
    net.register_forward_hook(lambda module, args, out: log.append("after"))
    compiled(X)
    assert log == ["before", "after"]


def test_it_trains() -> None:
    mortice.manual_seed(0)
    net, compiled = pair()
    twin = copy.deepcopy(net)
    for model, parameters in ((compiled, compiled.parameters()), (twin, twin.parameters())):
        optimizer = optim.SGD(parameters, lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            model(X).square().sum().backward()
            optimizer.step()
    assert equal(net.linear.weight, twin.linear.weight)


def test_as_a_part_of_another_module() -> None:
    _, compiled = pair()
    outer = nn.Sequential(nn.Linear(3, 3), compiled)
    assert "1.linear.weight" in outer.state_dict()
    assert equal(outer(X), compiled.original(outer[0](X)))


def test_copies_are_compiled_and_apart() -> None:
    net, compiled = pair()
    other = copy.deepcopy(compiled)
    other.scale = 7.0
    assert net.scale == 2.0
    assert other.linear is not net.linear
    assert equal(other(X), other.original(X))
    assert other.compiled.segments


def test_pickled_and_saved_as_the_module_itself() -> None:
    net, compiled = pair()
    assert type(pickle.loads(pickle.dumps(compiled))) is Net
    file = io.BytesIO()
    mortice.save(compiled.state_dict(), file)
    file.seek(0)
    assert set(mortice.load(file)) == set(net.state_dict())


def test_compiling_a_compiled_module_anew() -> None:
    net, compiled = pair()
    again = mortice.compile(compiled, backend="eager")
    assert again.original is net
    assert again.compiled.settings.backend_name == "eager"


# -- in place -------------------------------------------------------------------------------------


def test_in_place() -> None:
    net = Net()
    wanted = net(X)
    assert net.compile(backend="aot_eager") is None
    assert type(net) is Net
    assert equal(net(X), wanted)
    assert len(net._compiled_call.segments) == 1
    assert set(net.state_dict()) == {"count", "linear.weight", "linear.bias"}
    assert type(copy.deepcopy(net)) is Net
    assert copy.deepcopy(net)._compiled_call is None
    assert pickle.loads(pickle.dumps(net))._compiled_call is None


def test_in_place_with_hooks_and_children() -> None:
    net = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    wanted = net(X)
    net[0].compile(backend="eager")
    assert equal(net(X), wanted)
    log = []
    net[0].register_forward_hook(lambda module, args, out: log.append(1))
    assert equal(net(X), wanted)
    assert log == [1]
    whole = mortice.compile(net, backend="eager")
    assert equal(whole(X), wanted)
    assert len(whole.compiled.segments) == 1


@pytest.mark.parametrize("whole", [True, False])
def test_calls_are_replayed(whole) -> None:
    net = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.LayerNorm(3)).eval()
    wanted = net(X)
    if whole:
        net.compile(backend="aot_eager")
        compiled = net._compiled_call
    else:
        net[0].compile(backend="aot_eager")
        compiled = mortice.compile(net, backend="aot_eager").compiled
    with mortice.no_grad():
        for _ in range(4):
            assert equal((net if whole else compiled)(X), wanted)
    assert compiled.verdict.replayed == (3 if observer.support() is None else 0)


def test_in_place_checks_its_arguments() -> None:
    net = Net()
    with pytest.raises(RuntimeError, match="Did you mean 'aot_eager'"):
        net.compile(backend="aot_eagr")
    assert net._compiled_call is None
