import dataclasses

import pytest

import mortice
import mortice.fake
from mortice import autograd
from mortice.errors import GuardOnDataDependent, InvalidState, InvalidValue, TraceError
from mortice.fx import Interpreter, make_fx

aten = mortice.ops.aten
MODES = ("real", "fake", "symbolic")


def targets(gm):
    return [str(n.target) for n in gm.graph.nodes if n.op == "call_function"]


def same(gm, f, *inputs):
    """The module, its interpreter and the function do the same to the same inputs."""
    results = []
    for run in (f, gm, Interpreter(gm).run):
        given = [x.clone().detach().requires_grad_(x.requires_grad) for x in inputs]
        found = run(*given)
        results.append([*(found if isinstance(found, (tuple, list)) else [found]), *given])
    for other in results[1:]:
        assert len(other) == len(results[0])
        for a, b in zip(results[0], other):
            assert mortice.equal(a, b) if isinstance(a, mortice.Tensor) else a == b


def loss_and_gradients(x, w):
    y = mortice.softmax(x @ w.t(), -1)
    return autograd.grad((y * y).sum(), [x, w])


@pytest.mark.parametrize("mode", MODES)
def test_gradients_are_part_of_the_graph(mode):
    x = mortice.randn(3, 4, requires_grad=True)
    w = mortice.randn(5, 4, requires_grad=True)
    gm = make_fx(loss_and_gradients, tracing_mode=mode)(x, w)
    gm.graph.lint()
    assert "aten._softmax_backward_data.default" in targets(gm)
    same(gm, loss_and_gradients, x, w)
    if mode == "symbolic":
        assert "s0 = x.shape[0]" in gm.code
        same(
            gm,
            loss_and_gradients,
            mortice.randn(7, 2, requires_grad=True),
            mortice.randn(2, 2, requires_grad=True),
        )
    shapes = [tuple(n.meta["val"].shape) for n in gm.graph.nodes if n.op == "placeholder"]
    if mode != "symbolic":
        assert shapes == [(3, 4), (5, 4)]
    assert all(mortice.fake.is_fake(n.meta["val"]) for n in gm.graph.nodes if n.op != "output")


def test_values_of_inputs_do_not_matter_for_fakes():
    gm = make_fx(lambda x: x / 0, tracing_mode="fake")(mortice.ones(2))
    assert gm(mortice.ones(2)).tolist() == [float("inf")] * 2


def test_nodes_know_the_users_line():
    def f(x):
        y = x + 1
        return y * 2

    gm = make_fx(f)(mortice.ones(2))
    lines = [n.meta["stack"] for n in gm.graph.nodes if n.op == "call_function"]
    assert lines[0].endswith("in f: y = x + 1") and __file__ in lines[0]
    assert lines[1].endswith("in f: return y * 2")
    again = make_fx(Interpreter(gm).run)(mortice.ones(2))
    assert [n.meta["stack"] for n in again.graph.nodes if n.op == "call_function"] == lines


def through_views(x):
    a = x.clone()
    v = a.view(-1)
    v[1:3].add_(1.5)
    a[0] = 0
    b = a.t()
    b.mul_(2)
    x.copy_(a)
    return a, v.sum(), b.transpose_(0, 1)


def pieces(x):
    first, second = x.chunk(2)
    first.mul_(3)
    for row in second.unbind(0):
        row.add_(row.sum())
    one, two = x.split_with_sizes((1, 3), 1)
    two.sub_(one)
    x.diagonal().zero_()
    x.permute(1, 0).unsqueeze(0).squeeze(0)[1:, ::2].neg_()
    return first * 1, second


def geometry(x):
    x.as_strided((2, 2), (5, 1), 1).fill_(7)
    x.unfold(0, 2, 2)[0].add_(1)
    return x.view(2, 8).expand(2, 8).mul_(2)


def casts(x):
    counts = mortice.zeros(4, 4, dtype=mortice.int32)
    counts.copy_(x)
    counts.add_(2)
    mortice.add(x, 1, out=x)
    y = mortice.empty(0)
    mortice.mul(x, 2, out=y)
    return counts, y


def bits(x):
    x.view(mortice.int32)[0] = 0
    z = mortice.view_as_complex(x.view(4, 2, 2))
    z[1].mul_(1j)
    mortice.view_as_real(z)[2].zero_()
    return x.sum()


