import copy
import operator
import traceback

import pytest

import mortice
from mortice import fx
from mortice.errors import ArgumentError, InvalidState, InvalidValue, UnknownName

aten = mortice.ops.aten


def small():
    """(x + y).relu(), a dead node, and a constant."""
    graph = fx.Graph()
    x = graph.placeholder("x")
    y = graph.placeholder("y")
    total = graph.call_function(aten.add.Tensor, (x, y))
    graph.call_function(aten.neg.default, (total,))
    scale = graph.get_attr("inner.scale")
    scaled = graph.call_function(aten.mul.Tensor, (total, scale))
    graph.output((graph.call_function(aten.relu.default, (scaled,)),))
    return graph


def module():
    return fx.GraphModule({"inner.scale": mortice.tensor(2.0)}, small())


def test_nodes_have_names_users_and_inputs():
    graph = small()
    names = [n.name for n in graph.nodes]
    assert names == ["x", "y", "add", "neg", "inner_scale", "mul", "relu", "output"]
    add = list(graph.nodes)[2]
    assert [n.name for n in add.all_input_nodes] == ["x", "y"]
    assert [n.name for n in add.users] == ["neg", "mul"]
    assert [n.name for n in reversed(graph.nodes)] == names[::-1]
    assert len(graph.nodes) == 8
    assert graph.find_nodes(op="call_function", target=aten.add.Tensor) == [add]


def test_module_runs_as_its_code_and_its_interpreter_do():
    gm = module()
    x, y = mortice.tensor([1.0, -3.0]), mortice.tensor([0.5, 1.0])
    (expected,) = ((x + y) * 2).relu().unsqueeze(0)
    for run in (gm, fx.Interpreter(gm).run, fx.Transformer(gm).transform()):
        (result,) = run(x, y)
        assert result.tolist() == expected.tolist()
    scope = {"mortice": mortice}
    exec(gm.code, scope)
    assert scope["forward"](gm, x, y)[0].tolist() == expected.tolist()


def test_code_is_readable_and_drops_values():
    assert module().code == (
        "def forward(self, x, y):\n"
        "    add = mortice.ops.aten.add.Tensor(x, y);  x = y = None\n"
        "    neg = mortice.ops.aten.neg.default(add);  neg = None\n"
        "    inner_scale = self.inner.scale\n"
        "    mul = mortice.ops.aten.mul.Tensor(add, inner_scale);  add = inner_scale = None\n"
        "    relu = mortice.ops.aten.relu.default(mul);  mul = None\n"
        "    return (relu,)\n"
    )


def test_text_forms(capsys):
    graph = small()
    assert str(graph).split("\n")[:2] == [
        "graph(%x, %y):",
        "    %add : [num_users=2] = call_function[target=aten.add.Tensor](args = (%x, %y), kwargs = {})",
    ]
    assert str(graph).endswith("return (%relu,)")
    graph.print_tabular()
    out = capsys.readouterr().out.split("\n")
    assert out[0].split() == ["opcode", "name", "target", "args", "kwargs"]
    assert out[4].split(maxsplit=3)[:3] == ["call_function", "add", "aten.add.Tensor"]
    gm = module()
    assert gm.print_readable(print_output=False).startswith(
        "class GraphModule:\n    def forward(self"
    )
    placeholder = next(iter(graph.nodes))
    assert placeholder.format_node() == "%x : [num_users=1] = placeholder[target=x]"


def test_values_of_every_kind_are_literals_or_globals():
    graph = fx.Graph()
    x = graph.placeholder("x")

    def keep(*args, **kwargs):
        return args, kwargs

    marker = object()
    args = (
        x, 1, -2.5, float("inf"), float("-inf"), 1 + 2j, "it's", None, True, [1, [x]], {"k": (x,)},
        slice(1, None, 2), mortice.float32, mortice.device("cpu"), mortice.channels_last, mortice.strided,
        (), (1,), marker, keep, ...,
    )  # fmt: skip
    graph.output(graph.call_function(keep, args, {"z": x, "nan": float("nan")}))
    gm = fx.GraphModule(None, graph)
    got, kwargs = gm(7)
    expected = tuple(7 if a is x else a for a in args)
    expected = expected[:9] + ([1, [7]], {"k": (7,)}) + expected[11:]
    assert got == expected
    assert kwargs["z"] == 7 and kwargs["nan"] != kwargs["nan"]
    got, _ = fx.Interpreter(gm).run(7)
    assert got == expected
    assert type(got[9]) is list and type(got[10]) is dict


