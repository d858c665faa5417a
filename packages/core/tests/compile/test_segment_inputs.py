"""What a captured graph takes beside tensors: numbers and generators, inputs of the compiled code."""

from __future__ import annotations

import pytest
from packages.core.tests.compile.graphs import BACKENDS, capture, copies, leaves, same, settings

import mortice
from mortice._compile.segment import compile_segment
from mortice.fx.symbols import symbols_used

# -- numbers and generators ---------------------------------------------------------------------------


def scaled(exponent=None):
    """A captured graph ``(x * s + s) [** e]`` whose numbers are inputs."""
    aten = mortice.ops.aten
    (x,) = leaves((3,))
    gm, fakes = capture(lambda x: (x,), [x])
    output = gm.graph.output_node()
    (node,) = [n for n in gm.graph.nodes if n.op == "placeholder"]
    with gm.graph.inserting_after(node):
        s = gm.graph.placeholder("number0")
        e = gm.graph.placeholder("number1")
    with gm.graph.inserting_before(output):
        y = gm.graph.call_function(aten.mul.Tensor, (node, s))
        y = gm.graph.call_function(aten.add.Tensor, (y, s))
        if exponent:
            y = gm.graph.call_function(aten.pow.Tensor_Scalar, (y, e))
    output.args = ((y,),)
    return gm, fakes, x


@pytest.mark.parametrize("backend", BACKENDS)
def test_numbers_are_inputs_of_the_compiled_code(backend) -> None:
    gm, fakes, x = scaled()
    run = compile_segment(gm, [*fakes, 2.0, 1], settings(backend))
    for s in (2.0, 3.5, -1.0):
        x.grad = None
        (y,) = run(x, s, 1)
        assert same(y.detach(), x.detach() * s + s)
        y.sum().backward()
        assert same(x.grad, mortice.full((3,), s))
    assert len(gm.meta["stages"]) == 1


def test_numbers_are_inputs_of_both_halves_not_symbols() -> None:
    """A backend plans anew for what a symbol stands for; an input is a value like any other."""
    gm, fakes, x = scaled()
    run = compile_segment(gm, [*fakes, 2.0, 1], settings())
    run(x, 2.0, 1)[0].sum().backward()
    halves = gm.meta["stages"][0].graphs
    assert sorted(halves) == ["backward", "forward"]
    for half in halves.values():
        assert not symbols_used(half.graph)
        operands = [n.args[1] for n in half.graph.nodes if n.op == "call_function"]
        assert operands
        assert {n.op for n in operands} == {"placeholder"}


@pytest.mark.parametrize("backend", BACKENDS)
def test_each_backward_pass_takes_the_numbers_of_its_own_call(backend) -> None:
    """Also where the graph runs once more, for gradients of gradients."""
    gm, fakes, x = scaled(exponent=True)
    run = compile_segment(gm, [*fakes, 2.0, 3], settings(backend))
    calls = [(s, run(x, s, 3)[0]) for s in (2.0, 3.5, -1.0)]
    for s, y in calls:
        z = x.detach().requires_grad_(True)
        want = mortice.autograd.grad(((z * s + s) ** 3).sum(), z, create_graph=True)[0]
        for twice in (False, True):
            (g,) = mortice.autograd.grad(y.sum(), x, retain_graph=True, create_graph=twice)
            assert mortice.allclose(g, want)
        g.sum().backward()
        want.sum().backward()
        assert mortice.allclose(x.grad, z.grad)
        x.grad = None


def test_what_a_derivative_computes_from_numbers_is_an_input() -> None:
    """Of ``x ** e`` that is ``e - 1``."""
    gm, fakes, x = scaled(exponent=True)
    run = compile_segment(gm, [*fakes, 2.0, 2.5], settings())
    calls = [(s, e, run(x, s, e)[0]) for s, e in ((2.0, 2.5), (3.0, 1.25), (0.5, -0.75))]
    for s, e, y in calls:
        (found,) = mortice.autograd.grad(y.sum(), x)
        z = x.detach() * s + s
        assert mortice.allclose(found, z ** (e - 1) * e * s, equal_nan=True)
    (stages,) = gm.meta["stages"]
    assert not symbols_used(stages.graphs["backward"].graph)


