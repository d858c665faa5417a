"""Modules as exported programs."""

import copy
import io

import pytest

import mortice
from mortice import export, nn
from mortice.export import Dim, InputKind
from mortice.utils.pytree import tree_leaves


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


def randn(*shape):
    return mortice.randn(*shape)


B, L, H, W = Dim("b"), Dim("l"), Dim("h", min=3), Dim("w", min=3)
#: Module, example, what varies, another call.
LAYERS = {
    "cnn": lambda: (
        nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4),
        ),
        (randn(3, 3, 12, 12),), ({0: B},), (randn(1, 3, 12, 12),),
    ),
    "image sizes": lambda: (nn.Conv2d(3, 4, 3), (randn(2, 3, 8, 9),), ({0: B, 2: H, 3: W},), (randn(1, 3, 20, 3),)),
    "transposed": lambda: (nn.ConvTranspose2d(3, 4, 3, stride=2), (randn(2, 3, 5, 5),), ({0: B},), (randn(4, 3, 5, 5),)),
    "lstm": lambda: (nn.LSTM(4, 5, batch_first=True), (randn(3, 6, 4),), ({0: B},), (randn(5, 6, 4),)),
    "gru": lambda: (nn.GRU(4, 5), (randn(6, 3, 4),), ({1: B},), (randn(6, 2, 4),)),
    "attention": lambda: (
        nn.MultiheadAttention(8, 2, batch_first=True), (randn(3, 6, 8),) * 3, ({0: B, 1: L},) * 3, (randn(2, 4, 8),) * 3,
    ),
    "embedding": lambda: (
        nn.Sequential(nn.Embedding(10, 4), nn.LayerNorm(4), nn.Linear(4, 3)),
        (mortice.randint(0, 10, (3, 5)),), ({0: B, 1: L},), (mortice.randint(0, 10, (1, 9)),),
    ),
    "group norm": lambda: (nn.Sequential(nn.GroupNorm(2, 4), nn.GELU()), (randn(3, 4, 5),), ({0: B},), (randn(6, 4, 5),)),
    "upsample": lambda: (nn.Upsample(scale_factor=2, mode="bilinear"), (randn(2, 3, 4, 5),), ({0: B},), (randn(1, 3, 4, 5),)),
    "decoder": lambda: (
        nn.TransformerDecoderLayer(8, 2, 16, batch_first=True), (randn(3, 4, 8), randn(3, 5, 8)), ({0: B}, {0: B}),
        (randn(2, 4, 8), randn(2, 5, 8)),
    ),
    "loss": lambda: (
        nn.CrossEntropyLoss(), (randn(4, 5), mortice.tensor([0, 1, 2, 3])), ({0: B}, {0: B}),
        (randn(2, 5), mortice.tensor([4, 0])),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
def test_layers_at_other_sizes_saved_and_taken_apart(name):
    layer, example, shapes, other = LAYERS[name]()
    layer.eval()
    program = export.export(layer, example, dynamic_shapes=shapes)
    buffer = io.BytesIO()
    export.save(program, buffer)
    buffer.seek(0)
    loaded = export.load(buffer)
    with mortice.no_grad():
        expected = tree_leaves(layer(*other))
        for one in (program, loaded, loaded.run_decompositions()):
            found = tree_leaves(one.module()(*other))
            assert len(found) == len(expected)
            for a, b in zip(found, expected):
                assert mortice.allclose(a, b, atol=1e-5)
