"""A captured graph compiled: results, gradients and the ways of autograd are those of eager."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from packages.core.tests.compile.graphs import (
    BACKENDS,
    capture,
    compiled,
    copies,
    gradients,
    leaves,
    same,
    settings,
)

import mortice
from mortice._compile.declaration import declare
from mortice._compile.segment import compile_segment
from mortice.errors import AutogradError


def mlp(x, w, b, v):
    h = mortice.tanh(x @ w + b)
    h = h * mortice.sigmoid(h)
    return h @ v, (h - h.mean(1, keepdim=True)).pow(2).sum()


def softmaxes(x, y):
    return mortice.softmax(x @ y, 1), mortice.log_softmax(x * 2, 0)


def splits(x, y):
    a, b = x.split(2)
    values, indices = (a @ y).max(1)
    return values + b.sum(1)[: values.shape[0]], indices, mortice.cat([a, b, a], 1)


def normed(x, w, b):
    y = mortice.layer_norm(x, (x.shape[1],), w, b)
    return mortice.gelu(y), mortice.where(y > 0, y, y * 0.1)


def views(x):
    y = x.t().reshape(2, -1)
    return y[0] * y[1], x.expand(3, *x.shape).sum(0), x.unsqueeze(1).squeeze(1) + 1


CASES = {
    "mlp": (mlp, [(4, 3), (3, 5), (5,), (5, 2)]),
    "softmaxes": (softmaxes, [(4, 3), (3, 4)]),
    "splits": (splits, [(4, 3), (3, 4)]),
    "normed": (normed, [(4, 6), (6,), (6,)]),
    "views": (views, [(4, 6)]),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("case", CASES)
def test_results_and_gradients_are_eagers(case, backend) -> None:
    f, shapes = CASES[case]
    inputs = leaves(*shapes)
    run = compiled(f, inputs, backend).run
    theirs = copies(inputs)
    for got, wanted in zip(run(*inputs), f(*theirs), strict=True):
        if backend == "aot_eager_decomp_partition":
            assert (got - wanted).abs().max() < 1e-5
        else:
            assert same(got, wanted)
        assert got.requires_grad == wanted.requires_grad
    for got, wanted in zip(gradients(run, inputs), gradients(f, theirs), strict=True):
        if backend == "aot_eager_decomp_partition":
            assert (got - wanted).abs().max() < 1e-5
        else:
            assert same(got, wanted)


@pytest.mark.parametrize("backend", BACKENDS)
def test_inference_has_no_history(backend) -> None:
    inputs = leaves((4, 3), (3, 5), (5,), (5, 2), grad=False)
    got = compiled(mlp, inputs, backend).run(*inputs)
    for one, wanted in zip(got, mlp(*inputs), strict=True):
        assert not one.requires_grad
        assert (one - wanted).abs().max() < 1e-5


@pytest.mark.parametrize("backend", BACKENDS)
def test_where_gradients_were_off_there_is_no_history(backend) -> None:
    inputs = leaves((4, 3), (3, 5), (5,), (5, 2))
    got = compiled(mlp, inputs, backend, grad=lambda node: False).run(*inputs)
    assert not any(y.requires_grad for y in got)
    assert mortice.is_grad_enabled()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_region_without_gradients_inside(backend) -> None:
    def f(x, w):
        h = (x @ w).tanh()
        return h * h.exp(), h.sin()  # exp's result as if under no_grad

    def eager(x, w):
        h = (x @ w).tanh()
        with mortice.no_grad():
            e = h.exp()
        return h * e, h.sin()

    inputs = leaves((4, 3), (3, 5))
    run = compiled(f, inputs, backend, grad=lambda node: "exp" not in str(node.target)).run
    theirs = copies(inputs)
    assert all(map(same, gradients(run, inputs), gradients(eager, theirs)))
    with mortice.no_grad():
        assert run(*inputs)[0].requires_grad  # the graph says itself what was recorded
        assert not mortice.is_grad_enabled()


@pytest.mark.parametrize("backend", BACKENDS)
def test_detached_outputs_and_unused_inputs(backend) -> None:
    aten = mortice.ops.aten
    inputs = leaves((3,), (3,), (3,))
    gm, fakes = capture(lambda x, y, z: (x, x, x), inputs)
    output = gm.graph.output_node()
    x, y, _ = [node for node in gm.graph.nodes if node.op == "placeholder"]
    with gm.graph.inserting_before(output):
        b = gm.graph.call_function(
            aten.detach.default, (gm.graph.call_function(aten.sin.default, (x,)),)
        )
        a = gm.graph.call_function(aten.mul.Tensor, (b, y))
        c = gm.graph.call_function(aten.argsort.default, (x,))
    output.args = ((a, b, c),)
    a, b, c = compile_segment(gm, fakes, settings(backend))(*inputs)
    assert a.requires_grad
    assert not b.requires_grad
    assert not c.requires_grad
    a.sum().backward()
    assert inputs[0].grad is None
    assert inputs[2].grad is None
    assert same(inputs[1].grad, b)


# -- writes -----------------------------------------------------------------------------------------


def counter(x, w, steps):
    steps.add_(1)
    return ((x * w).sum() * steps,)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_buffer_is_written_back_once(backend) -> None:
    x, w = leaves((3,), (3,))
    steps = mortice.zeros(())
    run = compiled(counter, [x, w, steps], backend).run
    for expected in (1, 2, 3):
        version = steps._version
        (y,) = run(x, w, steps)
        assert steps.item() == expected
        assert steps._version == version + 1
        y.backward()
    assert same(w.grad, x.detach() + 2 * x.detach() + 3 * x.detach())


def test_what_the_backward_needs_of_a_written_input_is_its_old_value() -> None:
    def f(scale, x):
        y = x * scale
        scale.mul_(10)
        return (y.sum(),)

    scale, (x,) = mortice.full((3,), 2.0), leaves((3,))
    run = compiled(f, [scale, x]).run
    run(scale, x)[0].backward()
    assert scale.tolist() == [20.0] * 3
    assert x.grad.tolist() == [2.0] * 3


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_write_with_a_history_is_recorded(backend) -> None:
    def f(x, w):
        x.add_((x * 1) * w)
        return (x.sum(),)

    def run_once(call):
        x, w = mortice.full((3,), 2.0), mortice.full((3,), 5.0, requires_grad=True)
        (y,) = call(x, w)
        assert x.requires_grad
        (y + (x * x).sum()).backward()
        return x.detach(), w.grad

    inputs = [mortice.full((3,), 2.0), mortice.full((3,), 5.0, requires_grad=True)]
    run = compiled(f, inputs, backend).run
    assert all(map(same, run_once(run), run_once(f)))


@pytest.mark.parametrize("backend", BACKENDS)
def test_parameters_are_written_where_gradients_are_off(backend) -> None:
    def step(p, g):
        p.add_(g, alpha=-0.1)
        return ()

    p, g = leaves((3,))[0], mortice.ones(3)
    before = p.detach().clone()
    run = compiled(step, [p, g], backend, grad=lambda node: False).run
    assert run(p, g) == ()
    assert same(p.detach(), before - 0.1)
    assert p.is_leaf
    assert p.requires_grad


# -- the ways of autograd ---------------------------------------------------------------------------


def both(x, w):
    h = (x @ w).tanh()
    return h * h, h.exp()


@pytest.fixture
def example():
    inputs = leaves((4, 3), (3, 5))
    made = compiled(both, inputs)
    return SimpleNamespace(inputs=inputs, run=made.run, stages=made.stages)


def test_the_backward_is_compiled_at_the_first_backward(example) -> None:
    a, _ = example.run(*example.inputs)
    assert "backward" not in example.stages.graphs
    a.sum().backward()
    backward = example.stages.results["backward"]
    example.run(*example.inputs)[0].sum().backward()
    assert example.stages.results["backward"] is backward


def test_outputs_without_a_gradient_cost_nothing(example) -> None:
    """``exp`` overflows; its gradient times a zero would be NaN."""
    x, w = example.inputs
    big = (x * 1e4).detach().requires_grad_(True)
    a, _ = example.run(big, w)
    a.sum().backward()
    targets = {str(n.target) for n in example.stages.graphs["backward"].graph.nodes}
    assert "aten.exp.default" not in targets
    theirs = copies([big, w])
    both(*theirs)[0].sum().backward()
    assert same(big.grad, theirs[0].grad)


def test_a_normalisation_is_done_again_rather_than_kept() -> None:
    """All that it is computed from is kept for its own derivative anyway."""

    def f(x, w, g, b):
        return (mortice.nn.functional.layer_norm(x, (64,), g, b) @ w,)

    mine = leaves((16, 64), (64, 64), (64,), (64,))
    theirs = copies(mine)
    made = compiled(f, mine)
    found = gradients(made.run, mine)
    halves = made.stages.graphs
    assert len(halves["forward"].graph.output_node().args[0]) == 1, "beside the result nothing"
    again = [n.target for n in halves["backward"].graph.nodes]
    assert mortice.ops.aten.native_layer_norm.default in again
    assert all(same(a, b) for a, b in zip(found, gradients(f, theirs), strict=True))


def test_each_pattern_of_gradients_has_its_own_backward(example) -> None:
    for pick in (lambda a, b: a.sum(), lambda a, b: b.sum(), lambda a, b: a.sum() + b.sum()) * 2:
        theirs = copies(example.inputs)
        mine = copies(example.inputs)
        pick(*example.run(*mine)).backward()
        pick(*both(*theirs)).backward()
        assert all(same(a.grad, b.grad) for a, b in zip(mine, theirs, strict=True))


def test_retain_graph_and_freed_buffers(example) -> None:
    a, _ = example.run(*example.inputs)
    loss = a.sum()
    first = mortice.autograd.grad(loss, example.inputs, retain_graph=True)
    second = mortice.autograd.grad(loss, example.inputs)
    assert all(map(same, first, second))
    with pytest.raises(AutogradError, match="second time"):
        mortice.autograd.grad(loss, example.inputs)


def test_part_of_the_gradients(example) -> None:
    a, _ = example.run(*example.inputs)
    (g,) = mortice.autograd.grad(a.sum(), [example.inputs[1]])
    theirs = copies(example.inputs)
    (wanted,) = mortice.autograd.grad(both(*theirs)[0].sum(), [theirs[1]])
    assert same(g, wanted)


def test_a_write_to_what_was_kept_is_noticed(example) -> None:
    run = compiled(lambda x, w: (mortice.softmax(x @ w, 1),), example.inputs).run
    (y,) = run(*example.inputs)
    y.detach().add_(1)
    with pytest.raises(AutogradError, match="CompiledBackward had saved, is at version 1"):
        y.sum().backward()


def test_a_write_to_an_input_that_was_kept_is_noticed(example) -> None:
    a, _ = example.run(*example.inputs)
    with mortice.no_grad():
        example.inputs[0].add_(1)
    with pytest.raises(AutogradError, match="modified by an inplace operation"):
        a.sum().backward()


def test_saved_tensor_hooks_see_what_is_kept(example) -> None:
    packed = []

    def pack(x):
        packed.append(tuple(x.shape))
        return x.detach().clone()

    with mortice.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        a, b = example.run(*example.inputs)
    assert sorted(packed) == [(3, 5), (4, 3), (4, 5)]
    mine = example.inputs
    (a.sum() + b.sum()).backward()
    theirs = copies(mine)
    (both(*theirs)[0].sum() + both(*theirs)[1].sum()).backward()
    assert (mine[0].grad - theirs[0].grad).abs().max() < 1e-6


def test_hooks_on_outputs_inputs_and_the_node(example) -> None:
    log = []
    a, b = example.run(*example.inputs)
    a.register_hook(lambda g: log.append("a"))
    example.inputs[0].register_hook(lambda g: log.append("x") or g * 2)
    a.grad_fn.register_hook(lambda gi, go: log.append((len(gi), len(go))))
    a.retain_grad()
    (a.sum() + b.sum()).backward()
    assert log == ["a", (2, 2), "x"]
    assert a.grad.tolist() == mortice.ones(4, 5).tolist()
    theirs = copies(example.inputs)
    c, d = both(*theirs)
    (c.sum() + d.sum()).backward()
    assert same(example.inputs[0].grad, theirs[0].grad * 2)
    assert repr(a.grad_fn).startswith("<CompiledBackward")
    assert len(a.grad_fn.next_functions) == 2


def test_history_before_and_after(example) -> None:
    def whole(call, x, w):
        a, b = call(x.sin(), w * 2)
        return (a.cos().sum() * b.mean(),)

    mine, theirs = copies(example.inputs), copies(example.inputs)
    whole(example.run, *mine)[0].backward()
    whole(both, *theirs)[0].backward()
    assert all(same(a.grad, b.grad) for a, b in zip(mine, theirs, strict=True))


@pytest.mark.parametrize("pick", [lambda a, b: a.sum(), lambda a, b: (a * b).sum()])
def test_gradients_of_gradients(example, pick) -> None:
    """The graph runs again, operator by operator."""
    mine, theirs = copies(example.inputs), copies(example.inputs)
    for call, inputs in ((example.run, mine), (both, theirs)):
        found = mortice.autograd.grad(pick(*call(*inputs)), inputs, create_graph=True)
        sum((g * g).sum() for g in found).backward()
    for a, b in zip(mine, theirs, strict=True):
        assert ((a.grad - b.grad).abs() <= 1e-5 * b.grad.abs()).all()


def test_gradients_of_gradients_where_an_input_is_computed_from_another() -> None:
    (x,) = leaves((3,))
    run = compiled(lambda x, y: (x * y,), leaves((3,), (3,))).run
    y = x * x
    (g,) = mortice.autograd.grad(run(x, y)[0].sum(), x, create_graph=True)
    assert mortice.allclose(g, 3 * x * x)
    (h,) = mortice.autograd.grad(g.sum(), x)
    assert mortice.allclose(h, 6 * x)


def test_gradients_of_gradients_after_operators_without_any() -> None:
    """The grad mode of a graph's last operator is not that of what follows in the backward pass."""
    (x,) = leaves((3,))

    def square(x):
        return x * x, x.sin()

    y, _ = compiled(square, [x], grad=lambda node: "sin" not in str(node.target)).run(x)
    (g,) = mortice.autograd.grad((y * x).sum(), x, create_graph=True)
    assert mortice.allclose(g, 3 * x * x)
    (h,) = mortice.autograd.grad(g.sum(), x)
    assert mortice.allclose(h, 6 * x)