def metadata(x):
    y = x.clone()
    y.squeeze_().t_().unsqueeze_(0)
    y.add_(1)
    x.data.mul_(2)
    x.detach()[0].zero_()
    return y, x


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("f", [through_views, pieces, geometry, casts, bits, metadata])
def test_writes_become_values(f, mode):
    gm = make_fx(f, tracing_mode=mode)(mortice.randn(4, 4))
    gm.graph.lint()
    schemas = [(n, getattr(n.target, "_schema", None)) for n in gm.graph.nodes]
    written = [n for n, schema in schemas if schema is not None and schema.mutated]
    assert all(n.target is aten.copy_.default and n.args[0].op == "placeholder" for n in written)
    same(gm, f, mortice.randn(4, 4))


def test_writes_as_they_ran_if_asked():
    gm = make_fx(through_views, functional=False)(mortice.randn(2, 3))
    assert "aten.add_.Tensor" in targets(gm)
    same(gm, through_views, mortice.randn(2, 3))


def test_random_operators_are_recorded_and_draw_anew():
    def f(x):
        y = x.clone()
        y.uniform_(0, 1)
        return y + mortice.rand(3)

    gm = make_fx(f)(mortice.ones(3))
    assert "aten.rand.generator" in targets(gm)
    mortice.manual_seed(1)
    expected = f(mortice.ones(3))
    mortice.manual_seed(1)
    assert mortice.equal(gm(mortice.ones(3)), expected)
    assert not mortice.equal(gm(mortice.ones(3)), expected)


def test_inputs_that_share_memory_and_are_written_are_refused():
    x = mortice.ones(4)
    with pytest.raises(TraceError, match="inputs 'a' and 'b' share memory"):
        make_fx(lambda a, b: (a.add_(1), b.sum()))(x, x[1:])
    assert make_fx(lambda a, b: a + b)(x, x)(x, x).tolist() == [2.0] * 4


@dataclasses.dataclass
class Batch:
    data: object
    label: object


def test_trees_in_and_out():
    def f(batch, scale):
        (x, y), extra = batch.data, batch.label["k"]
        return Batch(x * scale, [{"sum": y + extra}, scale])

    batch = Batch((mortice.ones(2), mortice.ones(2)), {"k": mortice.ones(2)})
    gm = make_fx(f)(batch, 3)
    names = [n.name for n in gm.graph.nodes if n.op == "placeholder"]
    assert names == ["batch_data_0", "batch_data_1", "batch_label_k", "scale"]
    out = gm(batch, 3)
    assert type(out) is Batch and out.data.tolist() == [3.0, 3.0] and out.label[1] == 3
    assert Interpreter(gm).run(batch, 3).label[0]["sum"].tolist() == [2.0, 2.0]


def test_numbers_are_constants_unless_symbolic():
    assert make_fx(lambda x, n: x * n)(mortice.ones(1), 3)(mortice.ones(1), 5).item() == 3
    gm = make_fx(lambda x, n: x * n, tracing_mode="symbolic")(mortice.ones(1), 3)
    assert gm(mortice.ones(1), 5).item() == 5


def test_decompositions_are_traced_instead():
    def gelu(x, approximate="none"):
        return x * 0.5 * (1 + mortice.erf(x * 0.5**0.5))

    x = mortice.randn(5)
    gm = make_fx(mortice.nn.functional.gelu, {aten.gelu.default: gelu})(x)
    assert "aten.gelu.default" not in targets(gm) and "aten.erf.default" in targets(gm)
    assert (gm(x) - mortice.nn.functional.gelu(x)).abs().max() < 1e-6
    kept = make_fx(mortice.exp, {aten.exp.default: lambda x: NotImplemented})(x)
    assert targets(kept) == ["aten.exp.default"]


def test_composite_operators_are_taken_apart():
    gm = make_fx(lambda x, t: mortice.nn.functional.cross_entropy(x, t))(
        mortice.randn(3, 4), mortice.tensor([0, 1, 2])
    )
    assert targets(gm)[:2] == ["aten._log_softmax.default", "aten.nll_loss_forward.default"]


@pytest.mark.parametrize("mode", ["real", "fake"])
@pytest.mark.parametrize(
    "f",
    [
        lambda x: x if x.sum() > 0 else -x,
        lambda x: x * x.sum().item(),
        lambda x: x * float(x.max()),
        lambda x: x * x.tolist()[0],
        lambda x: x + mortice.from_numpy(x.numpy() * 2),
    ],
)
def test_values_are_not_read(f, mode):
    error = TraceError if mode == "real" else RuntimeError
    with pytest.raises(error):
        make_fx(f, tracing_mode=mode)(mortice.ones(3))


def test_the_refusal_names_the_line():
    with pytest.raises(TraceError, match="test_make_fx.py:.*int"):
        make_fx(lambda x: x[int(x.sum())])(mortice.ones(3))