def test_python_operators_are_written_infix():
    graph = fx.Graph()
    x = graph.placeholder("x")
    a = graph.call_function(operator.pow, (-1, x))
    b = graph.call_function(operator.add, (a, -2))
    c = graph.call_function(operator.getitem, ([b, a], 0))
    d = graph.call_function(operator.neg, (c,))
    e = graph.call_function(getattr, (d, "real"))
    graph.output(graph.call_method("conjugate", (e,)))
    gm = fx.GraphModule(None, graph)
    assert gm(3) == 3
    assert "pow_1 = (-1) ** x" in gm.code
    assert "conjugate = getattr_1.conjugate()" in gm.code.replace(".real", ".real")
    assert "getattr_1 = neg.real" in gm.code


def test_defaults_and_missing_inputs():
    graph = fx.Graph()
    x = graph.placeholder("x")
    y = graph.placeholder("y", default_value=5)
    graph.output((x, y))
    gm = fx.GraphModule(None, graph)
    assert gm(1) == (1, 5) == fx.Interpreter(gm).run(1)
    assert gm(x=1, y=2) == (1, 2)
    with pytest.raises(ArgumentError, match="no argument was given for the input 'x'"):
        fx.Interpreter(gm).run()


def test_names_are_unique_identifiers():
    graph = fx.Graph()
    names = [
        graph.placeholder(n).name
        for n in ("x", "x", "x_1", "a.b", "1st", "class", "len", "self", "s0", "mortice")
    ]
    assert names[:4] == ["x", "x_1", "x_2", "a_b"]
    assert len(set(names)) == len(names)
    assert all(n.isidentifier() for n in names)
    assert not {"class", "len", "self", "s0", "mortice"} & set(names)


def test_inserting_replacing_erasing():
    graph = small()
    nodes = {n.name: n for n in graph.nodes}
    with graph.inserting_after(nodes["add"]):
        new = graph.call_function(aten.abs.default, (nodes["add"],))
    changed = nodes["add"].replace_all_uses_with(new, lambda user: user is not new)
    assert [n.name for n in changed] == ["neg", "mul"]
    assert list(nodes["add"].users) == [new]
    with pytest.raises(InvalidState, match="abs_1 still has users: neg, mul"):
        graph.erase_node(new)
    assert graph.eliminate_dead_code()
    assert not graph.eliminate_dead_code()
    assert [n.name for n in graph.nodes] == [
        "x", "y", "add", "abs_1", "inner_scale", "mul", "relu", "output",
    ]  # fmt: skip
    with graph.inserting_before(nodes["relu"]):
        graph.call_function(aten.neg.default, (nodes["mul"],))
    graph.lint()
    nodes["relu"].prepend(nodes["add"])
    with pytest.raises(InvalidState, match="uses 'add' before it is defined"):
        graph.lint()


def test_inserting_without_with_and_before_the_beginning():
    graph = fx.Graph()
    x = graph.placeholder("x")
    out = graph.output(x)
    graph.inserting_before(out)
    graph.call_function(aten.neg.default, (x,))
    with graph.inserting_before():
        graph.placeholder("w")
    assert [n.name for n in graph.nodes] == ["w", "x", "neg", "output"]
    graph.lint()


def test_arguments_change_only_by_assignment():
    graph = fx.Graph()
    x = graph.placeholder("x")
    y = graph.placeholder("y")
    node = graph.call_function(aten.cat.default, ([x, x], 0))
    with pytest.raises(InvalidState, match="ImmutableList is an argument"):
        node.args[0].append(y)
    with pytest.raises(InvalidState):
        node.kwargs["dim"] = 1
    node.update_arg(0, [x, y])
    node.update_kwarg("dim", 0)
    assert list(y.users) == [node] and dict(node.kwargs) == {"dim": 0}
    node.args = ([y],)
    assert not x.users
    node.insert_arg(0, x)
    assert node.args == (x, [y])