def test_gradients_of_gradients_of_gradients(example) -> None:
    mine, theirs = copies(example.inputs), copies(example.inputs)
    for call, inputs in ((example.run, mine), (both, theirs)):
        (g,) = mortice.autograd.grad(call(*inputs)[0].sum(), inputs[:1], create_graph=True)
        (h,) = mortice.autograd.grad(g.pow(2).sum(), inputs[:1], create_graph=True)
        h.sum().backward()
    assert same(mine[1].grad, theirs[1].grad)


def test_a_gradient_of_a_gradient_needs_the_inputs_as_they_were(example) -> None:
    x, w = example.inputs
    y = leaves((3,))[0]
    run = compiled(lambda x, y: (x * x + y,), leaves((3,), (3,))).run
    (a,) = run(y, y.sin())
    with pytest.raises(AutogradError, match="an input of it is gone.*backend='eager'"):
        mortice.autograd.grad(a.sum(), [y], create_graph=True)
    a, _ = example.run(x, w)
    x.detach().mul_(1)
    with pytest.raises(AutogradError, match="modified"):
        mortice.autograd.grad(a.sum(), [w], create_graph=True)


def test_a_gradient_of_a_gradient_where_an_input_was_overwritten() -> None:
    def f(scale, steps, x):
        y = x * x * scale
        steps.add_(1)
        return (y.sum(),)

    scale, steps, (x,) = mortice.full((3,), 2.0), mortice.zeros(()), leaves((3,))
    run = compiled(f, [scale, steps, x]).run
    (g,) = mortice.autograd.grad(run(scale, steps, x)[0], [x], create_graph=True)
    g.sum().backward()
    assert x.grad.tolist() == [4.0] * 3
    assert steps.item() == 1

    def g(scale, x):
        y = x * x * scale
        scale.mul_(10)
        return (y.sum(),)

    run = compiled(g, [scale, x]).run
    (y,) = run(scale, x)
    with pytest.raises(AutogradError, match="overwritten an input that its results depend on"):
        mortice.autograd.grad(y, [x], create_graph=True)


