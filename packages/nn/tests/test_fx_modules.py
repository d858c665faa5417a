"""Graph modules whose root is a Module are Modules."""

import copy

import pytest

import mortice
from mortice import fx, nn
from mortice.errors import TraceError
from mortice.nn import functional
from mortice.ops import aten


def graph_of_model():
    graph = fx.Graph()
    x = graph.placeholder("x")
    hidden = graph.call_module("0", (x,))
    mean = graph.get_attr("1.running_mean")
    graph.output(graph.call_function(aten.add.Tensor, (hidden, mean)))
    return graph


def model():
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).eval()


def test_it_is_a_module_with_what_the_graph_uses():
    root = model()
    gm = fx.GraphModule(root, graph_of_model())
    gm.graph.lint()
    assert isinstance(gm, nn.Module) and isinstance(gm, fx.GraphModule)
    assert list(gm.state_dict()) == ["0.weight", "0.bias", "1.running_mean"]
    assert [n for n, _ in gm.named_parameters()] == ["0.weight", "0.bias"]
    assert gm.get_submodule("0") is root[0]
    assert not gm.training
    assert gm.train().training
    x = mortice.randn(2, 3)
    assert mortice.equal(gm(x), root[0](x) + root[1].running_mean)
    assert mortice.equal(fx.Interpreter(gm).run(x), gm(x))
    assert mortice.equal(nn.Sequential(gm)(x), gm(x))


def test_hooks_run_and_copies_are_modules():
    gm = fx.GraphModule(model(), graph_of_model())
    seen = []
    gm.register_forward_hook(lambda module, args, out: seen.append(module))
    gm(mortice.ones(1, 3))
    assert seen == [gm]
    other = copy.deepcopy(gm)
    assert isinstance(other, nn.Module)
    with mortice.no_grad():
        other.get_parameter("0.weight").zero_()
    assert gm.get_parameter("0.weight").abs().sum() > 0
    assert "(0): Linear" in repr(gm)


def test_gradients_reach_the_root():
    root = model()
    fx.GraphModule(root, graph_of_model())(mortice.ones(1, 3)).sum().backward()
    assert root[0].weight.grad is not None


def test_a_dict_of_modules():
    gm = fx.GraphModule({"0": nn.Linear(3, 4), "1.running_mean": mortice.ones(4)}, graph_of_model())
    assert list(gm.state_dict()) == ["0.weight", "0.bias", "1.running_mean"]
    assert gm(mortice.ones(1, 3)).shape == (1, 4)


def test_make_fx_of_a_module():
    root = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    x = mortice.randn(5, 3)
    gm = fx.make_fx(root, tracing_mode="fake")(x)
    assert isinstance(gm, nn.Module)
    assert [n for n, _ in gm.named_parameters()] == ["0.weight", "0.bias", "1.weight", "1.bias"]
    before = root[1].running_mean.clone()
    other = copy.deepcopy(root)
    assert mortice.equal(gm(x), other(x))
    assert not mortice.equal(root[1].running_mean, before)
    assert mortice.equal(root[1].running_mean, other[1].running_mean)
    assert root[1].num_batches_tracked == 1


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), Inner())
        self.head = nn.Linear(4, 10)
        self.scale = nn.Parameter(mortice.ones(1))
        self.register_buffer("offset", mortice.zeros(1))

    def forward(self, x, flag=True):
        x = self.body(x)
        x = functional.max_pool2d(x, x.shape[-1])
        x = x.view(x.shape[0], x.shape[1]) * self.scale + self.offset + mortice.tensor([2.0])
        if flag:
            x = functional.relu(x)
        return {"out": self.head(x)}


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3)

    def forward(self, x):
        return functional.pad(self.conv(x), (1, 1, 1, 1))


def test_symbolic_trace_of_a_module():
    net = Net()
    gm = fx.symbolic_trace(net, {"flag": True})
    gm.graph.lint()
    modules = [n.target for n in gm.graph.find_nodes(op="call_module")]
    assert modules == ["body.0", "body.1", "body.2.conv", "head"]
    assert [n.target for n in gm.graph.find_nodes(op="get_attr")] == [
        "scale", "offset", "_tensor_constant0",
    ]  # fmt: skip
    assert not hasattr(net, "_tensor_constant0")
    assert set(gm.state_dict()) == {*net.state_dict(), "_tensor_constant0"}
    assert gm.get_submodule("body.2.conv") is net.body[2].conv
    x = mortice.randn(2, 1, 8, 8)
    for run in (gm, fx.Interpreter(gm).run, fx.Transformer(gm).transform(), copy.deepcopy(gm)):
        assert mortice.equal(run(x)["out"], net(x)["out"])
    assert "Net" in repr(gm)


def test_is_leaf_module_decides():
    class Deeper(fx.Tracer):
        def is_leaf_module(self, m, name):
            return isinstance(m, Inner)

    net = Net()
    tracer = Deeper()
    graph = tracer.trace(net, {"flag": False})
    assert [n.target for n in graph.find_nodes(op="call_module")] == ["body.2"]
    x = mortice.randn(2, 1, 8, 8)
    gm = fx.GraphModule(tracer.root, graph)
    assert mortice.equal(gm(x, False)["out"], net(x, False)["out"])


def test_functional_forms_are_nodes():
    def f(q, target):
        a = functional.scaled_dot_product_attention(q, q, q)
        return functional.cross_entropy(a[0], target)

    gm = fx.symbolic_trace(f)
    q, target = mortice.randn(1, 3, 4), mortice.tensor([0, 1, 2])
    assert mortice.equal(gm(q, target), f(q, target))
    names = [n.name for n in gm.graph.find_nodes(op="call_function")]
    assert names == ["scaled_dot_product_attention", "getitem", "cross_entropy"]


def test_modules_that_are_not_assigned_are_refused():
    class Loose(nn.Module):
        def forward(self, x):
            return nn.Linear(2, 2)(x)

    with pytest.raises(TraceError, match=r"Linear\(\) is called, but it is no sub-module of Loose"):
        fx.symbolic_trace(Loose())