def test_a_weight_of_lerp_has_no_say_in_the_dtype() -> None:
    x, y = mortice.zeros(3), mortice.ones(3)
    compiled = mortice.compile(mortice.lerp, backend="aot_eager")
    for weight in (0.5, 0.25 + 0j, 1, True):
        assert same(compiled(x, y, weight), mortice.lerp(x, y, weight))


@pytest.mark.parametrize("function", [mortice.xlogy, mortice.special.xlog1py])
def test_a_derivative_takes_the_logarithm_of_a_number(function) -> None:
    x = mortice.tensor([-1.0, 0.0, 2.0], requires_grad=True)
    compiled = mortice.compile(function, backend="aot_eager")
    for n in (2.5, 3, 0.5, 1, -2):
        (found,) = mortice.autograd.grad(compiled(x, n).sum(), x)
        (wanted,) = mortice.autograd.grad(function(x, n).sum(), x)
        assert same(found.nan_to_num(7.0), wanted.nan_to_num(7.0))


def test_where_a_derivative_asks_for_a_number_each_answer_has_its_graph() -> None:
    """The derivative of ``x ** 0`` is zero, whatever x is."""
    gm, fakes, x = scaled(exponent=True)
    run = compile_segment(gm, [*fakes, 2.0, 3.0], settings())
    for e in (3.0, 2.0, 0.0, 5.0, 0.0):
        mine, theirs = copies([x]), copies([x])
        got, wanted = run(*mine, 2.0, e)[0], (theirs[0] * 2.0 + 2.0) ** e
        assert same(got, wanted)
        got.sum().backward()
        wanted.sum().backward()
        assert same(mine[0].grad, theirs[0].grad)
    assert len(gm.meta["stages"]) == 3  # 2, 0, and all others


def test_sizes_that_are_asked_for_are_checked() -> None:
    seen = []

    def backend(gm, example_inputs):
        seen.append(int(example_inputs[0].shape[0]))
        return gm

    (x,) = leaves((6, 3), grad=False)
    gm, fakes = capture(lambda x: (x.sin(),), [x], dynamic=[(0, 0)])
    run = compile_segment(gm, fakes, settings(backend))
    for n in (6, 4, 6, 4):
        (x,) = leaves((n, 3), grad=False)
        assert same(run(x)[0], x.sin())
    assert seen == [6, 4]


def test_after_too_many_answers_the_graph_runs_as_it_is() -> None:
    calls = []

    def backend(gm, example_inputs):
        calls.append(int(example_inputs[0].shape[0]))
        return gm

    (x,) = leaves((2, 3))
    gm, fakes = capture(lambda x: (x.sin(),), [x], dynamic=[(0, 0)])
    run = compile_segment(gm, fakes, settings(backend))
    for n in range(2, 20):
        (x,) = leaves((n, 3))
        run(x)[0].sum().backward()
        assert same(x.grad, x.detach().cos())
    assert len([n for n in calls if n == 2]) <= 2
    assert len(gm.meta["stages"]) == 8


@pytest.mark.parametrize("backend", BACKENDS)
def test_generators_are_inputs(backend) -> None:
    aten = mortice.ops.aten
    (x,) = leaves((40,))
    gm, fakes = capture(lambda x: (x,), [x])
    output = gm.graph.output_node()
    (node,) = [n for n in gm.graph.nodes if n.op == "placeholder"]
    with gm.graph.inserting_after(node):
        g = gm.graph.placeholder("generator0")
    with gm.graph.inserting_before(output):
        noise = gm.graph.call_function(aten.bernoulli.default, (node.graph.call_function(
            aten.full.default, ((40,), 0.5)),), {"generator": g})  # fmt: skip
        y = gm.graph.call_function(aten.mul.Tensor, (node, noise))
    output.args = ((y,),)
    run = compile_segment(gm, [*fakes, mortice.Generator().manual_seed(1)], settings(backend))
    for seed in (5, 6, 5):
        x.grad = None
        (y,) = run(x, mortice.Generator().manual_seed(seed))
        wanted = mortice.bernoulli(
            mortice.full((40,), 0.5), generator=mortice.Generator().manual_seed(seed)
        )
        assert same(y.detach(), x.detach() * wanted)
        y.sum().backward(retain_graph=True)
        assert same(x.grad, wanted)
        for _ in range(2):  # the graph runs again, and draws the same
            (g,) = mortice.autograd.grad(y.sum(), x, create_graph=True)
            assert same(g.detach(), wanted)