def test_gradients_of_gradients_with_backend_eager() -> None:
    mine = leaves((4, 3), (3, 5))
    run = compiled(both, mine, "eager").run
    theirs = copies(mine)
    for call, inputs in ((run, mine), (both, theirs)):
        (g,) = mortice.autograd.grad(call(*inputs)[0].sum(), [inputs[0]], create_graph=True)
        (g * g).sum().backward()
    assert same(mine[1].grad, theirs[1].grad)


def test_nothing_keeps_outputs_alive(example) -> None:
    import gc
    import weakref

    gc.disable()
    try:
        a, b = example.run(*example.inputs)
        ref = weakref.ref(b)
        node = weakref.ref(b.grad_fn)
        del a, b
        assert ref() is None
        assert node() is None
    finally:
        gc.enable()


def test_leaves_that_are_views_of_changed_memory() -> None:
    """A view whose base was written to with a history: the history is the new one."""
    base = mortice.zeros(4)
    x = base[:2]
    w = mortice.ones(4, requires_grad=True)
    base.mul_(0).add_(w)
    run = compiled(lambda x: (x * 3,), [x.detach().requires_grad_(True)]).run
    run(x)[0].sum().backward()
    assert w.grad.tolist() == [3.0, 3.0, 0.0, 0.0]


