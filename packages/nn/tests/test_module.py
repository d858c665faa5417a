"""Module: registration, attributes, hooks, state_dict, conversion, copies."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from collections import OrderedDict

import numpy as np
import pytest

import mortice
from mortice import nn
from mortice.errors import StateDictError


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(3, 4)
        self.fc2 = nn.Linear(4, 2, bias=False)
        self.register_buffer("mean", mortice.zeros(3))
        self.register_buffer("cache", mortice.ones(2), persistent=False)

    def forward(self, x):
        return self.fc2(self.fc1(x).relu())


def ones(*shape: int):
    return mortice.ones(*shape)


# -- registration and attributes -----------------------------------------------------------------


def test_parameters_buffers_and_modules_are_found() -> None:
    net = Net()
    assert [n for n, _ in net.named_parameters()] == ["fc1.weight", "fc1.bias", "fc2.weight"]
    assert [n for n, _ in net.named_buffers()] == ["mean", "cache"]
    assert [n for n, _ in net.named_modules()] == ["", "fc1", "fc2"]
    assert list(net.state_dict()) == ["mean", "fc1.weight", "fc1.bias", "fc2.weight"]
    assert net.state_dict()._metadata == {
        "": {"version": 1},
        "fc1": {"version": 1},
        "fc2": {"version": 1},
    }
    assert "fc1" in dir(net)
    assert "mean" in dir(net)


def test_a_shared_parameter_is_listed_once() -> None:
    net = Net()
    net.fc3 = net.fc1
    assert len(list(net.parameters())) == 3
    assert len(list(net.named_parameters(remove_duplicate=False))) == 5
    assert len(list(net.modules())) == 3


def test_a_name_changes_its_kind_by_assignment() -> None:
    net = nn.Module()
    net.x = nn.Parameter(ones(2))
    assert "x" in net._parameters
    del net.x
    net.x = 3
    assert net.x == 3
    assert not net._parameters
    net.x = nn.Linear(1, 1)
    assert "x" in net._modules
    assert "x" not in net.__dict__
    net.b = nn.Buffer(ones(1), persistent=False)
    assert "b" in net._buffers
    assert "b" not in net.state_dict()
    net.b = ones(2)
    assert tuple(net.b.shape) == (2,)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("weight", 3, "cannot assign a int as parameter 'weight'"),
        ("weight", mortice.ones(2), "expected mortice.nn.Parameter or None"),
    ],
)
def test_wrong_assignment_names_what_was_expected(name: str, value, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        setattr(nn.Linear(2, 2), name, value)


def test_names_are_checked() -> None:
    net = Net()
    with pytest.raises(KeyError, match="attribute fc1 already exists"):
        net.register_buffer("fc1", None)
    with pytest.raises(KeyError, match=r"name a.b must not contain a dot"):
        net.register_parameter("a.b", None)
    with pytest.raises(KeyError, match="must not be empty"):
        net.add_module("", None)
    with pytest.raises(TypeError, match=r"wrap it in mortice.nn.Parameter"):
        net.register_parameter("w", ones(2))
    with pytest.raises(ValueError, match="must be a leaf"):
        net.register_parameter("w", nn.Parameter(ones(2)).mul(2).as_subclass(nn.Parameter))


def test_before_init_says_what_to_do() -> None:
    class Forgetful(nn.Module):
        def __init__(self) -> None:
            self.fc = nn.Linear(1, 1)

    with pytest.raises(AttributeError, match=r"Forgetful.__init__ must call super\(\)"):
        Forgetful()


def test_misspelt_names_get_the_nearest() -> None:
    net = Net()
    with pytest.raises(AttributeError, match=r"no attribute 'fc_1'. Did you mean 'fc1'"):
        _ = net.fc_1
    with pytest.raises(AttributeError) as caught:  # as a worker process hands it back
        _ = net.fc_1
    again = pickle.loads(pickle.dumps(caught.value))
    assert isinstance(again, AttributeError)
    assert str(again) == str(caught.value)
    with pytest.raises(AttributeError, match="no submodule 'fc9'"):
        net.get_submodule("fc9")
    with pytest.raises(AttributeError, match=r"no parameter 'wieght'. Did you mean 'weight'"):
        net.get_parameter("fc1.wieght")
    with pytest.raises(TypeError, match=r"Module.__init__ takes no arguments.*in_feature"):
        nn.Module(in_feature=3)


def test_missing_forward_is_named() -> None:
    with pytest.raises(NotImplementedError, match=r"Module \[Module\] is missing the required"):
        nn.Module()(1)


def test_get_and_set_submodule() -> None:
    net = nn.Sequential(OrderedDict(a=nn.Sequential(nn.ReLU()), b=nn.Tanh()))
    assert isinstance(net.get_submodule("a.0"), nn.ReLU)
    net.set_submodule("a.0", nn.GELU())
    assert isinstance(net.a[0], nn.GELU)
    with pytest.raises(AttributeError, match="strict=True"):
        net.set_submodule("a.7", nn.GELU(), strict=True)


def test_modes_and_freezing() -> None:
    net = Net()
    assert net.eval() is net
    assert not net.fc1.training
    net.train()
    assert net.fc2.training
    with pytest.raises(ValueError, match="expected to be a bool, found 'yes'"):
        net.train("yes")
    net.requires_grad_(False)
    assert not any(p.requires_grad for p in net.parameters())


def test_apply_visits_children_first() -> None:
    seen = []
    Net().apply(lambda m: seen.append(type(m).__name__))
    assert seen == ["Linear", "Linear", "Net"]


def test_zero_grad() -> None:
    net = Net()
    net(ones(1, 3)).sum().backward()
    net.zero_grad(set_to_none=False)
    assert all((p.grad == 0).all() for p in net.parameters())
    net.zero_grad()
    assert all(p.grad is None for p in net.parameters())


def test_repr_nests() -> None:
    assert repr(Net()) == (
        "Net(\n"
        "  (fc1): Linear(in_features=3, out_features=4, bias=True)\n"
        "  (fc2): Linear(in_features=4, out_features=2, bias=False)\n"
        ")"
    )
    assert repr(nn.Module()) == "Module()"


def test_a_module_is_freed_without_the_collector() -> None:
    gc.disable()
    try:
        net = Net()
        ref = weakref.ref(net)
        del net
        assert ref() is None
    finally:
        gc.enable()


# -- hooks ---------------------------------------------------------------------------------------


def test_forward_hooks_see_and_replace() -> None:
    net = nn.Linear(2, 2)
    seen = []
    first = net.register_forward_pre_hook(lambda m, args: (args[0] * 0,))
    second = net.register_forward_hook(lambda m, args, out: seen.append(args[0].sum().item()))
    out = net(ones(1, 2))
    assert seen == [0.0]
    np.testing.assert_allclose(out.detach().numpy()[0], net.bias.detach().numpy())
    first.remove()
    with second:
        net(ones(1, 2))
    assert seen == [0.0, 2.0]
    net(ones(1, 2))
    assert len(seen) == 2


def test_hooks_with_kwargs_order_and_always_call() -> None:
    class Two(nn.Module):
        def forward(self, x, *, scale=1):
            if scale == 0:
                raise ValueError("zero")
            return x * scale

    net, log = Two(), []
    net.register_forward_pre_hook(
        lambda m, args, kwargs: (args, {"scale": kwargs["scale"] + 1}), with_kwargs=True
    )
    net.register_forward_hook(lambda m, a, out: log.append("second"))
    net.register_forward_hook(
        lambda m, a, kw, out: log.append(kw["scale"]), with_kwargs=True, prepend=True
    )
    net.register_forward_hook(lambda m, a, out: log.append("always"), always_call=True)
    assert net(3, scale=1) == 6
    assert log == [2, "second", "always"]
    log.clear()
    with pytest.raises(ValueError, match="zero"):
        net(3, scale=-1)
    assert log == ["always"]


def test_global_hooks() -> None:
    names = []
    handle = nn.modules.module.register_module_forward_hook(
        lambda m, args, out: names.append(type(m).__name__)
    )
    with handle:
        Net()(ones(1, 3))
    assert names == ["Linear", "Linear", "Net"]
    Net()(ones(1, 3))
    assert len(names) == 3


def test_backward_hooks_see_and_replace_gradients() -> None:
    net = nn.Linear(2, 1, bias=False)
    nn.init.constant_(net.weight, 3.0)
    seen = []
    net.register_full_backward_pre_hook(lambda m, grad_out: (grad_out[0] * 2,))

    def hook(module, grad_in, grad_out):
        seen.append((grad_in[0].tolist(), grad_out[0].tolist()))
        return (grad_in[0] * 10,)

    net.register_full_backward_hook(hook)
    x = ones(1, 2).requires_grad_()
    net(x).sum().backward()
    assert seen == [([[6.0, 6.0]], [[2.0]])]
    assert x.grad.tolist() == [[60.0, 60.0]]
    assert net.weight.grad.tolist() == [[2.0, 2.0]]


def test_backward_hook_without_input_gradient() -> None:
    net, seen = nn.Linear(2, 1), []
    net.register_full_backward_hook(lambda m, gi, go: seen.append((gi, go[0].item())))
    net(ones(1, 2)).sum().backward()
    assert seen == [((None,), 1.0)]


# -- state_dict ----------------------------------------------------------------------------------


def test_round_trip_copies_values() -> None:
    a, b = Net(), Net()
    result = b.load_state_dict(a.state_dict())
    assert repr(result) == "<All keys matched successfully>"
    for p, q in zip(a.parameters(), b.parameters(), strict=True):
        assert (p == q).all()
        assert p is not q


def test_entries_share_memory_and_are_detached() -> None:
    net = Net()
    weight = net.state_dict()["fc1.weight"]
    assert not weight.requires_grad
    assert type(weight) is mortice.Tensor
    weight.zero_()
    assert (net.fc1.weight == 0).all()
    assert net.state_dict(keep_vars=True)["fc1.weight"] is net.fc1.weight


def test_mismatches_are_listed_with_nearest_names() -> None:
    state = Net().state_dict()
    state["fc1.wieght"] = state.pop("fc1.weight")
    state["fc2.weight"] = ones(2, 5)
    with pytest.raises(StateDictError) as caught:
        Net().load_state_dict(state)
    text = str(caught.value)
    assert "loading state_dict for Net" in text
    assert 'Unexpected key(s) in state_dict: "fc1.wieght"' in text
    assert (
        'Missing key(s) in state_dict: "fc1.weight" (nearest in the state_dict: "fc1.wieght")'
        in text
    )
    assert (
        'size mismatch for "fc2.weight": the state_dict has shape (2, 5), the model (2, 4)' in text
    )
    assert isinstance(caught.value, RuntimeError)


def test_wrapped_names_are_recognised() -> None:
    state = {f"module.{k}": v for k, v in Net().state_dict().items()}
    with pytest.raises(RuntimeError, match=r'strip the prefix "module." from the state_dict'):
        Net().load_state_dict(state)


def test_not_strict_reports_instead() -> None:
    state = Net().state_dict()
    del state["mean"]
    state["extra"] = ones(1)
    missing, unexpected = Net().load_state_dict(state, strict=False)
    assert missing == ["mean"]
    assert unexpected == ["extra"]
    state["fc2.weight"] = ones(1)
    with pytest.raises(RuntimeError, match="size mismatch"):
        Net().load_state_dict(state, strict=False)


def test_assign_takes_the_tensors() -> None:
    net = Net()
    state = {k: v.to(mortice.float64) for k, v in net.state_dict().items()}
    net.load_state_dict(state, assign=True)
    assert net.fc1.weight.dtype == mortice.float64
    assert isinstance(net.fc1.weight, nn.Parameter)
    assert net.fc1.weight.requires_grad
    state["fc1.weight"].zero_()
    assert (net.fc1.weight == 0).all()


def test_values_that_are_no_tensors() -> None:
    state = dict(Net().state_dict(), mean=[1, 2])
    with pytest.raises(RuntimeError, match=r'expected a tensor for "mean".*found list'):
        Net().load_state_dict(state)
    with pytest.raises(TypeError, match="expected a dict of names to tensors, found list"):
        Net().load_state_dict([1])


def test_extra_state_and_versions() -> None:
    class Counter(nn.Module):
        _version = 3

        def __init__(self) -> None:
            super().__init__()
            self.count = 0
            self.seen = None

        def get_extra_state(self):
            return {"count": self.count}

        def set_extra_state(self, state) -> None:
            self.count = state["count"]

        def _load_from_state_dict(self, state_dict, prefix, local_metadata, *rest) -> None:
            self.seen = local_metadata.get("version")
            super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)

    a, b = nn.Sequential(Counter()), nn.Sequential(Counter())
    a[0].count = 7
    b.load_state_dict(a.state_dict())
    assert b[0].count == 7
    assert b[0].seen == 3
    with pytest.raises(RuntimeError, match="_extra_state"):
        b.load_state_dict({})


def test_state_dict_hooks() -> None:
    net, log = Net(), []
    net.register_state_dict_pre_hook(lambda m, prefix, keep: log.append("pre"))

    def drop_mean(module, state, prefix, metadata) -> None:
        del state["mean"]

    net.register_state_dict_post_hook(drop_mean)
    net._register_state_dict_hook(lambda m, state, prefix, meta: {**state, "more": 1})
    state = net.state_dict()
    assert log == ["pre"]
    assert "mean" not in state
    assert state["more"] == 1
    other = Net()
    other.register_load_state_dict_pre_hook(
        lambda m, state, *rest: state.update(mean=mortice.ones(3), more=None) or state.pop("more")
    )
    other.register_load_state_dict_post_hook(lambda m, keys: log.append(list(keys.missing_keys)))
    other.load_state_dict(state)
    assert other.mean.tolist() == [1, 1, 1]
    assert log == ["pre", []]


def test_batch_norm_reads_files_without_a_count() -> None:
    net = nn.BatchNorm2d(2)
    state = net.state_dict()
    del state["num_batches_tracked"]
    state._metadata[""]["version"] = 1
    net.load_state_dict(state)
    state._metadata[""]["version"] = 2
    with pytest.raises(RuntimeError, match="num_batches_tracked"):
        net.load_state_dict(state)


# -- conversion and copies -----------------------------------------------------------------------


def test_to_changes_dtype_in_place() -> None:
    net = Net()
    net.register_buffer("count", mortice.tensor(3))
    weight = net.fc1.weight
    net(ones(1, 3)).sum().backward()
    assert net.to(mortice.float64) is net
    assert net.fc1.weight is weight
    assert weight.dtype == mortice.float64
    assert weight.grad.dtype == mortice.float64
    assert net.count.dtype == mortice.int64
    assert net.mean.dtype == mortice.float64
    assert net.half().fc1.weight.dtype == mortice.float16
    assert net.bfloat16().fc1.weight.dtype == mortice.bfloat16
    assert net.float().to(mortice.zeros(1, dtype=mortice.float64)).mean.dtype == mortice.float64
    with pytest.raises(RuntimeError, match="only accepts floating point or complex"):
        net.to(mortice.int64)
    with pytest.raises(TypeError, match="unknown argument 'dtpe'"):
        net.to(dtpe=mortice.float32)


def test_meta_and_to_empty() -> None:
    net = nn.Linear(2, 3, device="meta")
    assert net.weight.device.type == "meta"
    net.to_empty(device="cpu")
    assert net.weight.device.type == "cpu"
    assert tuple(net.weight.shape) == (3, 2)


def test_deepcopy_and_pickle() -> None:
    net = Net()
    for twin in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert twin.fc1.weight is not net.fc1.weight
        assert isinstance(twin.fc1.weight, nn.Parameter)
        assert twin.fc1.weight.requires_grad
        assert (twin.fc1.weight == net.fc1.weight).all()
        assert "cache" not in twin.state_dict()
        twin(ones(1, 3)).sum().backward()
        assert net.fc1.weight.grad is None


def test_tied_parameters_stay_tied_in_a_copy() -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    net[1].weight = net[0].weight
    twin = copy.deepcopy(net)
    assert twin[0].weight is twin[1].weight


# -- containers ----------------------------------------------------------------------------------


def test_sequential_edits() -> None:
    net = nn.Sequential(nn.ReLU(), nn.Tanh())
    net.append(nn.GELU()).insert(0, nn.Identity())
    assert [type(m).__name__ for m in net] == ["Identity", "ReLU", "Tanh", "GELU"]
    assert isinstance(net[1:3], nn.Sequential)
    assert len(net[1:3]) == 2
    del net[0]
    assert list(net._modules) == ["0", "1", "2"]
    assert isinstance(net.pop(-1), nn.GELU)
    assert len(net + net) == 4
    assert len(net * 3) == 6
    with pytest.raises(IndexError, match="index 5 is out of range"):
        net[5]


def test_module_list_and_dict() -> None:
    layers = nn.ModuleList([nn.Linear(1, 1)])
    layers += [nn.Linear(1, 1)]
    layers[0] = nn.ReLU()
    assert len(list(layers.parameters())) == 2
    table = nn.ModuleDict({"a": nn.ReLU()})
    table.update([("b", nn.Linear(1, 1))])
    assert "b" in table
    assert list(table) == ["a", "b"]
    assert isinstance(table.pop("a"), nn.ReLU)
    with pytest.raises(ValueError, match="element 0 is not a"):
        table.update([(1, 2, 3)])


def test_parameter_containers() -> None:
    rows = nn.ParameterList([ones(2), nn.Parameter(ones(3)), "text"])
    assert [n for n, _ in rows.named_parameters()] == ["0", "1"]
    assert rows[2] == "text"
    assert len(rows[:2]) == 2
    table = nn.ParameterDict({"w": ones(2)})
    table["v"] = ones(1)
    assert [n for n, _ in table.named_parameters()] == ["w", "v"]
    assert set((table | {"u": ones(1)}).keys()) == {"w", "v", "u"}
    del table["w"]
    assert "w" not in table
    assert len(list(table.parameters())) == 1
    assert f"(v): Parameter containing: [{mortice.float32} of size 1]" in repr(table)
