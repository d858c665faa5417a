import pytest

import mortice
from mortice import decompositions, fx
from mortice._compile import decompositions as module
from mortice.errors import InvalidValue, RegistrationError

aten = mortice.ops.aten


@pytest.fixture(autouse=True)
def _clean(monkeypatch):
    monkeypatch.setattr(module, "_REGISTRIES", {kind: {} for kind in module.TYPES})


def targets(f, table, *args):
    gm = fx.make_fx(f, table)(*args)
    return [str(n.target) for n in gm.graph.nodes if n.op == "call_function"]


def test_tables_take_apart_what_they_should():
    x = mortice.randn(2, 3)
    f = mortice.nn.functional.gelu
    assert targets(f, decompositions.core_aten_decompositions(), x) == ["aten.gelu.default"]
    assert "aten.erf.default" in targets(f, decompositions.select_decomp_table(), x)
    assert targets(lambda x: x.t(), decompositions.core_aten_decompositions(), x) == [
        "aten.permute.default"
    ]


def test_deleted_operators_stay():
    table = decompositions.core_aten_decompositions()
    size = len(table)
    assert aten.silu.default in table
    del table[aten.silu.default]
    assert aten.silu.default not in table and len(table) == size - 1
    assert targets(mortice.nn.functional.silu, table, mortice.ones(2)) == ["aten.silu.default"]
    other = table.copy()
    other[aten.silu.default] = lambda x: x
    assert aten.silu.default in other and aten.silu.default not in table
    with pytest.raises(KeyError):
        del table[aten.silu.default]
    assert aten.silu.default in decompositions.core_aten_decompositions()
    assert set(table.materialize()) == set(table)


def test_register_for_overload_packet_and_nested():
    @decompositions.register_decomposition(aten.silu.default)
    def silu(x):
        return x / (1 + mortice.exp(-x))

    assert silu(mortice.zeros(1)).item() == 0
    table = decompositions.core_aten_decompositions()
    assert table[aten.silu.default] is silu
    assert "aten.exp.default" in targets(mortice.nn.functional.silu, table, mortice.ones(2))
    mine = {}

    @decompositions.register_decomposition([aten.add, [aten.sub.Tensor]], mine)
    def both(a, b, alpha=1):
        return a

    assert set(mine) == {aten.add.Tensor, aten.add.Scalar, aten.sub.Tensor}
    assert aten.add.Tensor not in decompositions.core_aten_decompositions()

    @decompositions.register_decomposition(aten.neg, mine)
    def negative(a, out=None):
        return a

    assert aten.neg.out in mine


def test_registering_twice_is_refused():
    decompositions.register_decomposition(aten.silu)(lambda x: x)
    with pytest.raises(RegistrationError, match=r"duplicate registrations for aten\.silu\.default"):
        decompositions.register_decomposition(aten.silu)(lambda x: x)
    decompositions.register_decomposition(aten.silu, unsafe=True)(lambda x: -x)
    with pytest.raises(InvalidValue, match="Did you mean 'post_autograd'"):
        decompositions.register_decomposition(aten.silu, type="post_autogard")
    with pytest.raises(InvalidValue, match="expected operators of mortice.ops"):
        decompositions.register_decomposition("silu")(lambda x: x)


def test_get_and_remove():
    found = decompositions.get_decompositions([aten.silu, aten.addcmul.default, aten.mm])
    assert {str(op) for op in found} >= {"aten.silu.default", "aten.addcmul.default"}
    assert aten.mm.default not in found
    decompositions.remove_decompositions(found, [aten.silu, aten.mm.default])
    assert aten.silu.default not in found and aten.addcmul.default in found
    assert decompositions.get_decompositions([aten.silu], type="meta") == {}


def test_looking_up_one_operator_parses_no_others(monkeypatch):
    calls = []
    real = module.declared
    monkeypatch.setattr(module, "declared", lambda op: calls.append(op.name) or real(op))
    targets(mortice.nn.functional.silu, decompositions.select_decomp_table(), mortice.ones(2))
    assert set(calls) <= {"silu", "mul.Tensor", "sigmoid"}


def test_writes_through_views_are_taken_apart_too():
    def f(x):
        y = x.clone()
        y.t()[0] = 1
        y.diagonal().add_(2)
        y.unfold(0, 2, 2)[0].mul_(3)
        first, _ = y.split(2)
        first.neg_()
        return y.t()

    table = decompositions.core_aten_decompositions()
    for mode in ("real", "symbolic"):
        gm = fx.make_fx(f, table, mode)(mortice.randn(4, 4))
        for node in gm.graph.find_nodes(op="call_function"):
            assert node.target.__module__ == "_operator" or node.target not in table
        x = mortice.randn(4, 4)
        assert mortice.equal(gm(x), f(x))


def test_running_statistics_become_values():
    def f(x, w, mean, var):
        return mortice.batch_norm(x, w, None, mean, var, True, 0.1, 1e-5, False)

    def example():
        return mortice.randn(4, 3, 5), mortice.rand(3), mortice.rand(3), mortice.rand(3)

    gm = fx.make_fx(f, decompositions.select_decomp_table(), "fake")(*example())
    written = [n for n in gm.graph.find_nodes(op="call_function") if n.target is aten.copy_.default]
    assert [n.args[0].name for n in written] == ["mean", "var"]
    assert not any("batch_norm" in n.name for n in gm.graph.nodes)
    ours = example()
    theirs = [t.clone() for t in ours]
    for a, b in zip((gm(*ours), *ours), (f(*theirs), *theirs)):
        assert mortice.allclose(a, b, atol=1e-6)