def test_an_input_returned_and_returned_twice() -> None:
    def f(x):
        y = x * 2
        return x, y, y

    (x,) = leaves((3,))
    run = compiled(f, [x]).run
    a, b, c = run(x)
    assert a is not x
    (a.sum() + b.sum() + c.sum()).backward()
    assert x.grad.tolist() == [5.0] * 3
    assert x.is_leaf


# -- sizes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_graph_for_many_sizes(backend) -> None:
    def f(x, w):
        h = (x @ w).relu()
        return h.mean(0), (h.sum(1) / x.shape[0]).expand(3, x.shape[0])

    x, w = leaves((6, 3), (3, 5))
    run = compiled(f, [x, w], backend, dynamic=[(0, 0)]).run
    for n in (6, 2, 9):
        (x,) = leaves((n, 3), seed=n)
        mine, theirs = copies([x, w]), copies([x, w])
        for got, wanted in zip(gradients(run, mine), gradients(f, theirs), strict=True):
            assert got.shape == wanted.shape
            assert (got - wanted).abs().max() < 1e-6


def test_a_size_that_nothing_kept_shows() -> None:
    """The gradient of a sum needs its input's size, and nothing else of it."""

    def f(x):
        return (x.sum(),)

    (x,) = leaves((6, 3))
    made = compiled(f, [x], dynamic=[(0, 0)])
    for n in (6, 4):
        (x,) = leaves((n, 3))
        made.run(x)[0].backward()
        assert x.grad.tolist() == mortice.ones(n, 3).tolist()
    first = next(iter(made.stages.graphs["backward"].graph.nodes))
    assert first.op == "placeholder"
    assert first.meta["val"].symbol == "s0"


