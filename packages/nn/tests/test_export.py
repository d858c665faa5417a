"""Modules as exported programs."""

import copy
import io

import pytest

import mortice
from mortice import export, nn
from mortice.export import Dim, InputKind


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU())
        self.head = nn.Linear(4, 2)
        self.unused = nn.Parameter(mortice.ones(1))
        self.register_buffer("scale", mortice.full((1,), 2.0), persistent=False)

    def forward(self, x, extra=None):
        hidden = self.body(x)
        if extra is not None:
            hidden = hidden + extra
        return self.head(hidden) * self.scale


def exported(net):
    batch = Dim("batch")
    example = (mortice.randn(5, 3), mortice.randn(5, 4))
    return export.export(net, example, dynamic_shapes={"x": {0: batch}, "extra": {0: batch}})


def test_signature():
    program = exported(Net())
    signature = program.graph_signature
    assert signature.parameters == [
        "unused", "body.0.weight", "body.0.bias", "body.1.weight", "body.1.bias", "head.weight", "head.bias",
    ]  # fmt: skip
    assert signature.buffers == [
        "scale", "body.1.running_mean", "body.1.running_var", "body.1.num_batches_tracked",
    ]  # fmt: skip
    assert signature.non_persistent_buffers == {"scale"}
    assert signature.inputs_to_parameters["p_body_0_weight"] == "body.0.weight"
    assert set(signature.buffers_to_mutate.values()) == set(signature.buffers) - {"scale"}
    assert signature.user_inputs == ["x", "extra"]
    assert "scale" not in program.state_dict and "scale" in program.constants
    kinds = [s.kind for s in signature.input_specs]
    assert (
        kinds == sorted(kinds, key=[*InputKind].index) or kinds[-2:] == [InputKind.USER_INPUT] * 2
    )


def test_module_is_a_module_and_keeps_its_state():
    net = Net()
    other = copy.deepcopy(net)
    module = exported(net).module()
    assert isinstance(module, nn.Module)
    assert dict(module.named_parameters())["body.0.weight"] is net.body[0].weight
    for n in (2, 9):
        x, extra = mortice.randn(n, 3), mortice.randn(n, 4)
        assert mortice.equal(module(x, extra), other(x, extra))
        assert mortice.equal(net.body[1].running_var, other.body[1].running_var)
    assert net.body[1].num_batches_tracked == 2


def test_training_an_exported_module():
    net = Net().eval()
    module = exported(net).module()
    x, extra = mortice.randn(4, 3), mortice.randn(4, 4)
    module(x, extra).sum().backward()
    found = net.body[0].weight.grad.clone()
    net.zero_grad()
    net(x, extra).sum().backward()
    assert mortice.allclose(found, net.body[0].weight.grad)


def test_saved_and_loaded():
    net = Net().eval()
    program = exported(net)
    buffer = io.BytesIO()
    export.save(program, buffer)
    buffer.seek(0)
    loaded = export.load(buffer)
    module = loaded.module()
    assert all(isinstance(p, nn.Parameter) for p in loaded.parameters())
    assert list(module.state_dict()) and isinstance(module, nn.Module)
    x, extra = mortice.randn(6, 3), mortice.randn(6, 4)
    assert mortice.equal(module(x, extra), net(x, extra))
    apart = loaded.run_decompositions().module()
    assert mortice.allclose(apart(x, extra), net(x, extra))


def test_a_transformer_with_varying_length():
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
    batch, length = Dim("batch"), Dim("length")
    program = export.export(
        layer, (mortice.randn(3, 5, 16),), dynamic_shapes=({0: batch, 1: length},)
    )
    module = program.module()
    for shape in ((2, 7, 16), (4, 3, 16)):
        x = mortice.randn(*shape)
        assert mortice.allclose(module(x), layer(x), atol=1e-6)


def test_wrong_examples_are_told():
    with pytest.raises(RuntimeError, match="does not fit Net.forward"):
        export.export(Net(), ())