def test_constants_may_be_read():
    def f(x):
        n = mortice.tensor(2.0)
        return x * n.item() if n > 1 else x

    assert make_fx(f)(mortice.ones(1))(mortice.ones(1)).item() == 2.0


def test_values_that_become_symbolic_sizes():
    def f(x, n):
        k = x.sum().to(mortice.int64).item()
        mortice.fake.check(k >= 0)
        return x.view(x.shape[0] * x.shape[1] // 2, -1) * n, mortice.zeros(k), x.nonzero().shape[0]

    gm = make_fx(f, tracing_mode="symbolic")(mortice.ones(4, 6), 3)
    for run in (gm, Interpreter(gm).run):
        a, b, c = run(mortice.ones(2, 4), 5)
        assert a.shape == (4, 2) and a.sum() == 40 and b.shape == (8,) and c == 8
    with pytest.raises(GuardOnDataDependent):
        make_fx(lambda x: mortice.zeros(3) if x.sum().item() > 2 else x, tracing_mode="symbolic")(
            mortice.ones(4)
        )


def test_work_grows_linearly():
    def nodes(depth):
        def f(a, b):
            found = [a, b]
            for _ in range(depth):
                c, d = found[-1] + found[-2], found[-1] * found[-2]
                found += [c, d]
            return autograd.grad(found[-1].sum(), [a, b])

        a, b = mortice.randn(2, requires_grad=True), mortice.randn(2, requires_grad=True)
        return len(make_fx(f, tracing_mode="fake")(a, b).graph.nodes)

    assert nodes(28) - nodes(14) == nodes(42) - nodes(28)
    assert nodes(14) < 14 * 8


def test_bad_mode():
    with pytest.raises(InvalidValue, match="Did you mean 'symbolic'"):
        make_fx(lambda x: x, tracing_mode="symbolc")


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("tanh", r"Did you mean mortice\.ops\.aten\.tanh\.default\?"),
        ("aten.add.Tensro", r"Did you mean mortice\.ops\.aten\.add\.Tensor\?"),
        (mortice.ops.aten.tanh, r"It has the overloads aten\.tanh\.default, aten\.tanh\.out"),
    ],
)
def test_keys_of_tables_are_overloads(key, meant):
    with pytest.raises(InvalidValue, match=meant):
        make_fx(mortice.tanh, {key: mortice.cos})
    with pytest.raises(InvalidValue, match=meant):
        mortice.decompositions.core_aten_decompositions()[key] = mortice.cos


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
@pytest.mark.parametrize(
    ("function", "error", "said"),
    [
        (
            lambda x: x.sum(),
            InvalidValue,
            r"gives float32\[\], and the operator gives float32\[3, 4\]",
        ),
        (lambda x: x.long(), InvalidValue, r"gives int64\[3, 4\], and"),
        (lambda x: [x.sin()], InvalidValue, r"gives \(float32\[3, 4\]\), and"),
        (lambda x: x.tanh(), InvalidState, r"calls aten\.tanh\.default itself"),
    ],
)
def test_decompositions_that_do_not_fit_are_named(mode, function, error, said):
    table = {mortice.ops.aten.tanh.default: function}
    where = r"decomposition of aten\.tanh\.default, .*test_make_fx\.py:\d+\), "
    with pytest.raises(error, match=where + said):
        make_fx(lambda x: x.tanh(), table, mode)(mortice.ones(3, 4))
    made = make_fx(lambda x: x.tanh(), None, mode)(mortice.ones(3, 4))
    assert [n.op for n in made.graph.nodes] == ["placeholder", "call_function", "output"]


def test_a_decomposition_may_come_back_to_its_operator():
    def halves(x, dim=None, **kwargs):
        if x.shape[0] == 1:
            return NotImplemented
        middle = x.shape[0] // 2
        return mortice.cat([x[:middle].tanh(), x[middle:].tanh()])

    made = make_fx(lambda x: x.tanh(), {mortice.ops.aten.tanh.default: halves})(mortice.ones(8))
    assert sum(n.target is mortice.ops.aten.tanh.default for n in made.graph.nodes) == 8


def test_decompositions_of_what_draws_or_writes_are_taken_on_trust():
    drawn = {mortice.ops.aten.rand_like.default: lambda x, **kwargs: x * 0.5}
    mortice.manual_seed(3)
    before = mortice.default_generator.get_state()
    make_fx(mortice.rand_like, drawn)(mortice.ones(3))
    assert mortice.equal(before, mortice.default_generator.get_state())