# -- settings -----------------------------------------------------------------------------------------


def test_the_backward_runs_with_the_options_of_the_forward() -> None:
    seen = []

    def backend(gm, example_inputs, *, options):
        seen.append((dict(options), mortice.config.fallback))
        return gm

    declare(backend, options={"level": {"type": "int", "default": 0}})
    (x,) = leaves((3,))
    gm, fakes = capture(lambda x: (x.sin(),), [x])
    with mortice.config.override(fallback="error"):
        run = compile_segment(gm, fakes, settings(backend, level=7))
    run(x)[0].sum().backward()
    assert seen == [({"level": 7}, "error")] * 2


def test_what_a_backend_gets_is_fake_and_free_of_modes() -> None:
    from mortice.fake import is_fake

    seen = []

    def backend(gm, example_inputs):
        seen.append((all(map(is_fake, example_inputs)), mortice.is_grad_enabled()))
        return gm

    (x,) = leaves((3,))
    gm, fakes = capture(lambda x: (x.sin(),), [x])
    with mortice.no_grad(), mortice.autocast("cpu"):
        run = compile_segment(gm, fakes, settings(backend))
        assert not mortice.is_grad_enabled()
        assert mortice.is_autocast_enabled("cpu")
    with mortice.autocast("cpu"):
        run(x)[0].sum().backward()
    assert seen == [(True, True)] * 2


def test_threads_compile_the_backward_once() -> None:
    import threading

    calls = []

    def backend(gm, example_inputs):
        calls.append(gm)
        return gm

    inputs = leaves((4, 3), (3, 5))
    gm, fakes = capture(both, inputs)
    run = compile_segment(gm, fakes, settings(backend))
    barrier = threading.Barrier(4)
    found = []

    def work():
        mine = copies(inputs)
        outs = run(*mine)
        barrier.wait()
        (outs[0].sum() + outs[1].sum()).backward()
        found.append(mine[0].grad)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(calls) == 2
    assert len(found) == 4
    assert all(same(found[0], g) for g in found)


@pytest.mark.parametrize("backend", BACKENDS)
def test_inputs_of_outputs_without_a_gradient_have_none(backend) -> None:
    """What is kept is found in the backward graph of some outputs, whatever that leaves out."""

    def f(x, y):
        return mortice.nn.functional.logsigmoid(y.sum()), x.sin().softmax(-1).exp()

    mine = leaves((2, 3), (3,))
    theirs = copies(mine)
    unit = compiled(f, mine, backend)
    unit.run(*mine)[1].sum().backward()
    f(*theirs)[1].sum().backward()
    assert mine[1].grad is None
    assert theirs[1].grad is None
    assert same(mine[0].grad, theirs[0].grad)
    if backend != "eager":  # whose operators record histories of their own
        targets = {str(n.target) for n in unit.stages.graphs["backward"].graph.nodes}
        assert not any("log_sigmoid" in t or "_softmax.default" in t for t in targets)
