"""Graph modules whose root is a Module are Modules."""

import copy

import mortice
from mortice import fx, nn
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