def test_operators_that_write_or_draw_stay():
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.call_function(aten.add_.Tensor, (x, 1))
    graph.call_function(aten.bernoulli.default, (x,))
    graph.call_function(aten.add.Tensor, (x, 1))
    graph.output(())
    graph.eliminate_dead_code()
    assert [n.name for n in graph.nodes] == ["x", "add_", "bernoulli", "output"]
    graph.eliminate_dead_code(lambda n: n.is_impure(impure_random=False))
    assert [n.name for n in graph.nodes] == ["x", "add_", "output"]


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda g, n: n["x"].users.clear(), "does not know it as a user"),
        (lambda g, n: n["x"].users.update({n["relu"]: None}), "which does not use it"),
        (lambda g, n: setattr(n["neg"], "name", "add"), "a name that an earlier node has"),
        (lambda g, n: g.placeholder("late"), "output, but nodes follow"),
        (lambda g, n: setattr(n["add"], "graph", fx.Graph()), "belongs to another graph"),
        (lambda g, n: setattr(n["inner_scale"], "target", "inner.skale"), "no attribute 'skale'"),
    ],
)
def test_lint_finds(break_it, message):
    gm = module()
    gm.graph.lint()
    break_it(gm.graph, {n.name: n for n in gm.graph.nodes})
    with pytest.raises(InvalidState, match=message):
        gm.graph.lint()


def test_bad_nodes_are_refused():
    graph = fx.Graph()
    with pytest.raises(InvalidValue, match="needs a callable"):
        graph.call_function("relu")
    with pytest.raises(InvalidValue, match="unknown kind of node 'call'"):
        graph.create_node("call", "relu")
    with pytest.raises(InvalidValue, match="not iterable"):
        iter(graph.placeholder("x"))
    with pytest.raises(UnknownName, match=r"inner has no attribute 'skale'. Did you mean 'scale'"):
        fx.Interpreter(module()).fetch_attr("inner.skale")


def test_copies_are_independent():
    gm = module()
    gm.meta["k"] = [1]
    other = copy.deepcopy(gm)
    other.graph.eliminate_dead_code()
    other.recompile()
    other.inner.scale.fill_(0)
    assert len(gm.graph.nodes) == 8 and len(other.graph.nodes) == 7
    assert gm.inner.scale.item() == 2.0
    assert other(mortice.ones(1), mortice.ones(1))[0].item() == 0.0
    assert copy.copy(gm).inner is gm.inner
    assert other.graph.owning_module is other
    assert other.meta == {"k": [1]} and other.meta["k"] is not gm.meta["k"]


def test_recompile_after_a_change():
    gm = module()
    x = mortice.ones(1)
    assert gm(x, x)[0].item() == 4.0
    (relu,) = gm.graph.find_nodes(op="call_function", target=aten.relu.default)
    relu.target = aten.neg.default
    gm.recompile()
    assert gm(x, x)[0].item() == -4.0


def test_errors_name_node_and_line():
    gm = module()
    for node in gm.graph.nodes:
        node.meta["stack"] = f"model.py:{len(node.name)}, in forward: {node.name}"
    with pytest.raises(RuntimeError, match=r"(?s)While executing %add .*Original line: model.py:3"):
        fx.Interpreter(gm).run(mortice.ones(2), mortice.ones(3))
    with pytest.raises(RuntimeError) as found:
        gm(mortice.ones(2), mortice.ones(3))
    assert "aten_add_Tensor(x, y)" in "".join(traceback.format_tb(found.value.__traceback__))


def test_interpreter_frees_values():
    gm = module()
    alive = []

    class Watch(fx.Interpreter):
        def run_node(self, n):
            alive.append({node.name for node in self.env})
            return super().run_node(n)

    Watch(gm).run(mortice.ones(1), mortice.ones(1))
    assert alive[3] == {"add"}
    assert alive[-1] == {"relu"}
    inputs = [mortice.ones(1), mortice.ones(1)]
    assert fx.Interpreter(gm).boxed_run(inputs)[0].item() == 4.0
    assert inputs == []


def test_transformer_rewrites():
    class Swap(fx.Transformer):
        def call_function(self, target, args, kwargs):
            if target is aten.relu.default:
                return args[0] * 10
            return super().call_function(target, args, kwargs)

    gm = module()
    next(iter(gm.graph.nodes)).meta["val"] = "kept"
    new = Swap(gm).transform()
    assert new(mortice.ones(1), mortice.ones(1))[0].item() == 40.0
    assert next(iter(new.graph.nodes)).meta == {"val": "kept"}
    assert new.inner.scale is gm.inner.scale


def test_erasing_while_walking():
    graph = fx.Graph()
    x = graph.placeholder("x")
    for _ in range(5):
        graph.call_function(aten.neg.default, (x,))
    seen = []
    for node in graph.nodes:
        seen.append(node.name)
        if node.op == "call_function":
            graph.erase_node(node)
    assert len(seen) == 6 and len(graph.nodes) == 1
